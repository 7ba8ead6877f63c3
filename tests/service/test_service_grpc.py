"""A peer that may connect to a gRPC socket and sends nonsense gets an error and costs one line of the log."""

from __future__ import annotations

import json
import logging
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import grpc
import pytest
from google.protobuf import json_format
from google.protobuf.message import Message
from h2.config import H2Configuration
from h2.connection import H2Connection
from h2.events import StreamEnded
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.service.message_tables import build_messages
from tests.service.recorded_log import RecordedLog

from mooring.engine.core.pod import ClaimedDevice
from mooring.service import messages
from mooring.service.grpc_client import CallError, CallStatus, UnaryClient
from mooring.service.grpc_socket import CallRefusedError, GRPCSocket, Method, Methods, serve
from mooring.service.logs import Log
from mooring.service.messages import Int32, Int64, Map, Repeated, TypedMessage, UInt32, UInt64, at
from mooring.service.podresources import PodResourcesClient, PodResourcesError, pods_in

SERVICE = "example.Echo"
TEXT = build_messages("example", {"Text": "1 text string"})["Text"]
TIMEOUT = 60


def echo(asked: Any) -> Message:
    if asked.text == "refuse":
        raise CallRefusedError("NOT_FOUND", "100 % not here: ünbekannt")
    if asked.text == "break":
        raise ZeroDivisionError
    return TEXT(text=asked.text)


@pytest.fixture
def log() -> RecordedLog:
    return RecordedLog()


@pytest.fixture
def channel(tmp_path: Path, log: RecordedLog) -> Iterator[grpc.Channel]:
    path = str(tmp_path / "echo.sock")
    served = GRPCSocket(path, SERVICE, {"Echo": Method(TEXT, echo)}, log)
    with grpc.insecure_channel(f"unix:{path}", [("grpc.default_authority", "localhost")]) as opened:
        yield opened
    served.close()


def ask(channel: grpc.Channel, data: bytes) -> bytes:
    call: Any = channel.unary_unary(f"/{SERVICE}/Echo")
    answer: bytes = call(data, timeout=TIMEOUT)
    return answer


def refused(channel: grpc.Channel, data: bytes) -> tuple[grpc.StatusCode, str]:
    with pytest.raises(grpc.RpcError) as caught:
        ask(channel, data)
    return caught.value.code(), caught.value.details() or ""


def test_a_malformed_request_is_one_line_without_a_traceback(
    channel: grpc.Channel, log: RecordedLog, caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str]
) -> None:
    with caplog.at_level(logging.DEBUG):
        code, text = refused(channel, b"\xff\xff\xff")
    assert (code, text[:25]) == (grpc.StatusCode.INVALID_ARGUMENT, "3 bytes are no Text: Erro")
    (line,) = log.lines
    assert (line.fields["method"], line.is_of_exception) == (f"{SERVICE}/Echo", False)
    assert "\n" not in str(line.fields["problem"])
    assert [one for one in caplog.records if one.exc_info or "Traceback" in one.getMessage()] == []
    assert "Traceback" not in capfd.readouterr().err
    assert ask(channel, TEXT(text="next").SerializeToString()) == TEXT(text="next").SerializeToString()


def test_an_answer_that_is_an_error_is_no_event(channel: grpc.Channel, log: RecordedLog) -> None:
    assert refused(channel, TEXT(text="refuse").SerializeToString()) == (
        grpc.StatusCode.NOT_FOUND,
        "100 % not here: ünbekannt",
    )
    assert log.lines == []


def test_a_defect_is_told_to_caller_and_log(channel: grpc.Channel, log: RecordedLog) -> None:
    code, text = refused(channel, TEXT(text="break").SerializeToString())
    assert (code, text) == (grpc.StatusCode.INTERNAL, "internal error: ZeroDivisionError")
    assert [(line.event, line.fields["method"], line.is_of_exception) for line in log.lines] == [
        ("internal error; the gRPC request was refused", f"{SERVICE}/Echo", True)
    ]


