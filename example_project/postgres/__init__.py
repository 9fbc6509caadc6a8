"""A private PostgreSQL for the example, the demo and the tests, for when there is no DATABASE_URL.

`server` starts or joins it, `binaries` finds PostgreSQL's programs and the account to run them as, and `janitor` is the
process that stops it after its last user.
"""

from example_project.postgres.binaries import NoPostgres
from example_project.postgres.server import PrivatePostgres, provide_database_url

__all__ = ["NoPostgres", "PrivatePostgres", "provide_database_url"]
