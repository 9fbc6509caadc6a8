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
from cronoq_django.routers import SCHEMA

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
    if not settings.USE_TZ:
        return [
            Error(
                "cronoq_django needs USE_TZ = True: a time without a zone is another instant on another machine.",
                hint="Set USE_TZ = True, the default.",
                id="cronoq.E007",
            )
        ]
    return []


@register()
def check_router(**kwargs: Any) -> list[CheckMessage]:
    """With a cluster elsewhere than in the default database, the admin needs the router to find it."""
    try:
        alias = conf().database
    except ImproperlyConfigured:
        return []  # E001 says so
    if alias == "default" or any("ClusterRouter" in str(router) for router in settings.DATABASE_ROUTERS):
        return []
    return [
        CheckWarning(
            f"CRONOQ['DATABASE'] is {alias!r}, but nothing routes our models there.",
            hint='Add "cronoq_django.routers.ClusterRouter" to DATABASE_ROUTERS.',
            id="cronoq.W002",
        )
    ]


@register()
def check_atomicity(**kwargs: Any) -> list[CheckMessage]:
    """With a cluster elsewhere than in the default database, enqueueing is no part of the usual transactions."""
    try:
        alias = conf().database
    except ImproperlyConfigured:
        return []  # E001 says so
    if alias == "default" or not settings.DATABASES.get("default"):
        return []
    return [
        CheckWarning(
            f"Runs are kept in {alias!r}: what is enqueued within atomic() of 'default' is committed at once, whatever "
            "becomes of that transaction.",
            hint=f"Enqueue within transaction.atomic(using={alias!r}), or from transaction.on_commit, which comes "
            "after the commit but may be lost. If that is known, silence this check.",
            id="cronoq.W003",
        )
    ]


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
        if not _is_cluster(alias) or wrapper.vendor != "postgresql":
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
        else:
            messages += _check_path(alias)
    return messages


def _is_cluster(alias: str) -> bool:
    return alias == conf().database or SCHEMA in connections[alias].settings_dict


def _check_path(alias: str) -> list[CheckMessage]:
    """Migrations create in the first schema of the path; tables, and with them the lock, are found in any of them."""
    with connections[alias].cursor() as cursor:
        cursor.execute("SELECT current_schemas(false)")
        (path,) = cursor.fetchone()
        cursor.execute(
            "SELECT nspname FROM pg_class JOIN pg_namespace ON pg_namespace.oid = relnamespace "
            "WHERE nspname = ANY (%s) AND relname IN ('cronoq_leader', 'django_migrations') "
            "GROUP BY nspname ORDER BY array_position(%s, nspname)",
            [path, path],
        )
        holders = [row[0] for row in cursor.fetchall()]
    if not path:
        return [
            Error(
                f"No schema of the search_path of {alias!r} exists.",
                hint="Create it: `python manage.py cronoq_schema create NAME`.",
                id="cronoq.E006",
            )
        ]
    if holders in ([], path[:1]):
        return []
    return [
        Error(
            f"The search_path of {alias!r} is {', '.join(path)}: migrations would create tables in {path[0]!r}, but "
            f"{', '.join(map(repr, holders))} hold some already, so lock, migrations and tables would end up apart.",
            hint="Let the path be exactly one schema: see cronoq_django.routers.cluster.",
            id="cronoq.E005",
        )
    ]
