"""Settings of the processes that the fault tests start, on the test's own database: the same, but with short times."""

import environ

from example_project.settings import *  # noqa: F403

env = environ.Env()

CRONOQ = {
    "IMPORTS": ["tests.tasks", *env.list("CRONOQ_IMPORTS", default=[])],
    "LEADER_DSN": env.str("CRONOQ_LEADER_DSN", default=""),
    "LEADER_TTL": env.float("CRONOQ_LEADER_TTL", default=3.0),
    "LEASE": env.float("CRONOQ_LEASE", default=3.0),
    "POLL": env.float("CRONOQ_POLL", default=1.0),
    "GRACE": env.float("CRONOQ_GRACE", default=10.0),
    "RETENTION": env.json("CRONOQ_RETENTION", default={}),
}

DATABASES["default"]["CONN_MAX_AGE"] = env.json("CRONOQ_CONN_MAX_AGE", default=0)  # noqa: F405
if env.bool("CRONOQ_POOL", default=False):
    DATABASES["default"]["OPTIONS"]["pool"] = True  # noqa: F405
