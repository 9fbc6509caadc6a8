"""cronoq_worker: claim runs and execute them."""

from typing import Any

from django.core.management.base import CommandParser

from cronoq_django.conf import serve
from cronoq_django.management.cluster import ClusterCommand, pool_size, positive
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
        parser.add_argument("--processes", type=positive, default=1, metavar="N", help="Worker processes (default: 1).")
        parser.add_argument("--name", default="", help="What the admin shows (default: host and process id).")

        parser.add_argument(
            "--max-runs", type=positive, metavar="N", help="Replace a worker process once it has executed so many runs."
        )
        parser.add_argument(
            "--max-rss", type=positive, metavar="MB", help="Replace a worker process once it has so much memory."
        )

    def handle(self, *args: Any, **options: Any) -> None:
        alias = self.prepare(options)
        serve(alias)
        Supervisor(
            alias=alias,
            pools=dict(options["pool"] or [("default", 4)]),
            processes=options["processes"],
            name=options["name"],
            max_runs=options["max_runs"],
            max_rss=options["max_rss"] and options["max_rss"] << 20,
        ).run()
