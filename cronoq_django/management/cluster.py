"""What every command of ours needs: the cluster's alias, and the certainty that it can be worked with."""

from argparse import ArgumentTypeError
from typing import Any

from django.core.checks import ERROR, run_checks
from django.core.management.base import BaseCommand, CommandError, CommandParser
from django.db import connections
from django.db.migrations.executor import MigrationExecutor

from cronoq_django import registry
from cronoq_django.errors import translated
from cronoq_django.store.session import alias_of


class ClusterCommand(BaseCommand):
    """A command on one cluster: `--database ALIAS`, system checks, migrations applied, tasks imported."""

    requires_system_checks = ()  # run in `prepare`, with the database

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument(
            "--database", metavar="ALIAS", help="The database of the cluster (default: CRONOQ['DATABASE'])."
        )

    def prepare(self, options: dict[str, Any]) -> str:
        """The alias to work on. Raises CommandError, saying what to do, if that can't be done."""
        alias = alias_of(options["database"])
        if problems := [message for message in run_checks(databases=[alias]) if message.level >= ERROR]:
            raise CommandError("\n".join(str(message) for message in problems))
        try:
            with translated():
                executor = MigrationExecutor(connections[alias])
                wanted = [key for key in executor.loader.graph.leaf_nodes() if key[0] == "cronoq"]
                missing = executor.migration_plan(wanted)
        except Exception as error:
            raise CommandError(f"The database {alias!r} can't be reached: {str(error).strip()}") from error
        if missing:
            raise CommandError(
                f"{len(missing)} migration{'s' if len(missing) > 1 else ''} not applied to {alias!r}: "
                f"run `python manage.py migrate --database {alias}` first."
            )
        if not connections[alias].in_atomic_block:  # a test's
            connections[alias].close()
        registry.autodiscover()
        return alias


def positive(text: str) -> int:
    """A number of a command line that can't be nothing."""
    if not text.isascii() or not text.isdigit() or not 1 <= int(text) <= 1_000_000_000:
        raise ArgumentTypeError(f"{text!r} is not a whole number from 1 on")
    return int(text)


def pool_size(text: str) -> tuple[str, int]:
    """`NAME=N` of a command line."""
    name, _, size = text.rpartition("=")
    if not name or not size.isascii() or not size.isdigit() or not 1 <= int(size) <= 1000:
        raise ArgumentTypeError(f"{text!r} is not NAME=N, with N from 1 to 1000 (for example default=4)")
    return name, int(size)
