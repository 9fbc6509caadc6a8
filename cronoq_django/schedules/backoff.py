"""Backoff: how long a run waits between attempts."""

import json
import math
import random
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Self


@dataclass(frozen=True, slots=True)
class Backoff:
    """Exponential delays with full jitter: attempt n waits between 0 and min(cap, first × factor^(n−1)) seconds.

    >>> Backoff(first=2, factor=3, cap=600)
    """

    first: float = 5
    factor: float = 2
    cap: float = 3600
    jitter: bool = True

    def __post_init__(self) -> None:
        for name, value, least in (("first", self.first, 0), ("factor", self.factor, 1), ("cap", self.cap, 0)):
            if isinstance(value, bool) or not isinstance(value, int | float) or not least <= value <= 10**9:
                raise ValueError(f"backoff: {name} must be a number from {least} to 1e9, not {value!r}")

    def ceiling(self, attempt: int) -> float:
        """Seconds that the delay after attempt `attempt` (1, 2, …) does not exceed; finite for any attempt."""
        if self.first == 0 or self.cap == 0:
            return 0.0
        # Compared as logarithms: the power itself overflows after some hundred attempts.
        exponent = max(0, attempt - 1) * math.log(self.factor) + math.log(self.first)
        return float(self.cap) if exponent >= math.log(self.cap) else math.exp(exponent)

    def delay(self, attempt: int) -> timedelta:
        """How long to wait after attempt `attempt` before the next."""
        ceiling = self.ceiling(attempt)
        return timedelta(seconds=random.uniform(0, ceiling) if self.jitter else ceiling)  # noqa: S311

    def dump(self) -> str:
        """As JSON text, the way Job and Run keep it."""
        return json.dumps({"first": self.first, "factor": self.factor, "cap": self.cap, "jitter": self.jitter})

    @classmethod
    def load(cls, text: str | None) -> Self:
        """From a row's JSON text; the default for None. Raises ValueError for anything that is no backoff."""
        return cls() if text is None else cls.read(json.loads(text))

    @classmethod
    def read(cls, value: Any) -> Self:
        """From a JSON value, as in an admin form. Raises ValueError."""
        try:
            return cls(**value)
        except TypeError:
            raise ValueError(
                'backoff: give {"first": seconds, "factor": number, "cap": seconds, "jitter": true}'
            ) from None
