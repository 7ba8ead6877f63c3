"""The client of unary questions against gRPC's own server, and against peers that are none."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from google.protobuf.message import Message
from h2.config import H2Configuration
from h2.connection import H2Connection
from h2.events import StreamEnded
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.service.message_tables import build_messages
from tests.service.recorded_log import RecordedLog

from mooring.service.grpc_client import CallError, CallStatus, UnaryClient
from mooring.service.grpc_server import serve
from mooring.service.grpc_socket import CallLimits, CallRefusedError, Method

SERVICE, LARGEST, SECONDS = "example.Echo", 300_000, 60.0
TEXT = build_messages("example", {"Text": "1 text string"})["Text"]
ECHO = f"{SERVICE}/Echo"


def echo(asked: Any) -> Message:
    if asked.text == "refuse":
        raise CallRefusedError("NOT_FOUND", "100 % not here: ünbekannt")
    return TEXT(text=asked.text)


def serving(path: str) -> Callable[[], object]:
    return serve(path, SERVICE, {"Echo": Method(TEXT, echo)}, RecordedLog(), CallLimits())


def said(client: UnaryClient, text: str) -> str:
    answer: Any = TEXT.FromString(client.ask(ECHO, TEXT(text=text).SerializeToString(), SECONDS))
    return str(answer.text)


def refusal(client: UnaryClient, text: str = "", seconds: float = SECONDS) -> CallError:
    with pytest.raises(CallError) as caught:
        client.ask(ECHO, TEXT(text=text).SerializeToString(), seconds)
    return caught.value


@pytest.fixture
def path(tmp_path_factory: pytest.TempPathFactory) -> str:
    return str(tmp_path_factory.mktemp("g") / "s")


@pytest.fixture
def client(path: str) -> Iterator[UnaryClient]:
    with closing(UnaryClient(path, LARGEST)) as made:
        yield made


def test_questions_follow_one_another_on_one_connection(path: str, client: UnaryClient) -> None:
    end = serving(path)
    # More than a window of HTTP/2 in all, so that it has to be given back.
    assert [len(said(client, "x" * 20_000)) for _ in range(20)] == [20_000] * 20
    client.close()
    end()


def test_an_answer_of_several_frames_is_put_together_and_one_that_is_too_large_is_refused(
    path: str, client: UnaryClient
) -> None:
    large: dict[str, int] = {"": LARGEST - 10}
    methods = {"Echo": Method(TEXT, lambda asked: TEXT(text="x" * large[asked.text]))}  # type: ignore[attr-defined]
    end = serve(path, SERVICE, methods, RecordedLog(), CallLimits())
    assert len(said(client, "")) == LARGEST - 10
    large[""] = LARGEST + 1
    found = refusal(client)
    assert (found.status, str(found)) == (CallStatus.RESOURCE_EXHAUSTED, f"the answer has more than {LARGEST} bytes")
    large[""] = 4 * LARGEST
    assert refusal(client).status == CallStatus.RESOURCE_EXHAUSTED
    large[""] = LARGEST - 10
    assert len(said(client, "")) == LARGEST - 10
    client.close()
    end()


def test_an_error_has_its_code_and_its_words(path: str, client: UnaryClient) -> None:
    end = serving(path)
    found = refusal(client, "refuse")
    assert (found.status, str(found)) == (CallStatus.NOT_FOUND, "100 % not here: ünbekannt")
    with pytest.raises(CallError, match="Method not found") as caught:
        client.ask(f"{SERVICE}/Other", b"", SECONDS)
    assert caught.value.status == 12
    assert said(client, "again") == "again"
    client.close()
    end()


def test_a_server_that_starts_again_is_asked_on_a_new_connection(path: str, client: UnaryClient) -> None:
    first = serving(path)
    assert said(client, "one") == "one"
    first()
    second = serving(path)
    assert said(client, "two") == "two"
    second()
    assert refusal(client).status == CallStatus.UNAVAILABLE


def test_a_socket_that_is_not_there_is_named(client: UnaryClient) -> None:
    found = refusal(client)
    assert (found.status, str(found)) == (CallStatus.UNAVAILABLE, "no such file or directory")


def test_a_peer_that_never_answers_is_given_up_when_the_time_is_over(path: str, client: UnaryClient) -> None:
    with closing(socket.socket(socket.AF_UNIX)) as silent:
        silent.bind(path)
        silent.listen()
        assert refusal(client, seconds=0.2).status == CallStatus.DEADLINE_EXCEEDED


Peer = Callable[[socket.socket, bytes], object]


def met(path: str, client: UnaryClient, peer: Peer) -> CallError:
    """Return what a client says of a peer that is given its first bytes, and then does as it likes."""
    Path(path).unlink(missing_ok=True)
    with closing(socket.socket(socket.AF_UNIX)) as listener:
        listener.bind(path)
        listener.listen()

        def meet() -> None:
            connection, _ = listener.accept()
            with closing(connection):
                peer(connection, connection.recv(65536))

        meeting = threading.Thread(target=meet)
        meeting.start()
        found = refusal(client)
        meeting.join()
    return found


def server() -> H2Connection:
    made = H2Connection(H2Configuration(client_side=False))
    made.initiate_connection()
    return made


@settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow]
)
@given(data=st.binary(max_size=400), follows=st.booleans())
def test_bytes_that_are_no_answer_are_an_error_of_the_client(
    path: str, client: UnaryClient, data: bytes, *, follows: bool
) -> None:
    sent = (server().data_to_send() if follows else b"") + data
    assert met(path, client, lambda connection, _: connection.sendall(sent)).status == CallStatus.UNAVAILABLE


def whole(there: H2Connection, headers: dict[str, str], body: bytes, trailers: dict[str, str]) -> None:
    there.send_headers(1, [(":status", "200"), *headers.items()])
    there.send_data(1, body)
    there.send_headers(1, list(trailers.items()), end_stream=True)


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (lambda there: whole(there, {}, b"\1\0\0\0\1x", {"grpc-status": "0"}), "the answer is no single message"),
        (lambda there: whole(there, {}, b"\0\0\0\0\2x", {"grpc-status": "0"}), "the answer is no single message"),
        (lambda there: whole(there, {}, b"\0\0", {"grpc-status": "0"}), "the answer is no single message"),
        (lambda there: whole(there, {}, b"\0\0\0\0\0", {"other": "1"}), "the answer has no status"),
        (lambda there: whole(there, {}, b"\0\0\0\0\0", {"grpc-status": "many"}), "the answer has no status"),
        (lambda there: whole(there, {}, b"", {"grpc-status": "9" * 5000}), "the answer has no status"),
        (lambda there: there.send_headers(1, [(":status", "404")], end_stream=True), "the answer has no status"),
        (lambda there: there.reset_stream(1, 11), "the answer was cut (HTTP/2 error 11)"),
        (lambda there: there.close_connection(), "the connection was ended"),
        (lambda there: there.clear_outbound_data_buffer(), "the connection was closed"),
    ],
    ids=[
        "compressed",
        "too short",
        "no prefix",
        "no status",
        "odd status",
        "long status",
        "not gRPC",
        "reset",
        "ended",
        "closed",
    ],
)
def test_an_answer_that_is_not_whole_is_an_error_that_says_so(
    path: str, client: UnaryClient, answer: Callable[[H2Connection], object], words: str
) -> None:
    def peer(connection: socket.socket, received: bytes) -> None:
        there = server()
        while not any(isinstance(event, StreamEnded) for event in there.receive_data(received)):
            received = connection.recv(65536)
        answer(there)
        connection.sendall(there.data_to_send())

    found = met(path, client, peer)
    assert (found.status, str(found)) == (CallStatus.UNAVAILABLE, words)
