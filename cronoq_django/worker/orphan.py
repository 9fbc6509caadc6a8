"""A process that outlives its parent would execute runs that nobody renews: it ends itself."""

import multiprocessing
import os
import threading
from multiprocessing.connection import wait


def exit_with_parent() -> None:
    """From now on, end this process as soon as the one that spawned it is gone. No-op in a process of its own."""
    parent = multiprocessing.parent_process()
    if parent is None:
        return
    sentinel = parent.sentinel

    def watch() -> None:
        wait([sentinel])
        os._exit(1)

    threading.Thread(target=watch, name="cronoq-parent", daemon=True).start()
