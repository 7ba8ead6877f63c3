"""A node that publishes what no kubelet writes is told about itself; nothing else of the extender changes."""

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
from tests.patience import until
from tests.scheduling.extender_cluster import facts_with, guaranteed, started, state_of_node
from tests.scheduling.extender_requests import Recorder, ask, no_cluster, ready_extender

from mooring.cluster.extender.options import ExtenderOptions
from mooring.cluster.extender.pods import Seen
from mooring.cluster.extender.run import Extender, extender_with
from mooring.cluster.extender.view import ClusterView
from mooring.cluster.extender.watches import facts_listener, state_listener
from mooring.engine.checkpoint.checksum import data_checksum
from mooring.engine.core.config import ReservedMemory
from mooring.engine.core.pod import Pod
from mooring.engine.kubelet.admit import admit
from mooring.engine.kubelet.kubelet import Kubelet
from mooring.explanations.why import Prediction, predicted
from mooring.published import restored as restoring
from mooring.published.facts_document import digest_of, facts_document
from mooring.published.objects import NodeFacts, state_document
from mooring.published.possible_kubelets import UNJUDGED, NodeFaults
from mooring.published.restored import KnownKinds, NodeKind, kind_of, restored

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


def forged(change: Callable[[dict[str, Any]], None]) -> tuple[str, msgspec.Raw]:
    """Return a NodeFacts object whose content was changed, under the digest that it has then."""
    document = facts_document(FACTS)
    content = json.loads(zlib.decompress(b64decode(document["spec"]["content"])))
    change(content)
    raw = json.dumps(content, separators=(",", ":")).encode()
    name, packed = sha256(raw).hexdigest(), b64encode(zlib.compress(raw, 9)).decode()
    spec = {**document["spec"], "content": packed}
    return name, msgspec.Raw(json.dumps({**document, "metadata": {"name": name}, "spec": spec}).encode())


def question(memory: str = "36Gi", cpus: str = "2", uid: str = "asked", **more: Any) -> bytes:
    amounts = {"cpu": cpus, "memory": memory}
    containers = [{"name": "a", "resources": {"requests": amounts, "limits": amounts}}]
    pod = {"metadata": {"name": uid, "namespace": "default", "uid": uid}, "spec": {"containers": containers}}
    pod["status"] = {"qosClass": "Guaranteed", "phase": "Pending"}
    return json.dumps({"Pod": pod, **more}).encode()


@pytest.fixture
def said() -> list[tuple[str, str]]:
    return []


@pytest.fixture
def extender(said: list[tuple[str, str]]) -> Iterator[Extender]:
    made = ready_extender(server=Recorder())
    made.view.faults = NodeFaults(lambda about, problem: said.append((about, problem)))
    for name in NAMES:
        facts = LYING if name == "lying" else FACTS
        made.view.put_facts(digest_of(facts), facts)
        made.view.put_state(name, 1, state_of_node(facts, started(FACTS), node=name))
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
    facts_listener(extender.view, lambda _about, _problem: None).changed(item)
    state = replace(state_of_node(FACTS, started(FACTS), node="lying"), facts=name)
    extender.view.put_state("lying", 2, state)
    status, answer = ask(extender, "/filter", question(cpus=cpus, NodeNames=NAMES))
    assert status == 200
    assert {"good-1", "good-2"} <= set(answer["NodeNames"])
    assert ("lying" in answer["NodeNames"]) is (cpus == "100m"), "as of every node of which nothing is known"
    assert ask(extender, "/prioritize", question(cpus=cpus, NodeNames=NAMES))[0] == 200


def test_a_state_with_other_numa_nodes_than_its_facts_is_refused_with_the_cause() -> None:
    machine, state = FACTS.machine, state_of_node(FACTS, started(FACTS))
    renamed = (machine.topology[0], replace(machine.topology[1], node_id=2))
    facts = replace(FACTS, machine=replace(machine, topology=renamed))
    kind = kind_of("digest", facts)
    assert isinstance(kind, NodeKind)
    found = restored(kind, state, {})
    assert found == "its memory manager has NUMA nodes 0, 1, its facts 0, 2"


