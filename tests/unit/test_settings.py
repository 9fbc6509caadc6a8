"""The CRONOQ dict: defaults, units, and errors that name the setting."""

from datetime import timedelta
from typing import Any

import pytest
from django.core.exceptions import ImproperlyConfigured

from cronoq_django.checks import check_backend, check_settings
from cronoq_django.conf import conf


def test_defaults(settings: Any) -> None:
    del settings.CRONOQ
    assert conf().leader_ttl == timedelta(seconds=10)
    assert conf().retention["failed"] == timedelta(days=30)


def test_durations_are_seconds_or_timedeltas(settings: Any) -> None:
    settings.CRONOQ = {"LEASE": 3, "LEADER_TTL": timedelta(minutes=1), "RETENTION": {"failed": 60}}
    assert (conf().lease, conf().leader_ttl) == (timedelta(seconds=3), timedelta(minutes=1))
    assert conf().retention["failed"] == timedelta(minutes=1)
    assert conf().retention["succeeded"] == timedelta(days=7)


@pytest.mark.parametrize(
    ("given", "named"),
    [
        ({"LEAES": 3}, "LEAES"),
        ({"LEASE": "3"}, "LEASE"),
        ({"LEASE": 0}, "LEASE"),
        ({"LEADER_TTL": -1}, "LEADER_TTL"),
        ({"RETENTION": {"done": 1}}, "done"),
        ({"IMPORTS": "shop.tasks"}, "IMPORTS"),
        ({"MAX_PAYLOAD": True}, "MAX_PAYLOAD"),
        ({"DATABASE": None}, "DATABASE"),
        (["LEASE"], "CRONOQ must be a dict"),
    ],
)
def test_what_is_not_usable_is_refused_by_name(settings: Any, given: Any, named: str) -> None:
    settings.CRONOQ = given
    with pytest.raises(ImproperlyConfigured, match=named):
        conf()
    assert [message.id for message in check_settings()] == ["cronoq.E001"]


def test_a_database_that_does_not_exist(settings: Any) -> None:
    settings.CRONOQ = {"DATABASE": "elsewhere"}
    assert [message.id for message in check_settings()] == ["cronoq.E002"]


def test_a_project_whose_tasks_go_elsewhere_is_warned(settings: Any) -> None:
    assert check_backend() == []
    settings.TASKS = {"default": {"BACKEND": "django.tasks.backends.dummy.DummyBackend"}}
    assert [message.id for message in check_backend()] == ["cronoq.W001"]
