"""Measuring: the best of a few rounds, and lines that line up."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

from cronoq_django.errors import NotFound
from cronoq_django.store import create_schema, drop_schema

SCHEMA = "cronoq_benchmarks"


def best(measured: Callable[[], object], *, rounds: int = 5) -> float:
    """Seconds of the fastest round: the others had company."""
    times = []
    for _ in range(rounds):
        begun = time.perf_counter()
        measured()
        times.append(time.perf_counter() - begun)
    return min(times)


def say(what: str, value: str, ratio: str = "") -> None:
    print(f"  {what:<58} {value:>18}  {ratio}")


@contextmanager
def empty_cluster() -> Iterator[None]:
    """A fresh cluster, gone afterwards."""
    with suppress(NotFound):
        drop_schema(SCHEMA, using="default")
    create_schema(SCHEMA, using="default")
    try:
        yield
    finally:
        drop_schema(SCHEMA, using="default")
