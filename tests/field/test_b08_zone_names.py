"""One bad zone stopped every schedule: the names.

A misspelt zone passed validation, because it was looked up later only. The first tick that touched the row threw out of
the loop, and all schedules of the deployment stopped, the tick's slot already claimed. Another scheduler took the same
error for "not due": nothing ran, and nothing was said.

We promise: a name that is not in the tz database is refused when it is saved, at its field, also where the host happens
to have a file of that name; put there by SQL, or withdrawn from the tz data later, it is that job's error alone.
"""

from collections.abc import Callable

import pytest

from tests.field.roads import Road

BAD = [
    *("America/New_Yrok", "UTC+3", "+05:30", "", "America", "../UTC", "right/UTC", "localtime", "x" * 300),
    *("US/Pacific-New", "/etc/localtime", "posix/Europe/Warsaw", "Factory", "europe/warsaw", "zone.tab"),
]


@pytest.mark.parametrize("zone", BAD, ids=lambda name: name[:20] or "empty")
def test_a_bad_name_is_refused_at_its_field(road: Road, zone: str) -> None:
    road.refuses("timezone", cron="0 0 * * *", timezone=zone)


@pytest.mark.parametrize("zone", ["Europe/Warsaw\0", "Europe/Warsaw\ud800", "Żółw", "x" * 100_000], ids=range(4))
def test_so_is_what_no_database_would_store(road: Road, zone: str) -> None:
    if road.name == "form" and "\ud800" in zone:
        pytest.skip("no browser can send that")
    road.refuses("timezone", cron="0 0 * * *", timezone=zone)


@pytest.mark.parametrize("zone", ["UTC", "Europe/Warsaw", "America/Argentina/Buenos_Aires", "Etc/GMT+3", "EST5EDT"])
def test_a_good_name_is_saved(road: Road, zone: str) -> None:
    assert road(cron="0 0 * * *", timezone=zone) == set()


def test_put_there_by_sql_they_delay_nobody(set_aside: Callable[..., None]) -> None:
    set_aside("timezone", [("0 0 * * *", zone) for zone in BAD])
