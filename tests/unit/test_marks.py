"""Marks: where a claim begins to look."""

from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import Any
from uuid import UUID

import pytest

from cronoq_django.store.runs import Place
from cronoq_django.worker.marks import FRONT, LONGEST, MOST, SHARE, SLACK, Marks

NOW = datetime(2026, 12, 1, tzinfo=UTC)


def place(number: int, priority: int = 0) -> Place:
    return Place(priority, NOW + timedelta(seconds=number), UUID(int=number))


def run(number: int, priority: int = 0) -> Any:
    return SimpleNamespace(priority=priority, due_at=place(number).due_at, id=UUID(int=number))


def test_there_are_none_before_a_look() -> None:
    marks = Marks()
    assert marks.in_order == []
    assert marks.are_due(woken=False)


def test_the_most_urgent_comes_first() -> None:
    marks = Marks()
    marks.looked([place(1, 5), place(2, 0), place(3, -7)], 0)
    marks.heard(9)
    assert [mark.priority for mark in marks.in_order] == [9, 5, 0, -7]
    assert marks.in_order[0] == Place(9, *FRONT)


def test_what_was_heard_of_does_not_move_a_mark_that_is_there() -> None:
    marks = Marks()
    marks.looked([place(1)], 0)
    marks.heard(0)
    assert marks.in_order == [place(1)]


def test_a_mark_follows_the_claims_at_a_distance() -> None:
    """What is committed a little late lies between."""
    marks = Marks()
    marks.looked([place(0)], 0)
    marks.claimed([run(n) for n in range(SLACK - 1)])
    assert marks.in_order == [place(0)]
    marks.claimed([run(n) for n in range(SLACK - 1, 1000)])
    assert marks.in_order == [place(1000 - SLACK)]


def test_priorities_do_not_move_each_others_marks() -> None:
    marks = Marks()
    marks.looked([place(0, 1), place(0, 0)], 0)
    marks.claimed([run(n, 1) for n in range(1000)])
    assert marks.in_order == [place(1000 - SLACK, 1), place(0, 0)]


def test_a_look_sets_a_mark_downward_too_and_leaves_those_of_which_nothing_is_there() -> None:
    marks = Marks()
    marks.looked([place(0, 1), place(0, 0)], 0)
    marks.claimed([run(n, p) for n in range(1000) for p in (1, 0)])
    marks.looked([place(3, 1)], 0)
    assert marks.in_order == [place(3, 1), place(1000 - SLACK, 0)]
    marks.claimed([run(n, 1) for n in range(3, 10)])
    assert marks.in_order[0] == place(3, 1)  # it counts anew


def test_the_more_a_look_costs_the_rarer_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 1000.0
    monkeypatch.setattr("cronoq_django.worker.marks.time.monotonic", lambda: now)
    marks = Marks()
    marks.looked([], 0.1)
    now += 0.1 * SHARE - 0.01
    assert not marks.are_due(woken=True)
    now += 0.02
    assert marks.are_due(woken=True)
    marks.looked([], 0.001)
    now += 0.06
    assert marks.are_due(woken=True)
    assert not marks.are_due(woken=False)  # nothing was queued: at the next poll
    now += 1.0
    assert marks.are_due(woken=False)


def test_a_slow_look_does_not_put_the_next_one_off_for_minutes(monkeypatch: pytest.MonkeyPatch) -> None:
    """On a busy machine one took seconds; what lay before a mark was found minutes later."""
    now = 1000.0
    monkeypatch.setattr("cronoq_django.worker.marks.time.monotonic", lambda: now)
    marks = Marks()
    marks.looked([], 10.0)
    now += LONGEST
    assert marks.are_due(woken=False)


def test_what_goes_back_is_found_again() -> None:
    """A run that found no thread lay before the mark, and waited for the next look."""
    marks = Marks()
    marks.looked([place(0)], 0)
    marks.claimed([run(n) for n in range(1000)])
    marks.returned(run(900))
    assert marks.in_order == [place(1000 - SLACK)]
    marks.returned(run(500))
    assert marks.in_order == [place(500)]
    marks.returned(run(700))
    marks.returned(run(1, 9))
    assert marks.in_order == [place(500)]


def test_there_are_never_very_many() -> None:
    marks = Marks()
    for priority in range(MOST + 1):
        marks.heard(priority)
    marks.looked([place(0, 3)], 0)
    assert marks.in_order == [place(0, 3)]
