"""Rules of older kubelets that no recording separates: tests from the text of releases.md and preview.md."""

from __future__ import annotations

from dataclasses import replace

import pytest
from tests.cpumanager.machines import mask
from tests.cpumanager.pods import container, pod_level
from tests.node.resizable import SIXTEEN, pod, with_pods
from tests.releases.flipped import machines

from mooring.answers.base.plan import Question, make_plan
from mooring.answers.doctor.diagnosis import diagnose
from mooring.engine.core.bits import list_text
from mooring.engine.core.config import KubeletConfig, MooringConfig
from mooring.engine.core.decision import AllocationError, Endless, Rejection
from mooring.engine.core.machine import Machine
from mooring.engine.core.pod import Container, ContainerKind, Pod, PodLevelGates, PodResources
from mooring.engine.core.quantity import Quantity
from mooring.engine.core.release import NEWEST, Release, ReleaseRules
from mooring.engine.core.topology import CPUPlace, Topology, build_topology, discover_topology
from mooring.engine.cpumanager.facts import CPUsAssigned, PodPartitioned, PodShareCut
from mooring.engine.cpumanager.options import TakeRules
from mooring.engine.cpumanager.pod_allocation import allocate_pod
from mooring.engine.cpumanager.policy import StaticPolicy
from mooring.engine.cpumanager.state import CPUState
from mooring.engine.cpumanager.take import take
from mooring.engine.kubelet.admit import AdmitMode, admit
from mooring.engine.kubelet.kubelet import Kubelet, StateTexts
from mooring.engine.kubelet.start import start_kubelet
from mooring.engine.node import Node
from mooring.engine.node.resizing import resize
from mooring.engine.releases.catalog import RELEASES
from mooring.inputs.machines.compact import parse_compact
from mooring.inputs.pods.defaults import PodGates, with_pod_defaults
from mooring.inputs.pods.pods import pod_from_object


def of_all_releases_until(name: str) -> list[Release]:
    return [release for release in RELEASES.values() if release.name <= name]


def uneven_machine() -> Topology:
    """Socket 0 has 4 NUMA nodes of 3 CPUs, socket 1 has 12 of 1 CPU."""
    nodes = [node for node in range(4) for _ in range(3)] + list(range(4, 16))
    places = {cpu: CPUPlace(node, int(node >= 4), cpu, node) for cpu, node in enumerate(nodes)}
    return build_topology(places, num_cpus=24, num_cores=24, num_sockets=2, num_numa_nodes=16, num_uncores=16)


@pytest.mark.parametrize("release", of_all_releases_until("1.36"), ids=str)
def test_a_node_that_cannot_give_the_full_share_gives_nothing(release: Release) -> None:
    """Rule distribute-claims-full-share.

    Nodes 0 to 3 are the best for 8 CPUs, and defect saved-combo puts node 4 with its single CPU in the place of node 3.
    """
    machine = uneven_machine()
    taken = take(machine, machine.all_cpus, 8, TakeRules(distribute=True, older=release.rules))
    assert taken == AllocationError("accounting error, not enough CPUs allocated, remaining: 2")


def test_up_to_1_37_the_claim_of_uneven_nodes_does_not_end() -> None:
    """Rule claim-loop: combinations that are remembered as they are found (rule saved-combo) lead to no such claim."""
    machine, options = uneven_machine(), {"distribute-cpus-across-numa"}
    newest, preview = RELEASES["1.37"].rules, RELEASES["1.38"].rules

    def taken(older: ReleaseRules) -> object:
        return take(machine, machine.all_cpus, 8, TakeRules.of(options, frozenset(), older))

    assert taken(newest) == Endless("claim-loop")
    assert isinstance(taken(preview), int)
    assert isinstance(taken(replace(preview, claim_loop=True)), int)
    assert taken(replace(preview, saved_combo=True, claim_loop=True)) == Endless("claim-loop")
    assert taken(replace(newest, claim_loop=False)) == AllocationError(
        "accounting error, not enough CPUs allocated, remaining: 4"
    )


@pytest.mark.parametrize("release", RELEASES.values(), ids=str)
def test_resources_of_a_pod_are_dropped_where_the_field_is_unknown(release: Release) -> None:
    """Rule pod-resources-unknown."""
    spec = {"containers": [{"name": "c"}], "resources": {"requests": {"cpu": "2"}}}
    obj = {"metadata": {"name": "p"}, "spec": spec}
    found = pod_from_object(obj, source="test", gates=PodGates.of({}, release=release))
    assert (found.resources is None) == (release.name == "1.31")


