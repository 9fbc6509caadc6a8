"""What all tests share."""

import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from cronoq_django import registry


@pytest.fixture(scope="session", autouse=True)
def _tasks() -> None:
    """Leaders, workers and the admin import the `tasks` modules when they start; tests do here."""
    registry.autodiscover()


@pytest.fixture
def wait_until() -> Callable[..., Any]:
    """Wait for a fact, and fail when it is late: `wait_until(lambda: Run.objects.exists(), seconds=5)`; its value."""

    def wait(fact: Callable[[], Any], *, seconds: float = 10, what: str = "") -> Any:
        deadline = time.monotonic() + seconds
        while not (value := fact()):
            if time.monotonic() > deadline:
                pytest.fail(f"did not happen within {seconds} s: {what or fact.__name__}")
            time.sleep(0.02)
        return value

    return wait


@pytest.fixture
def leading(transactional_db: None) -> Iterator[Any]:
    """A fence of a real term on a real session, for running stages by hand."""
    from cronoq_django.leader.election import Election, Identity

    election = Election("default", Identity())
    fence = election.try_to_lead()
    assert fence is not None
    fence.election = election
    yield fence
    election.close()
