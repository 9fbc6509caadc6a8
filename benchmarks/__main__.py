"""`python -m benchmarks [NAME]…`: all of them, or those named. On DATABASE_URL, or a durable private PostgreSQL."""

import argparse
import os
from pathlib import Path

import django

from example_project.postgres import provide_database_url

ROOT = Path(__file__).resolve().parent.parent


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help="walk, tick, submit, claim")
    names = parser.parse_args().names
    provide_database_url(ROOT / ".postgres", durable=True)
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "benchmarks.settings")
    django.setup()

    from benchmarks import claim, submit, tick, walk

    known = {"walk": walk.main, "tick": tick.main, "submit": submit.main, "claim": claim.main}
    if unknown := set(names) - set(known):
        parser.error(f"there is no benchmark {sorted(unknown)[0]!r}; there are {', '.join(known)}")
    for name in names or known:
        print(f"\n{name}: {known[name].__doc__}")
        known[name]()


if __name__ == "__main__":
    main()
