"""Walking schedules."""

from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from functools import partial
from itertools import islice

from cronsim import CronSim

from benchmarks.measure import best, say
from cronoq_django import cron

START = datetime(2026, 1, 1, tzinfo=UTC)
STEPS = 20_000
CASES = [
    ("* * * * *", "UTC"),
    ("* * * * *", "Europe/Warsaw"),
    ("0 3 * * *", "UTC"),
    ("0 3 * * *", "Europe/Warsaw"),
    ("*/15 9-17 * * MON-FRI", "America/New_York"),
    ("0 0 29 2 *", "UTC"),
]


def main() -> None:
    """A step of a cron schedule in its zone, against a step of the bare parser on naive local time."""
    for expression, zone in CASES:
        steps = 200 if "29 2" in expression else STEPS
        schedule, bare = cron(expression, timezone=zone), CronSim(expression, datetime(2026, 1, 1))
        ours = best(partial(_exhaust, lambda schedule=schedule: schedule.walk(START), steps)) / steps
        parser = best(partial(_exhaust, lambda bare=bare: bare, steps)) / steps
        first = best(partial(_exhaust, lambda schedule=schedule: schedule.walk(START), 1), rounds=200)
        ratio = f"{ours / parser:.1f} × the bare parser; {first * 1e6:.0f} µs to the first"
        say(f"{expression}  {zone}", f"{ours * 1e6:.1f} µs a step", ratio)


def _exhaust(walk: Callable[[], Iterator[datetime]], steps: int) -> None:
    for _ in islice(walk(), steps):
        pass