def test_where_the_engine_fails_about_one_node_every_other_is_filtered_scored_and_bound(
    extender: Extender, said: list[tuple[str, str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("mooring.cluster.extender.deciding.predicted", failing)
    for _ in range(2):
        status, answer = ask(extender, "/filter", question(NodeNames=NAMES))
        assert (status, answer["NodeNames"]) == (200, ["good-1", "good-2"])
        assert answer["FailedAndUnresolvableNodes"] == {"lying": f"mooring: {UNJUDGED}"}
    status, scores = ask(extender, "/prioritize", question(NodeNames=NAMES))
    assert (status, [one["Score"] > 0 for one in scores]) == (200, [True, False, True])
    extender.view.put_pod(Seen(guaranteed("bound", 2)))
    for name, why in (("lying", f"mooring: {UNJUDGED}"), ("good-1", "")):
        asked = {"PodName": "bound", "PodNamespace": "default", "PodUID": "bound", "Node": name}
        assert ask(extender, "/bind", json.dumps(asked).encode()) == (200, {"Error": why})
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
    status, answer = ask(extender, "/preempt", question(NodeNameToMetaVictims=proposed))
    assert (status, set(answer["NodeNameToMetaVictims"])) == (200, {"good-1", "good-2"})


def test_the_thread_that_predicts_goes_on_after_a_node_that_cannot_be_judged(
    said: list[tuple[str, str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    made = extender_with(ExtenderOptions(), no_cluster, lambda about, problem: said.append((about, problem)))
    monkeypatch.setattr("mooring.cluster.extender.deciding.view_key", broken)
    made.view.put_facts(digest_of(FACTS), FACTS)
    made.view.put_state("lying", 1, state_of_node(FACTS, started(FACTS), node="lying"))
    made.start()
    until(lambda: any(about == "lying" for about, _ in said), "the fault is told")
    monkeypatch.undo()
    made.view.put_state("good", 1, state_of_node(FACTS, started(FACTS), node="good"))
    until(lambda: not made.view.changed_nodes(), "the other node is predicted")
    assert made.view.outlook("good").kind is not None
    assert made.view.outlook("lying").trouble == UNJUDGED
    made.stop()


def test_an_extender_that_cannot_predict_says_that_it_is_not_ready(monkeypatch: pytest.MonkeyPatch) -> None:
    made = extender_with(ExtenderOptions(), no_cluster, lambda _about, _problem: None)
    for follower in made.followers:
        follower.has_listed.set()
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
    view = ClusterView(lambda: 0.0, faults=NodeFaults(lambda about, _problem: said.append(about)))
    name, item = forged(lambda _content: None)
    monkeypatch.setattr("mooring.cluster.extender.watches.facts_of", broken)
    facts_listener(view, lambda _about, _problem: None).changed(item)
    monkeypatch.setattr("mooring.cluster.extender.watches.state_of", broken)
    state = state_document(state_of_node(FACTS, started(FACTS), node="lying"))
    state_listener(view, lambda _about, _problem: None).listed(iter([[msgspec.Raw(msgspec.json.encode(state))]]))
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
def test_facts_of_which_no_machine_has_so_many_are_refused_before_objects_are_made(
    what: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[str] = []
    for reader in ("parse_machine_info", "kubelet_config"):
        monkeypatch.setattr(f"mooring.published.facts_document.{reader}", lambda *_, **__: made.append(what))
    said: list[str] = []
    view = ClusterView(lambda: 0.0)
    name, item = forged(BOUNDS[what])
    facts_listener(view, lambda _about, problem: said.append(problem)).changed(item)
    assert made == []
    assert [problem.startswith(f"NodeFacts {name}: spec.content: ") for problem in said] == [True]


def kinds(count: int) -> list[tuple[str, NodeFacts]]:
    made = [replace(FACTS, config=replace(FACTS.config, max_pods=number + 1)) for number in range(count)]
    return [(digest_of(facts), facts) for facts in made]


def test_facts_that_no_state_refers_to_are_kept_within_a_budget(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(restoring, "_MOST_SPARE", 100_000)
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
    monkeypatch.setattr(restoring, "_MOST_SPARE", 20_000)
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
    kind, state = kind_of("digest", FACTS), state_of_node(FACTS, started(FACTS))
    assert isinstance(kind, NodeKind)
    outer = json.loads(state.files.memory or "")
    text = outer["data"].replace('"cells":[1]', f'"cells":[1,{cell}]')
    assert text != outer["data"]
    files = replace(state.files, memory=json.dumps({**outer, "data": text, "dataChecksum": data_checksum(text)}))
    found = restored(kind, replace(state, files=files), {})
    assert isinstance(found, str)
    assert found.startswith("its memory manager has NUMA nodes ")
