"""The admin pages, one file a model. Importing this registers them.

`page` is what they share; `display` turns values into words; `filters` and `paginator` keep lists fast on millions of
rows. What leader and workers write is only shown; people change jobs and pools, and press buttons.
"""

from cronoq_django.admin.job import JobAdmin
from cronoq_django.admin.leader import LeaderAdmin
from cronoq_django.admin.pool import PoolAdmin
from cronoq_django.admin.run import RunAdmin
from cronoq_django.admin.script import ScriptAdmin
from cronoq_django.admin.worker import WorkerAdmin

__all__ = ["JobAdmin", "LeaderAdmin", "PoolAdmin", "RunAdmin", "ScriptAdmin", "WorkerAdmin"]
