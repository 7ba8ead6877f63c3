"""The HTTP server answers whoever asks properly and is not held up by whoever does not; sockets come and go cleanly."""

from __future__ import annotations

import socket
import stat
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from http.client import HTTPConnection
from pathlib import Path
from unittest import mock

import pytest
from tests.agent.nri.runtime_side import TIMEOUT
from tests.patience import until

from mooring.core.errors import InputError
from mooring.service import http as serving
from mooring.service import sockets
from mooring.service.http import Page, Server, serve_tcp, serve_unix
from mooring.service.options import Address

PAGES = {"/hello": lambda: Page(b"hello\n"), "/broken": lambda: Page(str(1 // 0).encode())}


@pytest.fixture
def server() -> Iterator[Server]:
    found = serve_tcp(Address("127.0.0.1", 0), PAGES)
    yield found
    found.close()


def get(server: Server, path: str, method: str = "GET") -> tuple[int, bytes]:
    host, port = server.address
    connection = HTTPConnection(host, port, timeout=10)
    try:
        connection.request(method, path)
        answer = connection.getresponse()
        return answer.status, answer.read()
    finally:
        connection.close()


def raw(server: Server, data: bytes) -> bytes:
    """Send bytes and return what comes back until the other side closes."""
    parts: list[bytes] = []
    # Who sends more than is read meets a closed connection.
    with socket.create_connection(server.address, timeout=10) as connection, suppress(ConnectionError):
        connection.sendall(data)
        with suppress(OSError):
            connection.shutdown(socket.SHUT_WR)
        while part := connection.recv(4096):
            parts.append(part)
    return b"".join(parts)


def test_pages_are_served_whole(server: Server) -> None:
    assert get(server, "/hello") == (200, b"hello\n")
    assert get(server, "/hello?x=1") == (200, b"hello\n")
    assert get(server, "/hello", "HEAD") == (200, b"")
    assert get(server, "/other") == (404, b"there are /broken, /hello\n")
    assert get(server, "/hello", "POST")[0] == 501


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\r\n\r\n",
        b"\0\xff\r\n\r\n",
        b"GET",
        b"GET /hello HTTP/9.9\r\n\r\n",
        b"GET /" + b"x" * 20_000 + b" HTTP/1.1\r\n\r\n",
    ],
    ids=["nothing", "no line", "garbage", "torn", "future", "long"],
)
def test_whatever_comes_the_next_one_is_served(data: bytes, server: Server) -> None:
    answer = raw(server, data)
    assert b" 200 " not in answer
    assert get(server, "/hello") == (200, b"hello\n")


def test_a_page_that_fails_closes_its_connection_and_nothing_else(server: Server) -> None:
    assert raw(server, b"GET /broken HTTP/1.0\r\n\r\n") == b""
    assert get(server, "/hello") == (200, b"hello\n")


@contextmanager
def silent_clients(server: Server) -> Iterator[list[socket.socket]]:
    """Connect as many clients as there may be at once, none of which says anything."""
    with ExitStack() as opened:
        yield [
            opened.enter_context(socket.create_connection(server.address, timeout=TIMEOUT))
            for _ in range(serving.CONNECTIONS)
        ]


def until_served(server: Server) -> None:
    """Ask until somebody has time; a thread frees its place just after it has closed its connection."""
    answers: list[tuple[int, bytes]] = []

    def is_served() -> bool:
        answers.append(get(server, "/hello"))
        return answers[-1][0] != 503

    until(is_served, "a thread has time")
    assert answers[-1] == (200, b"hello\n")


def test_clients_that_say_nothing_are_dropped(server: Server) -> None:
    with mock.patch.object(serving, "SECONDS", 0.05), silent_clients(server) as silent:
        assert [connection.recv(1) for connection in silent] == [b""] * len(silent)
    until_served(server)


def test_more_clients_than_the_bound_are_turned_away(server: Server) -> None:
    # None of them is dropped before the last has come, however long that takes.
    with mock.patch.object(serving, "SECONDS", 3600.0), silent_clients(server):
        # Connections are taken in order, so that these eight have the threads.
        assert raw(server, b"GET /hello HTTP/1.0\r\n\r\n").startswith(b"HTTP/1.0 503 ")
    until_served(server)


def test_a_socket_is_there_with_its_permissions_and_gone_at_the_end(tmp_path: Path) -> None:
    path = tmp_path / "run" / "status.sock"
    server = serve_unix(str(path), PAGES)
    try:
        assert stat.S_IMODE(path.stat().st_mode) == 0o660
        assert [entry.name for entry in path.parent.iterdir()] == ["status.sock"]
        with pytest.raises(InputError, match="somebody listens there already; stop the other agent"):
            serve_unix(str(path), PAGES)
        assert sockets.is_answered(str(path))
    finally:
        server.close()
    assert list(path.parent.iterdir()) == []


def test_the_socket_of_a_killed_agent_is_replaced(tmp_path: Path) -> None:
    path = tmp_path / "status.sock"
    with socket.socket(socket.AF_UNIX) as dead:
        dead.bind(str(path))
    serve_unix(str(path), PAGES).close()


@pytest.mark.parametrize(
    ("make", "says"), [("file", "is there and no socket"), ("below", "no socket can be made there")]
)
def test_a_place_for_no_socket_is_refused_and_left_alone(make: str, says: str, tmp_path: Path) -> None:
    file = tmp_path / "status.sock"
    file.write_text("precious", encoding="utf-8")
    with pytest.raises(InputError, match=says):
        serve_unix(str(file if make == "file" else file / "below"), PAGES)
    assert file.read_text(encoding="utf-8") == "precious"
    assert list(tmp_path.iterdir()) == [file]


def test_an_address_that_cannot_be_had_is_bad_input(server: Server) -> None:
    host, port = server.address
    with pytest.raises(
        InputError, match=f"^{host}:{port}: cannot be listened on: [^:()]*; choose another metricsAddress"
    ):
        serve_tcp(Address(host, port), PAGES)
    with pytest.raises(InputError, match="cannot be listened on"):
        serve_tcp(Address("no such host.invalid", 80), PAGES)


def test_closing_does_not_wait_for_the_next_look(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(serving, "POLLING", 3600.0)
    for server in (serve_tcp(Address("127.0.0.1", 0), PAGES), serve_unix(str(tmp_path / "s"), PAGES)):
        closing = threading.Thread(target=server.close, daemon=True)
        closing.start()
        closing.join(60)
        assert not closing.is_alive()
