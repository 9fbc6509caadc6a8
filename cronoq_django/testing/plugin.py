"""The pytest plugin, found by its entry point: the fixture `cronoq`."""

from collections.abc import Iterator
from contextlib import ExitStack
from datetime import datetime
from typing import Any

import pytest

from cronoq_django import testing


class Cronoq:
    """What `cronoq_django.testing` has, for one test; a clock that it froze goes on when the test has ended."""

    def __init__(self, undo: ExitStack) -> None:
        self._undo = undo
        self.advance = testing.advance
        self.assert_enqueued = testing.assert_enqueued
        self.enqueued = testing.enqueued
        self.run_pending = testing.run_pending

    def freeze(self, at: datetime | str) -> None:
        """From now on it is `at`, until `advance`."""
        self._undo.enter_context(testing.freeze(at))


@pytest.fixture
def cronoq(db: Any) -> Iterator[Cronoq]:
    """Run pending work, look what is enqueued, move the clock: `cronoq.run_pending()`.

    >>> def test_invoice(cronoq):
    ...     order.pay()
    ...     cronoq.assert_enqueued(send_invoice, order.pk)
    """
    with ExitStack() as undo:
        yield Cronoq(undo)
