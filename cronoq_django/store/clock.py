"""The clock: the database's, unless a test has put an instant in its place (`cronoq_django.testing.freeze`)."""

from datetime import datetime

from django.utils import timezone

frozen: datetime | None = None  # what every statement takes that is given no `now`


def now() -> datetime:
    """The time of day here, for what a caller gives as a delay; what is due is the database's to say."""
    return frozen or timezone.now()