def test_until_a_client_connects_grpc_is_not_imported(tmp_path: Path) -> None:
    code = (
        "import sys; from mooring.service.grpc_socket import *; "
        f"socket = GRPCSocket({str(tmp_path / 's')!r}, 'a.B', {{}}, None); "
        "found = {'asyncio', 'grpc._cython', 'ssl'} & set(sys.modules); socket.close(); sys.exit(str(found or ''))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, timeout=TIMEOUT)
    assert done.stderr.strip() == ""
    assert list(tmp_path.iterdir()) == []


def test_clients_that_were_there_first_are_served_as_long_as_they_stay(channel: grpc.Channel, tmp_path: Path) -> None:
    path = str(tmp_path / "echo.sock")
    hello = TEXT(text="hello").SerializeToString()
    assert ask(channel, hello) == hello
    options = [("grpc.default_authority", "localhost"), ("grpc.use_local_subchannel_pool", 1)]
    with grpc.insecure_channel(f"unix:{path}", options) as other:
        assert ask(other, hello) == hello
    assert [ask(channel, hello) for _ in range(20)] == [hello] * 20


def test_closing_does_not_wait_for_a_client(tmp_path: Path) -> None:
    served = GRPCSocket(str(tmp_path / "s"), SERVICE, {}, RecordedLog())
    end = threading.Thread(target=served.close, daemon=True)
    end.start()
    end.join(TIMEOUT)
    assert not end.is_alive()


# The client of unary questions against gRPC's own server, and against peers that are none.


LARGEST, SECONDS = 300_000, 60.0
ECHO = f"{SERVICE}/Echo"


@contextmanager
def serving(path: str, client: UnaryClient, answer: Callable[[Any], Message] = echo) -> Iterator[None]:
    """Serve until the client is closed: a server waits for its clients."""
    end = serve(path, SERVICE, {"Echo": Method(TEXT, answer)}, RecordedLog())
    yield
    client.close()
    end()


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
    with serving(path, client):
        # More than a window of HTTP/2 in all, so that it has to be given back.
        assert [len(said(client, "x" * 20_000)) for _ in range(20)] == [20_000] * 20


def test_an_answer_of_several_frames_is_joined_and_a_too_large_one_refused(path: str, client: UnaryClient) -> None:
    size = [LARGEST - 10]
    with serving(path, client, lambda _asked: TEXT(text="x" * size[-1])):
        assert len(said(client, "")) == LARGEST - 10
        size.append(LARGEST + 1)
        found = refusal(client)
        text = f"the answer has more than {LARGEST} bytes"
        assert (found.status, str(found)) == (CallStatus.RESOURCE_EXHAUSTED, text)
        size.append(4 * LARGEST)
        assert refusal(client).status == CallStatus.RESOURCE_EXHAUSTED
        size.append(LARGEST - 10)
        assert len(said(client, "")) == LARGEST - 10


def test_an_error_has_its_code_and_its_words(path: str, client: UnaryClient) -> None:
    with serving(path, client):
        found = refusal(client, "refuse")
        assert (found.status, str(found)) == (CallStatus.NOT_FOUND, "100 % not here: ünbekannt")
        with pytest.raises(CallError, match="Method not found") as caught:
            client.ask(f"{SERVICE}/Other", b"", SECONDS)
        assert caught.value.status == 12
        assert said(client, "again") == "again"


def test_a_server_that_starts_again_is_asked_on_a_new_connection(path: str, client: UnaryClient) -> None:
    methods: Methods = {"Echo": Method(TEXT, echo)}
    for text in ("one", "two"):
        end = serve(path, SERVICE, methods, RecordedLog())
        assert said(client, text) == text
        end()
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
def test_bytes_of_no_answer_are_the_clients_error(
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


# What the PodResources API answers: the recorded answer of a kubelet, and a server that answers as one.


RECORDING = Path(__file__).resolve().parents[3] / "shared/wire/podresources-list-with-dra.json"
GIVEN = ClaimedDevice("", "cpu.mooring.test", "node-real", "numa0", share="170ccf29-8ce7-4d20-8b83-1b3eaa23a1e8")


@pytest.mark.skipif(not RECORDING.exists(), reason="the recordings of the API are not here")
def test_the_recorded_answer_names_claim_driver_pool_device_and_share() -> None:
    message = messages.ListPodResourcesResponseMessage()
    json_format.ParseDict(json.loads(RECORDING.read_bytes())["List"], message, ignore_unknown_fields=True)
    pods = {pod.name: pod for pod in pods_in(message.SerializeToString())}
    assert pods["dra"].containers[0].dynamic == (("cl", GIVEN),)
    assert pods["g1"].containers[0].dynamic == ()


Answer = Callable[[messages.GetPodResourcesRequestMessage], Message]


@pytest.fixture
def kubelet(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[Answer | None], PodResourcesClient]]:
    path, ends = str(tmp_path_factory.mktemp("k") / "s"), list[Callable[[], object]]()

    def started(answer: Answer | None) -> PodResourcesClient:
        methods: Methods = {} if answer is None else {"Get": Method(messages.GetPodResourcesRequestMessage, answer)}
        ends.append(serve(path, messages.PODRESOURCES_SERVICE, methods, Log("test")))
        client = PodResourcesClient(path)
        ends.append(client.close)
        return client

    yield started
    # A server waits for its clients.
    for end in reversed(ends):
        end()


def test_one_pod_is_asked_for_by_its_name(kubelet: Callable[[Answer | None], PodResourcesClient]) -> None:
    def answer(request: messages.GetPodResourcesRequestMessage) -> Message:
        containers = [messages.ContainerResourcesMessage(name=request.pod_namespace)]
        return messages.GetPodResourcesResponseMessage(
            pod_resources=messages.PodResourcesMessage(name=request.pod_name, namespace="seen", containers=containers)
        )

    found = kubelet(answer).get("shop", "web")
    assert found is not None
    assert (found.name, found.namespace, found.containers[0].name) == ("web", "seen", "shop")


def test_a_pod_that_the_kubelet_does_not_know_is_none(kubelet: Callable[[Answer | None], PodResourcesClient]) -> None:
    def answer(request: messages.GetPodResourcesRequestMessage) -> Message:
        raise CallRefusedError("UNKNOWN", f"pod {request.pod_name} in namespace {request.pod_namespace} not found")

    assert kubelet(answer).get("shop", "web") is None


def test_a_kubelet_without_the_question_never_learns_it(kubelet: Callable[[Answer | None], PodResourcesClient]) -> None:
    with pytest.raises(PodResourcesError) as caught:
        kubelet(None).get("shop", "web")
    assert not caught.value.is_transient


def test_a_kubelet_that_is_away_can_answer_later(tmp_path_factory: pytest.TempPathFactory) -> None:
    client = PodResourcesClient(str(tmp_path_factory.mktemp("k") / "none"))
    with pytest.raises(PodResourcesError) as caught:
        client.get("shop", "web", timeout=0.2)
    client.close()
    assert caught.value.is_transient


# A message that is declared as a class is on the wire what a table of the same fields is.


SCALARS = {"text": "ä", "data": b"\0", "flag": True, "share": 0.5, "i": -1, "j": -(2**40), "u": 7, "v": 2**60}


class ScalarsMessage(TypedMessage, package="declared"):
    text: str = at(1)
    data: bytes = at(2)
    flag: bool = at(3)
    share: float = at(4)
    i: Int32 = at(5)
    j: Int64 = at(6)
    u: UInt32 = at(7)
    v: UInt64 = at(900)


class NestedMessage(TypedMessage, package="declared"):
    one: ScalarsMessage = at(1)
    many: Repeated[ScalarsMessage] = at(2)
    words: Repeated[str] = at(3)
    labels: Map[str, str] = at(4)
    by_name: Map[str, ScalarsMessage] = at(5)


TABLES = build_messages(
    "tables",
    {
        "Scalars": "1 text string\n2 data bytes\n3 flag bool\n4 share double\n5 i int32\n6 j int64\n7 u uint32\n"
        "900 v uint64",
        "Nested": "1 one Scalars\n2 many repeated Scalars\n3 words repeated string\n4 labels map string string\n"
        "5 by_name map string Scalars",
    },
)


def test_declared_and_tabled_messages_are_the_same_on_the_wire() -> None:
    one = ScalarsMessage(**SCALARS)  # type: ignore[arg-type]
    message = NestedMessage(one=one, many=[one, ScalarsMessage()], words=["a", "b"], labels={"k": "v"})
    message.by_name["x"].text = "y"
    again = TABLES["Nested"].FromString(message.SerializeToString())
    assert json_format.MessageToDict(again) == json_format.MessageToDict(message)
    assert again.SerializeToString() == message.SerializeToString()
    assert (message.many[0].j, message.by_name["x"].text, dict(message.labels)) == (-(2**40), "y", {"k": "v"})


def test_what_is_not_set_is_absent() -> None:
    message = NestedMessage.FromString(b"")
    assert (message.HasField("one"), message.one.text, list(message.many)) == (False, "", [])
    assert message.SerializeToString() == b""


def test_a_field_of_a_message_that_is_not_declared_is_refused() -> None:
    with pytest.raises(TypeError, match="field one: no message UnheardMessage is declared before this one"):

        class WrongMessage(TypedMessage, package="declared"):
            one: UnheardMessage = at(1)  # type: ignore[name-defined] # noqa: F821
