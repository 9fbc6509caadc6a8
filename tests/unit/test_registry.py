"""The registry: only registered scripts, and tasks in installed apps, ever run."""

import pytest

from cronoq_django import registry, task
from cronoq_django.errors import Quarantined
from cronoq_django.registry import DeclaredJob
from tests import tasks


def test_a_script_knows_its_signature() -> None:
    script = registry.find("tests.tasks.add")
    assert script.task is tasks.add
    assert str(script.signature) == "(a, b=0)"
    assert script.signature_hash != registry.find("tests.tasks.echo").signature_hash


def test_the_context_is_no_argument_of_a_script() -> None:
    assert str(registry.find("tests.tasks.attempt_of").signature) == "()"


@pytest.mark.parametrize(
    "name", ["os.system", "tests.tasks.gone", "nonsense", "", "django.contrib.auth.models.User", "..x"]
)
def test_nothing_in_a_row_is_run_blindly(name: str) -> None:
    """A row named os.system, and the worker imported and called it."""
    with pytest.raises(Quarantined, match="unknown script"):
        registry.find(name)


def test_two_jobs_of_one_name_are_refused() -> None:
    registry.declare(DeclaredJob("twice", {"script": "a"}))
    try:
        with pytest.raises(ValueError, match="twice"):
            registry.declare(DeclaredJob("twice", {"script": "b"}))
    finally:
        registry._jobs.pop("twice")


def test_two_functions_can_not_share_a_name() -> None:
    """The later one ran the earlier one's rows."""
    with pytest.raises(ValueError, match=r"Two tasks are known as 'tests\.raises'"):
        task(name="tests.raises")(tasks.raise_one_else)
    with pytest.raises(ValueError, match=r"Two tasks are known as 'shop\.charge'"):
        task(name="tests.else", aliases=["shop.charge"])(tasks.raise_one_else)
    with pytest.raises(ValueError, match=r"Two tasks are known as 'tests\.tasks\.raised'"):
        task(name="tests.tasks.raised")(tasks.raise_one_else)
    assert registry.find("tests.raises").task is tasks.raise_one
    assert registry.find("shop.charge").task is tasks.named
