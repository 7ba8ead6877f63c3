"""Metrics and health show what is, never what was hoped for."""

from __future__ import annotations

import os
import signal
import subprocess
import threading
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families
from tests.agent.outside.nodes import Told, busy, pod, snapshot_of, started
from tests.agent.process import PATIENCE, agent_in, begun
from tests.agent.small_node import cpus
from tests.cli.command import mooring
from tests.patience import until
from tests.service.recorded_log import RecordedLog

from mooring.agent.adapter import SessionListener
from mooring.agent.effects import AgentReport, Effect, Evict, ReportKind
from mooring.agent.metrics import (
    LONGEST_PAUSE,
    AgentMetrics,
    health_pages,
)
from mooring.agent.nri.types import CallTimeoutError, ConnectionLostError, Runtime
from mooring.agent.state import Phase, Setting
from mooring.agent.status import (
    NO_RUNTIME,
    REMEDY,
    SILENCE,
    Published,
    Snapshot,
    unready,
)
from mooring.documents.status import RuntimePart
from mooring.engine.core.bits import NO_NODES
from mooring.engine.core.cpuset import CPUSet
from mooring.engine.node.metric_names import samples
from mooring.service.agent_configuration import AgentConfiguration
from mooring.service.daemon import Heartbeat
from mooring.service.logs import Lines


def metrics_of(snapshot: Snapshot) -> AgentMetrics:
    return AgentMetrics(Published(snapshot))


def scraped(metrics: AgentMetrics) -> dict[tuple[str, tuple[tuple[str, str], ...]], float]:
    """Return every sample, as Prometheus reads the page."""
    found = {}
    for family in text_string_to_metric_families(metrics.text()):
        for sample in family.samples:
            # The parser names counters by the rules of OpenMetrics; one of the kubelet's has another name.
            name = sample.name.removesuffix("_total") if sample.name.endswith("_count_total") else sample.name
            found[name, tuple(sorted(sample.labels.items()))] = sample.value
    return found


def value(metrics: AgentMetrics, name: str, **labels: str) -> float:
    return scraped(metrics)[f"mooring_agent_{name}", tuple(sorted(labels.items()))]


def test_the_kubelets_metrics_stand_there_under_their_names_and_with_their_values() -> None:
    told = busy()
    page = scraped(metrics_of(snapshot_of(told)))
    own = {(name, tuple(sorted(labels))): float(number) for name, labels, number in samples(told.metrics)}
    observed = {key: number for key, number in own.items() if "duration" not in key[0]}
    assert observed
    assert {key: page[key] for key in observed} == observed


def test_what_is_seen_is_that_of_the_snapshot() -> None:
    metrics = metrics_of(snapshot_of(busy()))
    names = ("ready", "connected", "overlap_cpus", "pods", "held_pods", "containers", "pinned_containers")
    assert [value(metrics, name) for name in names] == [1, 1, 0, 3, 1, 5, 4]


def test_effects_count_as_what_they_stand_for() -> None:
    metrics = metrics_of(snapshot_of(started()))
    reports: list[Effect] = [
        AgentReport(ReportKind.REJECTED, "no", reason="TopologyAffinityError"),
        AgentReport(ReportKind.REJECTED, "no"),
        AgentReport(ReportKind.DEVIATION, ""),
        AgentReport(ReportKind.QUOTA_DEVIATION, ""),
        AgentReport(ReportKind.CPUSET_DIFFERED, ""),
        AgentReport(ReportKind.STATE_UNWRITABLE, ""),
        AgentReport(ReportKind.POD_GONE, ""),
    ]
    # A wish for an eviction is none yet.
    for each in (*reports, Evict(pod("db", 1), "no")):
        metrics.count(each)
    assert metrics.counts().evictions == 0
    metrics.evictions.inc()
    metrics.reply_seconds.labels("CreateContainer").observe(0.25)
    metrics.reply_seconds.labels("StopContainer").observe(0.5)
    assert value(metrics, "rejections_total", reason="TopologyAffinityError") == 1
    assert value(metrics, "repairs_total", kind="quota") == 1
    assert value(metrics, "reports_total", kind="pod-gone") == 1
    assert value(metrics, "reply_seconds_bucket", event="CreateContainer", le="0.25") == 1
    counts = metrics.counts()
    assert (counts.rejections, counts.repairs, counts.evictions, counts.state_write_failures) == (2, 3, 1, 1)
    assert (counts.replies, counts.mean_reply_milliseconds) == (2, 375.0)


