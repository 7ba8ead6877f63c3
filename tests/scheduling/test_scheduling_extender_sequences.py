"""A prediction is the engine's answer: equal keys decide equally, what is stripped decides nothing, hotplug counts."""

from __future__ import annotations

import json
import zlib
from base64 import b64decode, b64encode
from collections.abc import Callable, Iterator
from dataclasses import replace
from hashlib import sha256
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.laws.strategies_whole_node import Hardware, configurations, hardware, pods
from tests.node.hotpluggable import pod
from tests.patience import until
from tests.scheduling.extender_cluster import (
    NODE,
    ask,
    bind,
    facts_with,
    guaranteed,
    pod_body,
    pod_json,
    publish,
    question,
    ready_extender,
    started,
    state_of_node,
)
from tests.values import refusal

from mooring.cluster.extender.deciding import Decider, quality_of
from mooring.cluster.extender.options import WEIGHTS
from mooring.cluster.extender.pods import Seen, Shapes, seen_pod
from mooring.cluster.extender.possible_nodes import PossibleNodes, anonymous
from mooring.cluster.extender.run import Extender
from mooring.cluster.extender.view import ClusterView
from mooring.engine.checkpoint.checksum import data_checksum
from mooring.engine.core.config import CPU_HOTPLUG, KubeletConfig, MooringConfig, ReservedMemory
from mooring.engine.core.errors import KubeletCrashError
from mooring.engine.core.pod import Pod, QoS
from mooring.engine.devicemanager.state import Device, DeviceState
from mooring.engine.kubelet.admit import admit, shape_of, view_key
from mooring.engine.kubelet.kubelet import Kubelet, StateTexts
from mooring.engine.kubelet.start import NotStarted, start_kubelet
from mooring.explanations.why import Prediction, predicted
from mooring.published.facts_document import digest_of, facts_document
from mooring.published.objects import NodeFacts, NodeState, PodKey, state_document, state_of
from mooring.published.observation import EngineObserver
from mooring.published.possible_kubelets import UNJUDGED, UNPUBLISHED, UNREADABLE, NodeFaults, NodeKnowledge
from mooring.published.restored import KnownKinds, NodeKind, kind_of, restored

FOUR = facts_with("sockets=1 numa=1 cores=4 threads=1 memory=8Gi")
EIGHT = facts_with("sockets=1 numa=2 cores=8 threads=1 memory=8Gi", eviction_hard={})


def usable(digest: str, facts: NodeFacts) -> NodeKind:
    kind = kind_of(digest, facts)
    assert isinstance(kind, NodeKind), kind
    return kind


@given(hardware(), configurations(), st.data())
@settings(max_examples=50, deadline=None)
def test_nodes_of_one_key_decide_equally_whatever_their_pods_are_called(
    hard: Hardware, config: KubeletConfig, data: st.DataObject
) -> None:
    start = start_kubelet(hard.info, config, MooringConfig(), StateTexts())
    if isinstance(start, NotStarted):
        return
    empty = one = other = start.with_devices(DeviceState(hard.devices))
    try:
        for uid in ("a", "b", "c"):
            pod = data.draw(pods(uid))
            one, _ = one.admit(pod)
            other, _ = other.admit(replace(pod, uid=f"other-{uid}", name=f"other-{uid}"))
        asked = data.draw(pods("asked"))
        one, other = one.settled(), other.settled()
        assert view_key("d", one.node) == view_key("d", other.node)
        _, real = one.node.decide(asked)
    except KubeletCrashError:
        return
    slim = anonymous(one)
    assert view_key("d", slim.node) == view_key("d", one.node)
    _, answer = predicted(slim, shape_of(asked).pod)
    assert answer.admitted == real.admitted
    assert answer.reason == real.reason
    if view_key("d", empty.node) != view_key("d", one.node):
        return
    assert predicted(anonymous(empty), shape_of(asked).pod)[1] == answer


