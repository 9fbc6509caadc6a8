"""What is published: the files of the sdist and the wheel, and that the wheel works in a project with nothing else."""

import importlib.metadata
import os
import re
import shutil
import signal
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from uuid import uuid4

import django
import psycopg
import pytest
from psycopg.conninfo import conninfo_to_dict

ROOT = Path(__file__).resolve().parents[2]
PATIENCE_SECONDS = 60

pytestmark = [pytest.mark.fault, pytest.mark.timeout(400)]  # pip fetches Django and psycopg

BUILD = "import sys, setuptools.build_meta as backend; print(getattr(backend, f'build_{sys.argv[1]}')(sys.argv[2]))"

TASKS_MODULE = """
from cronoq_django import every, job, task

@task
def add(a: int, b: int) -> int:
    return a + b

@job("tick", every(seconds=1))
@task
def tick() -> str:
    return "tock"
"""


class Environment:
    """A new virtual environment, in which nothing of this checkout or of its settings is known."""

    def __init__(self, folder: Path) -> None:
        self.bin = folder / "bin"
        subprocess.run([sys.executable, "-m", "venv", folder], check=True)

    def install(self, *requirements: str, constraints: Path | None = None) -> None:
        options = ["--quiet", "--disable-pip-version-check"]
        options += ["--constraint", str(constraints)] if constraints else []
        self.run("python", "-m", "pip", "install", *options, *requirements, cwd=self.bin)

    def run(self, program: str, *arguments: str, cwd: Path) -> str:
        """What the program prints; if it fails, so does the test, with that."""
        process = self.start(program, *arguments, cwd=cwd, stdout=subprocess.PIPE)
        said = process.communicate()[0]
        assert process.returncode == 0, f"{program} {arguments}:\n{said}"
        return said

    def start(self, program: str, *arguments: str, cwd: Path, stdout: Any) -> "subprocess.Popen[str]":
        ours = ("DJANGO_", "DATABASE_URL", "CRONOQ_", "PYTHON", "PYTEST_", "VIRTUAL_ENV", "COV_")
        return subprocess.Popen(
            [self.bin / program, *arguments],
            cwd=cwd,
            env={name: value for name, value in os.environ.items() if not name.startswith(ours)},
            text=True,
            stdin=subprocess.DEVNULL,
            stdout=stdout,
            stderr=subprocess.STDOUT,
        )


