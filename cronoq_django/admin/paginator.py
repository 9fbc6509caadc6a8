"""A paginator that doesn't count millions of rows to show fifty."""

import json
from functools import cached_property
from typing import Any

from django.core.paginator import Paginator
from django.db import OperationalError, connections, transaction
from psycopg.errors import QueryCanceled

PATIENCE = "50ms"


class BoundedPaginator(Paginator):
    """Counts exactly if that takes at most 50 ms; else takes the planner's estimate, rounded so that it shows."""

    @cached_property
    def count(self) -> int:
        rows: Any = self.object_list
        try:
            with transaction.atomic(using=rows.db), connections[rows.db].cursor() as cursor:
                cursor.execute("SELECT current_setting('statement_timeout')")
                (before,) = cursor.fetchone()
                cursor.execute("SELECT set_config('statement_timeout', %s, true)", [PATIENCE])
                exact: int = rows.count()
                # Within the caller's transaction the setting would outlive this block.
                cursor.execute("SELECT set_config('statement_timeout', %s, true)", [before])
        except OperationalError as error:
            if not isinstance(error.__cause__, QueryCanceled):
                raise
            return self._estimate(rows)
        return exact

    def _estimate(self, rows: Any) -> int:
        plan = json.loads(rows.order_by().explain(format="json"))
        estimate = int(plan[0]["Plan"]["Plan Rows"])
        # Django shows *all* rows where they fit one page: an estimate that is far too low must not lead there.
        return max(int(float(f"{estimate:.2g}")), 10 * self.per_page)
