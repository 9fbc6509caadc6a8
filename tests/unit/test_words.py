"""Words that stand in two places are the same words."""

from cronoq_django.models import choices
from cronoq_django.schedules import Misfire, Overlap


def test_policies_of_schedules_and_of_columns() -> None:
    assert set(choices.Misfire.values) == {policy.value for policy in Misfire}
    assert set(choices.Overlap.values) == {policy.value for policy in Overlap}


def test_every_ended_state_but_success_has_reasons() -> None:
    assert set(choices.REASONS) == set(choices.TERMINAL) - {choices.Status.SUCCEEDED}
    assert sum(map(len, choices.REASONS.values())) == len(choices.Reason)
