"""A TCP proxy in front of PostgreSQL that can go black, as a network does: nothing is closed, nothing arrives.

And it can lose the answer to a COMMIT: the server has written, and who asked for it never hears that.
"""

import socket
import struct
import threading
import time
from contextlib import suppress
from typing import Self
from urllib.parse import parse_qsl, quote, urlencode, urlsplit

import psutil

COMMITTED = b"C\x00\x00\x00\x0bCOMMIT\x00"  # the server's word for it, however it was asked
RESET = struct.pack("ii", 1, 0)  # SO_LINGER: closing sends a reset, and waits for nothing


class TcpProxy:
    """Listens on a free port of 127.0.0.1, for clients of the server that a DATABASE_URL names."""

    def __init__(self, target: str) -> None:
        self._target = target
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self.accepted: list[float] = []  # when each client came (monotonic)
        self._black = False
        self._losing: bytes | None = None
        self.lost = 0  # answers to COMMIT
        self._pairs: list[_Pair] = []
        self._lock = threading.Lock()
        threading.Thread(target=self._accept, name="proxy", daemon=True).start()

    @property
    def url(self) -> str:
        """The DATABASE_URL of its target, through it."""
        return moved(self._target, "127.0.0.1", self.port)

    def attempts_since(self, moment: float) -> int:
        """How many clients came after that moment (monotonic)."""
        return sum(1 for accepted_at in self.accepted if accepted_at > moment)

    def go_black(self) -> None:
        """Swallow what both sides say from now on, and let new clients in only to leave them without an answer."""
        with self._lock:
            self._black = True
            for pair in self._pairs:
                pair.is_dead = True

    def heal(self) -> None:
        """Serve new clients again; those that were swallowed are reset."""
        self.serve_again()
        self.cut(only_dead=True)

    def serve_again(self) -> None:
        """Serve new clients again; those that were swallowed never hear anything, as after a failover."""
        with self._lock:
            self._black = False

    def cut(self, *, only_dead: bool = False) -> None:
        """Reset all connections."""
        with self._lock:
            for pair in [pair for pair in self._pairs if pair.is_dead or not only_dead]:
                self._pairs.remove(pair)
                pair.close()

    def lose_a_commit(self, said: bytes) -> None:
        """Swallow the next answer to a COMMIT of a transaction in which the server said this, and reset the connection.

        What has no answer of its own is told apart by notices, which a trigger can raise.
        """
        with self._lock:
            self._losing = said

    def loses(self, transaction: bytes) -> bool:
        """Whether this commit's answer, after what the server had said since the one before, is to be lost."""
        with self._lock:
            if self._losing is None or self._losing not in transaction:
                return False
            self._losing = None
            self.lost += 1
            return True

    @property
    def is_losing(self) -> bool:
        return self._losing is not None

    def close(self) -> None:
        """End it all."""
        with suppress(OSError):  # what waits in accept() is woken by this alone
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self.cut()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                self.accepted.append(time.monotonic())
                with self._lock:
                    pair = _Pair(self, client, self._target, is_dead=self._black)
                    self._pairs = [pair for pair in self._pairs if not pair.is_closed] + [pair]
                pair.start()


class _Pair:
    """A client and its connection to the server, with a thread for each direction."""

    def __init__(self, proxy: TcpProxy, client: socket.socket, target: str, *, is_dead: bool) -> None:
        self._proxy = proxy
        self._heard = b""  # of the server, since its last commit
        self.is_dead = is_dead
        self.is_closed = False
        self._client = client
        self._server: socket.socket | None = None
        if not is_dead:
            with suppress(OSError):  # the server is away: so is the client, soon
                self._server = connected(target)

    def start(self) -> None:
        if self._server is None and not self.is_dead:
            self.close()
            return
        threading.Thread(target=self._pump, args=(self._client, self._server), daemon=True).start()
        if self._server is not None:
            threading.Thread(target=self._pump, args=(self._server, self._client), daemon=True).start()

    def close(self) -> None:
        self.is_closed = True
        for end in (self._client, self._server):
            if end is not None:
                with suppress(OSError):
                    end.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)
                    end.shutdown(socket.SHUT_RD)  # wakes the thread that reads it
                end.close()

    def _pump(self, source: socket.socket, sink: socket.socket | None) -> None:
        with suppress(OSError):
            while data := source.recv(65536):
                if source is self._server and self._proxy.is_losing and self._is_lost(data):
                    break
                if not self.is_dead and sink is not None:
                    sink.sendall(data)
        if not self.is_dead:  # in the dark nobody hears of the other's end
            self.close()

    def _is_lost(self, data: bytes) -> bool:
        transaction, committed, rest = (self._heard + data).rpartition(COMMITTED)
        self._heard = rest
        return bool(committed) and self._proxy.loses(transaction)


class Effort:
    """What a command and its children spend from now on: CPU time, and connections through a proxy."""

    def __init__(self, pid: int, proxy: TcpProxy) -> None:
        self._process = psutil.Process(pid)
        self._proxy = proxy
        self._begun = time.monotonic()
        self._cpu = self._seconds_of_cpu()

    @property
    def seconds(self) -> float:
        return time.monotonic() - self._begun

    @property
    def cpu(self) -> float:
        """The share of one processor."""
        return (self._seconds_of_cpu() - self._cpu) / self.seconds

    @property
    def attempts(self) -> float:
        """To connect, in a second."""
        return self._proxy.attempts_since(self._begun) / self.seconds

    def _seconds_of_cpu(self) -> float:
        processes = [self._process, *self._process.children(recursive=True)]
        return sum(sum(process.cpu_times()[:4]) for process in processes)  # with those of dead children


def connected(url: str) -> socket.socket:
    """A connection to the server of a DATABASE_URL."""
    host, port = address(url)
    if not host.startswith("/"):
        return socket.create_connection((host, port), timeout=None)
    connection = socket.socket(socket.AF_UNIX)
    try:
        connection.connect(f"{host}/.s.PGSQL.{port}")
    except BaseException:
        connection.close()
        raise
    return connection


def address(url: str) -> tuple[str, int]:
    """The host or the folder of the Unix socket, and the port."""
    parts = urlsplit(url)
    return dict(parse_qsl(parts.query)).get("host") or parts.hostname or "localhost", parts.port or 5432


def moved(url: str, host: str, port: int, **query: str) -> str:
    """A DATABASE_URL with another address, and perhaps more in its query."""
    parts = urlsplit(url)
    login = parts.netloc.rpartition("@")[0]
    kept = {name: value for name, value in parse_qsl(parts.query) if name != "host"}
    return parts._replace(netloc=f"{login}@{host}:{port}", query=urlencode({**kept, **query}, quote_via=quote)).geturl()
