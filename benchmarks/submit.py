"""Submitting: one at a time, with a key, and many at once."""

import gc
import resource
import time
from functools import partial

from django.db import connections, transaction

from benchmarks.measure import best, empty_cluster, say
from cronoq_django import enqueue_many, registry
from example_project.shop.tasks import send_invoice

MANY = 200_000
ONE = "INSERT INTO bare (id, script, args, kwargs) VALUES (gen_random_uuid(), %s, %s::json, %s::json)"


def main() -> None:
    """Enqueueing, against the barest insert of the same data in the same kind of transaction."""
    registry.autodiscover()
    with empty_cluster():
        connection = connections["benchmarks"]
        with connection.cursor() as cursor:
            cursor.execute("CREATE TEMP TABLE bare (id uuid PRIMARY KEY, script text, args json, kwargs json)")
        with transaction.atomic(using="benchmarks"):
            bare = best(_bare, rounds=500)
            numbers = iter(range(10**6))
            one = best(partial(send_invoice.enqueue, 1), rounds=500)
            keyed = best(lambda: send_invoice.using(key=f"k{next(numbers)}").enqueue(1), rounds=500)
            there = best(partial(send_invoice.using(key="k0").enqueue, 1), rounds=200)
        say("enqueue", f"{one * 1e6:,.0f} µs", f"{one / bare:.1f} × a bare insert")
        say("enqueue with a key of its own", f"{keyed * 1e6:,.0f} µs", f"{keyed / bare:.1f} × a bare insert")
        say("enqueue with a key that is there", f"{there * 1e6:,.0f} µs", f"{there / bare:.1f} × a bare insert")
        _many()


def _bare() -> None:
    with connections["benchmarks"].cursor() as cursor:
        cursor.execute(ONE, ["x", "[1]", "{}"])


def _many() -> None:
    gc.collect()
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    begun = time.perf_counter()
    with transaction.atomic(using="benchmarks"):
        results = enqueue_many(send_invoice.bind(number) for number in range(MANY))
    took = time.perf_counter() - begun
    grown = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024
    ids = [result.id for result in results]
    assert ids == sorted(ids)
    begun = time.perf_counter()
    with connections["benchmarks"].cursor() as cursor:
        cursor.execute(
            "INSERT INTO bare (id, script, args, kwargs) "
            "SELECT gen_random_uuid(), 'x', '[1]', '{}' FROM generate_series(1, %s)",
            [MANY],
        )
    bare = time.perf_counter() - begun
    say(f"{MANY:,} by enqueue_many", f"{took:.1f} s", f"{took / bare:.1f} × the server alone; {grown:+.0f} MB")
