"""A plugin that stays, one that a runtime starts, and updates over a second connection."""

from __future__ import annotations

import json
import os
import queue
import socket
import threading
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from google.protobuf import json_format
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.agent.nri.runtime_side import (
    CONTAINER,
    POD,
    TIMEOUT,
    Listening,
    Pinning,
    RuntimeSide,
    container_to,
    pod_to,
    update_from,
)
from tests.patience import until
from tests.values import not_none

from mooring.agent.nri.messages import (
    ConfigureRequestMessage,
    ContainerRequestMessage,
    NRIContainerMessage,
    StateChangeEventMessage,
    SynchronizeRequestMessage,
    TTRPCServer,
    UpdateContainerRequestMessage,
)
from mooring.agent.nri.methods import adjustment_to, container_from, pod_from, resources_from, resources_to, update_to
from mooring.agent.nri.plugin import (
    PATIENCE_SECONDS,
    StopSignal,
    connect_to,
    given_by,
    run_given_plugin,
    run_plugin,
    update_by_synchronizing,
)
from mooring.agent.nri.session import PluginOptions, Session
from mooring.agent.nri.types import (
    CallTimeoutError,
    ConnectionLostError,
    ContainerAdjustment,
    ContainerState,
    ContainerUpdate,
    Event,
    LinuxResources,
    MisuseError,
    Mount,
    PodSandbox,
    RemoteError,
    RuntimeContainer,
)
from mooring.service.messages import Int64, Repeated, TypedMessage, at

OPTIONS = PluginOptions(budget=TIMEOUT, call_timeout=TIMEOUT)


class Runtimes:
    """Makes a new runtime for every connection, or none when it is down."""

    def __init__(self, *, down: int = 0, refuse_registration: str = "") -> None:
        self.made: queue.SimpleQueue[RuntimeSide] = queue.SimpleQueue()
        self._down = down
        self._refuse = refuse_registration

    def connect(self) -> socket.socket:
        if self._down:
            self._down -= 1
            raise ConnectionLostError("cannot connect: Connection refused")
        ours, theirs = socket.socketpair()
        self.made.put(RuntimeSide(theirs, refuse_registration=self._refuse))
        return ours


def running(runtimes: Runtimes, stop: StopSignal, **more: Any) -> tuple[threading.Thread, Pinning, Listening]:
    """Run a plugin in a thread, and return what handles its calls and observes it."""
    handler, observer = Pinning(), Listening()
    arguments = (runtimes.connect, handler, OPTIONS, observer, stop)
    thread = threading.Thread(target=run_plugin, args=arguments, kwargs=more, daemon=True)
    thread.start()
    return thread, handler, observer


def test_after_each_loss_the_plugin_comes_back_and_the_pauses_grow_until_it_was_synchronized() -> None:
    runtimes, stop, pauses = Runtimes(down=3), StopSignal(), list[float]()
    thread, handler, _ = running(runtimes, stop, wait=pauses.append)
    for _ in range(2):
        runtime = runtimes.made.get(timeout=TIMEOUT)
        runtime.registered.get(timeout=TIMEOUT)
        runtime.configure()
        runtime.synchronize([POD], [CONTAINER])
        # The call after it returns when the plugin has noted that the Synchronize was answered.
        assert runtime.create().adjust.linux.resources.cpu.cpus == "1"
        runtime.close()
    last = runtimes.made.get(timeout=TIMEOUT)
    last.registered.get(timeout=TIMEOUT)
    stop.set()
    thread.join(TIMEOUT)
    assert not thread.is_alive()
    last.close()
    assert pauses == [0.1, 0.2, 0.4, 0.1, 0.1]
    assert [call[0] for call in handler.calls] == ["configure", "synchronize", "create"] * 2


def test_pauses_have_an_upper_limit() -> None:
    stop, pauses = StopSignal(), list[float]()

    def wait(seconds: float) -> None:
        pauses.append(seconds)
        if len(pauses) == 9:
            stop.set()

    run_plugin(Runtimes(down=100).connect, Pinning(), OPTIONS, Listening(), stop, wait=wait)
    assert pauses == [0.1, 0.2, 0.4, 0.8, 1.6, 3.2, 5.0, 5.0, 5.0]