@pytest.fixture(scope="module")
def distributions(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """The sdist of a copy of the checkout, and the wheel that is made from the sdist alone: their paths.

    In place, a `build` folder that is lying about would give the wheel files that were deleted long ago.
    """
    folder = tmp_path_factory.mktemp("distributions")
    leftovers = shutil.ignore_patterns(".*", "__pycache__", "build", "dist", "*.egg-info")
    shutil.copytree(ROOT, folder / "checkout", ignore=leftovers)
    environment = Environment(folder / "environment")
    environment.install(*tomllib.loads((ROOT / "pyproject.toml").read_text())["build-system"]["requires"])

    def build(kind: str, source: Path) -> Path:
        return folder / environment.run("python", "-c", BUILD, kind, str(folder), cwd=source).splitlines()[-1]

    sdist = build("sdist", folder / "checkout")
    shutil.unpack_archive(sdist, folder)
    return sdist, build("wheel", folder / sdist.name.removesuffix(".tar.gz"))


@pytest.fixture
def database() -> Iterator[dict[str, Any]]:
    """A new, empty database on the tests' server: what psycopg needs to connect to it."""
    server = os.environ["DATABASE_URL"]
    name = f"package_{uuid4().hex[:12]}"
    parts = conninfo_to_dict(server)
    with psycopg.connect(server, autocommit=True) as connection:
        connection.execute(f"CREATE DATABASE {name}")
        yield {"dbname": name} | {key: parts[key] for key in ("user", "password", "host", "port") if parts.get(key)}
        connection.execute(f"DROP DATABASE {name} WITH (FORCE)")


def files_below(*folders: str) -> set[str]:
    """The files of the checkout that somebody wrote."""
    return {
        str(path.relative_to(ROOT))
        for folder in folders
        for path in (ROOT / folder).rglob("*")
        if path.is_file() and path.suffix != ".pyc" and "/." not in str(path.relative_to(ROOT))
    }


def test_the_wheel_has_the_whole_app_and_nothing_else(distributions: tuple[Path, Path]) -> None:
    """Templates, SQL and `py.typed` are not code: forgotten in the configuration, they are only missed by users."""
    with zipfile.ZipFile(distributions[1]) as wheel:
        names = {name for name in wheel.namelist() if not name.endswith("/")}
    metadata = {name for name in names if ".dist-info/" in name}
    assert names - metadata == {name for name in files_below("cronoq_django") if not name.endswith(".po")}
    assert {"LICENSE", "METADATA", "RECORD", "WHEEL"} <= {name.rpartition("/")[2] for name in metadata}
    for kind in (r"store/sql/\w+\.sql", r"migrations/\w+\.sql", r"templates/.+\.html", r"static/.+\.css", r"py\.typed"):
        assert any(re.fullmatch(f"cronoq_django/{kind}", name) for name in names), kind


def test_the_sdist_has_all_that_the_tests_and_readers_need(distributions: tuple[Path, Path]) -> None:
    sdist = distributions[0]
    with tarfile.open(sdist) as archive:
        names = {member.name.partition("/")[2] for member in archive if member.isfile()}
    made = {name for name in names if ".egg-info/" in name} | {"PKG-INFO", "setup.cfg"}
    roots = {"LICENSE", "README.md", "CHANGELOG.md", "CONTRIBUTING.md", "MANIFEST.in", "Makefile"}
    roots |= {"manage.py", "pyproject.toml"}
    folders = ("cronoq_django", "docs", "example_project", "tests", "tools", "benchmarks")
    assert names - made == roots | files_below(*folders)


def test_the_wheel_works_in_an_empty_project(
    distributions: tuple[Path, Path], database: dict[str, Any], tmp_path: Path, wait_until: Callable[..., Any]
) -> None:
    """Only INSTALLED_APPS, TASKS and DATABASES are edited, and only what the wheel asks for is installed."""
    constraints = tmp_path / "constraints.txt"  # the versions that these tests run with
    versions = {each.name: each.version for each in importlib.metadata.distributions() if each.name != "cronoq-django"}
    constraints.write_text("".join(f"{name}=={version}\n" for name, version in versions.items()))
    environment = Environment(tmp_path / "environment")
    extra = "[django52]" if django.VERSION < (6, 0) else ""
    environment.install(f"{distributions[1]}{extra}", constraints=constraints)

    environment.run("django-admin", "startproject", "site_of_a_user", str(tmp_path), cwd=tmp_path)
    environment.run("python", "manage.py", "startapp", "shop", cwd=tmp_path)
    (tmp_path / "shop" / "tasks.py").write_text(TASKS_MODULE)
    apps = ["cronoq_django", "shop"] + (["django_tasks"] if django.VERSION < (6, 0) else [])
    alias = {"ENGINE": "django.db.backends.postgresql"}
    alias |= {"NAME" if name == "dbname" else name.upper(): value for name, value in database.items()}
    with (tmp_path / "site_of_a_user" / "settings.py").open("a") as settings:
        settings.write(f"\nINSTALLED_APPS += {apps}\n")
        settings.write('TASKS = {"default": {"BACKEND": "cronoq_django.backend.CronoqBackend"}}\n')
        settings.write(f'DATABASES = {{"default": {alias}}}\n')

    def manage(*arguments: str) -> str:
        return environment.run("python", "manage.py", *arguments, cwd=tmp_path)

    place = manage("shell", "-c", "import cronoq_django, django; print(django.__version__, cronoq_django.__file__)")
    assert place.splitlines()[-1].startswith(f"{django.__version__} {tmp_path}/environment/")
    manage("check", "--fail-level", "WARNING")
    manage("migrate")
    manage("makemigrations", "--check", "--dry-run")
    manage("shell", "-c", "from shop.tasks import add; add.enqueue(2, b=3)")

    log = (tmp_path / "log").open("w+")
    processes = [
        environment.start("python", "manage.py", command, cwd=tmp_path, stdout=log)
        for command in ("cronoq_leader", "cronoq_worker")
    ]
    try:
        with psycopg.connect(**database, autocommit=True) as connection:
            ended = "SELECT script, status, result FROM cronoq_run WHERE finished_at IS NOT NULL"
            expected = {("shop.tasks.add", "succeeded", 5), ("shop.tasks.tick", "succeeded", "tock")}
            wait_until(lambda: expected <= set(connection.execute(ended)), seconds=PATIENCE_SECONDS, what="two runs")
        for process in processes:
            process.send_signal(signal.SIGTERM)
        assert [process.wait(PATIENCE_SECONDS) for process in processes] == [0, 0]
    except BaseException:
        log.seek(0)
        print(log.read())
        raise
    finally:
        for process in processes:
            process.kill()
            process.wait()
        log.close()
