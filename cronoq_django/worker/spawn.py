"""The entry of a spawned process. Imports nothing of ours at the top: Django is not set up yet when this is loaded."""

import logging
import os
import threading
from multiprocessing.connection import Connection
from typing import Any

LAST_WORDS = 2.0  # seconds: for what ends by itself when its process does


def child_main(control: Connection, options: dict[str, Any]) -> None:
    """Run a worker child until it has drained. `control` brings messages from the supervisor."""
    import django  # noqa: PLC0415

    django.setup()
    from cronoq_django.conf import serve  # noqa: PLC0415
    from cronoq_django.worker.child import Child  # noqa: PLC0415

    serve(options["alias"])
    try:
        Child(control, **options).run()
    except BaseException:
        # Its threads would keep the process alive, and the supervisor would go on renewing for it.
        logging.getLogger("cronoq.worker").exception("The worker ends.")
        os._exit(1)
    # A thread that a task has left would hold the process, its memory and a stop, for as long as it likes.
    end = threading.Timer(LAST_WORDS, os._exit, (0,))
    end.daemon = True
    end.start()


def supervisor_main(options: dict[str, Any]) -> None:
    """Run a supervisor beside a leader until it has drained."""
    import django  # noqa: PLC0415

    django.setup()
    from cronoq_django.conf import serve  # noqa: PLC0415
    from cronoq_django.worker.supervisor import Supervisor  # noqa: PLC0415

    serve(options["alias"])
    Supervisor(**options).run()