@given(hardware(), configurations(), st.data())
@settings(max_examples=60, deadline=None)
def test_restored_node_decides_as_the_published(hard: Hardware, config: KubeletConfig, data: st.DataObject) -> None:
    facts = NodeFacts(hard.info, config, MooringConfig())
    start = start_kubelet(facts.machine, facts.config, facts.mooring, StateTexts())
    kind = kind_of("digest", facts)
    if isinstance(start, NotStarted):
        assert isinstance(kind, str)
        return
    assert isinstance(kind, NodeKind)
    kubelet = start.with_devices(DeviceState(hard.devices))
    try:
        for uid in ("a", "b", "c"):
            kubelet, _ = kubelet.admit(data.draw(pods(uid)))
        kubelet = kubelet.settled()
        active = dict(kubelet.node.active)
        has_uids = data.draw(st.booleans())
        keys = tuple(PodKey(pod.namespace, pod.name, uid if has_uids else "") for uid, pod in active.items())
        state = NodeState(NODE, "digest", kubelet.files, kubelet.node.providers.devices, keys)
        asked = data.draw(pods("asked"))
        _, real = kubelet.node.decide(asked)
        found = restored(kind, state, active)
        if isinstance(found, str):
            # As with strict-cpu-reservation and no shared CPU left: a kubelet would not start on its own file.
            again = start_kubelet(facts.machine, facts.config, facts.mooring, kubelet.files)
            assert isinstance(again, NotStarted), found
            return
        _, answer = found.node.decide(asked)
    except KubeletCrashError:
        return
    assert (answer.admitted, answer.reason, answer.containers) == (real.admitted, real.reason, real.containers)
    # Without the specifications what is held stays held.
    blind = restored(kind, state, {})
    assert not isinstance(blind, str)
    assert blind.node.cpu.default == found.node.cpu.default


@pytest.mark.parametrize(
    "text", ["", "{", "null", '{"policyName":"none"}', '{"policyName":"static","checksum":1}', None]
)
def test_a_state_that_cannot_be_restored_is_a_reason(text: str | None) -> None:
    kind = usable(digest_of(FOUR), FOUR)
    state = NodeState(NODE, digest_of(FOUR), StateTexts(text, None))
    found = restored(kind, state, {})
    assert isinstance(found, str)
    assert "\n" not in found
    assert PossibleNodes().of(NodeKnowledge(kind, state, {}, ())).trouble == UNREADABLE


def test_facts_with_which_no_kubelet_starts_are_a_reason() -> None:
    facts = facts_with("sockets=1 numa=1 cores=4 threads=1 memory=8Gi", topology_manager_policy="no-such")
    assert isinstance(kind_of("d", facts), str)


def test_devices_count_by_where_they_are_and_not_by_their_ids() -> None:
    facts = facts_with("sockets=2 numa=2 cores=8 threads=1 memory=8Gi", topology_manager_policy="single-numa-node")
    nodes = [
        started(facts).with_devices(DeviceState({"gpu": (Device(f"{name}-1", (0,)), Device(f"{name}-2", (1,)))})).node
        for name in ("gpu", "GPU-8f3a")
    ]
    assert len({view_key("d", node) for node in nodes}) == 1
    moved = started(facts).with_devices(DeviceState({"gpu": (Device("gpu-1", (1,)), Device("gpu-2", (1,)))})).node
    assert view_key("d", moved) != view_key("d", nodes[0])


def test_scores_prefer_one_numa_node_and_room_for_others() -> None:
    facts = facts_with("sockets=2 numa=2 cores=16 threads=1 memory=16Gi distances=10,32")
    kind = usable("d", facts)

    def judged(*running: Pod, asked: int) -> tuple[float, float]:
        kubelet = started(facts)
        for one in running:
            kubelet, decision = kubelet.admit(one)
            assert decision.admitted
        after, answer = predicted(kubelet, guaranteed("asked", asked))
        assert answer.admitted
        merit = quality_of(after, "asked", kind.distances)
        return merit.alignment, merit.room

    assert judged(asked=4)[0] == 1.0
    assert judged(asked=10)[0] == pytest.approx(10 / 21)
    assert judged(asked=8)[1] > judged(guaranteed("first", 2), asked=10)[1]
    assert quality_of(predicted(started(facts), guaranteed("x", 4))[0], "x", {}).score(WEIGHTS) <= 10


def test_a_state_of_thousands_of_bytes_that_says_the_same_again_changes_nothing() -> None:
    view = ClusterView(lambda: 0.0)
    assert view.outlook(NODE).trouble == UNPUBLISHED
    first = publish(view, FOUR, {NODE: started(FOUR)}).outlook(NODE)
    publish(view, FOUR, {NODE: started(FOUR)}, version=2)
    assert view.changed_nodes() == []
    assert view.outlook(NODE) is first


