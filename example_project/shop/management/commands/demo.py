"""manage.py demo"""

import sys
from pathlib import Path
from typing import Any

from django.conf import settings
from django.core.management.base import BaseCommand, CommandError, CommandParser

from example_project.demo import Show
from example_project.demo.show import CannotPlay


class Command(BaseCommand):
    help = (
        "Runs a leader, two workers and the admin with sample work, until Ctrl-C. With --seconds it ends by itself, "
        "reports what became of every slot and run, and exits with 1 if anything was not as it should be."
    )

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--seconds", type=float, help="end after so many seconds, and report")
        parser.add_argument("--port", type=int, help="of the web server (default: 8000, or a free one)")
        parser.add_argument(
            "--logs", type=Path, default=settings.BASE_DIR / ".demo", help="folder for the processes' output"
        )

    def handle(self, *args: Any, seconds: float | None, port: int | None, logs: Path, **options: Any) -> None:
        if not settings.DEBUG:
            raise CommandError("The demo makes an admin with the password 'demo': it runs with DEBUG on only.")
        try:
            show = Show(seconds=seconds, port=port, logs=logs, say=self._say)
            sys.exit(0 if show.play() else 1)
        except CannotPlay as error:
            raise CommandError(str(error)) from error
        except KeyboardInterrupt:
            sys.exit(130)

    def _say(self, line: str) -> None:
        self.stdout.write(line)
        self.stdout.flush()
