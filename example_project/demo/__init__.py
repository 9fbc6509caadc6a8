"""The demo: a leader, two workers and the admin's web server, with the shop's work flowing through them.

`show` puts it on, `child` is one of its processes, `work` gives them something to do, `report` says what became of it,
by the database's word alone.
"""

from example_project.demo.show import Show

__all__ = ["Show"]