def test_equal_nodes_share_their_outlook() -> None:
    nodes = {name: started(FOUR).admit(guaranteed(f"on-{name}", 2))[0] for name in ("one", "two")}
    view = publish(ClusterView(lambda: 0.0), FOUR, nodes)
    assert view.outlook("one").views == view.outlook("two").views


def test_states_that_are_too_old_say_nothing() -> None:
    now = [0.0]
    view = publish(ClusterView(lambda: now[0], longest_age=60), FOUR, {NODE: started(FOUR)})
    assert not view.outlook(NODE).trouble
    now[0] = 61.0
    assert "too old" in view.outlook(NODE).trouble


@given(st.sampled_from(["", "bound", "nominated"]), st.booleans(), st.sampled_from([0.0, 50.0, 100.0]))
@settings(max_examples=12, deadline=None)
def test_outlooks_on_many_nodes_are_those_on_each(standing: str, is_known: bool, later: float) -> None:
    facts, now = facts_with("sockets=1 numa=1 cores=8 threads=1 memory=8Gi"), [0.0]
    view = ClusterView(lambda: now[0], longest_age=60)
    asked, other = guaranteed("asked", 3), guaranteed("other", 2)
    for number, name in enumerate(("one", "two", "three")):
        now[0] = 20.0 * number
        publish(view, facts, {name: started(facts)})
        if is_known:
            view.outlook(name)
    if standing == "bound":
        view.put_pod(Seen(asked, "two"))
        view.outlook("two")
    elif standing == "nominated":
        view.put_pod(Seen(other, nominated="two"))
    now[0] = later
    names = ["two", "unknown", "three", "one", "two"]
    assert view.outlooks(names, asked, lambda: True) == [view.outlook(name, asked) for name in names]


WHAT_HAPPENS = [
    *("binds", "admits", "shares", "ends", "publishes", "waits", "forgets"),
    *("assumes", "assumes-shared", "assumes-shared"),
]


@given(st.data())
@settings(max_examples=40, deadline=None)
def test_what_was_said_before_any_deltas_is_what_would_be_said_afresh(data: st.DataObject) -> None:
    facts, names = facts_with("sockets=1 numa=2 cores=8 threads=1 memory=8Gi"), ["one", "two", "three", "unknown"]
    kubelets, extender = {name: started(facts) for name in names[:3]}, ready_extender()
    view = publish(extender.view, facts, {name: kubelets[name] for name in names[:2]}, version=0)
    bound: dict[str, str] = {}
    for step in range(1, data.draw(st.integers(2, 12), "steps")):
        name, uid = data.draw(st.sampled_from(names[:3])), f"pod-{step}"
        what = data.draw(st.sampled_from(WHAT_HAPPENS))
        if what in ("binds", "admits", "shares", "assumes", "assumes-shared"):
            pod = guaranteed(uid, data.draw(st.integers(1, 5)))
            pod = replace(pod, qos=QoS.BURSTABLE) if "share" in what else pod
            if what.startswith("assumes"):
                view.assume(pod, name)
            else:
                view.put_pod(Seen(pod, name))
            bound[uid] = name
            kubelets[name] = kubelets[name].admit(pod)[0] if what == "admits" else kubelets[name]
        elif what == "ends" and bound:
            uid = data.draw(st.sampled_from(sorted(bound)))
            view.drop_pod(uid)
            name = bound.pop(uid)
            kubelets[name] = kubelets[name].without([uid]) if uid in kubelets[name].node.active else kubelets[name]
        elif what == "publishes":
            publish(view, facts, {name: kubelets[name]}, step)
        elif what == "waits":
            view.put_pod(Seen(guaranteed(uid, 2), nominated=name))
        elif what == "forgets":
            view.drop_state(name)
        asked = guaranteed("asked", data.draw(st.integers(1, 7), "asked"))
        body = json.dumps({"Pod": json.loads(pod_json(Seen(asked))), "NodeNames": names}).encode()
        shape = shape_of(seen_pod(pod_json(Seen(asked)), Shapes()).pod)
        outlooks = [PossibleNodes().of(view.situation(one, asked)) for one in names]
        (_, filtered), (_, scores) = ask(extender, "/filter", body), ask(extender, "/prioritize", body)
        said = {**filtered["FailedNodes"], **filtered["FailedAndUnresolvableNodes"]}
        afresh = [Decider().verdict(one, shape) for one in outlooks]
        assert [said.get(one, "") for one in names] == [one.reason for one in afresh]
        assert [one in filtered["FailedAndUnresolvableNodes"] for one in names] == [one.hopeless for one in afresh]
        merits = [Decider().merit(one, shape) for one in outlooks]
        assert [one["Score"] for one in scores] == [0 if one is None else one.score(WEIGHTS) for one in merits]
    extender.stop()


