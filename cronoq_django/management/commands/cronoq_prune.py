"""cronoq_prune: remove old runs and history now, instead of by and by."""

import json
from typing import Any

from django.core.management.base import CommandError, CommandParser

from cronoq_django.errors import CronoqError
from cronoq_django.management.cluster import ClusterCommand, positive
from cronoq_django.store import prune


class Command(ClusterCommand):
    help = (
        "Remove finished runs older than CRONOQ['RETENTION'], and old revisions, terms, workers and statistics. The "
        "leader does that by and by; this may run beside it. Exit code 1 if it can't be done."
    )

    def add_arguments(self, parser: CommandParser) -> None:
        super().add_arguments(parser)
        parser.add_argument("--limit", type=positive, metavar="N", help="At most so many runs.")
        parser.add_argument("--json", action="store_true", help="For machines.")

    def handle(self, *args: Any, **options: Any) -> None:
        alias = self.prepare(options)
        try:
            removed = prune(limit=options["limit"], using=alias)
        except CronoqError as error:
            raise CommandError(str(error)) from error
        if options["json"]:
            self.stdout.write(json.dumps(removed))
        else:
            self.stdout.write("Removed " + ", ".join(f"{count:,} {what}" for what, count in removed.items()))
