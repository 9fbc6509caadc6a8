"""Sessions of workers: how long they wait, and how long others wait for them; and what they say when they stop."""

from cronoq_django.conf import conf
from cronoq_django.store.session import milliseconds

ANSWER = 15.0  # seconds that the database may take; beyond its own statement_timeout
HURRIED_ANSWER = 3.0  # the same for a supervisor that is to stop
SHUTDOWN = "shutdown: the worker was stopped"  # why a run that was not to be waited for goes back


def session_settings() -> dict[str, str]:
    """A worker that is frozen in a transaction must not keep its runs from being rescued; one with all slots busy has
    nothing to ask for a while, whatever the role's own idle_session_timeout."""
    return {
        "enable_hashjoin": "off",  # few rows are joined with runs: by the primary key, however few runs there are
        "enable_mergejoin": "off",
        "statement_timeout": "10s",
        "lock_timeout": "5s",
        "idle_in_transaction_session_timeout": milliseconds(conf().lease / 2),
        "idle_session_timeout": "0",
    }