def test_outlooks_are_not_made_when_the_time_is_over() -> None:
    view = publish(ClusterView(lambda: 0.0), FOUR, {name: started(FOUR) for name in ("made", "open")})
    known = view.outlook("made")
    assert view.outlooks(["open", "made"], guaranteed("asked", 1), lambda: False) == [None, known]


@pytest.mark.parametrize(
    ("allocated", "is_admitted"), [("2", True), ("4", False)], ids=["not-accepted", "accepted-and-not-yet-published"]
)
def test_a_pod_whose_resize_is_on_its_way_counts_with_what_is_allocated(allocated: str, is_admitted: bool) -> None:
    facts = facts_with("sockets=1 numa=1 cores=8 threads=1 memory=16Gi")
    obj, amounts = pod_body("resized", "4", node=NODE), {"cpu": allocated, "memory": "1Gi"}
    obj["status"] |= {"phase": "Running", "containerStatuses": [{"name": "a", "allocatedResources": amounts}]}
    kubelet, _ = started(facts).admit(guaranteed("resized", 2))
    view = ClusterView(lambda: 0.0)
    view.put_pod(seen_pod(json.dumps(obj).encode(), Shapes()))
    publish(view, facts, {NODE: kubelet})
    asked = guaranteed("asked", 5)
    assert Decider().answer(view.outlook(NODE, asked), shape_of(asked)).admitted is is_admitted


def published() -> Kubelet:
    """Return a node that has lost a CPU of a pod: another one stands in."""
    start = started(replace(EIGHT, mooring=MooringConfig(frozenset({CPU_HOTPLUG}))))
    kubelet, decision = start.admit(pod(2))
    assert decision.admitted
    lost = min(decision.containers["a"].cpus)
    kubelet, _ = kubelet.offline(1 << lost)
    assert dict(kubelet.node.cpu.displaced["p"]).keys() == {lost}
    return kubelet


def test_the_node_that_is_predicted_has_the_same_cpus() -> None:
    kubelet = published()
    seen = EngineObserver("n").observe(kubelet)
    state = state_of(state_document(seen.state))
    assert state == seen.state
    kind = usable(seen.state.facts, seen.facts)
    found = restored(kind, state, dict(kubelet.node.active))
    assert not isinstance(found, str)
    # Without resizes no state file keeps what containers got at first.
    assert found.node.cpu == replace(kubelet.node.cpu, baselines={})
    for need in range(1, 8):
        asked = pod(need, uid="asked")
        assert found.node.decide(asked)[1].admitted == kubelet.node.decide(asked)[1].admitted == (need <= 4)


def test_a_state_without_offline_cpus_says_nothing_of_them() -> None:
    spec = state_document(EngineObserver("n").observe(started(EIGHT)).state)["spec"]
    assert not {"offline", "displaced"} & spec.keys()


def test_a_state_of_another_extension_is_a_reason() -> None:
    kubelet = published()
    seen = EngineObserver("n").observe(kubelet)
    without = usable("0", replace(seen.facts, mooring=MooringConfig()))
    found = restored(without, seen.state, {})
    assert isinstance(found, str)
    assert CPU_HOTPLUG in found


def test_offline_cpus_that_cannot_be_read_are_named() -> None:
    document = state_document(EngineObserver("n").observe(published()).state)
    document["spec"]["offline"] = "3-x"
    assert "offline" in refusal(state_of, document)


# A node that publishes what no kubelet writes is told about itself; nothing else of the extender changes.


