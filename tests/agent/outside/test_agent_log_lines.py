"""The log has a reader that may stop reading; the agent goes on all the same."""

from __future__ import annotations

import os
import signal
import subprocess
import threading
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from types import SimpleNamespace

import pytest
from tests.agent.process import PATIENCE, agent_in, begun
from tests.patience import until

from mooring.agent.command import run_agent
from mooring.agent.startup import AgentCommand
from mooring.service.agent_configuration import AgentConfiguration
from mooring.service.logs import Lines


@pytest.fixture
def full() -> Iterator[tuple[int, int, int]]:
    """A pipe without room: its ends, and how many bytes are in it."""
    reader, writer = os.pipe()
    os.set_blocking(writer, False)
    filled = 0
    with suppress(BlockingIOError):
        while True:
            filled += os.write(writer, b"x" * 512)
    os.set_blocking(writer, True)
    yield reader, writer, filled
    os.close(reader)
    with suppress(OSError):
        os.close(writer)


def read(reader: int, count: int) -> str:
    data = b""
    while len(data) < count:
        data += os.read(reader, count - len(data))
    return data.decode()


def test_lines_wait_for_their_reader_and_what_is_too_much_is_counted(full: tuple[int, int, int]) -> None:
    reader, writer, filled = full
    told: list[int] = []
    lines = Lines(writer, told.append, size=2)
    for line in "abcde":
        lines.write(f"{line}\n")
    assert told == []
    read(reader, filled)
    until(lambda: bool(told), "those that were left out are told")
    # Two wait; one more may be on its way to the reader.
    assert told in ([2], [3])
    assert read(reader, 2 * (5 - told[0])) == "a\nb\nc\n"[: 2 * (5 - told[0])]
    lines.write("f\n")
    lines.finish(PATIENCE)
    assert (read(reader, 2), len(told)) == ("f\n", 1)


def test_a_descriptor_that_is_none_takes_everything() -> None:
    before = set(threading.enumerate())
    lines = Lines(-1, lambda _count: None)
    lines.write("a\n")
    lines.finish(PATIENCE)
    assert set(threading.enumerate()) <= before


@pytest.mark.long
def test_the_runtime_is_answered_and_the_agent_ends_though_nobody_reads_its_log(
    full: tuple[int, int, int], tmp_path: Path
) -> None:
    _reader, writer, _filled = full
    with agent_in(tmp_path, more="logLevel: debug") as (agent, listening):
        agent.start = lambda: setattr(  # type: ignore[method-assign]
            agent, "process", subprocess.Popen(agent.words(), stdin=subprocess.DEVNULL, stderr=writer)
        )
        world, runtime = begun(agent, listening)
        assert world.create(runtime, "db", 2)
        assert agent.end() == 0


def test_signals_before_the_agent_is_together_end_it_in_order(monkeypatch: pytest.MonkeyPatch) -> None:
    unheard: list[int] = []
    numbers = (signal.SIGHUP, signal.SIGTERM)
    before = {one: signal.signal(one, lambda number, _frame: unheard.append(number)) for one in numbers}
    closed: list[str] = []

    def slow(*_: object) -> None:
        try:
            for one in numbers:
                signal.raise_signal(one)
        finally:
            closed.append("what was opened")

    beginning = SimpleNamespace(configuration=AgentConfiguration(), node="n", machine=SimpleNamespace(name="m"))
    monkeypatch.setattr("mooring.agent.startup.read_startup", lambda _asked: beginning)
    monkeypatch.setattr("mooring.service.logs.open_log", lambda *_: (None, Lines(-1, lambda _count: None)))
    monkeypatch.setattr("mooring.agent.agent.Agent", slow)
    try:
        run_agent(AgentCommand("agent.yaml"), {})
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
    assert (unheard, closed) == ([], ["what was opened"])


def test_a_signal_as_soon_as_the_agent_is_together_closes_it(monkeypatch: pytest.MonkeyPatch) -> None:
    done: list[str] = []
    agent = SimpleNamespace(failure=None, start=lambda: done.append("started"), close=lambda: done.append("closed"))

    def told(event: str, **_fields: object) -> None:
        if event == "agent started":
            signal.raise_signal(signal.SIGTERM)

    beginning = SimpleNamespace(configuration=AgentConfiguration(), node="n", machine=SimpleNamespace(name="m"))
    monkeypatch.setattr("mooring.agent.startup.read_startup", lambda _asked: beginning)
    log = SimpleNamespace(info=told, warning=told)
    monkeypatch.setattr("mooring.service.logs.open_log", lambda *_: (log, Lines(-1, lambda _count: None)))
    monkeypatch.setattr("mooring.agent.agent.Agent", lambda *_: agent)
    run_agent(AgentCommand("agent.yaml"), {})
    assert done == ["closed"]
