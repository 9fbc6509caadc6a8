"""A wall clock that lies, for processes under test. What it needs is a C compiler, and Linux."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

needs_a_compiler = pytest.mark.skipif(
    not (sys.platform == "linux" and shutil.which("cc")), reason="no C compiler, or no Linux: clocks can't be faked"
)


class Clock:
    """The wall clock of some processes, off by seconds that can be changed while they run."""

    def __init__(self, folder: Path, name: str = "clock") -> None:
        self._file = folder / name
        library = folder / "clock.so"
        if not library.exists():
            source = Path(__file__).with_name("clock.c")
            subprocess.run(["cc", "-shared", "-fPIC", "-o", str(library), str(source), "-ldl"], check=True)
        self.set(0)
        self.environment = {"LD_PRELOAD": str(library), "CLOCK_FILE": str(self._file)}

    def set(self, seconds: int) -> None:
        new = self._file.with_suffix(".new")
        new.write_text(str(seconds))
        new.chmod(0o644)  # for processes of other users, too
        new.replace(self._file)
