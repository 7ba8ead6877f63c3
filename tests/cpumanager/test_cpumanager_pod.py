"""CPUs of whole pods (KEP-5526): what stays as it was, what is said, and what observers are told."""

from __future__ import annotations

from dataclasses import replace

from tests.cpumanager.machines import mask
from tests.cpumanager.pods import container, pod_level, static_policy

from mooring.engine.core.bits import NO_CPUS, CPUMask
from mooring.engine.core.pod import Pod, PodLevelGates
from mooring.engine.cpumanager.facts import (
    CPUHintsAsked,
    CPUsAssigned,
    CPUsReleased,
    ExistingCPUsKept,
    PartitionKept,
    PodPartitioned,
)
from mooring.engine.cpumanager.hints import pod_hints
from mooring.engine.cpumanager.options import TakeRules
from mooring.engine.cpumanager.pod_allocation import allocate_pod
from mooring.engine.cpumanager.policy import StaticPolicy
from mooring.engine.cpumanager.state import CPUState, Reusable
from mooring.engine.cpumanager.static import remove

BOTH = PodLevelGates(resources=True, managers=True)
POLICY = replace(static_policy("2S12", reserved="0"), gates=BOTH)
SANE = replace(POLICY, rules=TakeRules(fixed_defects=frozenset({"pod-restart"})))
EMPTY = CPUState("static", mask("0-11"), {})
LEFT = Reusable("other", CPUMask(0b110))
WHOLE = pod_level("u", "4", container("a", "2"), container("b"))


def served(policy: StaticPolicy, pod: Pod, state: CPUState = EMPTY) -> tuple[CPUState, list[object]]:
    facts: list[object] = []
    left, answer = allocate_pod(policy, state, pod, None, facts.append)
    assert answer is None
    return left, facts


def test_the_record_of_init_containers_is_passed_on_and_other_entries_of_the_pod_stay() -> None:
    state = replace(EMPTY, default=mask("0-10"), assignments={"u": {"gone": mask("11")}})
    left, facts = served(POLICY, WHOLE, state)
    bubble = left.pods["u"]
    assert (bubble.bit_count(), left.default) == (4, state.default & ~bubble)
    assert left.assignments["u"].keys() == {"gone", "a", "b"}
    assert left.assignments["u"]["gone"] == mask("11")
    assert CPUsAssigned("u", "", bubble, state.held, state) in facts
    sets = {name: left.assignments["u"][name] for name in ("a", "b")}
    assert facts[-1] == PodPartitioned("u", bubble, sets)


def test_a_partition_that_is_kept_is_reported_and_so_are_its_hints() -> None:
    state, _ = served(SANE, WHOLE)
    bubble = state.pods["u"]
    assert served(SANE, WHOLE, state) == (state, [ExistingCPUsKept("u", "", bubble)])
    facts: list[object] = []
    pod_hints(SANE, state, LEFT, WHOLE, facts.append)
    assert facts == [CPUHintsAsked("u", "", 4, bubble, NO_CPUS, mismatch=False)]


def test_a_partition_that_is_begun_anew_is_given_back_first() -> None:
    state, _ = served(SANE, WHOLE)
    grown = pod_level("u", "6", container("a", "2"), container("b"))
    left, facts = served(SANE, grown, state)
    assert left == served(SANE, grown)[0]
    assert facts[0] == CPUsReleased("u", "", state.pods["u"], EMPTY.held, EMPTY)
    assert not any(isinstance(fact, CPUsReleased) for fact in served(SANE, grown)[1])


def test_a_partition_stays_until_the_last_container_goes() -> None:
    state, _ = served(POLICY, WHOLE)
    facts: list[object] = []
    half = remove(POLICY, state, "u", "a", facts.append)
    assert (half.default, half.pods) == (state.default, state.pods)
    assert remove(POLICY, half, "u", "b", facts.append) == EMPTY
    assert facts == [PartitionKept("u", "a"), CPUsReleased("u", "b", state.pods["u"], EMPTY.held, EMPTY)]
