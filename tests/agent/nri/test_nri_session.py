"""A plugin on one connection, against a runtime that speaks real frames."""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from types import SimpleNamespace

import pytest
from tests.agent.nri.runtime_side import CONTAINER, POD, TIMEOUT, Pair, Pinning, RuntimeSide, about, make_pair

from mooring.agent.nri.connection import QUEUE_LIMIT, SEND_LIMIT
from mooring.agent.nri.messages import (
    ContainerRequestMessage,
    Status,
    UpdatePodSandboxRequestMessage,
)
from mooring.agent.nri.session import Deadlines, PluginOptions
from mooring.agent.nri.types import (
    CallTimeoutError,
    ConnectionLostError,
    ContainerUpdate,
    Event,
    LinuxResources,
    Loss,
    RefusalError,
    RemoteError,
    Runtime,
)

OTHER = replace(CONTAINER, id="container-2")
UPDATE = ContainerUpdate("container-2", LinuxResources(cpus="0", mems="0"))
NRI_08 = Runtime("containerd", "2.1.9+unknown")


@pytest.fixture
def pair() -> Iterator[Pair]:
    made = make_pair()
    yield made
    made.close()


@pytest.fixture
def held(monkeypatch: pytest.MonkeyPatch) -> Iterator[Pair]:
    """Return a pair whose handler waits and whose budget is nearly nothing.

    No time passes before the handler was reached once, however long a busy machine takes for that: who is still waiting
    when the budget is over never reaches it.
    """
    handler = Pinning(hold=threading.Event())

    def clock() -> float:
        return 1e9 + time.monotonic() if handler.calls else 0.0

    monkeypatch.setattr("mooring.agent.nri.session.Deadlines", partial(Deadlines, clock))
    made = make_pair(handler, PluginOptions(budget=0.02))
    yield made
    made.close()


def test_a_plugin_introduces_itself_and_is_configured(pair: Pair) -> None:
    assert pair.runtime.registered.get(timeout=TIMEOUT) == ("50", "mooring")
    assert pair.runtime.configure(config="policy: x").events == 0x1FFF
    assert pair.handler.calls == [("configure", "policy: x", "containerd", "v2.4.2")]
    pair.runtime.synchronize()
    # The observer is told after an answer was sent, and before the next request is looked at.
    pair.runtime.create()
    assert ("connected", Runtime("containerd", "v2.4.2", "v0.12.3", 2.0)) in pair.observer.told
    assert pair.session.synchronized


@pytest.mark.parametrize(
    ("runtime", "mask"),
    [
        (NRI_08, 0x7FF),
        (Runtime("containerd", "v2.2.0"), 0x1FFF),
        (Runtime("cri-o", "1.33.9"), 0x7FF),
        (Runtime("cri-o", "1.34.0"), 0x1FFF),
        (Runtime("containerd", "v9.9.9", "v0.9.0"), 0x7FF),
        (Runtime("something", "else"), 0x7FF),
    ],
    ids=lambda value: value.version if isinstance(value, Runtime) else "",
)
def test_a_runtime_is_not_asked_for_events_that_it_would_refuse(pair: Pair, runtime: Runtime, mask: int) -> None:
    assert pair.runtime.configure(runtime).events == mask


def test_no_events_at_all_are_refused_since_a_runtime_would_send_all(pair: Pair) -> None:
    pair.handler.events = frozenset()
    with pytest.raises(RemoteError, match="MisuseError"):
        pair.runtime.configure()


def test_a_fail_closed_plugin_asks_the_runtime_to_fail_what_it_does_not_answer() -> None:
    pair = make_pair(options=PluginOptions(fail_request=True))
    assert pair.runtime.configure().failure_policy.fail_request
    pair.close()


def test_a_refused_registration_ends_the_session() -> None:
    pair = make_pair(refuse_registration="invalid plugin index")
    why = pair.ended.get(timeout=TIMEOUT)
    assert isinstance(why, RemoteError)
    assert (why.code, why.message) == (Status.UNKNOWN, "invalid plugin index")
    pair.close()


def test_a_runtime_that_does_not_answer_the_registration_is_given_up() -> None:
    pair = make_pair(options=PluginOptions(call_timeout=0.02), silent=True)
    assert isinstance(pair.ended.get(timeout=TIMEOUT), CallTimeoutError)
    pair.close()


def test_a_created_container_is_adjusted_and_others_are_updated(pair: Pair) -> None:
    pair.handler.updates = [UPDATE]
    reply = pair.runtime.create()
    assert (reply.adjust.linux.resources.cpu.cpus, reply.adjust.linux.resources.cpu.mems) == ("1", "0")
    assert [(update.container_id, update.linux.resources.cpu.cpus) for update in reply.update] == [("container-2", "0")]
    assert pair.handler.calls == [("create", POD, CONTAINER)]


