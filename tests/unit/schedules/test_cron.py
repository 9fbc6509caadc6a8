"""Cron expressions: what is accepted, what it means, and what is refused while someone is there to correct it."""

import pickle
from datetime import UTC, datetime, timedelta, timezone
from time import process_time

import pytest

from cronoq_django.schedules import Cron, ScheduleError, cron


def utc(text: str) -> datetime:
    return datetime.fromisoformat(text).replace(tzinfo=UTC)


def days(expression: str, after: str, count: int) -> list[str]:
    return [f"{slot:%Y-%m-%d}" for slot in cron(expression).upcoming(utc(after), count)]


def times(expression: str, after: str, count: int) -> list[str]:
    return [f"{slot:%H:%M}" for slot in cron(expression).upcoming(utc(after), count)]


@pytest.mark.parametrize(
    ("expression", "after", "expected"),
    [
        (
            "30 4 1,15 * 5",
            "2025-08-01",
            "2025-08-01 2025-08-08 2025-08-15 2025-08-22 2025-08-29 2025-09-01 2025-09-05 2025-09-12",
        ),
        (
            "0 16 1,2,3 * FRI",
            "2023-05-01",
            "2023-05-01 2023-05-02 2023-05-03 2023-05-05 2023-05-12 2023-05-19 2023-05-26 2023-06-01",
        ),
        ("0 0 */2 * 1", "2025-01-01", "2025-01-13 2025-01-27 2025-02-03 2025-02-17"),
        ("0 9 1-31 * 1", "2026-05-01", "2026-05-01 2026-05-02 2026-05-03 2026-05-04"),
        ("0 9 */2 * 1", "2026-05-01", "2026-05-11 2026-05-25 2026-06-01"),
        ("0 9 *,5 * 1", "2026-05-01", "2026-05-04 2026-05-11"),
        ("0 9 5,* * 1", "2026-05-01", "2026-05-01 2026-05-02"),
        ("0 9 13 * */5", "2026-01-01", "2026-02-13 2026-03-13 2026-09-13"),
    ],
)
def test_the_text_of_the_day_fields_says_whether_both_must_match(expression: str, after: str, expected: str) -> None:
    """Guessed from the size of the parsed set, `1-31` and `*/2` behaved unlike the cron they had been tried on."""
    assert days(expression, after, len(expected.split())) == expected.split()


@pytest.mark.parametrize(
    ("expression", "after", "expected"),
    [
        ("0 0 29 2 *", "2096-03-01", "2104-02-29 2108-02-29"),
        ("0 0 29 2 *", "2025-03-01", "2028-02-29"),
        ("0 0 31 2,4,6,8 *", "2026-01-01", "2026-08-31 2027-08-31"),
        ("0 0 30 2,3 *", "2026-03-31", "2027-03-30"),
        ("0 0 31 1-5 *", "2018-07-27", "2019-01-31 2019-03-31 2019-05-31 2020-01-31"),
        ("0 0 L * *", "2028-01-15", "2028-01-31 2028-02-29 2028-03-31 2028-04-30"),
        ("0 0 31,L * *", "2024-08-12", "2024-08-31 2024-09-30 2024-10-31 2024-11-30"),
        ("0 0 LW * *", "2026-01-01", "2026-01-30 2026-02-27 2026-03-31"),
        ("0 0 * * 5L", "2026-01-01", "2026-01-30 2026-02-27"),
        ("0 0 * * MON#2", "2026-01-01", "2026-01-12 2026-02-09"),
        ("0 0 29 2 */7", "2050-01-01", "2060-02-29 2088-02-29 2128-02-29"),
    ],
)
def test_rare_dates_come(expression: str, after: str, expected: str) -> None:
    """A library that stopped looking after a few years called leap days invalid, depending on the year of the call."""
    assert days(expression, after, len(expected.split())) == expected.split()


