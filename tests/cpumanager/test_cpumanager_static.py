"""Start, allocation, reuse and removal, of containers and of whole pods (spec: cpu-manager.md sections 2, 4 and 10)."""

from __future__ import annotations

from dataclasses import replace

import pytest
from tests.cpumanager.machines import fixture, mask, text
from tests.cpumanager.pods import container, guaranteed, pod_level, static_policy

from mooring.engine.core.bits import NO_CPUS, CPUMask, NUMAMask
from mooring.engine.core.errors import KubeletCrashError
from mooring.engine.core.pod import Container, Pod, PodLevelGates
from mooring.engine.cpumanager.facts import (
    CPUHintsAsked,
    CPUsAssigned,
    CPUsReleased,
    CPUsTaken,
    ExclusiveCPUsCounted,
    ExistingCPUsKept,
    PartitionKept,
    PodPartitioned,
    WholeCoresChecked,
)
from mooring.engine.cpumanager.hints import container_hints, pod_hints
from mooring.engine.cpumanager.options import TakeRules
from mooring.engine.cpumanager.pod_allocation import allocate_pod
from mooring.engine.cpumanager.policy import StaticPolicy
from mooring.engine.cpumanager.state import CPUState, Reusable
from mooring.engine.cpumanager.static import allocate, remove
from mooring.engine.cpumanager.take import take
from mooring.engine.topologymanager.hints import IMPOSSIBLE


def state(default: str, **pods: dict[str, str]) -> CPUState:
    """Return a state; keyword arguments are pods with the CPU lists of their containers."""
    return CPUState(
        "static", mask(default), {pod: {name: mask(held[name]) for name in held} for pod, held in pods.items()}
    )


# Allocation.


def served(
    policy: StaticPolicy,
    before: CPUState,
    pod: Pod,
    *,
    index: int = 0,
    affinity: NUMAMask | None = None,
    reusable: Reusable | None = None,
) -> CPUState:
    answer = allocate(policy, before, reusable or Reusable(), pod, pod.containers[index], affinity)
    assert isinstance(answer, tuple)
    return answer[0]


def one(cpu: str) -> tuple[Pod, Container]:
    pod = guaranteed("u", container("c", cpu))
    return pod, pod.containers[0]


def test_an_empty_set_is_an_existing_set() -> None:
    before = state("0-11", u={"c": ""})
    policy, (pod, asked) = static_policy("2S12", reserved="0"), one("2")
    assert served(policy, before, pod) is before
    assert container_hints(policy, before, Reusable(), pod, asked) == {"cpu": IMPOSSIBLE}
    assert pod_hints(policy, before, Reusable(), pod) == {"cpu": IMPOSSIBLE}


@pytest.mark.parametrize("distribute", [False, True])
def test_whole_cores_of_a_machine_without_cores_crash_the_kubelet(distribute: bool) -> None:
    """The kubelet divides by the average size of a core (spec: topology.md section 4)."""
    rules = TakeRules(whole_cores=True, distribute=distribute)
    topology = replace(fixture("U1"), cpus_per_core=0)
    policy = replace(static_policy("U1", rules=rules, reserved="0"), topology=topology)
    pod = guaranteed("u", container("c", "2"))
    with pytest.raises(KubeletCrashError, match="divides by zero"):
        allocate(policy, CPUState("static", topology.all_cpus, {}), Reusable(), pod, pod.containers[0], None)
    if distribute:
        with pytest.raises(KubeletCrashError, match="divides by zero"):
            take(topology, topology.all_cpus, 2, rules)


# Removal.


def test_cpus_that_other_containers_of_the_pod_hold_stay_with_them() -> None:
    before = state("0-5", u={"i": "6-9", "a": "6-7", "b": "9"})
    assert text(remove(static_policy("2S12"), before, "u", "i").default) == "0-5,8"


# Baselines.


def test_the_first_set_of_a_container_is_its_baseline_until_it_is_removed() -> None:
    policy = static_policy("2S12", reserved="0")
    answer = served(policy, state("0-11"), guaranteed("u", container("c", "2")))
    assert answer.baselines == {"u": {"c": mask("2,8")}}
    known = replace(state("0-11"), baselines={"u": {"c": CPUMask(1), "d": CPUMask(2)}})
    kept = served(policy, known, guaranteed("u", container("c", "2")))
    assert kept.baselines == {"u": {"c": 1, "d": 2}}
    assert remove(policy, kept, "u", "c").baselines == {"u": {"d": 2}}
    assert remove(policy, answer, "u", "c").baselines == {}


# Observers.


