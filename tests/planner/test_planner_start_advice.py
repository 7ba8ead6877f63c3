"""Advice about a kubelet that does not start is run first: with it the kubelet starts."""

from __future__ import annotations

from dataclasses import replace

import pytest
from tests.explain.refused_starts import RecordedStart, recorded_starts

from mooring.answers.base.plan import Question
from mooring.answers.base.start import GENERAL, advice_to_start, start_advice
from mooring.engine.core.config import CheckedFields, GivenFlag, KubeletConfig, MooringConfig, ReservedMemory
from mooring.engine.core.decision import Cause, Fault, StartRefusal
from mooring.engine.kubelet.kubelet import Kubelet
from mooring.engine.kubelet.start import NotStarted, refusal_of, start_on
from mooring.engine.releases.catalog import RELEASES
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
        refusal = start.refusal
        found = advice_to_start(start.question, refusal)
        if not found:
            assert refusal.code in WITHOUT_TRIED_ADVICE, start.error
            continue
        asked = found[-1].question
        assert isinstance(start_on(asked.machine, asked.config, asked.mooring, asked.files), Kubelet)
        assert asked != start.question


STATIC = KubeletConfig(cpu_manager_policy="static", reserved_system_cpus="0")
SMALL = replace(parse_compact("sockets=2 cores=4 threads=2 memory=64Gi"), findings=())


@pytest.mark.parametrize(
    ("config", "advice"),
    [
        (
            replace(STATIC, checked=CheckedFields(values={"runOnce": True})),
            "Remove runOnce",
        ),
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
    ],
    ids=["only checked", "two faults", "misspelt option", "sum", "sum without a unit", "no known value is near"],
)
def test_advice_names_every_change_that_it_takes(config: KubeletConfig, advice: str) -> None:
    question = Question(SMALL, config)
    refusal = refusal_of(start_on(SMALL, config, question.mooring, question.files))
    assert refusal is not None
    assert start_advice(question, refusal) == (f"{advice}: the kubelet then starts (run here)." if advice else "")


def test_advice_that_was_not_run_says_so() -> None:
    fault = Fault("could not covert a variable of type Quantity to int64", Cause.RESERVED_AMOUNT)
    refusal = StartRefusal.of("memoryManager", fault)
    assert start_advice(Question(SMALL, STATIC), refusal).startswith(GENERAL)


@pytest.mark.parametrize(
    ("gate", "advice"),
    [
        ("PodLevelResourceManagers", "Remove featureGates.PodLevelResourceManagers"),
        ("PodLevelResource", "Write featureGates.PodLevelResources for PodLevelResource"),
        ("TopologyManager", "Remove featureGates.TopologyManager (always on since 1.27)"),
        ("CPUManager", "Remove featureGates.CPUManager (always on since 1.26)"),
    ],
)
def test_a_gate_of_another_release_is_no_misspelling(gate: str, advice: str) -> None:
    config = replace(STATIC, feature_gates={gate: True})
    question = Question(SMALL, config, MooringConfig(release=RELEASES["1.34"]))
    begun = start_on(question.machine, question.config, question.mooring, question.files)
    assert isinstance(begun, NotStarted)
    assert start_advice(question, begun.refusal).startswith(advice)


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
    ("thresholds", "memory", "advice"),
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
def test_a_difference_that_is_the_default_threshold_is_named(
    thresholds: dict[str, str], memory: str, advice: str
) -> None:
    """Flags alone come without the thresholds of a configuration file."""
    reserved = (SUMS.reserved_memory[0], ReservedMemory(1, {"memory": memory}))
    config = replace(SUMS, eviction_hard=thresholds, reserved_memory=reserved)
    question = Question(SMALL, config)
    refusal = refusal_of(start_on(question.machine, config, question.mooring, question.files))
    assert refusal is not None
    assert start_advice(question, refusal) == f"{advice}: the kubelet then starts (run here)."


def test_a_flag_that_the_kubelet_does_not_have_is_removed_from_its_file() -> None:
    flags = (GivenFlag("--containerd", "kubelet.service:3"), GivenFlag("--x", "flags.txt:1"))
    question = Question(SMALL, replace(STATIC, checked=CheckedFields(flags=flags)))
    refusal = refusal_of(start_on(question.machine, question.config, question.mooring, question.files))
    assert refusal == StartRefusal("flags", "failed to parse kubelet flag: unknown flag: --containerd")
    advice = "Remove --containerd from kubelet.service:3 and remove --x from flags.txt:1"
    assert start_advice(question, refusal) == f"{advice}: the kubelet then starts (run here)."


def test_a_field_that_is_only_checked_is_removed() -> None:
    checked = CheckedFields(values={"enforceNodeAllocatable": ["pods", "kube-reserved"], "eventBurst": 3})
    question = Question(SMALL, replace(STATIC, checked=checked))
    refusal = refusal_of(start_on(question.machine, question.config, question.mooring, question.files))
    assert refusal is not None
    assert start_advice(question, refusal) == "Remove enforceNodeAllocatable: the kubelet then starts (run here)."


@pytest.mark.parametrize(
    ("gate", "ended"),
    [
        ("TopologyManager", "always on since 1.27"),
        ("ValidatingAdmissionPolicy", "always on since 1.31 or earlier"),
        ("WinDSR", ""),
        ("VolumeCapacityPriority", "gone since 1.33"),
    ],
)
def test_a_gate_that_is_gone_is_removed_and_its_end_is_said(gate: str, ended: str) -> None:
    question = Question(SMALL, replace(STATIC, feature_gates={gate: True}))
    refusal = refusal_of(start_on(question.machine, question.config, question.mooring, question.files))
    if not ended:
        assert refusal is None
        return
    assert refusal is not None
    advice = f"Remove featureGates.{gate} ({ended})"
    assert start_advice(question, refusal) == f"{advice}: the kubelet then starts (run here)."
