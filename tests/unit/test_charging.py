"""The ledger of what has begun, as another process sees it."""

import multiprocessing
import os
import signal
import time
from multiprocessing.synchronize import Event

from cronoq_django.worker.charging import NEVER, Entry, Ledger

CONTEXT = multiprocessing.get_context("spawn")


def test_a_claim_is_there_from_its_beginning_until_it_is_written() -> None:
    ledger = Ledger(CONTEXT, 3)
    entry = Entry(ledger)
    assert ledger.begun() == set()
    entry.begin(7, NEVER)
    assert ledger.begun() == {7}
    entry.end_by(NEVER)
    assert ledger.begun() == {7}  # it has ended; that is not written yet
    entry.forget()
    entry.forget()
    assert ledger.begun() == set()
    assert sorted(ledger.free) == [0, 1, 2]


def test_what_should_have_ended_is_overdue() -> None:
    ledger = Ledger(CONTEXT, 3)
    late, early, ended = Entry(ledger), Entry(ledger), Entry(ledger)
    for claim, entry, end in (1, late, -1.0), (2, early, 60.0), (3, ended, -1.0):
        entry.begin(claim, time.monotonic() + end)
    ended.end_by(NEVER)
    assert ledger.overdue() == {1}
    early.end_by(time.monotonic() - 1)
    assert ledger.overdue() == {1, 2}
    late.forget()
    assert ledger.overdue() == {2}


def test_entries_are_used_again() -> None:
    ledger = Ledger(CONTEXT, 2)
    for claim in range(1, 100):
        entry = Entry(ledger)
        entry.begin(claim, NEVER)
        assert ledger.begun() == {claim}
        entry.forget()


def test_without_a_ledger_nobody_asks() -> None:
    entry = Entry()
    entry.begin(1, NEVER)
    entry.end_by(0.0)
    entry.forget()


def begin_and_hang(ledger: Ledger, begun: Event) -> None:
    written, executing, waiting = Entry(ledger), Entry(ledger), Entry(ledger)
    written.begin(1, NEVER)
    executing.begin(2**62, time.monotonic() - 1)
    written.forget()
    assert waiting is not None
    begun.set()
    time.sleep(600)


def test_it_survives_the_process_that_wrote_it() -> None:
    ledger, begun = Ledger(CONTEXT, 10), CONTEXT.Event()
    process = CONTEXT.Process(target=begin_and_hang, args=(ledger, begun))
    process.start()
    assert begun.wait(60)
    assert process.pid is not None
    os.kill(process.pid, signal.SIGKILL)
    process.join(60)
    assert ledger.begun() == ledger.overdue() == {2**62}