FACTS = facts_with(
    "sockets=2 numa=2 cores=4 threads=2 memory=64Gi",
    memory_manager_policy="Static",
    topology_manager_policy="best-effort",
    reserved_memory=(ReservedMemory(0, {"memory": "1Gi"}),),
    kube_reserved={"memory": "924Mi"},
)
LYING = replace(FACTS, machine=replace(FACTS.machine, memory_capacity=FACTS.machine.memory_capacity + 1))
"""Facts by which the tests know the node about which the engine fails."""
NAMES = ("good-1", "lying", "good-2")
MOST = "36Gi"
"""Memory that no single NUMA node has."""


def forged(change: Callable[[dict[str, Any]], None]) -> tuple[str, msgspec.Raw]:
    """Return a NodeFacts object whose content was changed, under the digest that it has then."""
    document = facts_document(FACTS)
    content = json.loads(zlib.decompress(b64decode(document["spec"]["content"])))
    change(content)
    raw = json.dumps(content, separators=(",", ":")).encode()
    name, packed = sha256(raw).hexdigest(), b64encode(zlib.compress(raw, 9)).decode()
    spec = {**document["spec"], "content": packed}
    return name, msgspec.Raw(json.dumps({**document, "metadata": {"name": name}, "spec": spec}).encode())


@pytest.fixture
def said() -> list[tuple[str, str]]:
    return []


@pytest.fixture
def extender(said: list[tuple[str, str]]) -> Iterator[Extender]:
    made = ready_extender()
    made.view.faults = NodeFaults(lambda about, problem: said.append((about, problem)))
    for name in NAMES:
        publish(made.view, LYING if name == "lying" else FACTS, {name: started(FACTS)})
    yield made
    made.stop()


def is_lying(kubelet: Kubelet) -> bool:
    return kubelet.info.memory_capacity == LYING.machine.memory_capacity


def broken(*_: object) -> Any:
    raise LookupError("odd")


def failing(kubelet: Kubelet, pod: Pod) -> tuple[Kubelet, Prediction]:
    if is_lying(kubelet):
        raise KeyError(2)
    return predicted(kubelet, pod)


@pytest.mark.parametrize("cpus", ["2", "100m"])
def test_facts_with_a_numa_node_renamed_are_no_node_and_the_others_are_answered(extender: Extender, cpus: str) -> None:
    def rename(content: dict[str, Any]) -> None:
        content["machine"]["topology"][1]["node_id"] = 2

    name, item = forged(rename)
    extender.followers[0].listener.changed(item)
    state = replace(state_of_node(FACTS, started(FACTS), node="lying"), facts=name)
    extender.view.put_state("lying", 2, state)
    status, answer = ask(extender, "/filter", question(cpus, MOST, NodeNames=NAMES))
    assert status == 200
    assert {"good-1", "good-2"} <= set(answer["NodeNames"])
    assert ("lying" in answer["NodeNames"]) is (cpus == "100m"), "as of every node of which nothing is known"
    assert ask(extender, "/prioritize", question(cpus, MOST, NodeNames=NAMES))[0] == 200


def test_a_state_with_other_numa_nodes_than_its_facts_is_refused_with_the_cause() -> None:
    machine, state = FACTS.machine, state_of_node(FACTS, started(FACTS))
    renamed = (machine.topology[0], replace(machine.topology[1], node_id=2))
    facts = replace(FACTS, machine=replace(machine, topology=renamed))
    kind = usable("digest", facts)
    assert restored(kind, state, {}) == "its memory manager has NUMA nodes 0, 1, its facts 0, 2"


def test_a_state_with_a_cpu_that_no_machine_can_have_is_refused_with_the_cause() -> None:
    facts = replace(FACTS, mooring=MooringConfig(extensions=frozenset({CPU_HOTPLUG})))
    state = state_of_node(facts, started(facts))
    cpu = json.loads(json.loads(state.files.cpu or "")["data"])
    text = json.dumps({**cpu, "defaultCpuSet": "99999"}, separators=(",", ":"))
    sealed = json.dumps({**json.loads(state.files.cpu or ""), "data": text, "dataChecksum": data_checksum(text)})
    found = restored(usable("digest", facts), replace(state, files=replace(state.files, cpu=sealed)), {})
    assert found == "its CPU manager has CPU 99999, a machine at most 8192 CPUs"


