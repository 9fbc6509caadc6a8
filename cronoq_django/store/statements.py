"""Runs the statements in `sql/`, one a file, on whatever cursor the caller has: Django's, psycopg's, a fenced one."""

from collections.abc import Sequence
from dataclasses import fields
from functools import cache
from importlib.resources import files
from typing import Any, Protocol

from cronoq_django.models.fields import clean_text
from cronoq_django.store import clock


class Cursor(Protocol):
    """What a statement needs of a cursor. It is open in the transaction that the caller wants the statement in."""

    @property
    def description(self) -> Any: ...
    @property
    def rowcount(self) -> int: ...
    def execute(self, query: Any, params: Any = None, /) -> Any: ...
    def fetchall(self) -> Any: ...


@cache
def statement(name: str) -> str:
    """The text of `sql/<name>.sql`, its name before it (shown by pg_stat_activity), its comments taken out."""
    lines = files("cronoq_django.store").joinpath("sql", f"{name}.sql").read_text(encoding="utf-8").splitlines()
    return "\n".join([f"/* cronoq: {name} */", *(line for line in lines if not line.lstrip().startswith("--"))])


def run(cursor: Cursor, name: str, /, **params: Any) -> list[tuple[Any, ...]]:
    """Execute the statement; its rows as tuples."""
    _execute(cursor, name, params)
    return list(cursor.fetchall()) if cursor.description else []


def count(cursor: Cursor, name: str, /, **params: Any) -> int:
    """Execute the statement; how many rows it changed."""
    _execute(cursor, name, params)
    return cursor.rowcount


def records(cursor: Cursor, name: str, /, **params: Any) -> list[dict[str, Any]]:
    """Execute the statement; its rows as dicts."""
    rows = run(cursor, name, **params)
    names = [column[0] for column in cursor.description or ()]
    return [dict(zip(names, row, strict=True)) for row in rows]


def _execute(cursor: Cursor, name: str, params: dict[str, Any]) -> None:
    if params.get("now", params) is None:
        params["now"] = clock.frozen
    cursor.execute(statement(name), params)


def columns(rows: Sequence[Any], **bounds: int) -> dict[str, list[Any] | None]:
    """Dataclass rows as one list a column, which `unnest` takes whatever their number.

    `bounds`: the columns of free text, which is cleaned, with the most characters of each; empty ones come as NULL. A
    column of nothing but NULL comes as NULL itself, which `unnest` fills up: half of an insert's time went into such.
    """
    lists: dict[str, list[Any] | None] = {}
    for name in [field.name for field in fields(rows[0])]:
        values = [getattr(row, name) for row in rows]
        if name in bounds:
            values = [clean_text(text, bounds[name]) if text else None for text in values]
        lists[name] = values if any(value is not None for value in values) else None
    return lists
