"""Backoff was computed first and capped after: at some attempt it overflowed, and the run or the scheduler was gone."""

import math
from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cronoq_django.schedules import Backoff


@pytest.mark.parametrize("factor", [1, 1.5, 2, 5, 10])
@pytest.mark.parametrize("cap", [1, 3600, 10**9])
def test_delays_grow_to_the_cap_and_stay_finite(factor: float, cap: float) -> None:
    backoff = Backoff(first=1, factor=factor, cap=cap)
    ceilings = [backoff.ceiling(attempt) for attempt in range(1, 2001)]
    assert all(math.isfinite(ceiling) and 0 < ceiling <= cap for ceiling in ceilings)
    assert ceilings == sorted(ceilings)
    assert ceilings[0] == 1


def test_doubling() -> None:
    backoff = Backoff(first=5, factor=2, cap=60, jitter=False)
    assert [round(backoff.delay(n).total_seconds(), 6) for n in range(1, 7)] == [5, 10, 20, 40, 60, 60]


def test_no_first_delay_is_no_delay() -> None:
    assert Backoff(first=0).delay(2_147_483_000) == timedelta()
    assert Backoff(first=10, cap=0).delay(1) == timedelta()


@given(attempt=st.integers(1, 2_147_483_647), first=st.floats(0, 1e9), factor=st.floats(1, 1e9), cap=st.floats(0, 1e9))
def test_jitter_stays_between_nothing_and_the_ceiling(attempt: int, first: float, factor: float, cap: float) -> None:
    backoff = Backoff(first=first, factor=factor, cap=cap)
    delay = backoff.delay(attempt)
    assert timedelta() <= delay <= timedelta(seconds=backoff.ceiling(attempt) + 1e-6)
    assert backoff.ceiling(attempt) <= cap


def test_a_row_keeps_it() -> None:
    backoff = Backoff(first=1, factor=3, cap=9, jitter=False)
    assert Backoff.load(backoff.dump()) == backoff
    assert Backoff.load(None) == Backoff()


@pytest.mark.parametrize(
    "text", ["7", "[]", '"x"', '{"frist": 1}', '{"first": "1"}', '{"factor": 0}', '{"cap": -1}', "null"]
)
def test_what_is_no_backoff_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="backoff"):
        Backoff.load(text)