HUGE = "hugepages-2Mi"


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({"limits": {"cpu": "1"}}, {"1.32": ("4Mi", ""), "1.33": ("4Mi", "4Mi"), "1.34": ("4Mi", "4Mi")}),
        ({"requests": {"cpu": "1", HUGE: "4Mi"}}, {"1.32": ("4Mi", ""), "1.33": ("4Mi", "4Mi"), "1.34": ("4Mi", "")}),
        (
            {"limits": {"cpu": "1", HUGE: "8Mi"}},
            {"1.32": ("4Mi", "8Mi"), "1.33": ("8Mi", "8Mi"), "1.34": ("8Mi", "8Mi")},
        ),
    ],
    ids=["pod-without-huge-pages", "requests-only", "limits-only"],
)
def test_huge_pages_of_a_pod_get_the_defaults_of_the_release(
    given: dict[str, dict[str, str]], expected: dict[str, tuple[str, str]]
) -> None:
    """Rules huge-page-requests-of-containers and huge-page-limits-beside-requests."""
    amounts = {part: {name: Quantity.parse(text) for name, text in of.items()} for part, of in given.items()}
    made = PodResources(amounts.get("requests", {}), amounts.get("limits", {}))
    four = {HUGE: Quantity.parse("4Mi")}
    for name, (request, limit) in expected.items():
        gates = PodGates.of({"PodLevelResources": True}, release=RELEASES[name])
        found = with_pod_defaults(made, [Container("c", requests=four, limits=four)], gates)
        amounts_of_pod = [str(part[HUGE]) if HUGE in part else "" for part in (found.requests, found.limits)]
        assert amounts_of_pod == [request, limit], name


def resizing_node(release: Release, policy: str, **gates: bool) -> Node:
    """Return a node of a release with a pod of 2 exclusive CPUs."""
    config = KubeletConfig(
        cpu_manager_policy="static",
        topology_manager_policy=policy,
        reserved_system_cpus="0",
        feature_gates={"InPlacePodVerticalScaling": True, **gates},
    )
    return with_pods(Node.fresh(SIXTEEN, config, MooringConfig(release=release)), pod(2))


EXCLUSIVE = {"InPlacePodVerticalScalingExclusiveCPUs": True}


@pytest.mark.parametrize("release", of_all_releases_until("1.36")[1:], ids=str)
def test_up_to_1_36_other_exclusive_cpus_are_an_impossible_hint_for_a_resize(release: Release) -> None:
    """Rule resize-asks-like-admission."""
    for policy in ("restricted", "single-numa-node"):
        node, answer = resize(resizing_node(release, policy, **EXCLUSIVE), pod(4))
        refused = Rejection("TopologyAffinityError", "Resources cannot be allocated with Topology locality")
        assert (answer.accepted, answer.reason, answer.rejection) == (False, "Deferred", refused)
        assert str(node.shared_pool) == "0,3-15"
    for policy in ("none", "best-effort"):
        node, answer = resize(resizing_node(release, policy, **EXCLUSIVE), pod(4))
        assert answer.accepted
        assert str(node.shared_pool) == "0,3-15"


@pytest.mark.parametrize("release", of_all_releases_until("1.36")[1:], ids=str)
def test_up_to_1_36_a_container_of_the_shared_pool_gets_exclusive_cpus_by_a_resize(release: Release) -> None:
    before = with_pods(resizing_node(release, "restricted", **EXCLUSIVE), pod("1500m", uid="q"))
    node, answer = resize(before, pod(2, uid="q"))
    assert answer.accepted
    assert str(node.shared_pool) == "0,5-15"


@pytest.mark.parametrize("policy", ["none", "best-effort", "restricted", "single-numa-node"])
def test_the_newest_release_accepts_a_resize_and_changes_no_cpus(policy: str) -> None:
    node, answer = resize(resizing_node(NEWEST, policy, **EXCLUSIVE), pod(4))
    assert answer.accepted
    assert str(node.shared_pool) == "0,3-15"


@pytest.mark.parametrize("release", of_all_releases_until("1.34"), ids=str)
def test_without_its_gate_nothing_is_resized(release: Release) -> None:
    node = resizing_node(release, "none", InPlacePodVerticalScaling=False)
    _, answer = resize(node, pod(4))
    assert (answer.reason, answer.message) == ("Infeasible", "InPlacePodVerticalScaling is disabled")


PLAIN_GATES = {"PodLevelResources": False}
OFF = {
    "1.32": PLAIN_GATES,
    "1.33": PLAIN_GATES,
    "1.34": PLAIN_GATES,
    "1.35": PLAIN_GATES,
    "1.36": {**PLAIN_GATES, "InPlacePodLevelResourcesVerticalScaling": False},
    "1.37": {
        **PLAIN_GATES,
        "InPlacePodLevelResourcesVerticalScaling": False,
        "PodLevelResourcesFixDefaulting": False,
        "PodLevelResourcesFixKubeletQOSClass": False,
    },
}
"""Release -> gates with which a kubelet starts without PodLevelResources."""


