"""Runs the statements in `sql/`, one a file, on whatever cursor the caller has: Django's, psycopg's, a fenced one."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import fields
from datetime import UTC, datetime, timedelta
from functools import cache
from importlib.resources import files
from typing import Any, Protocol
from uuid import UUID

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
    send(cursor, name, params)
    return list(cursor.fetchall()) if cursor.description else []


def count(cursor: Cursor, name: str, /, **params: Any) -> int:
    """Execute the statement; how many rows it changed."""
    send(cursor, name, params)
    return cursor.rowcount


def records(cursor: Cursor, name: str, /, **params: Any) -> list[dict[str, Any]]:
    """Execute the statement; its rows as dicts."""
    rows = run(cursor, name, **params)
    names = [column[0] for column in cursor.description or ()]
    return [dict(zip(names, row, strict=True)) for row in rows]


def send(cursor: Cursor, name: str, params: dict[str, Any]) -> None:
    """Execute the statement; its rows are the cursor's."""
    if params.get("now", params) is None:
        params["now"] = clock.frozen
    cursor.execute(statement(name), params)


def as_json(rows: Sequence[Any], **bounds: int) -> str:
    """Dataclass rows as JSON text for `json_to_recordset`, each with the columns that it has.

    `bounds`: the columns of free text, which is cleaned, with the most characters of each. JSON values go as text: here
    PostgreSQL would refuse what they say of NUL. (Lists of columns for `unnest` took a single row twice as long, most
    of it for quoting and typing what is empty.)
    """
    names = [field.name for field in fields(rows[0])]
    return json.dumps([_plain(row, names, bounds) for row in rows])


def _plain(row: Any, names: Sequence[str], bounds: Mapping[str, int]) -> dict[str, Any]:
    plain: dict[str, Any] = {}
    for name in names:
        if (value := getattr(row, name)) is not None:
            plain[name] = value if type(value) in (str, int, bool) else _convert(value)
    for name in bounds.keys() & plain.keys():
        plain[name] = clean_text(plain[name], bounds[name])
    return plain


def _convert(value: Any) -> Any:
    match value:
        case UUID():
            return str(value)
        case datetime():  # in UTC: PostgreSQL refuses some of the offsets that Python takes
            return value.astimezone(UTC).isoformat()
        case timedelta():
            return f"{value // timedelta(microseconds=1)} microseconds"
        case bytes():
            return f"\\x{value.hex()}"
    return value
