"""System checks: what would fail later, said when the project starts, each with the way out."""

from collections.abc import Sequence
from typing import Any

from django.conf import settings
from django.core.checks import CheckMessage, Error, Tags, register
from django.core.checks import Warning as CheckWarning
from django.core.exceptions import ImproperlyConfigured
from django.db import connections
from django.db.utils import DatabaseError, NotSupportedError

from cronoq_django.conf import conf

OLDEST_POSTGRES = 15


@register()
def check_settings(**kwargs: Any) -> list[CheckMessage]:
    """CRONOQ is usable and its database is PostgreSQL."""
    try:
        alias = conf().database
    except ImproperlyConfigured as error:
        return [Error(str(error), hint="Correct the CRONOQ dict in your settings.", id="cronoq.E001")]
    if alias not in connections:
        return [
            Error(
                f"CRONOQ['DATABASE'] names the database {alias!r}, which is not in DATABASES.",
                hint=f"There are: {', '.join(connections)}.",
                id="cronoq.E002",
            )
        ]
    if connections[alias].vendor != "postgresql":
        return [
            Error(
                f"cronoq_django needs PostgreSQL, but the database {alias!r} is {connections[alias].display_name}.",
                hint="Set DATABASES (or DATABASE_URL) to a PostgreSQL server, or CRONOQ['DATABASE'] to one's alias.",
                id="cronoq.E003",
            )
        ]
    return []


@register()
def check_backend(**kwargs: Any) -> list[CheckMessage]:
    """Some task backend is ours; otherwise enqueued tasks go elsewhere."""
    backends = [params.get("BACKEND", "") for params in (getattr(settings, "TASKS", None) or {}).values()]
    if any(name.startswith("cronoq_django.") for name in backends):
        return []
    return [
        CheckWarning(
            "No backend in TASKS is cronoq_django's: tasks that you enqueue will not become runs.",
            hint='Add TASKS = {"default": {"BACKEND": "cronoq_django.backend.CronoqBackend"}} to your settings.',
            id="cronoq.W001",
        )
    ]


@register(Tags.database)
def check_server(databases: Sequence[str] | None = None, **kwargs: Any) -> list[CheckMessage]:
    """The server is new enough. Asked with a connection, so only by `check --database`, migrate and our commands."""
    messages: list[CheckMessage] = []
    for alias in databases or ():
        wrapper = connections[alias]
        if alias != conf().database or wrapper.vendor != "postgresql":
            continue
        try:
            with wrapper.cursor() as cursor:
                cursor.execute("SHOW server_version_num")
                version = int(cursor.fetchone()[0]) // 10_000
        except NotSupportedError as error:
            version, too_old = 0, str(error)
        except DatabaseError:
            continue  # whoever asked will meet the error itself, with its own words
        else:
            too_old = f"cronoq_django needs PostgreSQL {OLDEST_POSTGRES} or newer; {alias!r} is {version}."
        if version < OLDEST_POSTGRES:
            messages.append(Error(too_old, hint="Upgrade the server, or use another one.", id="cronoq.E004"))
    return messages
