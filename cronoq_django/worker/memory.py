"""How much memory this process has."""

import os
import resource
import sys
from pathlib import Path

STATM = Path("/proc/self/statm")


def resident() -> int:
    """Its resident size in bytes; where there is no /proc, the largest that it ever had."""
    if STATM.exists():
        return int(STATM.read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)
