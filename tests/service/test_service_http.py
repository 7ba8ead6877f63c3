"""The HTTP server answers every proper request, however many clients are idle or slow; sockets come and go cleanly."""

from __future__ import annotations

import gc
import logging
import socket
import stat
import subprocess
import sys
import threading
import warnings
import weakref
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager, suppress
from http.client import HTTPConnection
from pathlib import Path

import pytest
from tests.patience import until

from mooring.engine.core.errors import InputError
from mooring.service.daemon import is_answered, settle, uncollected
from mooring.service.http import (
    ASGIMessage,
    ConnectionLimits,
    HTTPServer,
    Page,
    Receive,
    Send,
    listener_at,
    serve_tcp,
    serve_unix,
)
from mooring.service.options import Address

TIMEOUT = 60
PATIENT = 3600.0
LARGE = 16 << 20
"""Bytes: more than the system keeps for a client that does not read."""
ANY_PORT = Address("127.0.0.1", 0)
PAGES = {
    "/hello": lambda: Page(b"hello\n"),
    "/large": lambda: Page(b"x" * LARGE),
    "/broken": lambda: Page(str(1 // 0).encode()),
}


@pytest.fixture
def server() -> Iterator[HTTPServer]:
    found = serve_tcp(ANY_PORT, PAGES)
    yield found
    found.close()


@contextmanager
def patient(connections: int = 64, seconds: float = PATIENT) -> Iterator[HTTPServer]:
    """Serve without a limit in time, or with the same for everything."""
    limits = ConnectionLimits(seconds, seconds, seconds, seconds, connections)
    with closing(HTTPServer(listener_at(ANY_PORT, ""), PAGES, limits)) as found:
        yield found


def get(server: HTTPServer, path: str, method: str = "GET") -> tuple[int, bytes]:
    host, port = server.address
    with closing(HTTPConnection(host, port, timeout=TIMEOUT)) as connection:
        connection.request(method, path)
        answer = connection.getresponse()
        return answer.status, answer.read()


def raw_open(server: HTTPServer, data: bytes) -> bytes:
    """Send bytes, and return what comes back until the other side closes."""
    with socket.create_connection(server.address, timeout=TIMEOUT) as connection:
        connection.sendall(data)
        with suppress(ConnectionError):
            return connection.recv(4096)
    return b""


def raw(server: HTTPServer, data: bytes) -> bytes:
    """Send bytes and return what comes back until the other side closes."""
    parts: list[bytes] = []
    # A client that sends more than is read meets a closed connection.
    with socket.create_connection(server.address, timeout=TIMEOUT) as connection, suppress(ConnectionError):
        connection.sendall(data)
        with suppress(OSError):
            connection.shutdown(socket.SHUT_WR)
        while part := connection.recv(4096):
            parts.append(part)
    return b"".join(parts)


def test_pages_are_served_whole(server: HTTPServer) -> None:
    assert get(server, "/hello") == (200, b"hello\n")
    assert get(server, "/hello?x=1") == (200, b"hello\n")
    assert get(server, "/hello", "HEAD") == (200, b"")
    assert get(server, "/other") == (404, b"there are /broken, /hello, /large\n")
    assert get(server, "/hello", "POST")[0] == 405
    assert len(get(server, "/large")[1]) == LARGE


def test_a_client_wakes_once_for_an_answer(server: HTTPServer) -> None:
    for _ in range(20):
        assert raw_open(server, b"GET /hello HTTP/1.1\r\nHost: a\r\n\r\n").endswith(b"\r\n\r\nhello\n")


def test_a_client_that_sends_no_more_is_still_answered(server: HTTPServer) -> None:
    assert raw(server, b"GET /hello HTTP/1.0\r\n\r\n").endswith(b"\r\n\r\nhello\n")


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\r\n\r\n",
        b"\0\xff\r\n\r\n",
        b"GET",
        b"GET /hello\r\n\r\n",
        b"GET /" + b"x" * 200_000 + b" HTTP/1.1\r\n\r\n",
    ],
    ids=["nothing", "no line", "garbage", "torn", "without a version", "long"],
)
def test_whatever_comes_the_next_one_is_served(
    data: bytes, server: HTTPServer, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.INFO):
        assert b" 200 " not in raw(server, data)
    assert get(server, "/hello") == (200, b"hello\n")
    assert caplog.records == []


def test_a_page_that_fails_is_an_error_and_a_line_of_the_log(
    server: HTTPServer, caplog: pytest.LogCaptureFixture
) -> None:
    assert get(server, "/broken") == (500, b"internal error: ZeroDivisionError\n")
    assert [line.getMessage() for line in caplog.records] == ["internal error; a page was not made: /broken"]
    assert get(server, "/hello") == (200, b"hello\n")


SLOW = {
    "nothing": b"",
    "half a line": b"GET /hel",
    "half a head": b"GET /hello HTTP/1.1\r\nHost: a\r\n",
    "stays": b"HEAD /hello HTTP/1.1\r\nHost: a\r\n\r\n",
}
NOT_READING = b"GET /large HTTP/1.1\r\nHost: a\r\n\r\n"