def test_a_runtime_that_is_silent_for_long_is_asked_and_kept_while_it_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mooring.agent.nri.plugin.QUIET_SECONDS", 0.0)
    asked: queue.SimpleQueue[float | None] = queue.SimpleQueue()
    ping = Session.ping

    def noted(session: Session, timeout: float | None = None) -> None:
        ping(session, timeout)
        asked.put(timeout)

    monkeypatch.setattr(Session, "ping", noted)
    runtimes, stop = Runtimes(), StopSignal()
    thread, _, observer = running(runtimes, stop)
    runtime = runtimes.made.get(timeout=TIMEOUT)
    assert [asked.get(timeout=TIMEOUT) for _ in range(3)] == [PATIENCE_SECONDS] * 3
    stop.set()
    thread.join(TIMEOUT)
    assert not thread.is_alive()
    runtime.close()
    assert (observer.told, runtimes.made.empty()) == ([], True)


def test_a_runtime_that_no_longer_answers_is_given_up_and_connected_to_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mooring.agent.nri.plugin.QUIET_SECONDS", 0.0)
    monkeypatch.setattr("mooring.agent.nri.plugin.PATIENCE_SECONDS", 0.01)
    # Nobody answers a question that no runtime knows.
    monkeypatch.setattr(TTRPCServer, "refuse", lambda *_: None)
    runtimes, stop, observer = Runtimes(), StopSignal(), Listening()
    run_plugin(runtimes.connect, Pinning(), OPTIONS, observer, stop, wait=lambda _: stop.set())
    assert [type(told[1]) for told in observer.told] == [CallTimeoutError]
    runtimes.made.get(timeout=TIMEOUT).close()


def test_a_refused_registration_is_reported_and_tried_again() -> None:
    stop, observer = StopSignal(), Listening()
    runtimes = Runtimes(refuse_registration="invalid plugin index")
    run_plugin(runtimes.connect, Pinning(), OPTIONS, observer, stop, wait=lambda _: stop.set())
    assert [type(told[1]) for told in observer.told] == [RemoteError]
    runtimes.made.get(timeout=TIMEOUT).close()


def test_a_plugin_connects_by_path(tmp_path: Path) -> None:
    path = tmp_path / "nri.sock"
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(path))
        with pytest.raises(ConnectionLostError, match=r"nri.sock: Connection refused"):
            connect_to(str(path))
        listener.listen()
        connect_to(str(path)).close()
    with pytest.raises(ConnectionLostError, match=r"cannot connect to .*: No such file"):
        connect_to(str(tmp_path / "none"))
    with pytest.raises(ConnectionLostError, match="cannot connect to"):
        connect_to(str(tmp_path / ("x" * 200)))


def test_a_plugin_that_a_runtime_starts_takes_socket_name_and_index_from_its_environment() -> None:
    ours, theirs = socket.socketpair()
    runtime = RuntimeSide(theirs)
    environment = {"NRI_PLUGIN_SOCKET": str(ours.detach()), "NRI_PLUGIN_NAME": "pre", "NRI_PLUGIN_IDX": "30"}
    given = not_none(given_by(environment))
    assert runtime.registered.get(timeout=TIMEOUT) == ("30", "pre")
    # What the runtime asks meanwhile waits for the handler.
    answers: queue.SimpleQueue[int] = queue.SimpleQueue()
    asking = threading.Thread(target=lambda: answers.put(runtime.configure().events))
    asking.start()
    with pytest.raises(MisuseError, match="a session without a handler answers nothing"):
        given.step(0)
    ended: queue.SimpleQueue[Exception] = queue.SimpleQueue()
    thread = threading.Thread(target=lambda: ended.put(run_given_plugin(given, Pinning(), OPTIONS, Listening())))
    thread.start()
    assert answers.get(timeout=TIMEOUT) > 0
    asking.join(TIMEOUT)
    runtime.close()
    assert isinstance(ended.get(timeout=TIMEOUT), ConnectionLostError)
    thread.join(TIMEOUT)


