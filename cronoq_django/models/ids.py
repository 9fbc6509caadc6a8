"""UUIDv7 ids, made by the client: unique anywhere, increasing within a process.

A retry after a commit whose answer was lost meets its own row; a whole graph of runs goes in with one statement. The
time inside only keeps new rows together in the index; no id is ever read as a time.
"""

import os
import threading
import time
import uuid

_lock = threading.Lock()
_last = 0  # milliseconds << 42 | counter


def uuid7() -> uuid.UUID:
    """A new id, greater than every one this process made before, also when the clock went back."""
    global _last  # noqa: PLW0603
    noise = int.from_bytes(os.urandom(10))
    fresh = (time.time_ns() // 1_000_000) << 42 | (noise >> 32 & ((1 << 41) - 1))
    with _lock:
        # Within a millisecond, or behind a clock set back, count on from the last one.
        _last = fresh if fresh >> 42 > _last >> 42 else _last + 1 + (fresh & 0xFF)
        value = _last
    milliseconds, counter = value >> 42, value & ((1 << 42) - 1)
    high, low = counter >> 30, counter & ((1 << 30) - 1)
    return uuid.UUID(int=milliseconds << 80 | 0x7 << 76 | high << 64 | 0b10 << 62 | low << 32 | noise & 0xFFFFFFFF)
