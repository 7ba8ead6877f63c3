"""A peer that may connect to a gRPC socket and sends nonsense gets an error and costs one line of the log."""

from __future__ import annotations

import logging
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import grpc
import pytest
from google.protobuf.message import Message
from tests.service.message_tables import build_messages
from tests.service.recorded_log import RecordedLog

from mooring.service.grpc_socket import CallRefusedError, GRPCSocket, Method

SERVICE = "example.Echo"
TEXT = build_messages("example", {"Text": "1 text string"})["Text"]
TIMEOUT = 60


def echo(asked: Any) -> Message:
    if asked.text == "refuse":
        raise CallRefusedError("NOT_FOUND", "not here")
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
    assert refused(channel, TEXT(text="refuse").SerializeToString()) == (grpc.StatusCode.NOT_FOUND, "not here")
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
        "found = {'asyncio', 'grpc', 'ssl'} & set(sys.modules); socket.close(); sys.exit(str(found or ''))"
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
