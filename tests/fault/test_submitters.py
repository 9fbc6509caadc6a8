"""Submitters are killed in the middle of it; what they said was enqueued is there, once, and nothing by halves."""

import os
import random
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable
from typing import Any
from uuid import UUID

import pytest
from django.db import connection

from cronoq_django.models import Pool, Run
from tests import tasks

from .conftest import ROOT, database_url

pytestmark = [pytest.mark.fault, pytest.mark.django_db(transaction=True)]

ROUNDS = 5
BATCH = 50
SUBMITTERS = 3

# Says what it did after each commit, a line each: the mark of the batch, and the ids. What it says is in the pipe at
# once, so a kill can come before it speaks, but not between its words and our ears.
SUBMITTER = """
import os, sys
import django
django.setup()
from itertools import count
from django.db import connection, transaction
from cronoq_django import enqueue_many
from cronoq_django.models import Pool
from tests import tasks

name, batch = sys.argv[1], int(sys.argv[2])

def say(mark, results):
    os.write(1, f"{mark} {' '.join(result.id for result in results)}\\n".encode())

connection.ensure_connection()
os.write(1, f"ready {connection.connection.info.backend_pid}\\n".encode())
for number in count():
    mark = f"{name}.{number}"
    marked = tasks.echo.using(actor=mark)
    match number % 4:
        case 0:
            results = [marked.enqueue(mark)]
        case 1:
            results = enqueue_many([marked.bind(mark) for _ in range(batch)])
        case 2:
            with transaction.atomic():
                Pool.objects.create(name=mark)
                results = [marked.enqueue(mark) for _ in range(3)]
        case 3:
            with transaction.atomic():
                Pool.objects.create(name=mark)
                results = enqueue_many([marked.using(key=f"{mark}.{n}").bind(mark) for n in range(batch)])
                results += [marked.enqueue(mark)]
    say(mark, results)
"""
SIZES = [1, BATCH, 3, BATCH + 1]  # by kind


class Submitter:
    """A process that enqueues as fast as it can, and what it said up to its end."""

    def __init__(self, name: str) -> None:
        self.name = name
        self._process = subprocess.Popen(
            [sys.executable, "-c", SUBMITTER, name, str(BATCH)],
            cwd=ROOT,
            env={**os.environ, "DATABASE_URL": database_url(), "DJANGO_SETTINGS_MODULE": "tests.fault.settings"},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            start_new_session=True,
        )
        self.told: dict[str, list[UUID]] = {}
        self.backend = 0
        self.is_ready = threading.Event()
        self._listener = threading.Thread(target=self._listen)
        self._listener.start()

    def _listen(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            mark, *words = line.decode().split()
            if mark == "ready":
                self.backend = int(words[0])
                self.is_ready.set()
            else:
                self.told[mark] = [UUID(word) for word in words]

    def kill(self) -> None:
        """SIGKILL, and all that it said before."""
        self._process.kill()
        self._process.wait()
        self._listener.join()


def is_connected(backend: int) -> bool:
    """Whether the server still has its session: a commit that was sent is carried out, whoever sent it."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT EXISTS (SELECT FROM pg_stat_activity WHERE pid = %s)", [backend])
        return bool(cursor.fetchone()[0])


def rows_by_mark() -> dict[str, set[UUID]]:
    rows: dict[str, set[UUID]] = {}
    for id_, mark in Run.objects.values_list("id", "actor"):
        rows.setdefault(mark, set()).add(id_)
    return rows


def kind_of(mark: str) -> int:
    return int(mark.split(".")[1]) % len(SIZES)


def test_what_killed_submitters_told_of_is_there_once_and_all_else_is_whole(wait_until: Callable[..., Any]) -> None:
    submitters = []
    for round_ in range(ROUNDS):
        running = [Submitter(f"{round_}-{number}") for number in range(SUBMITTERS)]
        submitters += running
        try:
            for submitter in running:
                assert submitter.is_ready.wait(timeout=60)
            for submitter in running:
                time.sleep(random.uniform(0, 0.25))  # the moment is to be any
                submitter.kill()
        finally:
            for submitter in running:
                submitter.kill()
    wait_until(lambda: not any(is_connected(submitter.backend) for submitter in submitters))
    rows, pools = rows_by_mark(), set(Pool.objects.values_list("name", flat=True))

    told = {mark: ids for submitter in submitters for mark, ids in submitter.told.items()}
    times = Counter(id_ for ids in told.values() for id_ in ids)
    assert set(times.values()) == {1}
    assert {kind_of(mark) for mark in told} == {0, 1, 2, 3}
    for mark, ids in told.items():
        assert rows[mark] == set(ids)
        assert len(ids) == SIZES[kind_of(mark)]

    untold = rows.keys() - told.keys()  # committed, and killed before a word of it
    for submitter in submitters:
        assert {mark for mark in untold if mark.startswith(f"{submitter.name}.")} <= {
            f"{submitter.name}.{len(submitter.told)}"
        }
    for mark in untold:
        assert len(rows[mark]) == SIZES[kind_of(mark)]
    assert pools == {mark for mark in rows if kind_of(mark) >= 2}  # what was to be committed together was
    print(f"{len(told)} told of, {len(times)} runs in all; {len(untold)} not told of; {len(submitters)} killed")

    for mark in [mark for mark in rows if kind_of(mark) == 3]:  # whoever goes on for it does nothing twice
        again = tasks.echo.using(key=f"{mark}.7").enqueue(mark)
        assert (again.created, UUID(again.id) in rows[mark]) == (False, True)
