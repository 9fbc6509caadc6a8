"""What tests ask of runs, and of the lines that their tasks left."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from django.db import connection

from cronoq_django.models import Run


def status_of(result: Any) -> str:
    return str(Run.objects.values_list("status", flat=True).get(pk=result.id))


def finished(*results: Any) -> Callable[[], bool]:
    return lambda: not Run.objects.filter(pk__in=[r.id for r in results], finished_at__isnull=True).exists()


def lines(path: Path) -> list[str]:
    return path.read_text().splitlines() if path.exists() else []


@contextmanager
def witnessed_claims() -> Iterator[Callable[[], list[tuple[Any, ...]]]]:
    """Notes each claim while it lasts: run, claim, worker, and when."""
    with connection.cursor() as cursor:
        cursor.execute(
            "CREATE TABLE witness (run uuid, claim bigint, worker uuid, at timestamptz DEFAULT clock_timestamp()); "
            "CREATE FUNCTION witness() RETURNS trigger LANGUAGE plpgsql SET search_path FROM CURRENT AS $$ BEGIN "
            "INSERT INTO witness VALUES (NEW.id, NEW.claim, NEW.worker_id); RETURN NEW; END $$; "
            "CREATE TRIGGER witness AFTER UPDATE ON cronoq_run FOR EACH ROW "
            "WHEN (NEW.claim IS DISTINCT FROM OLD.claim AND NEW.claim IS NOT NULL) EXECUTE FUNCTION witness()"
        )

    def claims() -> list[tuple[Any, ...]]:
        with connection.cursor() as cursor:
            cursor.execute("SELECT run, claim, worker, at FROM witness ORDER BY claim")
            return list(cursor.fetchall())

    try:
        yield claims
    finally:
        with connection.cursor() as cursor:
            cursor.execute("DROP FUNCTION witness() CASCADE; DROP TABLE witness")
