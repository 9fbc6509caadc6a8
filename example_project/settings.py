"""Settings of the example. Each value that a deployment would change comes from the environment.

Importing them starts nothing and needs no database: `manage.py` and the tests see to DATABASE_URL before.
"""

from pathlib import Path
from typing import Any

import django
import environ

env = environ.Env()

BASE_DIR = Path(__file__).resolve().parent.parent

DEBUG = env.bool("DEBUG", default=True)
SECRET_KEY = env.str("SECRET_KEY", default="insecure-and-only-for-development")
ALLOWED_HOSTS = env.list("ALLOWED_HOSTS", default=["localhost", "127.0.0.1", "[::1]"])

DATABASES: dict[str, dict[str, Any]] = {"default": env.db_url("DATABASE_URL", default="postgres:///postgres")}
# django-environ leaves `?host=/folder/of/the/socket` among the options, where `manage.py dbshell` doesn't look.
if "host" in (options := DATABASES["default"].get("OPTIONS", {})):
    DATABASES["default"]["HOST"] = options.pop("host")

INSTALLED_APPS = [
    "django.contrib.admin",
    "django.contrib.auth",
    "django.contrib.contenttypes",
    "django.contrib.sessions",
    "django.contrib.messages",
    "django.contrib.staticfiles",
    "cronoq_django",
    "example_project.shop",
]
if django.VERSION < (6, 0):
    INSTALLED_APPS.append("django_tasks")  # what django.tasks is from 6.0 on

TASKS = {"default": {"BACKEND": "cronoq_django.backend.CronoqBackend"}}

MIDDLEWARE = [
    "django.middleware.security.SecurityMiddleware",
    "django.contrib.sessions.middleware.SessionMiddleware",
    "django.middleware.common.CommonMiddleware",
    "django.middleware.csrf.CsrfViewMiddleware",
    "django.contrib.auth.middleware.AuthenticationMiddleware",
    "django.contrib.messages.middleware.MessageMiddleware",
    "django.middleware.clickjacking.XFrameOptionsMiddleware",
]

ROOT_URLCONF = "example_project.urls"

TEMPLATES = [
    {
        "BACKEND": "django.template.backends.django.DjangoTemplates",
        "APP_DIRS": True,
        "OPTIONS": {
            "context_processors": [
                "django.template.context_processors.request",
                "django.contrib.auth.context_processors.auth",
                "django.contrib.messages.context_processors.messages",
            ]
        },
    }
]

DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"
LANGUAGE_CODE = "en"
USE_I18N = True
USE_TZ = True
TIME_ZONE = "UTC"
STATIC_URL = "static/"

LOGGING = {
    "version": 1,
    "disable_existing_loggers": False,
    "formatters": {"line": {"format": "{asctime} {levelname:<7} {process} {name}: {message}", "style": "{"}},
    "handlers": {"stderr": {"class": "logging.StreamHandler", "formatter": "line"}},
    "loggers": {"cronoq": {"handlers": ["stderr"], "level": env.str("LOG_LEVEL", default="INFO")}},
}
