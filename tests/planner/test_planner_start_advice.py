"""Advice about a kubelet that does not start is run first: with it the kubelet starts."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from tests.explain.refused_starts import RecordedStart, recorded_starts
from tests.node.nodes import machine
from tests.node.podlevel_nodes import managed
from tests.plans import refused_plan, started_plan
from tests.values import not_none

from mooring.answers.base.inputs.configuration import node_versions
from mooring.answers.base.plan import Plan, Question
from mooring.answers.base.start import GENERAL, advice_to_start, start_advice
from mooring.answers.doctor.diagnosis import diagnose
from mooring.engine.checkpoint.memory_file import memory_state_text
from mooring.engine.core.config import CheckedFields, GivenFlag, KubeletConfig, MooringConfig, ReservedMemory
from mooring.engine.core.decision import Cause, Fault, StartRefusal
from mooring.engine.core.errors import InputError
from mooring.engine.core.machine import Machine
from mooring.engine.core.machineinfo import HugePages, MachineInfo
from mooring.engine.core.pod import Pod
from mooring.engine.core.release import NEWEST, Release
from mooring.engine.kubelet.kubelet import Kubelet, StateTexts
from mooring.engine.kubelet.start import refusal_of, start_kubelet, start_on
from mooring.engine.memorymanager.state import Block, MemoryState, charge
from mooring.engine.releases.catalog import RELEASES, KubeletVersion, chosen_release
from mooring.inputs.decoding.fields import Document
from mooring.inputs.machines.compact import parse_compact

WITHOUT_TRIED_ADVICE = {
    "MOOR-202",  # a gate is needed by a gate that is on by default
    "MOOR-203",  # a value like none that is known
    "MOOR-204",  # a quantity that cannot be read
    "MOOR-208",
    "MOOR-209",
    "MOOR-233",  # CPUs that the state file does not have in the shared pool
    "MOOR-251",
    "MOOR-253",
}
"""Codes of which some texts leave open what was meant."""


def one_of_each(name: str) -> list[RecordedStart]:
    """Return a refused start for each text, as far as its first words tell texts apart."""
    found: dict[str, RecordedStart] = {}
    for start in recorded_starts(name):
        if start.error:
            found.setdefault(start.error[:60], start)
    return list(found.values())


@pytest.mark.parametrize("name", ["admission-config-errors", "state-files", "admission-numa-large"])
def test_a_kubelet_starts_with_the_advice_about_every_recorded_refusal(name: str) -> None:
    for start in one_of_each(f"{name}.jsonl.gz"):
        found = advice_to_start(start.question, start.refusal)
        if not found:
            assert start.refusal.code in WITHOUT_TRIED_ADVICE, start.error
            continue
        _, asked = found[-1]
        assert isinstance(start_on(asked.machine, asked.config, asked.mooring, asked.files), Kubelet)
        assert asked != start.question


STATIC = KubeletConfig(cpu_manager_policy="static", reserved_system_cpus="0")
SMALL = replace(parse_compact("sockets=2 cores=4 threads=2 memory=64Gi"), findings=())
FLAGS = (GivenFlag("--containerd", "kubelet.service:3"), GivenFlag("--x", "flags.txt:1"))


def refusal(question: Question) -> StartRefusal | None:
    return refusal_of(start_on(question.machine, question.config, question.mooring, question.files))


def advice(config: KubeletConfig, release: Release = NEWEST) -> str:
    """Return the advice about a configuration with which the kubelet does not start, without its usual end."""
    question = Question(SMALL, config, MooringConfig(release=release))
    found = start_advice(question, not_none(refusal(question)))
    assert not found or found.endswith(TRIED)
    return found.removesuffix(TRIED)


TRIED = ": the kubelet then starts (run here)."


@pytest.mark.parametrize(
    ("config", "text"),
    [
        (replace(STATIC, checked=CheckedFields(values={"runOnce": True})), "Remove runOnce"),
        (
            replace(STATIC, topology_manager_policy="single-numa", reserved_system_cpus=""),
            'Set topologyManagerPolicy to "single-numa-node" and set reservedSystemCPUs to "0,4"',
        ),
        (
            replace(STATIC, cpu_manager_policy_options={"full-pcpu-only": "true"}),
            "Write cpuManagerPolicyOptions.full-pcpus-only for full-pcpu-only",
        ),
        (
            replace(STATIC, memory_manager_policy="Static", reserved_memory=(ReservedMemory(0, {"memory": "1500m"}),)),
            "Reserve 100Mi of memory on NUMA node 0 in reservedMemory",
        ),
        (
            replace(
                STATIC,
                memory_manager_policy="Static",
                system_reserved={"memory": "5884105195"},
                reserved_memory=(ReservedMemory(0, {"memory": "1Gi"}),),
            ),
            "Reserve 5988962795 bytes (5.6 GiB) of memory on NUMA node 0 in reservedMemory",
        ),
        (replace(STATIC, cpu_manager_policy="dynamic"), ""),
        (
            replace(STATIC, checked=CheckedFields(values={"enforceNodeAllocatable": ["pods", "x"], "eventBurst": 3})),
            "Remove enforceNodeAllocatable",
        ),
        (
            replace(STATIC, checked=CheckedFields(flags=FLAGS)),
            "Remove --containerd from kubelet.service:3 and remove --x from flags.txt:1",
        ),
    ],
    ids=lambda value: value.partition(" for ")[0][:40] if isinstance(value, str) else "",
)
def test_advice_names_every_change_that_it_takes(config: KubeletConfig, text: str) -> None:
    assert advice(config) == text


def test_advice_that_was_not_run_says_so() -> None:
    fault = Fault("could not covert a variable of type Quantity to int64", Cause.RESERVED_AMOUNT)
    assert start_advice(Question(SMALL, STATIC), StartRefusal.of("memoryManager", fault)).startswith(GENERAL)


@pytest.mark.parametrize(
    ("gate", "text"),
    [
        ("PodLevelResourceManagers", "Remove featureGates.PodLevelResourceManagers"),
        ("PodLevelResource", "Write featureGates.PodLevelResources for PodLevelResource"),
        ("TopologyManager", "Remove featureGates.TopologyManager (always on since 1.27)"),
        ("CPUManager", "Remove featureGates.CPUManager (always on since 1.26)"),
    ],
)
def test_a_gate_of_another_release_is_no_misspelling(gate: str, text: str) -> None:
    assert advice(replace(STATIC, feature_gates={gate: True}), RELEASES["1.34"]) == text


SUMS = KubeletConfig(
    memory_manager_policy="Static",
    kube_reserved={"memory": "4Gi"},
    system_reserved={"memory": "1Gi"},
    reserved_memory=(ReservedMemory(0, {"memory": "3Gi"}), ReservedMemory(1, {"memory": "2148Mi"})),
)
RESERVE = "Reserve {} of memory on NUMA node 0 and {} of memory on NUMA node 1 in reservedMemory"
FILE = (
    "Give the kubelet's configuration file with --config too (the difference of 100Mi is exactly the default of "
    "evictionHard memory.available, which counts with a file alone), or "
)


@pytest.mark.parametrize(
    ("thresholds", "memory", "text"),
    [
        ({}, "2148Mi", f'{FILE}set evictionHard.memory.available to "100Mi"'),
        ({"nodefs.available": "5%"}, "2148Mi", 'Set evictionHard.memory.available to "100Mi"'),
        ({}, "2147Mi", RESERVE.format("3014Mi", "2106Mi")),
        ({"memory.available": "1Gi"}, "2148Mi", RESERVE.format("3616Mi", "2528Mi")),
        (
            {"memory.available": "2Gi"},
            "3Gi",
            "Reserve 3584Mi of memory on each of NUMA nodes 0 and 1 in reservedMemory",
        ),
    ],
)
def test_a_difference_of_the_default_threshold_is_named(thresholds: dict[str, str], memory: str, text: str) -> None:
    """Flags alone come without the thresholds of a configuration file."""
    reserved = (SUMS.reserved_memory[0], ReservedMemory(1, {"memory": memory}))
    assert advice(replace(SUMS, eviction_hard=thresholds, reserved_memory=reserved)) == text


def test_a_flag_that_the_kubelet_does_not_have_is_the_first_that_it_names() -> None:
    found = refusal(Question(SMALL, replace(STATIC, checked=CheckedFields(flags=FLAGS))))
    assert found == StartRefusal("flags", "failed to parse kubelet flag: unknown flag: --containerd")


@pytest.mark.parametrize(
    ("gate", "ended"),
    [
        ("TopologyManager", "always on since 1.27"),
        ("ValidatingAdmissionPolicy", "always on since 1.31 or earlier"),
        ("VolumeCapacityPriority", "gone since 1.33"),
    ],
)
def test_a_gate_that_is_gone_is_removed_and_its_end_is_said(gate: str, ended: str) -> None:
    assert advice(replace(STATIC, feature_gates={gate: True})) == f"Remove featureGates.{gate} ({ended})"


def test_a_gate_of_another_system_starts() -> None:
    assert refusal(Question(SMALL, replace(STATIC, feature_gates={"WinDSR": True}))) is None


# What a plan reports of starts that are left to chance, that crash, and of numbers that wrap around.


CONFIG = managed("best-effort", "container", memory=True)
MEMORY = 1 << 30


def question(info: MachineInfo, blocks: dict[str, Block], *pods: Pod) -> Question:
    """Return what is asked on a memory file whose assignments came in the order of ``blocks``, by pod uid."""
    kubelet = start_kubelet(info, CONFIG, MooringConfig(), StateTexts())
    assert isinstance(kubelet, Kubelet)
    nodes = kubelet.node.memory.nodes
    for block in blocks.values():
        nodes = charge(nodes, block.numa, block.type, block.size)
    state = MemoryState("Static", nodes, {uid: {"c": (block,)} for uid, block in blocks.items()})
    files = replace(kubelet.files, memory=memory_state_text(state, pod_level=True))
    return Question(Machine("two", info), CONFIG, MooringConfig(), tuple(pods), files=files)


def about_the_file(plan: Plan) -> list[str]:
    return [finding.message for finding in plan.findings if finding.subject == "memory_manager_state"]


def test_a_start_that_is_left_to_chance_is_said() -> None:
    group, single = Block((0, 1), "memory", MEMORY), Block((0,), "memory", MEMORY)
    (message,) = about_the_file(started_plan(question(machine(), {"b": group, "a": single})))
    assert message.startswith("the kubelet starts on this file only by chance")
    assert "NUMA node 0 may end in another group" in message
    assert about_the_file(started_plan(question(machine(), {"b": group, "a": group}))) == []


def uneven() -> MachineInfo:
    """Return two nodes of which only the first lists huge pages."""
    info = machine()
    first, second = info.topology
    return replace(info, topology=(replace(first, hugepages=(HugePages(2048, 16),)), second))


def test_a_group_of_uneven_nodes_crashes_the_kubelet() -> None:
    plan = refused_plan(question(uneven(), {"a": Block((0, 1), "memory", MEMORY)}))
    assert plan.refusal.message == (
        "the kubelet crashes: NUMA node 1 does not list hugepages-2Mi and node 0 of its group does: the kubelet "
        "crashes when it starts on such a group"
    )


def test_a_node_with_more_reserved_than_it_has_is_reported_and_the_kubelet_goes_on() -> None:
    first, second = machine().topology
    info = replace(machine(), topology=(first, replace(second, memory=0)))
    config = replace(CONFIG, reserved_memory=(ReservedMemory(1, {"memory": "100Mi"}),))
    asked = Question(Machine("two", info), config, pods=(Pod.of("u", 1, "1Gi"),))
    plan = started_plan(asked)
    assert plan.is_yes
    (found,) = [finding for finding in plan.findings if finding.code == "MOOR-511"]
    assert found.message in [one.message for one in diagnose(asked).findings if one.code == found.code]
    assert found.subject == "NUMA node 1"
    assert found.message.startswith("has 0 bytes of memory, of which 104857600 are reserved and 0 are huge pages: ")


# The release of an answer: the first version that is known, in every form that vendors write.


def versions(*texts: str) -> list[KubeletVersion]:
    return [KubeletVersion(text, f"source {number}") for number, text in enumerate(texts)]


@pytest.mark.parametrize(
    ("version", "name"),
    [
        ("v1.34", "1.34"),
        ("1.34.4", "1.34"),
        ("v1.31.9-eks-1-31-23", "1.31"),
        ("v1.33.3+k3s1", "1.33"),
        ("v1.33.5", "1.33"),
        ("v1.36.3-gke.100", "1.36"),
        (NEWEST.tag, NEWEST.name),
        (f"v{NEWEST.name}.9+rke2r1", NEWEST.name),
    ],
)
def test_a_known_release_is_decided_as_itself_without_a_word(version: str, name: str) -> None:
    chosen = chosen_release(versions(version))
    assert (chosen.release.name, chosen.findings) == (name, ())


def test_the_first_known_version_decides_and_without_any_the_newest() -> None:
    assert chosen_release(versions("", "v1.34.4", "v1.20.0")).release.name == "1.34"
    assert chosen_release(versions("", "")).release == NEWEST


def test_a_release_of_which_a_preview_is_known_is_decided_as_the_preview_with_a_warning() -> None:
    assert [chosen_release(versions(text)).findings for text in ("1.38", "v1.38.0-beta.0")] == [(), ()]
    chosen = chosen_release(versions("v1.38.1"))
    (finding,) = chosen.findings
    assert (chosen.release.name, finding.code) == ("1.38", "MOOR-580")
    assert finding.message.startswith("is known as a preview alone: decided as v1.38.0-beta.0, a preview, ")


def test_an_older_release_is_refused_with_the_list_or_decided_as_the_oldest() -> None:
    with pytest.raises(InputError, match=r"1\.31, 1\.32.*1\.37") as refused:
        chosen_release(versions("v1.30.6-gke.100"))
    assert "--nearest-release" in refused.value.remedy
    chosen = chosen_release(versions("v1.30.6-gke.100"), nearest=True)
    assert (chosen.release.name, [one.code for one in chosen.findings]) == ("1.31", ["MOOR-580"])


def test_nodes_of_a_cluster_report_their_versions() -> None:
    def node(name: str, **info: str) -> dict[str, Any]:
        return {"kind": "Node", "apiVersion": "v1", "metadata": {"name": name}, "status": {"nodeInfo": info}}

    items: list[Any] = [node("a", kubeletVersion="v1.34.1"), node("b"), {"kind": "Service"}]
    first = Document({"kind": "List", "items": items}, "x", 1, 1)
    documents = [first, Document(node("c", kubeletVersion="v1.36.0"), "y", 1, 1)]
    assert node_versions(documents) == {"a": "v1.34.1", "b": "", "c": "v1.36.0"}