def test_an_update_and_a_stop_carry_updates_too(pair: Pair) -> None:
    pair.handler.updates = [UPDATE]
    resize = LinuxResources(shares=2048, quota=200000, period=100000)
    assert [update.container_id for update in pair.runtime.update(POD, CONTAINER, resize).update] == ["container-2"]
    assert [update.container_id for update in pair.runtime.stop().update] == ["container-2"]
    assert pair.handler.calls == [("update", POD, CONTAINER, resize), ("stop", POD, CONTAINER)]


def test_events_come_as_state_changes_or_as_requests_of_their_own(pair: Pair) -> None:
    pair.runtime.state_change(Event.RUN_POD_SANDBOX)
    pair.runtime.state_change(Event.START_CONTAINER, POD, CONTAINER)
    old = list(pair.handler.calls)
    pair.handler.calls.clear()
    pair.runtime.call("RunPodSandbox", ContainerRequestMessage(pod=about(POD, CONTAINER).pod))
    pair.runtime.call("StartContainer", about(POD, CONTAINER))
    assert pair.handler.calls == old
    assert old[1] == ("event", Event.START_CONTAINER, POD, CONTAINER)


def test_a_pod_that_is_resized_comes_with_its_new_resources(pair: Pair) -> None:
    request = UpdatePodSandboxRequestMessage(pod=about(POD, CONTAINER).pod)
    request.linux_resources.cpu.shares.value = 4096
    pair.runtime.call("UpdatePodSandbox", request)
    wanted = replace(POD, pod_resources=LinuxResources(shares=4096))
    assert pair.handler.calls == [("event", Event.UPDATE_POD_SANDBOX, wanted, None)]


@pytest.mark.parametrize("event", [99, int(Event.CREATE_CONTAINER), 0])
def test_a_state_change_of_another_kind_is_acknowledged_and_not_passed_on(pair: Pair, event: int) -> None:
    pair.runtime.state_change(event)
    assert pair.handler.calls == []


@pytest.mark.parametrize("method", ["ValidateContainerAdjustment", "Shutdown"])
def test_what_a_plugin_need_not_care_about_is_acknowledged(pair: Pair, method: str) -> None:
    assert not pair.runtime.call(method, b"").update


def test_an_unknown_method_gets_the_code_that_makes_a_runtime_fall_back(pair: Pair) -> None:
    with pytest.raises(RemoteError) as raised:
        pair.runtime.call("CheckpointContainer", b"")
    assert raised.value.code == Status.UNIMPLEMENTED
    assert pair.runtime.create().adjust.linux.resources.cpu.cpus == "1"


def test_a_refusal_reaches_the_runtime_word_for_word(pair: Pair) -> None:
    pair.handler.raises = RefusalError("Insufficient CPU: wanted 3, free 2")
    with pytest.raises(RemoteError, match=r"^Insufficient CPU: wanted 3, free 2$") as raised:
        pair.runtime.create()
    assert raised.value.code == Status.UNKNOWN


def test_a_handler_that_breaks_refuses_and_the_session_lives_on(pair: Pair) -> None:
    pair.handler.raises = KeyError("surprise")
    with pytest.raises(RemoteError, match="internal error: KeyError"):
        pair.runtime.create()
    assert ("failed", "CreateContainer", pair.handler.raises) in pair.observer.told
    pair.handler.raises = None
    assert pair.runtime.create().adjust.linux.resources.cpu.cpus == "1"


def test_a_payload_that_is_no_message_is_refused_and_the_session_lives_on(pair: Pair) -> None:
    with pytest.raises(RemoteError) as raised:
        pair.runtime.call("CreateContainer", b"\xff\xff\xff", "CreateContainerResponse")
    assert raised.value.code == Status.INVALID_ARGUMENT
    assert pair.runtime.create().adjust.linux.resources.cpu.cpus == "1"


def test_a_split_synchronize_is_delivered_once_and_whole(pair: Pair) -> None:
    pair.handler.updates = [UPDATE]
    first = pair.runtime.synchronize([POD], [CONTAINER], more=True)
    assert (first.more, list(first.update)) == (True, [])
    assert pair.handler.calls == []
    last = pair.runtime.synchronize([replace(POD, id="pod-2")], [OTHER])
    assert (last.more, len(last.update)) == (False, 1)
    assert pair.handler.calls == [("synchronize", [POD, replace(POD, id="pod-2")], [CONTAINER, OTHER])]
    pair.runtime.synchronize([], [OTHER])
    assert pair.handler.calls[1:] == [("synchronize", [], [OTHER])]


def test_a_failed_synchronize_leaves_nothing_for_the_next_one(pair: Pair) -> None:
    pair.handler.raises = RefusalError("not now")
    with pytest.raises(RemoteError):
        pair.runtime.synchronize([POD], [CONTAINER])
    assert not pair.session.synchronized
    pair.handler.raises = None
    pair.runtime.synchronize([POD], [OTHER])
    assert pair.handler.calls[-1] == ("synchronize", [POD], [OTHER])