@pytest.mark.parametrize(
    "expression",
    ["0 0 30 2 *", "0 0 31 4 *", "0 0 31 2,4,6,9,11 *", "0 0 */5 2 MON#5", "0 0 */29 2 5L", "0 0 31 4 */2"],
)
def test_dates_that_never_come_are_refused_at_once(expression: str) -> None:
    """30 February spun a core for ever and froze the process."""
    began = process_time()
    with pytest.raises(ScheduleError) as refused:
        cron(expression)
    assert process_time() - began < 0.2
    assert refused.value.field == "cron"


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        ("0 0 * * 7", "2026-01-04 2026-01-11"),
        ("0 0 * * 0", "2026-01-04 2026-01-11"),
        ("0 0 * * 0,7", "2026-01-04 2026-01-11 2026-01-18"),
        ("0 0 * * 5-7", "2026-01-02 2026-01-03 2026-01-04 2026-01-09"),
        ("0 0 * * 1-5", "2026-01-02 2026-01-05 2026-01-06 2026-01-07"),
        ("0 0 * jan-Feb mon-FRI", "2026-01-02 2026-01-05"),
        ("0 0 * * 1/2", "2026-01-02 2026-01-04 2026-01-05 2026-01-07"),
    ],
)
def test_weekdays(expression: str, expected: str) -> None:
    """A major release took `7` away; elsewhere `1-5` meant Sunday to Thursday. (2026 begins on a Thursday.)"""
    assert days(expression, "2026-01-01", len(expected.split())) == expected.split()


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        ("5/20 * * * *", "00:05 00:25 00:45 01:05"),
        ("*/45 * * * *", "00:45 01:00 01:45 02:00"),
        ("10-50/15 * * * *", "00:10 00:25 00:40 01:10"),
        ("*/100 * * * *", "01:00 02:00"),
    ],
)
def test_step_bases(expression: str, expected: str) -> None:
    """`5/20` and `*/45` were read in different ways."""
    assert times(expression, "2026-01-01", len(expected.split())) == expected.split()


def test_steps_of_days_and_months_begin_at_one() -> None:
    assert days("0 0 1 */5 *", "2026-01-15", 3) == ["2026-06-01", "2026-11-01", "2027-01-01"]
    assert days("0 0 */10 * *", "2026-02-02", 3) == ["2026-02-11", "2026-02-21", "2026-03-01"]


@pytest.mark.parametrize(
    "expression",
    [
        *(
            "",
            "   ",
            "*",
            "* * * *",
            "* * * * * * *",
            "@reboot",
            "@",
            "@every 5m",
            "0 0 * * FRI-MON",
            "0 0 * * SAT-SUN",
        ),
        *("*/0 * * * *", "60 * * * *", "* 24 * * *", "* * 0 * *", "* * 32 * *", "* * * 13 *", "* * * 0 *", "* * * * 8"),
        *("60 * * * * *", "-5 * * * *", "1.5 * * * *", "1- * * * *", ", * * * *", "1,,2 * * * *", "*/ * * * *"),
        *("*/5/2 * * * *", "*-5 * * * *", "? * * * *", "* * L-3 * *", "* * * * L", "* * * * MON#6", "* * * * MON#0"),
        *("* * * NOV-FEB *", "50-10 * * * *", "MON * * * *", "* * * * MONDAY", "* * 15W * *", "* * * * MON#2/2"),
        *("٥ * * * *", "* * * * ٥L", "５ * * * *", "* * * * *\x00", "*\u2003* * * *"),
        *("5-5/20 * * * *", "05-5/20 * * * *", "* * L/2 * *", "* * * * FRI-5/2", "* * 1,LW/3 * *"),
        *("0 0 1 1 *" + " " * 200, "1," * 300 + "1 * * * *", "9" * 190 + " * * * *", "9" * 100_000),
    ],
)
def test_what_cannot_be_read_is_refused_with_the_field(expression: str) -> None:
    """`FRI-MON` and `SAT-SUN` were accepted and never ran; a step over one value is read in two ways."""
    with pytest.raises(ScheduleError) as refused:
        cron(expression)
    assert refused.value.field == "cron"
    assert type(str(refused.value)) is str
    assert len(str(refused.value)) < 500


@pytest.mark.parametrize("value", [None, 5, b"* * * * *", ["*"] * 5])
def test_an_expression_is_text(value: object) -> None:
    with pytest.raises(ScheduleError, match="cron expression"):
        cron(value)  # type: ignore[arg-type]


def test_a_refusal_says_the_way_out() -> None:
    for expression, way_out in [
        ("0 0 * * FRI-MON", "FRI,SAT,SUN,MON"),
        ("0 0 * *", "minute hour day-of-month month day-of-week"),
        ("60 * * * *", "0 to 59"),
        ("@reboot", "@daily"),
    ]:
        with pytest.raises(ScheduleError, match=way_out):
            cron(expression)


def test_a_refusal_survives_being_sent_to_another_process() -> None:
    with pytest.raises(ScheduleError) as refused:
        cron("nonsense")
    copy = pickle.loads(pickle.dumps(refused.value))
    assert (copy.field, str(copy)) == ("cron", str(refused.value))


