"""Clusters in settings: an alias for a schema, and the router that keeps our tables there and others' away.

>>> DATABASES["jobs"] = cluster(DATABASES["default"], "jobs")
>>> DATABASE_ROUTERS = ["cronoq_django.routers.ClusterRouter"]
>>> CRONOQ = {"DATABASE": "jobs"}
"""

import copy
import re
from collections.abc import Mapping
from typing import Any

SCHEMA = "CRONOQ_SCHEMA"  # marks the alias of a cluster with a schema of its own

_NAME = re.compile(r"[a-z_][a-z0-9_]{0,62}", re.ASCII)


def cluster(database: Mapping[str, Any], schema: str) -> dict[str, Any]:
    """The settings of an alias on the same database whose `search_path` is exactly `schema`.

    Raises ValueError for a name that needs quoting or is PostgreSQL's own. Behind a transaction pooler, which refuses
    `options`, set the path with `ALTER ROLE … SET search_path` instead.
    """
    derived = copy.deepcopy(dict(database))
    options = derived.setdefault("OPTIONS", {})
    options["options"] = f"{options.get('options', '')} -c search_path={valid(schema)}".strip()
    derived[SCHEMA] = schema
    return derived


def valid(schema: str) -> str:
    """The name, if it can be a cluster's: a lower-case identifier of at most 63 bytes. Raises ValueError."""
    is_name = isinstance(schema, str) and _NAME.fullmatch(schema) is not None
    if not is_name or schema.startswith("pg_") or schema in ("public", "information_schema"):
        raise ValueError(
            f"{schema!r} can't be the name of a cluster's schema: take a lower-case letter, then letters, digits and "
            "underscores, 63 at most; not public, information_schema or pg_…"
        )
    return schema


class ClusterRouter:
    """Our models live in CRONOQ["DATABASE"]; a cluster with a schema of its own holds nothing else."""

    def db_for_read(self, model: Any, **hints: Any) -> str | None:
        """Ours there; others as they like."""
        from cronoq_django.conf import conf  # noqa: PLC0415  (settings import this module while they are made)

        return conf().database if model._meta.app_label == "cronoq" else None

    db_for_write = db_for_read

    def allow_migrate(self, db: str, app_label: str, **hints: Any) -> bool | None:
        """Ours on clusters only, and on those with a schema of their own nothing else."""
        from django.db import connections  # noqa: PLC0415

        from cronoq_django.conf import conf  # noqa: PLC0415

        has_own_schema = SCHEMA in connections[db].settings_dict
        if app_label == "cronoq":
            return has_own_schema or db == conf().database
        return False if has_own_schema else None