def test_every_series_of_a_small_label_is_there_from_the_beginning() -> None:
    metrics = metrics_of(snapshot_of(started()))
    assert [value(metrics, "repairs_total", kind=kind) for kind in ("cpuset", "quota", "record")] == [0, 0, 0]
    assert [value(metrics, "configuration_reloads_total", result=each) for each in ("taken", "refused")] == [0, 0]
    assert not [name for name, _ in scraped(metrics) if name.endswith("_created")]


def test_containers_have_series_only_when_they_are_asked_for() -> None:
    metrics = metrics_of(snapshot_of(busy()))
    assert not [name for name, _ in scraped(metrics) if "container_cpus" in name]
    metrics.per_container = True
    found = {key[1]: number for key, number in scraped(metrics).items() if key[0] == "mooring_agent_container_cpus"}
    assert {dict(labels)["cpus"]: number for labels, number in found.items()} == {
        "1-2,9": 3,
        "10": 1,
        "3": 1,
        "4,12": 2,
    }


def test_a_container_that_is_made_again_beside_an_interrupted_one_has_one_series() -> None:
    snapshot = snapshot_of(busy())
    state = snapshot.state
    one = next(each for each in state.containers.values() if each.name == "c0")
    both = state.with_container(replace(one, id="interrupted", phase=Phase.CREATING, unlisted=True))
    metrics = metrics_of(replace(snapshot, state=both))
    metrics.per_container = True
    lines = [line for line in metrics.text().splitlines() if line.startswith("mooring_agent_container_cpus{")]
    assert len(lines) == len({*lines}) == 4


def with_cpus(told: Told, container: str, cpus: str) -> Snapshot:
    snapshot = snapshot_of(told)
    (found,) = (one for one in snapshot.effective if one.startswith(container))
    return replace(snapshot, effective={**snapshot.effective, found: Setting(CPUSet.parse(cpus), NO_NODES)})


@pytest.mark.parametrize(
    ("container", "cpus", "overlap"),
    [("web-c0", "0-15", "1-4,9-10,12"), ("db-c0", "1-2,9-10", "10"), ("db-c1", "", ""), ("cache-c0", "5", "")],
)
def test_whoever_may_run_on_exclusive_cpus_of_others_is_seen(container: str, cpus: str, overlap: str) -> None:
    snapshot = with_cpus(busy(), container, cpus)
    found = CPUSet()
    for one in snapshot.overlaps():
        assert one[0].startswith(container)
        found |= one[2]
    assert str(found) == overlap
    assert value(metrics_of(snapshot), "overlap_cpus") == len(found)
    reasons = ("1 container may run on exclusive CPUs of others",) if overlap else ()
    assert unready(snapshot) == reasons


def test_what_was_told_counts_where_the_kernel_was_not_read() -> None:
    snapshot = snapshot_of(busy())
    state = snapshot.state
    (web,) = (one for one in state.containers.values() if one.id.startswith("web"))
    stray = replace(web, record=replace(web.record, cpus=cpus("0-2")))
    wrong = replace(snapshot, state=state.with_container(stray), effective={})
    assert [str(cpus) for _, _, cpus in wrong.overlaps()] == ["1-2"]
    assert replace(wrong, state=state.with_container(replace(stray, phase=Phase.ENDED))).overlaps() == ()


def test_the_cpus_of_a_container_that_is_being_made_are_still_somebody_elses_to_leave() -> None:
    snapshot = with_cpus(busy(), "web-c0", "0-15")
    state = snapshot.state
    owners = {owner for _, owner, _ in snapshot.overlaps()}
    making = state
    for owner in owners:
        making = making.with_container(replace(state.containers[owner], phase=Phase.CREATED))
    assert replace(snapshot, state=making).overlaps() == ()
    one = min(owners)
    starting = making.with_container(replace(state.containers[one], phase=Phase.STARTING))
    assert {owner for _, owner, _ in replace(snapshot, state=starting).overlaps()} == {one}


@pytest.mark.parametrize(
    ("more", "reason"),
    [
        ({"runtime": NO_RUNTIME}, "the runtime is not connected"),
        ({"runtime": RuntimePart("", "", True, False, "")}, "the runtime has not synchronized yet"),
        ({"is_silent": True}, f"the runtime has not answered for 60 seconds: {REMEDY}"),
        ({"unwritable": "disk full"}, "the state cannot be written: disk full"),
    ],
)
def test_an_agent_is_ready_only_when_everything_is(more: dict[str, Any], reason: str) -> None:
    published = Published(snapshot_of(busy()))
    pages = health_pages(published, Heartbeat(lambda: 0.0))
    assert (pages["/readyz"]().status, pages["/readyz"]().body) == (200, b"ok\n")
    published.publish(snapshot_of(busy(), **more))
    assert (pages["/readyz"]().status, pages["/readyz"]().body) == (503, f"{reason}\n".encode())
    assert pages["/healthz"]().status == 200