@pytest.mark.parametrize("mode", AdmitMode, ids=lambda mode: mode.value)
@pytest.mark.parametrize(("release", "gates"), OFF.items(), ids=OFF)
def test_since_1_34_pods_with_resources_of_their_own_are_rejected_without_the_gate(
    release: str, gates: dict[str, bool], mode: AdmitMode
) -> None:
    """Rule pod-level-pods-admitted-without-gate; the managers alone do not know it."""
    mooring = MooringConfig(release=RELEASES[release])
    config = KubeletConfig(cpu_manager_policy="static", reserved_system_cpus="0", feature_gates=gates)
    kubelet = start_kubelet(SIXTEEN, config, mooring, StateTexts())
    assert isinstance(kubelet, Kubelet)
    asked = replace(pod(2), resources=PodResources({"cpu": Quantity.parse("2")}, {}))
    after, result = admit(kubelet, asked, mode)
    refused = Rejection("PodLevelResourcesNotSupported", "PodLevelResources feature gate is disabled")
    is_rejected = release >= "1.34" and mode is not AdmitMode.MANAGERS
    assert result.decision.rejection == (refused if is_rejected else None)
    assert (after == kubelet) == is_rejected
    _, other = admit(kubelet, pod(2), mode)
    assert other.admitted


SPREAD, DISTRIBUTE, UNCORE = (
    "distribute-cpus-across-cores",
    "distribute-cpus-across-numa",
    "prefer-align-cpus-by-uncorecache",
)


@pytest.mark.parametrize(
    ("release", "machine", "option", "warned"),
    [
        ("1.37", "n38-cross-2s4n48", UNCORE, True),
        ("1.38", "n38-cross-2s4n48", UNCORE, False),
        ("1.37", "square-4n32", UNCORE, False),
        ("1.37", "n38-cross-2s4n48", DISTRIBUTE, False),
    ],
)
def test_a_plan_and_the_doctor_warn_of_caches_that_are_counted_twice(
    release: str, machine: str, option: str, warned: bool
) -> None:
    config = KubeletConfig(
        cpu_manager_policy="static", cpu_manager_policy_options={option: "true"}, reserved_system_cpus="0"
    )
    asked = Question(Machine(machine, machines()[machine]), config, mooring=MooringConfig(release=RELEASES[release]))
    for findings in (make_plan(asked).findings, diagnose(asked).findings):
        found = [one.subject for one in findings if one.code == "MOOR-520"]
        assert found == (["each of the uncore caches 1, 4"] if warned else [])


MACHINE = discover_topology(parse_compact("cores=8 threads=1").info)
KINDS = {"c": ContainerKind.APP, "s": ContainerKind.SIDECAR, "i": ContainerKind.INIT}


def policy(release: str) -> StaticPolicy:
    gates = PodLevelGates(resources=True, managers=True)
    rules = TakeRules.of((), frozenset(), RELEASES[release].rules)
    return StaticPolicy(MACHINE, rules, mask("0"), mask("0"), gates=gates)


def parts(text: str) -> dict[str, str]:
    return dict(part.split("=") for part in text.split())


def pod_of(cpu: str, containers: str) -> Pod:
    def made(name: str, count: str) -> Container:
        return container(name, count, kind=KINDS[name[0]], memory="1Gi" if count else "")

    return pod_level("u", cpu, *(made(name, count) for name, count in parts(containers).items()))


def state_of(stored: str, held: str, default: str) -> CPUState:
    sets = {name: mask(cpus) for name, cpus in parts(held).items()}
    return CPUState("static", mask(default), {"u": sets} if sets else {}, {"u": mask(stored)})


def test_only_what_was_missing_is_counted_as_assigned() -> None:
    facts: list[object] = []
    state = state_of("1-4", "c1=1-2", "0,5-7")
    allocate_pod(policy("1.38"), state, pod_of("4", "c1=2 c2=2"), None, facts.append)
    assert [fact.container for fact in facts if isinstance(fact, PodShareCut)] == ["c2"]
    assert [set(fact.containers) for fact in facts if isinstance(fact, PodPartitioned)] == [{"c2"}]
    assert not any(isinstance(fact, CPUsAssigned) for fact in facts)


@pytest.mark.parametrize(("release", "pool", "pods"), [("1.37", "0,4-7", {"u": "1-3"}), ("1.38", "0-7", {})])
def test_a_failure_after_the_set_was_taken_gives_it_back_since_1_38(
    release: str, pool: str, pods: dict[str, str]
) -> None:
    """Rule pod-allocation-not-rolled-back."""
    state = CPUState("static", mask("0-7"), {})
    asked = pod_of("3", "c1=2 c2=2")
    left, answer = allocate_pod(policy(release), state, asked, None)
    assert answer == AllocationError("not enough cpus available to satisfy request: requested=2, available=1")
    assert list_text(left.default) == pool
    assert {uid: list_text(cpus) for uid, cpus in left.pods.items()} == pods


def test_the_repair_of_its_own_stays_beside_what_1_38_does() -> None:
    """With defect pod-restart fixed a set of another size is not kept."""
    own = replace(policy("1.38"), rules=replace(policy("1.38").rules, fixed_defects=frozenset({"pod-restart"})))
    state = state_of("1-4", "c1=1-2", "0,5-7")
    asked = pod_of("2", "c1=2")
    kept, _ = allocate_pod(policy("1.38"), state, asked, None)
    begun, _ = allocate_pod(own, state, asked, None)
    assert (kept.pods["u"], begun.pods["u"]) == (mask("1-4"), mask("1-2"))
