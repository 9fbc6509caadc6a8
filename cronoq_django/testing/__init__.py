"""For the tests of projects that use us: no worker, no leader, nothing committed.

>>> class Tests(TestCase):
...     def test_invoice(self):
...         order.pay()
...         assert_enqueued(send_invoice, order.pk)
...         run_pending()
...         self.assertEqual(len(mail.outbox), 1)

`run_pending` does in this thread, in the transaction of the test, what leader and workers would. `freeze` and `advance`
move the clock that it goes by. With pytest the fixture `cronoq` has all of them. Where a test is not to touch the
database, TASKS may name `cronoq_django.testing.ImmediateBackend` or `DummyBackend`: they take and refuse what the real
backend does.
"""

from typing import TYPE_CHECKING

from cronoq_django.lazy import lazily

if TYPE_CHECKING:
    from cronoq_django.testing.backends import DummyBackend as DummyBackend
    from cronoq_django.testing.backends import ImmediateBackend as ImmediateBackend
    from cronoq_django.testing.clock import advance as advance
    from cronoq_django.testing.clock import freeze as freeze
    from cronoq_django.testing.pending import run_pending as run_pending
    from cronoq_django.testing.runs import assert_enqueued as assert_enqueued
    from cronoq_django.testing.runs import enqueued as enqueued

_HOMES = {
    **dict.fromkeys(("DummyBackend", "ImmediateBackend"), "backends"),
    **dict.fromkeys(("advance", "freeze"), "clock"),
    **dict.fromkeys(("assert_enqueued", "enqueued"), "runs"),
    "run_pending": "pending",
}

__all__ = sorted(_HOMES)  # noqa: PLE0605  (a computed list: one table of names, not two)

__getattr__ = lazily(__name__, _HOMES)