def test_a_plugin_that_needs_longer_than_the_runtime_waits_is_kept_and_gets_the_requests_late(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # The answers come after a hundredth of what the runtime waits, so that a slow computer does not matter.
    monkeypatch.setattr("mooring.agent.nri.session._RUNTIME_SHARE", 0.01)
    ours, theirs = socket.socketpair()
    runtime = RuntimeSide(theirs)
    given = not_none(given_by({"NRI_PLUGIN_SOCKET": str(ours.detach())}))
    assert runtime.configure().events.bit_count() > 10
    assert runtime.synchronize([POD], more=True).more
    assert list(runtime.synchronize([], [CONTAINER]).update) == []
    with pytest.raises(RemoteError, match="no answer to CreateContainer"):
        runtime.create()
    handler, observer = Pinning(), Listening()
    thread = threading.Thread(target=run_given_plugin, args=(given, handler, OPTIONS, observer))
    thread.start()
    until(lambda: given.synchronized, "the handler has pods and containers of the runtime")
    runtime.close()
    thread.join(TIMEOUT)
    assert handler.calls == [("configure", "", "containerd", "v2.4.2"), ("synchronize", [POD], [CONTAINER])]
    assert [one[1] for one in observer.told if one[0] == "lost"] == ["Configure", "Synchronize", "Synchronize"]


@pytest.mark.parametrize("number", ["x", "-1", "99999999999999999999", "1000000", "a file"])
def test_a_socket_number_that_is_none_is_misuse(number: str, tmp_path: Path) -> None:
    assert given_by({}) is None
    with (tmp_path / "file").open("w") as file, pytest.raises(MisuseError, match="is not a socket"):
        given_by({"NRI_PLUGIN_SOCKET": str(os.dup(file.fileno())) if number == "a file" else number})


def test_updates_between_events_travel_as_the_answer_to_a_synchronize() -> None:
    runtimes = Runtimes()
    answers: queue.SimpleQueue[list[str]] = queue.SimpleQueue()

    def runtime_work() -> None:
        runtime = runtimes.made.get(timeout=TIMEOUT)
        assert runtime.registered.get(timeout=TIMEOUT) == ("50", "mooring-update")
        assert runtime.configure().events == 0b100
        answers.put([update.container_id for update in runtime.synchronize([POD], [CONTAINER]).update])
        until(lambda: runtime.connection.lost is not None, "the plugin ends the connection")
        runtime.close()

    thread = threading.Thread(target=runtime_work)
    thread.start()
    update_by_synchronizing(
        runtimes.connect,
        lambda _, containers: [ContainerUpdate(found.id, LinuxResources(cpus="0")) for found in containers],
        OPTIONS,
        linger=0.0,
    )
    assert answers.get(timeout=TIMEOUT) == ["container-1"]
    thread.join(TIMEOUT)
    assert not thread.is_alive()


def test_a_runtime_that_never_synchronizes_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    runtimes = Runtimes()
    # The same time would count for the answer to the registration, which comes.
    monkeypatch.setattr(Session, "register", lambda _session: None)
    with pytest.raises(ConnectionLostError, match=r"no Synchronize within 0.05 s"):
        update_by_synchronizing(runtimes.connect, lambda *_: [], PluginOptions(call_timeout=0.05))
    runtimes.made.get(timeout=TIMEOUT).close()


# Messages of the wire and plain values.


WIRE = Path(__file__).parent / "wire"
REQUESTS = {
    "nri-configure.json": ConfigureRequestMessage,
    "nri-create-container-besteffort.json": ContainerRequestMessage,
    "nri-create-container-guaranteed.json": ContainerRequestMessage,
    "nri-run-pod-sandbox.json": StateChangeEventMessage,
    "nri-start-container.json": StateChangeEventMessage,
    "nri-stop-container.json": ContainerRequestMessage,
    "nri-synchronize-after-plugin-restart.json": SynchronizeRequestMessage,
    "nri-update-container-resize-cpu-up.json": UpdateContainerRequestMessage,
}

texts = st.text(max_size=12)
maps = st.dictionaries(texts, texts, max_size=3)
unsigned = st.none() | st.integers(0, 2**64 - 1)
signed = st.none() | st.integers(-(2**63), 2**63 - 1)
resources = st.builds(LinuxResources, texts, texts, unsigned, signed, unsigned, signed)
numbers = st.integers(0, 2**32 - 1)
pods = st.builds(PodSandbox, *[texts] * 4, maps, maps, texts, texts, numbers, resources, resources)
states = st.sampled_from(ContainerState)
containers = st.builds(RuntimeContainer, *[texts] * 3, states, numbers, maps, maps, resources, texts)


def numbered(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Return an object with the numbers of its enums, which samples write as names."""
    states = {f"CONTAINER_{one.name}": one.value for one in ContainerState}
    numbers = {**states, **{one.name: one.value for one in Event}}
    return {name: numbers[value] if name in ("state", "event") else value for name, value in pairs}


def request_of(name: str) -> Any:
    """Return the request of a sample, without the fields that the plugin never reads."""
    document = json.loads((WIRE / name).read_text(encoding="utf-8"), object_pairs_hook=numbered)
    return json_format.ParseDict(document["request"], REQUESTS[name](), ignore_unknown_fields=True)


def again(message: Any) -> Any:
    return type(message).FromString(message.SerializeToString())


@settings(deadline=None, max_examples=60)
@given(pods, containers, st.booleans())
def test_what_is_told_is_the_same_after_the_wire_but_for_a_uid_that_nobody_gave(
    pod: PodSandbox, container: RuntimeContainer, ignore: bool
) -> None:
    assert pod_from(again(pod_to(pod))) == replace(pod, uid=pod.uid or pod.id)
    assert container_from(again(container_to(container))) == container
    update = ContainerUpdate(container.id, container.resources, ignore)
    assert update_from(again(update_to(update))) == update


def test_what_is_not_set_is_absent_and_a_zero_is_present() -> None:
    assert resources_to(LinuxResources()).SerializeToString() == b""
    assert not resources_to(LinuxResources(cpus="1")).HasField("memory")
    zero = again(resources_to(LinuxResources(quota=0, memory_limit=0)))
    assert zero.cpu.HasField("quota")
    assert resources_from(zero) == LinuxResources(quota=0, memory_limit=0)


def test_an_adjustment_carries_its_parts_and_nothing_else() -> None:
    assert adjustment_to(ContainerAdjustment()).SerializeToString() == b""
    message = adjustment_to(
        ContainerAdjustment(
            LinuxResources(cpus="2-3", mems="1", quota=-1),
            environment={"A": "1"},
            mounts=[Mount("/etc/x", "/run/x")],
            annotations={"k": "v"},
        )
    )
    assert json_format.MessageToDict(message, preserving_proto_field_name=True) == {
        "annotations": {"k": "v"},
        "mounts": [{"destination": "/etc/x", "type": "bind", "source": "/run/x", "options": ["bind", "ro"]}],
        "env": [{"key": "A", "value": "1"}],
        "linux": {"resources": {"cpu": {"cpus": "2-3", "mems": "1", "quota": {"value": "-1"}}}},
    }


def test_a_state_of_a_later_release_is_unknown() -> None:
    assert container_from(NRIContainerMessage(id="c", state=99)).state is ContainerState.UNKNOWN


def test_fields_of_a_later_release_are_skipped_and_kept() -> None:
    class ContainerMessage(TypedMessage, package="later"):
        id: str = at(1)
        future: str = at(700)
        more: Repeated[Int64] = at(701)

    payload = ContainerMessage(id="c", future="x", more=[1, 2]).SerializeToString()
    message = NRIContainerMessage.FromString(payload)
    assert container_from(message).id == "c"
    assert message.SerializeToString() == payload


def test_a_guaranteed_container_as_containerd_tells_it() -> None:
    message = request_of("nri-create-container-guaranteed.json")
    pod, container = pod_from(message.pod), container_from(message.container)
    assert (pod.name, pod.namespace) == ("guar", "default")
    assert pod.cgroup_parent == f"/mytest/kubepods/pod{pod.uid}"
    assert pod.labels["io.kubernetes.pod.uid"] == pod.uid
    assert pod.pod_resources == LinuxResources(shares=1024, quota=100000, period=100000, memory_limit=64 << 20)
    # The CRI fills in zeros where nothing is set.
    assert pod.overhead == LinuxResources(shares=0, quota=0, period=0, memory_limit=0)
    assert container.pod_sandbox_id == pod.id
    assert container.name == "a"
    assert (container.state, container.pid) == (ContainerState.UNKNOWN, 0)
    assert container.resources == LinuxResources(shares=1024, quota=100000, period=100000, memory_limit=64 << 20)
    assert container.cgroups_path == f"{pod.cgroup_parent}/{container.id}"


def test_a_resize_as_containerd_tells_it() -> None:
    message = request_of("nri-update-container-resize-cpu-up.json")
    assert resources_from(message.linux_resources).quota == 120000
    assert container_from(message.container).resources.cpus == "1"


def test_synchronize_tells_assignments_and_pids() -> None:
    message = request_of("nri-synchronize-after-plugin-restart.json")
    found = [container_from(container) for container in message.containers]
    assert found
    assert {container.resources.cpus for container in found} == {"0", "1"}
    assert all(container.state is ContainerState.RUNNING and container.pid for container in found)
    assert {container.pod_sandbox_id for container in found} <= {pod.id for pod in message.pods}