def test_where_the_engine_fails_about_one_node_every_other_is_filtered_scored_and_bound(
    extender: Extender, said: list[tuple[str, str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("mooring.cluster.extender.deciding.predicted", failing)
    for _ in range(2):
        status, answer = ask(extender, "/filter", question("2", MOST, NodeNames=NAMES))
        assert (status, answer["NodeNames"]) == (200, ["good-1", "good-2"])
        assert answer["FailedAndUnresolvableNodes"] == {"lying": f"mooring: {UNJUDGED}"}
    status, scores = ask(extender, "/prioritize", question("2", MOST, NodeNames=NAMES))
    assert (status, [one["Score"] > 0 for one in scores]) == (200, [True, False, True])
    extender.view.put_pod(Seen(guaranteed("bound", 2)))
    for name, why in (("lying", f"mooring: {UNJUDGED}"), ("good-1", "")):
        assert bind(extender, "bound", name) == why
    assert said == [("lying", f"{UNJUDGED}: KeyError in failing: 2")], "once for the node and the cause"
    assert "mooring_extender_unjudged 4.0" in ask(extender, "/metrics", b"", "GET")[1]


def test_where_the_engine_fails_about_the_victims_of_one_node_those_of_the_others_are_named(
    extender: Extender, monkeypatch: pytest.MonkeyPatch
) -> None:
    def odd(kubelet: Kubelet, *arguments: Any) -> Any:
        if is_lying(kubelet):
            raise ZeroDivisionError
        return admit(kubelet, *arguments)

    monkeypatch.setattr("mooring.cluster.extender.answers.admit", odd)
    proposed: dict[str, Any] = {name: {"Pods": [], "NumPDBViolations": 0} for name in NAMES}
    status, answer = ask(extender, "/preempt", question("2", MOST, NodeNameToMetaVictims=proposed))
    assert (status, set(answer["NodeNameToMetaVictims"])) == (200, {"good-1", "good-2"})


def test_the_predicting_thread_outlives_a_bad_node(
    said: list[tuple[str, str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    made = ready_extender(report=lambda about, problem: said.append((about, problem)))
    monkeypatch.setattr("mooring.cluster.extender.possible_nodes.view_key", broken)
    publish(made.view, FACTS, {"lying": started(FACTS)})
    made.start()
    until(lambda: any(about == "lying" for about, _ in said), "the fault is told")
    monkeypatch.undo()
    publish(made.view, FACTS, {"good": started(FACTS)})
    until(lambda: not made.view.changed_nodes(), "the other node is predicted")
    assert made.view.outlook("good").kind is not None
    assert made.view.outlook("lying").trouble == UNJUDGED
    made.stop()


def test_an_extender_that_cannot_predict_says_that_it_is_not_ready(monkeypatch: pytest.MonkeyPatch) -> None:
    made = ready_extender()
    monkeypatch.setattr(ClusterView, "changed_nodes", broken)
    made.start()
    until(made.failing.is_set, "the round has failed")
    assert ask(made, "/readyz", b"", "GET")[0] == 503
    monkeypatch.undo()
    until(lambda: not made.failing.is_set(), "the next one has not")
    assert ask(made, "/readyz", b"", "GET")[0] == 200
    made.stop()


def test_an_object_at_which_a_reader_fails_is_that_nodes_fault(monkeypatch: pytest.MonkeyPatch) -> None:
    said: list[str] = []
    facts, states, _ = ready_extender(report=lambda about, _problem: said.append(about)).followers
    name, item = forged(lambda _content: None)
    monkeypatch.setattr("mooring.cluster.extender.run.facts_of", broken)
    facts.listener.changed(item)
    monkeypatch.setattr("mooring.cluster.extender.run.state_of", broken)
    state = state_document(state_of_node(FACTS, started(FACTS), node="lying"))
    states.listener.listed(iter([[msgspec.Raw(msgspec.json.encode(state))]]))
    assert said == [f"NodeFacts {name}", "lying"]


BOUNDS: dict[str, Callable[[dict[str, Any]], None]] = {
    "huge pages of the machine": lambda content: content["machine"].update(
        hugepages=[{"page_size": 2048, "num_pages": 1}] * 480_000
    ),
    "sizes of huge pages": lambda content: content["machine"].update(
        hugepages=[{"page_size": 2048, "num_pages": 1}] * 65
    ),
    "NUMA nodes": lambda content: content["machine"].update(
        topology=[{**content["machine"]["topology"][0], "node_id": node, "cores": []} for node in range(65)]
    ),
    "distances": lambda content: content["machine"]["topology"][0].update(distances=[10] * 65),
    "CPUs of a core": lambda content: content["machine"]["topology"][0]["cores"][0].update(thread_ids=[1] * 65),
    "caches of a core": lambda content: content["machine"]["topology"][0]["cores"][0].update(
        uncore_caches=[{"id": 1, "size": 1, "type": "Unified", "level": 3}] * 65
    ),
    "reservations": lambda content: content["kubelet"].update(
        reservedMemory=[{"numaNode": 0, "limits": {"memory": "1"}}] * 2_000
    ),
    "gates": lambda content: content["kubelet"].update(featureGates={f"Gate{number}": True for number in range(5_000)}),
}


@pytest.mark.parametrize("what", BOUNDS)
def test_facts_beyond_any_machine_are_refused_before_objects_are_made(
    what: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[str] = []
    for reader in ("parse_machine_info", "kubelet_config"):
        monkeypatch.setattr(f"mooring.published.facts_document.{reader}", lambda *_, **__: made.append(what))
    said: list[str] = []
    name, item = forged(BOUNDS[what])
    ready_extender(report=lambda _about, problem: said.append(problem)).followers[0].listener.changed(item)
    assert made == []
    assert [problem.startswith(f"NodeFacts {name}: spec.content: ") for problem in said] == [True]


def kinds(count: int) -> list[tuple[str, NodeFacts]]:
    made = [replace(FACTS, config=replace(FACTS.config, max_pods=number + 1)) for number in range(count)]
    return [(digest_of(facts), facts) for facts in made]


def test_facts_that_no_state_refers_to_are_kept_within_a_budget(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mooring.published.restored._MOST_SPARE", 100_000)
    view, made = ClusterView(lambda: 0.0), kinds(20)
    view.put_state("node-0", 1, replace(state_of_node(FACTS, started(FACTS), node="node-0"), facts=made[0][0]))
    for digest, facts in made:
        view.put_facts(digest, facts)
    assert view.outlook("node-0").kind is not None, "those of a state stay"
    for number, (digest, _) in enumerate(made):
        view.put_state(f"node-{number}", 1, replace(state_of_node(FACTS, started(FACTS)), facts=digest))
    known = [number for number in range(20) if view.outlook(f"node-{number}").kind is not None]
    assert known == [0, 15, 16, 17, 18, 19]
    assert view.misses_facts(), "they are to be listed again"
    assert not view.misses_facts(), "which is said once"
    for digest, facts in made:
        view.put_facts(digest, facts)
    assert all(view.outlook(f"node-{number}").kind is not None for number in range(20))


def test_facts_that_a_state_no_longer_refers_to_count_as_spare(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mooring.published.restored._MOST_SPARE", 20_000)
    made = {digest: kind_of(digest, facts) for digest, facts in kinds(3)}
    known = KnownKinds()
    for digest, kind in made.items():
        known.put(digest, kind, is_used=True)
    assert all(map(known.get, made))
    first, *_ = made
    known.keep({first})
    assert known.get(first) is not None
    assert sum(known.get(digest) is not None for digest in made) == 2
    known.keep(set(), listed={first})
    assert [digest for digest in made if known.get(digest)] == [first]


@pytest.mark.parametrize("cell", [-1, 5, 2**31])
def test_a_state_whose_memory_is_grouped_with_numa_nodes_of_no_machine_is_refused(cell: int) -> None:
    kind, state = usable("digest", FACTS), state_of_node(FACTS, started(FACTS))
    outer = json.loads(state.files.memory or "")
    text = outer["data"].replace('"cells":[1]', f'"cells":[1,{cell}]')
    assert text != outer["data"]
    files = replace(state.files, memory=json.dumps({**outer, "data": text, "dataChecksum": data_checksum(text)}))
    found = restored(kind, replace(state, files=files), {})
    assert isinstance(found, str)
    assert found.startswith("its memory manager has NUMA nodes ")