def test_an_agent_whose_heart_has_stopped_is_dead_until_it_beats() -> None:
    clock = iter((0.0, LONGEST_PAUSE, LONGEST_PAUSE + 1, LONGEST_PAUSE + 1, LONGEST_PAUSE + 2))
    heartbeat = Heartbeat(clock.__next__)
    page = health_pages(Published(snapshot_of(started())), heartbeat)["/healthz"]
    assert page().status == 200
    assert page().body == b"no heartbeat for 31 seconds\n"
    heartbeat.beat()
    assert page().status == 200


# The log has a reader that may stop reading; the agent goes on all the same.


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
def test_the_runtime_is_answered_and_the_agent_ends_with_its_log_unread(
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


def run_with(monkeypatch: pytest.MonkeyPatch, agent: object, log: object = None) -> None:
    """Run the command with something in the place of the agent and of its log."""
    beginning = SimpleNamespace(configuration=AgentConfiguration(), node="n", machine=SimpleNamespace(name="m"))
    monkeypatch.setattr("mooring.agent.startup.read_startup", lambda _asked: beginning)
    monkeypatch.setattr("mooring.service.logs.open_log", lambda *_: (log, Lines(-1, lambda _count: None)))
    monkeypatch.setattr("mooring.agent.agent.Agent", agent)
    mooring("agent", "--config", "agent.yaml", code=0)


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

    try:
        run_with(monkeypatch, slow)
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

    run_with(monkeypatch, lambda *_: agent, SimpleNamespace(info=told, warning=told))
    assert done == ["closed"]


# A runtime that takes connections and does not answer: noticed, said once, and forgotten when it answers.


RUNTIME = Runtime("containerd", "2.4.2")


class Ignoring:
    """Counts and answers nothing."""

    def __getattr__(self, _name: str) -> Any:
        return self

    def __call__(self, *_args: object, **_fields: object) -> None:
        return None


@dataclass
class Around:
    """What a listener talks to, and its clock."""

    now: float = 1000.0
    is_silent: bool = False
    links: list[RuntimePart] = field(default_factory=list)
    log: RecordedLog = field(default_factory=RecordedLog)

    def show(self, runtime: RuntimePart, *, is_silent: bool) -> None:
        self.links.append(runtime)
        self.is_silent = is_silent

    def listener(self) -> SessionListener:
        holder: Any = self
        rest: Any = Ignoring()
        return SessionListener(holder, rest, rest, self.log, lambda: self.now)

    def later(self, listener: SessionListener, seconds: float) -> bool:
        """Let time go by and return whether the runtime counts as silent then."""
        self.now += seconds
        listener.check()
        return self.is_silent


def said(around: Around) -> int:
    return around.log.events("warning").count("runtime silent")


def test_a_runtime_that_configures_the_plugin_and_never_synchronizes_it_is_silent_after_a_while() -> None:
    around = Around()
    listener = around.listener()
    assert not around.later(listener, 10 * SILENCE)
    listener.connected(RUNTIME)
    assert not around.later(listener, SILENCE - 1)
    assert around.later(listener, 1)
    assert around.later(listener, SILENCE)
    assert said(around) == 1
    listener.synchronized(1, 1)
    assert around.links[-1] == RuntimePart("containerd", "2.4.2", True, True, around.links[-1].since)
    assert not around.later(listener, 10 * SILENCE)


def test_a_runtime_that_registers_no_plugin_is_silent_too_however_often_the_agent_connects() -> None:
    around = Around()
    listener = around.listener()
    for _ in range(6):
        listener.disconnected(CallTimeoutError("no answer"), 5.0)
        assert not around.later(listener, SILENCE / 6 - 0.01)
    listener.disconnected(CallTimeoutError("no answer"), 5.0)
    assert around.later(listener, 1)
    assert not around.links[-1].connected


def test_a_runtime_that_is_away_is_not_silent() -> None:
    around = Around()
    listener = around.listener()
    listener.disconnected(ConnectionLostError("nobody listens"), 5.0)
    assert not around.later(listener, 10 * SILENCE)
    assert said(around) == 0


def test_a_restart_of_a_silent_runtime_is_the_end_of_its_silence() -> None:
    around = Around()
    listener = around.listener()
    listener.connected(RUNTIME)
    assert around.later(listener, SILENCE)
    listener.disconnected(ConnectionLostError("the other side has closed the connection"), 0.1)
    assert not around.later(listener, 10 * SILENCE)
    listener.connected(RUNTIME)
    assert around.later(listener, SILENCE)
    assert said(around) == 2
