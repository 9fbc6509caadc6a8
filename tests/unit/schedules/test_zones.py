"""Zone names: refused while someone is there to correct them, and the same on every host."""

import subprocess
import sys

import pytest

from cronoq_django.schedules import ScheduleError, cron, zone


@pytest.mark.parametrize("name", ["UTC", "Europe/Warsaw", "America/Argentina/Buenos_Aires", "Etc/GMT+3", "EST5EDT"])
def test_names_of_the_tz_database(name: str) -> None:
    assert zone(name).key == name
    assert cron("* * * * *", timezone=name).timezone == name


@pytest.mark.parametrize(
    "name",
    [
        *(
            "America/New_Yrok",
            "UTC+3",
            "+05:30",
            "",
            " ",
            "America",
            "../UTC",
            "/UTC",
            "right/UTC",
            "posix/Europe/Warsaw",
        ),
        *(
            "localtime",
            "posixrules",
            "Factory",
            "x" * 300,
            "Europe/Warsaw\0",
            "europe/warsaw",
            "Europe/Warsaw ",
            "zone.tab",
        ),
        *("Żółw", None, 3, b"UTC", ["UTC"]),
    ],
)
def test_everything_else_is_refused_on_its_field(name: str) -> None:
    """Passed at save and looked up later, one misspelt zone threw out of the loop and stopped all schedules."""
    for ask in (zone, lambda name: cron("* * * * *", timezone=name)):
        with pytest.raises(ScheduleError) as refused:
            ask(name)
        assert refused.value.field == "timezone"
        assert len(str(refused.value)) < 200


def test_a_misspelling_is_answered_with_the_name_that_was_meant() -> None:
    with pytest.raises(ScheduleError, match="did you mean America/New_York"):
        zone("America/New_Yrok")


def test_the_first_look_up_does_not_hold_up_the_start() -> None:
    """Jobs are declared at import time: what the first one costs, every process pays."""
    script = (
        "from time import process_time; from cronoq_django.schedules.zones import zone; began = process_time();"
        "zone('Europe/Warsaw'); print(process_time() - began)"
    )
    seconds = min(float(subprocess.check_output([sys.executable, "-c", script])) for _ in range(2))
    assert seconds < 0.2