@pytest.mark.parametrize(
    ("alias", "expected"),
    [
        ("@yearly", "2027-01-01 00:00"),
        ("@annually", "2027-01-01 00:00"),
        ("@monthly", "2026-02-01 00:00"),
        ("@weekly", "2026-01-04 00:00"),
        ("@daily", "2026-01-02 00:00"),
        ("@midnight", "2026-01-02 00:00"),
        ("@hourly", "2026-01-01 11:00"),
        (" @Daily ", "2026-01-02 00:00"),
    ],
)
def test_aliases(alias: str, expected: str) -> None:
    assert cron(alias).next(utc("2026-01-01T10:30")) == utc(expected)


def test_six_fields_begin_with_seconds() -> None:
    slots = cron("*/20 30 2 * * *").upcoming(utc("2026-01-01"), 4)
    assert [f"{slot:%d %H:%M:%S}" for slot in slots] == ["01 02:30:00", "01 02:30:20", "01 02:30:40", "02 02:30:00"]


def test_values_are_plain() -> None:
    """Declarations are compared with what is stored, put in sets, and sent to other processes."""
    schedule = cron(" 0   3 * * * ", timezone="Europe/Warsaw")
    assert schedule == Cron("0 3 * * *", "Europe/Warsaw")
    assert schedule.expression == "0 3 * * *"
    assert len({schedule, cron("0 3 * * *", timezone="Europe/Warsaw"), cron("0 3 * * *")}) == 2
    assert pickle.loads(pickle.dumps(schedule)) == schedule
    assert schedule.kind == "cron"
    with pytest.raises(AttributeError):
        schedule.expression = "0 4 * * *"  # type: ignore[misc]


def test_slots_are_aware_utc_strictly_after_and_strictly_before() -> None:
    schedule = cron("0 3 * * *", timezone="Europe/Warsaw")
    slot = schedule.next(utc("2026-01-01"))
    assert slot == utc("2026-01-01T02:00")
    assert slot is not None
    assert slot.tzinfo is UTC
    tick = timedelta(microseconds=1)
    assert schedule.next(slot - tick) == slot
    assert schedule.next(slot) == slot + timedelta(days=1)
    assert schedule.previous(slot) == slot - timedelta(days=1)
    assert schedule.previous(slot + tick) == slot


def test_naive_moments_are_refused() -> None:
    """Read in the zone of the host, they would be hours off on another host."""
    naive = datetime(2026, 1, 1)  # noqa: DTZ001
    for ask in (cron("* * * * *").next, cron("* * * * *").previous):
        with pytest.raises(ScheduleError, match="time zone"):
            ask(naive)


@pytest.mark.parametrize("zone", ["UTC", "Pacific/Kiritimati", "Pacific/Pago_Pago", "America/New_York"])
@pytest.mark.parametrize("expression", ["* * * * *", "0 0 * * *", "0 0 29 2 *", "* * * * * *"])
def test_the_calendar_ends_quietly(expression: str, zone: str) -> None:
    """None, not an OverflowError that stops the scheduler."""
    schedule = cron(expression, timezone=zone)
    first, last = datetime.min.replace(tzinfo=UTC), datetime.max.replace(tzinfo=UTC)
    assert schedule.next(last) is None
    assert schedule.previous(first) is None
    assert schedule.next(last - timedelta(days=1)) is None
    earliest, latest = schedule.next(first), schedule.previous(last)
    assert earliest is not None
    assert latest is not None
    assert (earliest.year < 6, latest.year > 9991) == (True, True)
    assert schedule.previous(earliest) is None
    assert schedule.next(latest) is None
    assert schedule.next(datetime.max.replace(tzinfo=timezone(timedelta(hours=-12)))) is None


def test_explained_in_words() -> None:
    assert cron("0 3 * * *", timezone="Europe/Warsaw").explain() == "at 03:00 every day, Europe/Warsaw"
    assert cron("@hourly").explain() == "at the start of every hour, UTC"
    assert "if it's on Monday" in cron("0 9 */2 * 1").explain()


def test_a_walk_of_minutes_is_cheap() -> None:
    """Ninety days of minutes are 129,600 steps: at a millisecond each a restart took two minutes."""
    schedule = cron("* * * * *", timezone="Europe/Warsaw")
    began = process_time()
    slots = schedule.upcoming(utc("2026-01-01"), 10_000)
    assert process_time() - began < 1
    assert slots[-1] == utc("2026-01-01") + timedelta(minutes=10_000)