def test_an_observer_receives_each_step_and_changes_nothing() -> None:
    policy = static_policy("2S12", rules=TakeRules(whole_cores=True), reserved="0,6")
    facts: list[object] = []
    pod, asked = one("2")
    answer = allocate(policy, state("0-11"), Reusable(), pod, asked, NUMAMask(0b10), facts.append)
    assert answer == allocate(policy, state("0-11"), Reusable(), pod, asked, NUMAMask(0b10))
    near, pool = mask("1,3,5,7,9,11"), mask("1-5,7-11")
    assert told(facts) == [
        ExclusiveCPUsCounted("u", "c", 2),
        WholeCoresChecked("u", "c", 2, 2, 10, passed=True),
        CPUsTaken("u", "c", 2, pool, NO_CPUS, NUMAMask(0b10), near, mask("1,7"), mask("1,7"), ""),
    ]
    assert isinstance(answer, tuple)
    facts.clear()
    allocate(policy, answer[0], Reusable(), pod, asked, None, facts.append)
    remove(policy, answer[0], "u", "c", facts.append)
    counted, kept, released = told(facts)
    assert (counted, kept) == (ExclusiveCPUsCounted("u", "c", 2), ExistingCPUsKept("u", "c", mask("1,7")))
    assert isinstance(released, CPUsReleased)
    assert (released.pod, released.container, released.cpus) == ("u", "c", mask("1,7"))


def told(facts: list[object]) -> list[object]:
    """Keep the facts about decisions; others may be told in between."""
    kinds = (ExclusiveCPUsCounted, WholeCoresChecked, CPUsTaken, ExistingCPUsKept, CPUsReleased)
    return [fact for fact in facts if isinstance(fact, kinds)]


def test_an_observer_receives_why_no_cpus_were_taken() -> None:
    facts: list[object] = []
    allocate(static_policy("2S12"), state("0-1"), Reusable(), *one("3"), NUMAMask(0b1), facts.append)
    (taken,) = [fact for fact in facts if isinstance(fact, CPUsTaken)]
    assert (taken.first, taken.taken) == (0b1, 0)
    assert taken.error == "not enough cpus available to satisfy request: requested=2, available=1"


BOTH = PodLevelGates(resources=True, managers=True)
POLICY = replace(static_policy("2S12", reserved="0"), gates=BOTH)
SANE = replace(POLICY, rules=TakeRules(fixed_defects=frozenset({"pod-restart"})))
EMPTY = CPUState("static", mask("0-11"), {})
LEFT = Reusable("other", CPUMask(0b110))
WHOLE = pod_level("u", "4", container("a", "2"), container("b"))


def partitioned(policy: StaticPolicy, pod: Pod, state: CPUState = EMPTY) -> tuple[CPUState, list[object]]:
    facts: list[object] = []
    left, answer = allocate_pod(policy, state, pod, None, facts.append)
    assert answer is None
    return left, facts


def test_the_record_of_init_containers_is_passed_on_and_other_entries_of_the_pod_stay() -> None:
    state = replace(EMPTY, default=mask("0-10"), assignments={"u": {"gone": mask("11")}})
    left, facts = partitioned(POLICY, WHOLE, state)
    bubble = left.pods["u"]
    assert (bubble.bit_count(), left.default) == (4, state.default & ~bubble)
    assert left.assignments["u"].keys() == {"gone", "a", "b"}
    assert left.assignments["u"]["gone"] == mask("11")
    assert CPUsAssigned("u", "", bubble, state.held, state) in facts
    sets = {name: left.assignments["u"][name] for name in ("a", "b")}
    assert facts[-1] == PodPartitioned("u", bubble, sets)


def test_a_partition_that_is_kept_is_reported_and_so_are_its_hints() -> None:
    state, _ = partitioned(SANE, WHOLE)
    bubble = state.pods["u"]
    assert partitioned(SANE, WHOLE, state) == (state, [ExistingCPUsKept("u", "", bubble)])
    facts: list[object] = []
    pod_hints(SANE, state, LEFT, WHOLE, facts.append)
    assert facts == [CPUHintsAsked("u", "", 4, bubble, NO_CPUS, mismatch=False)]


def test_a_partition_that_is_begun_anew_is_given_back_first() -> None:
    state, _ = partitioned(SANE, WHOLE)
    grown = pod_level("u", "6", container("a", "2"), container("b"))
    left, facts = partitioned(SANE, grown, state)
    assert left == partitioned(SANE, grown)[0]
    assert facts[0] == CPUsReleased("u", "", state.pods["u"], EMPTY.held, EMPTY)
    assert not any(isinstance(fact, CPUsReleased) for fact in partitioned(SANE, grown)[1])


def test_a_partition_stays_until_the_last_container_goes() -> None:
    state, _ = partitioned(POLICY, WHOLE)
    facts: list[object] = []
    half = remove(POLICY, state, "u", "a", facts.append)
    assert (half.default, half.pods) == (state.default, state.pods)
    assert remove(POLICY, half, "u", "b", facts.append) == EMPTY
    assert facts == [PartitionKept("u", "a"), CPUsReleased("u", "b", state.pods["u"], EMPTY.held, EMPTY)]
