"""The janitor: stops the private server when its last user is gone.

A user can go without a word (SIGKILL, or a signal's default action, which runs no exit handler), so no user is asked to
clean up. The janitor is a process of its own, in a session of its own that no Ctrl-C reaches. It needs nothing but the
standard library, and inherits an open janitor.lock, which tells others that it is there.

    janitor.py LOCK_FD PLACE PG_CTL [UID GID]
"""

import fcntl
import os
import subprocess
import sys
from pathlib import Path
from typing import Any


def main(lock: str, place: str, pg_ctl: str, *ids: str) -> None:
    """Detach, wait for the last user's end, stop the server."""
    if os.fork():
        os._exit(0)  # whoever called has no child to wait for
    os.setsid()
    account: dict[str, Any] = {}
    if ids:
        account = {"user": int(ids[0]), "group": int(ids[1]), "extra_groups": []}
    with open(f"{place}/users.lock", "a") as users:
        fcntl.flock(users, fcntl.LOCK_EX)
        # Users who come now wait for this lock, find no server when they get it, and start one with a new janitor.
        if not is_stale(Path(place, "data", "postmaster.pid"), Path(place, "data")):
            command = [pg_ctl, "stop", "-D", "data", "-m", "fast", "-w", "-s"]
            subprocess.run(command, cwd=place, check=False, stdin=subprocess.DEVNULL, **account)
        os.close(int(lock))  # before users.lock, so that the next janitor finds it free


def is_stale(lock_file: Path, data: Path) -> bool:
    """Whether a server's lock file names a process that is gone, a zombie, or a stranger by now.

    PostgreSQL takes any process of that pid for the server, and then won't start, or waits for it, or signals it. The
    server stands in its data folder. Where there is no /proc to look at, PostgreSQL's word has to do.
    """
    try:
        pid = int(lock_file.read_text().split()[0])
    except (FileNotFoundError, ValueError, IndexError):
        return False
    try:
        return not os.path.samefile(f"/proc/{pid}/cwd", data)
    except PermissionError:  # another user's, which PostgreSQL knows to be none of its own
        return False
    except OSError:
        return os.path.exists("/proc/self")


if __name__ == "__main__":
    main(*sys.argv[1:])