@pytest.mark.parametrize("sent", SLOW.values(), ids=SLOW)
def test_a_thousand_idle_and_slow_clients_keep_nobody_out(sent: bytes) -> None:
    with patient() as server, ExitStack() as opened:
        for number in range(1000):
            slow = opened.enter_context(socket.create_connection(server.address, timeout=TIMEOUT))
            with suppress(ConnectionError):
                slow.sendall(sent)
            if number % 100 == 99:
                assert get(server, "/hello") == (200, b"hello\n")


def test_the_client_that_has_waited_longest_makes_room() -> None:
    with patient(connections=3) as server, ExitStack() as opened:
        clients = [opened.enter_context(socket.create_connection(server.address, timeout=TIMEOUT)) for _ in range(3)]
        assert get(server, "/hello") == (200, b"hello\n")
        assert clients[0].recv(1) == b""
        for client in clients[1:]:
            client.sendall(b"GET /hello HTTP/1.0\r\n\r\n")
            assert client.recv(4096).startswith(b"HTTP/1.1 200 ")


def test_clients_that_do_not_read_their_answers_keep_nobody_out() -> None:
    with patient(connections=8) as server, ExitStack() as opened:
        for _ in range(20):
            slow = opened.enter_context(socket.create_connection(server.address, timeout=TIMEOUT))
            slow.sendall(NOT_READING)
            assert get(server, "/hello") == (200, b"hello\n")


def test_a_request_with_two_lengths_is_refused_and_what_follows_is_not_answered(server: HTTPServer) -> None:
    hidden = b"GET /hello HTTP/1.1\r\nHost: a\r\n\r\n"
    framing = b"Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n"
    said = raw(server, b"GET /hello HTTP/1.1\r\nHost: a\r\n" + framing + hidden)
    assert said.startswith(b"HTTP/1.1 400 ")
    assert said.count(b"HTTP/1.1 ") == 1


def test_bodies_that_do_not_come_make_room_before_answers_under_way() -> None:
    """Streams of people live for an hour; a client without a right has no whole request."""
    slow = b"POST /hello HTTP/1.1\r\nHost: a\r\nContent-Length: 9\r\n\r\n1"
    begun = threading.Semaphore(0)

    async def answer(scope: ASGIMessage, receive: Receive, send: Send) -> None:
        begun.release()
        if scope["method"] == "GET":
            await send({"type": "http.response.start", "status": 200, "headers": []})
            await send({"type": "http.response.body", "body": b"first", "more_body": True})
        while (await receive())["type"] != "http.disconnect":
            pass

    limits = ConnectionLimits(PATIENT, PATIENT, PATIENT, PATIENT, 4)
    with closing(HTTPServer(listener_at(ANY_PORT, ""), answer, limits)) as server, ExitStack() as opened:
        stream = opened.enter_context(socket.create_connection(server.address, timeout=TIMEOUT))
        stream.sendall(b"GET /events HTTP/1.1\r\nHost: a\r\n\r\n")
        while not stream.recv(4096).endswith(b"first\r\n"):
            pass
        for _ in range(20):
            opened.enter_context(socket.create_connection(server.address, timeout=TIMEOUT)).sendall(slow)
            assert begun.acquire(timeout=TIMEOUT)
        stream.setblocking(False)
        with pytest.raises(BlockingIOError):
            stream.recv(1)


@pytest.mark.parametrize("what", ["body", "answer"])
def test_a_body_and_an_answer_have_times_of_their_own(what: str) -> None:
    async def read(_scope: ASGIMessage, receive: Receive, _send: Send) -> None:
        while (await receive())["type"] != "http.disconnect":
            pass

    limits = ConnectionLimits(
        PATIENT, 0.05 if what == "body" else PATIENT, 0.05 if what == "answer" else PATIENT, PATIENT
    )
    sent = b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\n\r\n" + (b"1" if what == "body" else b"12")
    with closing(HTTPServer(listener_at(ANY_PORT, ""), read, limits)) as server:
        assert raw_open(server, sent) == b""


def test_a_client_that_reads_too_slowly_is_cut() -> None:
    with patient(seconds=0.05) as server, socket.create_connection(server.address, timeout=TIMEOUT) as client:
        client.sendall(NOT_READING)
        until(lambda: not is_open(client), "the connection is cut")
        read = 0
        with suppress(ConnectionError):
            while part := client.recv(1 << 20):
                read += len(part)
        assert read < LARGE


def is_open(client: socket.socket) -> bool:
    """Return whether a client can still send."""
    try:
        client.send(b"x")
    except OSError:
        return False
    return True


