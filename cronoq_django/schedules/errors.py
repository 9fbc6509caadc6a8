"""The one error of this package."""


class ScheduleError(ValueError):
    """A schedule that can't be kept, refused while someone is there to correct it.

    `field` is the name of the job's column that is wrong ("cron", "timezone", "every", "anchor", "run_at", "jitter",
    …), so that forms can show the message where it belongs; for a moment handed to a method it is the parameter
    ("after", "now").
    """

    def __init__(self, message: str, *, field: str = "") -> None:  # the default is for unpickling, which sets it later
        super().__init__(message)
        self.field = field
