"""The example's settings, on a cluster of the benchmarks' own."""

import logging

from cronoq_django.routers import cluster
from example_project.settings import *  # noqa: F403
from example_project.settings import DATABASES, LOGGING

DATABASES["benchmarks"] = cluster(DATABASES["default"], "cronoq_benchmarks")
DATABASE_ROUTERS = ["cronoq_django.routers.ClusterRouter"]
DEBUG = False
CRONOQ = {"DATABASE": "benchmarks", "LEADER_TTL": 600}  # it is idle while the tables are filled
LOGGING["loggers"]["cronoq"]["level"] = logging.ERROR
