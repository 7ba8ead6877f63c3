"""Every sentence about a decision is true: checked against the node, on recordings and on random nodes."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.cpumanager.pods import container, pod_level
from tests.explain.claims import Told, check
from tests.explain.situations import each_pod
from tests.planner.recordings import CORPORA, machines, scenarios

from mooring.answers.base.trace import load_machines
from mooring.engine.core.config import KubeletConfig, MooringConfig, ReservedMemory
from mooring.engine.core.decision import Rejection, Shortage
from mooring.engine.core.machineinfo import MachineInfo
from mooring.engine.core.pod import Container, ContainerKind, Pod, QoS
from mooring.engine.core.quantity import Quantity
from mooring.engine.core.release import NEWEST, Release
from mooring.engine.devicemanager.state import Device, DeviceState
from mooring.engine.kubelet.kubelet import Kubelet, StateTexts
from mooring.engine.kubelet.start import restart_kubelet, start_kubelet
from mooring.engine.releases.catalog import RELEASES
from mooring.explanations.chapters import Circumstances
from mooring.explanations.why import why, why_out_of
from mooring.inputs.machines.compact import parse_compact

EVERY = 36
"""Of the recorded scenarios one of so many is looked at."""


def told(kubelet: Kubelet, pod: Pod, *, running: bool = False) -> tuple[Kubelet, Told]:
    """Decide about a pod and return the sentence with what it is about."""
    facts: list[object] = []
    if running:
        after, readmission = kubelet.readmit([pod], facts.append)
        decision = readmission.decisions[0]
    else:
        after, decision = kubelet.decide(pod, facts.append)
    circumstances = Circumstances(kubelet.settings, pod, facts, after.node.memory, after.node.providers.devices)
    answer = Told(why(decision, circumstances).sentence, pod, decision, after.node)
    if decision.admitted and not running:
        after = after.start_containers(pod.uid)
    return after, answer


def ask(kubelet: Kubelet, pod: Pod, running: bool) -> tuple[Kubelet | None, Told]:
    after, answer = told(kubelet, pod, running=running)
    return None if answer.decision.endless else after, answer


@pytest.mark.corpus
@pytest.mark.parametrize(
    "name", [path.name for path in sorted(CORPORA.glob("*.gz")) if not path.name.startswith(("merge", "admission-dev"))]
)
def test_sentences_about_recorded_pods_are_true(name: str) -> None:
    checked: Counter[str] = Counter()
    for scenario in scenarios(name, EVERY):
        for answer in each_pod(scenario, machines(), ask):
            if not answer.decision.endless:
                check(answer)
                checked[answer.decision.reason] += 1
    assert checked.total() > 2


@pytest.mark.corpus
@pytest.mark.parametrize("release", [one for one in RELEASES.values() if one.tag < NEWEST.tag], ids=str)
def test_sentences_about_recorded_pods_of_older_releases_are_true(release: Release) -> None:
    known = load_machines([str(CORPORA / "releases" / "machines.jsonl")])
    checked = 0
    for file in sorted((CORPORA / "releases" / release.tag).glob("*.gz")):
        for scenario in scenarios(str(file.relative_to(CORPORA)), EVERY):
            for answer in each_pod(scenario, known, ask) if not scenario.devices else ():
                if not answer.decision.endless:
                    check(answer)
                    checked += 1
    assert checked > 100


SHAPES = (
    "sockets=1 numa=1 cores=8 threads=2 memory=16Gi",
    "sockets=2 numa=4 cores=16 threads=2 l3=8 memory=16Gi distances=10,12,20",
    "sockets=2 numa=2 cores=12 memory=8Gi cpuless=1 cpuless-memory=2Gi",
    "cores=6 threads=2 siblings=adjacent efficiency-cores=8 memory=32Gi",
)
INFOS = [parse_compact(text).info for text in SHAPES]

options = st.sampled_from(
    [
        {},
        {"full-pcpus-only": "true"},
        {"distribute-cpus-across-numa": "true"},
        {"prefer-align-cpus-by-uncorecache": "true"},
        {"strict-cpu-reservation": "true", "full-pcpus-only": "true"},
    ]
)
amounts = st.sampled_from(["3", "1", "2", "5", "4", "7", "1500m", "9", "20"])
sizes = st.sampled_from(["1Gi", "64Mi", "3Gi", "2Gi", "1700Mi", "5Gi"])
kinds = st.sampled_from([ContainerKind.INIT, ContainerKind.APP, ContainerKind.SIDECAR])


@st.composite
def configurations(draw: st.DrawFn, info: MachineInfo) -> KubeletConfig:
    memory = draw(st.booleans())
    return KubeletConfig(
        cpu_manager_policy="static",
        cpu_manager_policy_options=draw(options),
        topology_manager_policy=draw(st.sampled_from(["none", "best-effort", "restricted", "single-numa-node"])),
        topology_manager_scope=draw(st.sampled_from(["container", "pod"])),
        reserved_system_cpus=draw(st.sampled_from(["0", "0-1"])),
        memory_manager_policy="Static" if memory else "None",
        reserved_memory=reserved_memory(info) if memory else (),
    )


def reserved_memory(info: MachineInfo) -> tuple[ReservedMemory, ...]:
    """Return what a memory manager needs: the eviction threshold, on the first node."""
    return (ReservedMemory(info.topology[0].node_id, {"memory": "100Mi"}),)


@st.composite
def pods(draw: st.DrawFn, name: str) -> Pod:
    count = draw(st.integers(1, 3))
    containers = []
    for number in range(count):
        kind = ContainerKind.APP if number == count - 1 else draw(kinds)
        limits = {"cpu": Quantity.parse(draw(amounts)), "memory": Quantity.parse(draw(sizes))}
        containers.append(Container(f"c{number}", kind, limits, limits))
    order = sorted(containers, key=lambda container: container.kind is ContainerKind.APP)
    return Pod(name, name, containers=tuple(order), qos=draw(st.sampled_from([QoS.GUARANTEED] * 9 + [QoS.BURSTABLE])))


@st.composite
def stories(draw: st.DrawFn) -> tuple[MachineInfo, KubeletConfig, list[Pod]]:
    info = draw(st.sampled_from(INFOS))
    config = draw(configurations(info))
    return info, config, [draw(pods(f"p{number}")) for number in range(draw(st.integers(3, 8)))]


@settings(max_examples=60, deadline=None)
@given(stories(), st.sets(st.integers(0, 7)), st.booleans())
def test_sentences_about_random_pods_are_true(
    story: tuple[MachineInfo, KubeletConfig, list[Pod]], ended: set[int], restart: bool
) -> None:
    info, config, arriving = story
    kubelet = start_kubelet(info, config, MooringConfig(), StateTexts())
    assert isinstance(kubelet, Kubelet)
    for number, pod in enumerate(arriving):
        kubelet, answer = told(kubelet, pod)
        if answer.decision.endless:
            return
        check(answer)
        if number in ended:
            kubelet, _ = kubelet.remove(pod.uid)
    if restart:
        running = list(kubelet.node.active.values())
        kubelet = restart_kubelet(kubelet)
        for pod in running if isinstance(kubelet, Kubelet) else ():
            assert isinstance(kubelet, Kubelet)
            kubelet, answer = told(kubelet, pod, running=True)
            if answer.decision.endless:
                return
            check(answer)


def out_of(resource: str, requested: int, used: int, capacity: int) -> str:
    return why_out_of(Rejection(f"OutOf{resource}", "", Shortage(resource, requested, used, capacity))).sentence


def test_the_node_resources_check_is_reported_in_the_units_of_people() -> None:
    admitted = "The resource managers admit it, but"
    assert out_of("cpu", 16500, 0, 8000) == (
        f"{admitted} it requests 16.5 CPUs, more than the 8 CPUs that are allocatable on the node."
    )
    assert out_of("memory", 2**31, 2**32, 5 * 2**30) == (
        f"{admitted} it requests 2 GiB of memory, and the node has only 1 GiB of its allocatable 5 GiB left."
    )
    assert out_of("pods", 1, 110, 110) == (
        f"{admitted} the node already runs 110 pods, and runs 110 at most (maxPods, podsPerCore)."
    )


def with_devices(policy: str, scope: str = "container") -> Kubelet:
    config = KubeletConfig(
        cpu_manager_policy="static",
        topology_manager_policy=policy,
        topology_manager_scope=scope,
        reserved_system_cpus="0",
    )
    kubelet = start_kubelet(INFOS[1], config, MooringConfig(), StateTexts())
    assert isinstance(kubelet, Kubelet)
    nics = tuple(Device(f"nic-{number}", (number,)) for number in range(2))
    return kubelet.with_devices(DeviceState({"example.com/nic": nics}))


def nic_pod(name: str, count: int) -> Pod:
    limits = {
        "cpu": Quantity.parse("1"),
        "memory": Quantity.parse("1Gi"),
        "example.com/nic": Quantity.parse(str(count)),
    }
    return Pod(name, name, containers=(Container("c", requests=limits, limits=limits),), qos=QoS.GUARANTEED)


@pytest.mark.parametrize("scope", ["container", "pod"])
def test_too_few_devices_are_counted(scope: str) -> None:
    who = "Container c" if scope == "container" else "The pod as a whole"
    kubelet, first = told(with_devices("restricted", scope), nic_pod("first", 1))
    assert first.text == "Its 1 exclusive CPU comes from NUMA node 0. It gets nic-0 of example.com/nic on NUMA node 0."
    text = f"{who} requests 2 NICs (example.com/nic), but only 1 of 2 is free."
    assert told(kubelet, nic_pod("second", 2))[1].text == text


def test_devices_that_lie_apart_are_reported() -> None:
    _, answer = told(with_devices("single-numa-node"), nic_pod("far", 2))
    assert answer.text == (
        "Container c needs 2 NICs (example.com/nic) on one NUMA node; the machine has 1 on NUMA nodes 0-1, "
        "0 on NUMA nodes 2-3."
    )


def test_too_few_devices_under_policy_none_are_reported_with_the_kubelets_figures() -> None:
    _, answer = told(with_devices("none"), nic_pod("many", 3))
    assert answer.text.startswith(
        "It requests 3 NICs (example.com/nic), but the node has 2 (requested number of devices unavailable"
    )


@pytest.mark.parametrize(
    ("release", "clause"),
    [
        ("1.35", "the managers of kubelet 1.35 leave such pods out"),
        ("1.37", "the gate PodLevelResourceManagers is off"),
    ],
)
def test_a_pod_level_pod_shares_for_the_reason_of_its_release(release: str, clause: str) -> None:
    config = KubeletConfig(cpu_manager_policy="static", reserved_system_cpus="0")
    info = parse_compact("sockets=1 cores=8 memory=16Gi").info
    kubelet = start_kubelet(info, config, MooringConfig(release=RELEASES[release]), StateTexts())
    assert isinstance(kubelet, Kubelet)
    _, answer = told(kubelet, pod_level("u", "2", container("c", "2")))
    assert clause in answer.text
