"""cronoq_leader: turn time into runs, or stand by while another leader does."""

import multiprocessing
import signal
import threading
from typing import Any

from django.core.management.base import CommandError, CommandParser

from cronoq_django.conf import conf, serve
from cronoq_django.errors import CannotLead
from cronoq_django.leader.loop import Leader
from cronoq_django.management.cluster import ClusterCommand, pool_size
from cronoq_django.worker.spawn import supervisor_main


class Command(ClusterCommand):
    help = (
        "Lead the cluster: plan and fire jobs, queue what is due, take back what was lost. Run as many as you like: "
        "one leads, the others stand by. Ends on SIGTERM or SIGINT with exit code 0, and with 1 where nobody could "
        "lead: without the tables, or behind a pooler in transaction mode."
    )

    def add_arguments(self, parser: CommandParser) -> None:
        super().add_arguments(parser)
        parser.add_argument(
            "--pool",
            action="append",
            type=pool_size,
            default=[],
            metavar="NAME=N",
            help="Also work: start a worker process for this pool. Repeatable.",
        )

    def handle(self, *args: Any, **options: Any) -> None:
        alias = self.prepare(options)
        serve(alias)
        leader = Leader(alias)
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, lambda *_: leader.stop())
        workers = _Beside(alias, dict(options["pool"])) if options["pool"] else None
        try:
            leader.run()
        except CannotLead as error:
            raise CommandError(str(error)) from error
        finally:
            if workers is not None:
                workers.stop()


class _Beside:
    """A worker supervisor beside the leader: task bodies never run in the leader's process."""

    def __init__(self, alias: str, pools: dict[str, int]) -> None:
        self._options = {"alias": alias, "pools": pools, "hurried": False}
        self._stopping = threading.Event()
        self._process = self._start()
        self._keeper = threading.Thread(target=self._keep, name="cronoq-beside", daemon=True)
        self._keeper.start()

    def _start(self) -> Any:
        process = multiprocessing.get_context("spawn").Process(
            target=supervisor_main, args=(self._options,), name="cronoq-supervisor"
        )
        process.start()
        return process

    def _keep(self) -> None:
        while not self._stopping.wait(1):
            if not self._process.is_alive():
                self._process = self._start()

    def stop(self) -> None:
        """Drain it."""
        self._stopping.set()
        self._keeper.join()
        self._process.terminate()
        self._process.join(conf().grace.total_seconds() + 15)
