"""The example's settings for the tests, on DATABASE_URL or on a fast private server of their own."""

from pathlib import Path

import pytest

from example_project.postgres import NoPostgres, provide_database_url

try:
    provide_database_url(Path(__file__).resolve().parent.parent / ".postgres-test", durable=False)
except NoPostgres as error:
    raise pytest.UsageError(str(error)) from error

from example_project.settings import *  # noqa: F403

DEBUG = False
SECRET_KEY = "for-tests"
PASSWORD_HASHERS = ["django.contrib.auth.hashers.MD5PasswordHasher"]
CRONOQ = {"IMPORTS": ["tests.tasks"]}
