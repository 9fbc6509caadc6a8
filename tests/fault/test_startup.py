"""What starts by itself, which is nothing: an auto-reloader once started a second scheduler beside the first."""

import re
import urllib.request
from collections.abc import Callable
from typing import Any

import pytest
from django.db import connection

from cronoq_django.models import Coordinator, Leader, Worker

from .conftest import Fleet

pytestmark = [pytest.mark.fault, pytest.mark.django_db(transaction=True)]


def test_the_development_server_schedules_and_works_nothing(fleet: Fleet, wait_until: Callable[..., Any]) -> None:
    server = fleet.command("runserver", "0", PYTHONUNBUFFERED="1")
    port = wait_until(lambda: re.search(r"http://127.0.0.1:(\d+)/", server.output))[1]
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/admin/login/") as page:
        assert page.status == 200
    with connection.cursor() as cursor:
        cursor.execute("SELECT application_name FROM pg_stat_activity WHERE datname = current_database()")
        assert not [name for (name,) in cursor.fetchall() if name.endswith(f" in {schema(cursor)}")]
    assert not Leader.objects.exists()
    assert not Coordinator.objects.exists()
    assert not Worker.objects.exists()


def schema(cursor: Any) -> str:
    cursor.execute("SELECT current_schema()")
    return str(cursor.fetchone()[0])
