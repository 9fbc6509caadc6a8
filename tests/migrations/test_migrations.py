"""The schema can be taken away and made again, and says all that the models say."""

import pytest
from django.core.management import call_command
from django.db import connection

from cronoq_django.models import Job, JobRevision

OURS = """
    SELECT relname FROM pg_class WHERE relname LIKE 'cronoq%' AND relnamespace = current_schema()::regnamespace
    UNION ALL
    SELECT proname FROM pg_proc WHERE proname LIKE 'cronoq%' AND pronamespace = current_schema()::regnamespace
"""


@pytest.mark.django_db
def test_the_models_have_no_changes_without_a_migration() -> None:
    call_command("makemigrations", "--check", "--dry-run", verbosity=0)


@pytest.mark.django_db(transaction=True)
def test_back_to_nothing_and_forth() -> None:
    call_command("migrate", "cronoq", "zero", verbosity=0)
    try:
        with connection.cursor() as cursor:
            cursor.execute(OURS)
            assert cursor.fetchall() == []
    finally:
        call_command("migrate", "cronoq", verbosity=0)
    job = Job.objects.create(name="after", script="x", kind="manual")
    assert JobRevision.objects.filter(job=job).count() == 1
