#!/usr/bin/env python
"""Django's command line, with a private PostgreSQL for commands that need a database when DATABASE_URL is not set."""

import os
import sys
from pathlib import Path

from django.core.management import execute_from_command_line

from example_project.postgres import NoPostgres, provide_database_url

NEED_NO_DATABASE = {
    "collectstatic",
    "compilemessages",
    "diffsettings",
    "findstatic",
    "help",
    "makemessages",
    "startapp",
    "startproject",
    "version",
}


def main() -> None:
    """Run the command that the arguments name."""
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "example_project.settings")
    command, options = (sys.argv[1:2] or ["help"])[0], sys.argv[2:]
    if not (command in NEED_NO_DATABASE or command.startswith("-") or {"-h", "--help"} & set(options)):
        try:
            provide_database_url(Path(__file__).resolve().parent / ".postgres", durable=True)
        except NoPostgres as error:
            sys.exit(str(error))
    execute_from_command_line(sys.argv)


if __name__ == "__main__":
    main()
