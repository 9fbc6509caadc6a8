"""cronoq_status: what the cluster is doing."""

import json
from datetime import timedelta
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
        say(f"Leader    {_leader(found['leader'])}")
        for one in found["standbys"]:
            heard = _seconds(one["heartbeat_age"])
            say(f"Standby   {one['host']} (process {one['process_id']}), last heartbeat {heard} ago")
        for worker in found["workers"]:
            pools = ", ".join(f"{pool}={size}" for pool, size in worker["pools"].items())
            say(f"Worker    {worker['name']}: {worker['status']}, {pools}, running {worker['running']}")
        if not found["workers"]:
            say("Workers   none: start `manage.py cronoq_worker`")
        for queue in found["runs"]:
            due = f"oldest due {queue['oldest_due_at']:%Y-%m-%d %H:%M:%S}"
            say(f"Runs      {queue['pool']}: {queue['count']} {queue['status']}, {due}")
        for ready in found["ready"]:
            oldest = f"the oldest for {_seconds(ready['oldest_age'])}"
            say(f"Ready     {ready['pool']}, priority {ready['priority']}: {ready['count']}, {oldest}")
        for stage in found["stages"]:
            say(f"Stage     {_stage(stage)}")
        for job in found["jobs_with_errors"]:
            say(f"Job       {job['job__name']}: {job['error']}")
        say(f"Tz data   {found['tz_data']}")


def _leader(leader: dict[str, Any] | None) -> str:
    if leader is None:
        return "nobody has led yet: start `manage.py cronoq_leader`"
    term = f"{leader['host']} (process {leader['process_id'] or '?'}), epoch {leader['epoch']}"
    heard = f"last heartbeat {_seconds(leader['heartbeat_age'])} ago"
    if not leader["is_alive"]:
        return f"NOBODY LEADS. The last was {term}, {heard}{leader['ended'] and '; '}{leader['ended']}"
    recovered = ", ".join(f"{number} {what}" for what, number in leader["recovered"].items() if number)
    led = f"{term}, for {timedelta(seconds=round(leader['term_age'].total_seconds()))}, {heard}"
    return led + (f", recovered {recovered}" if recovered else "")


def _stage(stage: dict[str, Any]) -> str:
    last = f"{stage['name']:<10} {stage['last_run_at']:%H:%M:%S} UTC, {stage['duration'].total_seconds() * 1000:.0f} ms"
    if stage["error"]:
        return f"{last}, {stage['rows']} rows, ERROR: {stage['error']}"
    failed = f", last failed {stage['error_at']:%Y-%m-%d %H:%M:%S}" if stage["error_at"] else ""
    return f"{last}, {stage['rows']} rows{failed}"


def _seconds(age: timedelta) -> str:
    return f"{age.total_seconds():.1f} s"