def test_until_a_client_connects_nothing_is_imported(tmp_path: Path) -> None:
    code = (
        "import sys; from mooring.service.http import *; "
        f"server = serve_unix({str(tmp_path / 's')!r}, {{}}); "
        "found = {'asyncio', '_ssl', 'h11'} & set(sys.modules); server.close(); sys.exit(str(found or ''))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, timeout=TIMEOUT)
    assert done.stderr.strip() == ""


def test_a_socket_is_there_with_its_permissions_and_gone_at_the_end(tmp_path: Path) -> None:
    path = tmp_path / "run" / "status.sock"
    server = serve_unix(str(path), PAGES)
    try:
        assert stat.S_IMODE(path.stat().st_mode) == 0o660
        assert [entry.name for entry in path.parent.iterdir()] == ["status.sock"]
        with pytest.raises(InputError, match="another process listens there already; stop the other agent"):
            serve_unix(str(path), PAGES)
        assert is_answered(str(path))
    finally:
        server.close()
    assert list(path.parent.iterdir()) == []


def test_the_socket_of_a_killed_agent_is_replaced(tmp_path: Path) -> None:
    path = tmp_path / "status.sock"
    with socket.socket(socket.AF_UNIX) as dead:
        dead.bind(str(path))
    serve_unix(str(path), PAGES).close()


@pytest.mark.parametrize(
    ("make", "says"), [("file", "exists and is not a socket"), ("below", "no socket can be created there")]
)
def test_a_place_for_no_socket_is_refused_and_left_alone(make: str, says: str, tmp_path: Path) -> None:
    file = tmp_path / "status.sock"
    file.write_text("precious", encoding="utf-8")
    with pytest.raises(InputError, match=says):
        serve_unix(str(file if make == "file" else file / "below"), PAGES)
    assert file.read_text(encoding="utf-8") == "precious"
    assert list(tmp_path.iterdir()) == [file]


def test_an_address_that_is_taken_is_bad_input(server: HTTPServer) -> None:
    host, port = server.address
    with pytest.raises(
        InputError, match=f"^{host}:{port}: cannot be listened on: [^:()]*; choose another metricsAddress"
    ):
        serve_tcp(Address(host, port), PAGES)
    with pytest.raises(InputError, match="cannot be listened on"):
        serve_tcp(Address("192.0.2.1", 80), PAGES)  # an address for documentation, which no machine has


@pytest.mark.parametrize("asked", [False, True])
def test_closing_does_not_wait(tmp_path: Path, *, asked: bool) -> None:
    for server in (serve_tcp(ANY_PORT, PAGES), serve_unix(str(tmp_path / "s"), PAGES)):
        if asked and isinstance(server.address, tuple):
            assert get(server, "/hello") == (200, b"hello\n")
        end = threading.Thread(target=server.close, daemon=True)
        end.start()
        end.join(TIMEOUT)
        assert not end.is_alive()


def test_parts_of_an_answer_do_not_wait_for_the_client() -> None:
    with listener_at(Address("127.0.0.1", 0), "") as listener, socket.create_connection(listener.getsockname()):
        accepted, _ = listener.accept()
        with accepted:
            assert accepted.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)


def test_a_connection_that_is_accepted_while_the_server_is_closed_is_closed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def late(sockets: list[socket.socket], *_: object) -> tuple[list[socket.socket], list[object], list[object]]:
        listener, ending = sockets
        assert ending.recv(1, socket.MSG_PEEK)  # the end comes while a client is just being accepted
        return [listener], [], []

    monkeypatch.setattr("mooring.service.http.select.select", late)
    path = str(tmp_path / "status.sock")
    with socket.socket(socket.AF_UNIX) as client, warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        server = serve_unix(path, PAGES)
        client.connect(path)
        server.close()
        gc.collect()
        assert client.recv(1) == b""
    assert [str(one.message) for one in told if "unclosed" in str(one.message)] == []


# What every daemon does to its process while it starts.


def test_the_collector_is_off_during_a_start_and_leaves_out_what_a_settled_daemon_has() -> None:
    before = gc.get_freeze_count()
    with uncollected():
        assert not gc.isenabled()
        settle()
        assert gc.isenabled()
        assert gc.get_freeze_count() > before
    assert (gc.isenabled(), gc.get_freeze_count()) == (True, 0)


def test_cycles_that_were_left_out_are_freed_by_a_whole_collection() -> None:
    class Knot:
        def __init__(self) -> None:
            self.own = self

    knot = Knot()
    gone = weakref.ref(knot)
    try:
        settle()
        del knot
        settle()
        assert gone() is not None
        settle(whole=True)
        assert gone() is None
    finally:
        gc.unfreeze()


# A struct of many members that eight threads decode for the first time at once: not learned before, it is the end.
STRUCTS = """
import sys, threading
import msgspec
from mooring.documents.plan import learn

sys.setswitchinterval(1e-6)
for _ in range(50):
    inner = [(f"member{number}", msgspec.defstruct("One", [("is_so", bool)]) | None, None) for number in range(60)]
    Many = msgspec.defstruct("Many", inner)
    learn(Many)
    together = threading.Barrier(8)
    decode = lambda: together.wait() >= 0 and msgspec.json.decode(b'{"member59": null}', type=Many)
    threads = [threading.Thread(target=decode) for _ in range(8)]
    for one in threads:
        one.start()
    for one in threads:
        one.join()
"""


def test_threads_may_decode_a_struct_for_the_first_time_at_once() -> None:
    subprocess.run([sys.executable, "-c", STRUCTS], check=True, timeout=120)
