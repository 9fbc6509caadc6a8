"""cronoq_schema: create, drop and list clusters."""

from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser

from cronoq_django.errors import CronoqError
from cronoq_django.store.schema import create_schema, drop_schema, list_schemas


class Command(BaseCommand):
    help = "Create, drop or list clusters: schemas with our tables, each with a leader and workers of its own."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument(
            "--database", metavar="ALIAS", help="An alias of that database (default: CRONOQ['DATABASE'])."
        )
        actions = parser.add_subparsers(dest="action", required=True)
        for action, said in (
            ("create", "make the schema and our tables, or bring them up to date"),
            ("drop", "remove a cluster with all its rows"),
        ):
            actions.add_parser(action, help=said).add_argument("name")
        actions.add_parser("list", help="the clusters in this database")

    def handle(self, *args: Any, action: str, database: str | None, **options: Any) -> None:
        try:
            match action:
                case "create":
                    made = create_schema(options["name"], using=database)
                    self.stdout.write(f"{options['name']}: {'created' if made else 'was there, and is up to date'}")
                case "drop":
                    drop_schema(options["name"], using=database)
                    self.stdout.write(f"{options['name']}: dropped")
                case "list":
                    self.stdout.writelines(list_schemas(using=database))
        except (CronoqError, ValueError) as error:
            raise CommandError(str(error)) from error
