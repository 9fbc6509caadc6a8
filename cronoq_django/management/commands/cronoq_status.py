"""cronoq_status: what the cluster is doing."""

import json
from typing import Any

from django.core.management.base import CommandParser
from django.core.serializers.json import DjangoJSONEncoder

from cronoq_django.management.cluster import ClusterCommand
from cronoq_django.ops.status import status


class Command(ClusterCommand):
    help = "Show leader, standbys, stages, workers and queues. Exit code 1 when nobody leads."

    def add_arguments(self, parser: CommandParser) -> None:
        super().add_arguments(parser)
        parser.add_argument("--json", action="store_true", help="For machines.")

    def handle(self, *args: Any, **options: Any) -> None:
        found = status(using=self.prepare(options))
        if options["json"]:
            self.stdout.write(json.dumps(found, cls=DjangoJSONEncoder, indent=2))
        else:
            self._print(found)
        if not (found["leader"] and found["leader"]["is_alive"]):
            raise SystemExit(1)

    def _print(self, found: dict[str, Any]) -> None:
        say = self.stdout.write
        leader = found["leader"]
        if leader is None:
            say("Leader    nobody has led yet: start `manage.py cronoq_leader`")
        else:
            age = (leader["now"] - leader["renewed_at"]).total_seconds()
            heard = f"heard of {age:.1f} s ago{'' if leader['is_alive'] else ': gone'}"
            led = f"epoch {leader['epoch']} since {leader['acquired_at']:%Y-%m-%d %H:%M:%S}"
            say(f"Leader    {leader['host']}, {led}, {heard}")
        standbys = [f"{one['host']} ({one['process_id']})" for one in found["standbys"]]
        say(f"Standbys  {', '.join(standbys) or 'none'}")
        for worker in found["workers"]:
            pools = ", ".join(f"{pool}={size}" for pool, size in worker["pools"].items())
            say(f"Worker    {worker['name']}: {worker['status']}, {pools}, running {worker['running']}")
        if not found["workers"]:
            say("Workers   none: start `manage.py cronoq_worker`")
        for queue in found["runs"]:
            due = f"oldest due {queue['oldest_due_at']:%Y-%m-%d %H:%M:%S}"
            say(f"Runs      {queue['pool']}: {queue['count']} {queue['status']}, {due}")
        for stage in found["stages"]:
            took = stage["duration"].total_seconds() * 1000
            trouble = f": {stage['error']}" if stage["error"] else ""
            say(f"Stage     {stage['name']}: {stage['last_run_at']:%H:%M:%S}, {took:.0f} ms{trouble}")
        for job in found["jobs_with_errors"]:
            say(f"Job       {job['job__name']}: {job['error']}")
