"""The example's settings for the tests, on the server of DATABASE_URL or on a fast private one of their own."""

import os
from pathlib import Path

import pytest

from cronoq_django.routers import SCHEMA, cluster
from example_project.postgres import NoPostgres, provide_database_url

try:
    provide_database_url(Path(__file__).resolve().parent.parent / ".postgres-test", durable=False)
except NoPostgres as error:
    raise pytest.UsageError(str(error)) from error

from example_project.settings import *  # noqa: F403
from example_project.settings import DATABASES

# Each process of a parallel run has a cluster of its own, in one database: what we promise of clusters is tried by
# every test. The database is made by `django_db_setup` in conftest.py.
DATABASES["default"] = cluster(DATABASES["default"], f"tests_{os.environ.get('PYTEST_XDIST_WORKER', 'alone')}")
DATABASES["default"]["NAME"] = f"test_{DATABASES['default']['NAME']}"
DATABASES["default"].pop(SCHEMA)  # Django's own tables are in it too

DEBUG = False
SECRET_KEY = "for-tests"
PASSWORD_HASHERS = ["django.contrib.auth.hashers.MD5PasswordHasher"]
CRONOQ = {"IMPORTS": ["tests.tasks"]}