def test_a_creation_that_takes_too_long_is_refused_in_time_and_its_answer_reported_lost(held: Pair) -> None:
    with pytest.raises(RemoteError, match="plugin mooring: no answer to CreateContainer within 20 ms"):
        held.runtime.create()
    lost = held.release()
    assert (lost.method, lost.container_id) == ("CreateContainer", "container-1")
    assert (lost.loss, lost.refused) == (Loss.LATE, True)
    assert lost.seconds >= 0.02


def test_a_start_that_takes_too_long_is_refused_whichever_way_it_comes(held: Pair) -> None:
    with pytest.raises(RemoteError, match="no answer to StateChange"):
        held.runtime.state_change(Event.START_CONTAINER, POD, CONTAINER)
    with pytest.raises(RemoteError, match="no answer to StartContainer"):
        held.runtime.call("StartContainer", about(POD, CONTAINER))
    assert held.release().container_id == "container-1"


def test_a_stop_that_takes_too_long_is_acknowledged_without_updates(held: Pair) -> None:
    held.handler.updates = [UPDATE]
    assert list(held.runtime.stop().update) == []
    lost = held.release()
    assert (lost.method, lost.loss, lost.refused) == ("StopContainer", Loss.LATE, False)


def test_a_slow_synchronize_is_answered_late_rather_than_refused(held: Pair) -> None:
    assert held.handler.hold is not None
    held.handler.updates = [UPDATE]
    threading.Timer(0.1, held.handler.hold.set).start()
    assert [update.container_id for update in held.runtime.synchronize([POD], [OTHER]).update] == ["container-2"]


def test_requests_behind_a_stuck_one_are_refused_in_time_and_never_reach_the_handler(held: Pair) -> None:
    refused: list[str] = []

    def create(name: str) -> None:
        with pytest.raises(RemoteError) as raised:
            held.runtime.create(POD, replace(CONTAINER, id=name))
        refused.append(raised.value.message)

    create("stuck")
    threads = [threading.Thread(target=create, args=(f"c-{number}",)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(TIMEOUT)
    assert len(refused) == 5
    assert held.release().container_id == "stuck"
    # Nothing but the handler answers Configure, so what came before it has been looked at.
    held.runtime.configure()
    assert [call[-1].id for call in held.handler.calls if call[0] == "create"] == ["stuck"]


class Patient(queue.SimpleQueue[bytes | None]):
    """Is waited for longer than was said."""

    def get(self, block: bool = True, timeout: float | None = None) -> bytes | None:
        assert timeout is not None
        return super().get(block, TIMEOUT)


def test_the_budget_stays_below_the_time_that_the_runtime_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mooring.agent.nri.messages.queue", SimpleNamespace(SimpleQueue=Patient, Empty=queue.Empty))
    pair = make_pair(Pinning(hold=threading.Event()), PluginOptions(budget=TIMEOUT))
    with pytest.raises(RemoteError, match="within 400 ms"):
        pair.runtime.create(timeout=0.5)
    assert pair.handler.hold is not None
    pair.handler.hold.set()
    pair.close()


def test_an_answer_beyond_what_a_runtime_takes_is_refused_instead_of_cutting_the_connection(pair: Pair) -> None:
    pair.handler.updates = [replace(UPDATE, container_id=f"{number:064}") for number in range(QUEUE_LIMIT * 60)]
    with pytest.raises(RemoteError, match=f"beyond the limit of {SEND_LIMIT} bytes") as raised:
        pair.runtime.create()
    assert raised.value.code == Status.RESOURCE_EXHAUSTED
    assert pair.observer.lost_answers.get(timeout=TIMEOUT).loss is Loss.OVERSIZED
    pair.handler.updates = ()
    assert pair.runtime.create().adjust.linux.resources.cpu.cpus == "1"


def create_for_nothing(runtime: RuntimeSide) -> None:
    with pytest.raises(ConnectionLostError):
        runtime.create()


def test_an_answer_for_a_runtime_that_is_gone_is_reported_lost() -> None:
    pair = make_pair(Pinning(hold=threading.Event()))
    thread = threading.Thread(target=create_for_nothing, args=(pair.runtime,))
    thread.start()
    while not pair.handler.calls:
        thread.join(0.001)
    pair.runtime.close()
    thread.join(TIMEOUT)
    with pytest.raises(ConnectionLostError):
        pair.session.ping(TIMEOUT)
    lost = pair.release()
    assert (lost.container_id, lost.loss) == ("container-1", Loss.CLOSED)
    pair.close()


def test_a_call_ends_when_the_connection_does(pair: Pair) -> None:
    pair.introduce()
    pair.runtime.close()
    with pytest.raises(ConnectionLostError):
        pair.session.ping()
    assert isinstance(pair.ended.get(timeout=TIMEOUT), ConnectionLostError)


def test_both_sides_of_the_package_close_twice_without_harm(pair: Pair) -> None:
    assert isinstance(pair.runtime, RuntimeSide)
    pair.close()
    pair.close()
