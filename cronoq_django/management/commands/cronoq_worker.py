"""cronoq_worker: claim runs and execute them."""

from typing import Any

from django.core.management.base import CommandParser

from cronoq_django.conf import serve
from cronoq_django.management.cluster import ClusterCommand, pool_size
from cronoq_django.worker.supervisor import Supervisor


class Command(ClusterCommand):
    help = (
        "Execute the runs of some pools. Run as many as you like. SIGTERM or SIGINT drains it: nothing new is begun, "
        "what executes may end within the grace, the rest is given back; a second signal ends the grace. Exit code 0."
    )

    def add_arguments(self, parser: CommandParser) -> None:
        super().add_arguments(parser)
        parser.add_argument(
            "--pool",
            action="append",
            type=pool_size,
            metavar="NAME=N",
            help="Serve this pool with N runs at a time in each process. Repeatable (default: default=4).",
        )
        parser.add_argument("--processes", type=int, default=1, metavar="N", help="Worker processes (default: 1).")
        parser.add_argument("--name", default="", help="What the admin shows (default: host and process id).")

    def handle(self, *args: Any, **options: Any) -> None:
        alias = self.prepare(options)
        serve(alias)
        Supervisor(
            alias=alias,
            pools=dict(options["pool"] or [("default", 4)]),
            processes=max(1, options["processes"]),
            name=options["name"],
        ).run()
