"""Start, allocation, reuse and removal of the static policy (spec: cpu-manager.md sections 2, 4 and 10)."""

from __future__ import annotations

from dataclasses import replace

import pytest
from tests.cpumanager.machines import fixture, mask, text
from tests.cpumanager.pods import container, guaranteed, pod_level, static_policy
from tests.faults import text_of

from mooring.engine.core.bits import NO_CPUS, CPUMask, NUMAMask
from mooring.engine.core.decision import Endless, Fault
from mooring.engine.core.errors import KubeletCrashError
from mooring.engine.core.pod import Container, ContainerKind, Pod, PodLevelGates
from mooring.engine.cpumanager.facts import (
    CPUsReleased,
    CPUsTaken,
    ExclusiveCPUsCounted,
    ExistingCPUsKept,
    WholeCoresChecked,
)
from mooring.engine.cpumanager.hints import container_hints, pod_hints
from mooring.engine.cpumanager.options import TakeRules
from mooring.engine.cpumanager.policy import AllocationError, StaticPolicy, available_cpus
from mooring.engine.cpumanager.state import CPUState, Reusable
from mooring.engine.cpumanager.static import Allocated, allocate, remove, start
from mooring.engine.cpumanager.take import take
from mooring.engine.topologymanager.hints import IMPOSSIBLE

MANAGED = PodLevelGates(managers=True)


def state(default: str, **pods: dict[str, str]) -> CPUState:
    """Return a state; keyword arguments are pods with the CPU lists of their containers."""
    return CPUState(
        "static", mask(default), {pod: {name: mask(held[name]) for name in held} for pod, held in pods.items()}
    )


# Start.

STARTS = [
    ("0", False, state("1-11", fakePod={"0": "0"}), 'not all reserved cpus: "0" are present in defaultCpuSet: "1-11"'),
    ("1", False, state("1-11", fakePod={"0": "0"}), "1-11"),
    ("0", False, state(""), "0-11"),
    ("0", True, state(""), "1-11"),
    ("0", False, state("", fakePod={}), "default cpuset cannot be empty"),
    ("0,6", False, state("0-1"), 'not all reserved cpus: "0,6" are present in defaultCpuSet: "0-1"'),
    (
        "0,6",
        True,
        state("0-1"),
        'some of strictly reserved cpus: "0" are present in defaultCpuSet: "0-1"',
    ),
    (
        "2",
        False,
        state("2-11", fakePod={"0": "0-2"}),
        'pod: fakePod, container: 0 cpuset: "0-2" overlaps with default cpuset "2-11"',
    ),
    (
        "0",
        True,
        state("2-11", fakePod={"0": "0-2"}),
        'pod: fakePod, container: 0 cpuset: "0-2" overlaps with default cpuset "2-11"',
    ),
    (
        "5",
        False,
        state("5-12", fakePod={"0": "0-2", "1": "3-4"}),
        'current set of available CPUs "0-11" doesn\'t match with CPUs in state "0-12"',
    ),
    (
        "5",
        False,
        state("5-10", fakePod={"0": "0-2", "1": "3-4"}),
        'current set of available CPUs "0-11" doesn\'t match with CPUs in state "0-10"',
    ),
    ("0,6", True, state("1-5,7-11"), "1-5,7-11"),
    (
        "0,6",
        True,
        state("1-5,7-10"),
        'current set of available CPUs "1-5,7-11" doesn\'t match with CPUs in state "1-5,7-10"',
    ),
    # What is not looked at: assignments against each other.
    ("0", False, state("0-5", a={"x": "6-9"}, b={"x": "9-11"}), "0-5"),
    # Reservation inside the pool may change, turning strict reservation on or off may not.
    ("3-4", False, state("0-11"), "0-11"),
    ("0", True, state("0-11"), 'some of strictly reserved cpus: "0" are present in defaultCpuSet: "0-11"'),
    ("0", False, state("1-11"), 'not all reserved cpus: "0" are present in defaultCpuSet: "1-11"'),
]


@pytest.mark.parametrize(("reserved", "strict", "before", "outcome"), STARTS)
def test_starts(reserved: str, strict: bool, before: CPUState, outcome: str) -> None:
    after = start(static_policy("2S12", reserved=reserved, strict=strict), before)
    if isinstance(after, Fault):
        assert after.text == outcome
    else:
        assert (text(after.default), after.assignments) == (outcome, before.assignments)


def test_a_pod_without_containers_keeps_the_pool_from_being_filled() -> None:
    policy = static_policy("2S12", reserved="0")
    assert text_of(start(policy, CPUState("static", NO_CPUS, {"u": {}}))) == "default cpuset cannot be empty"


def test_pod_sets_count_as_known_only_when_they_are_managed() -> None:
    policy = static_policy("2S12", reserved="0")
    before = replace(state("0-7"), pods={"u": mask("8-11")})
    assert text_of(start(policy, before)) == (
        'current set of available CPUs "0-11" doesn\'t match with CPUs in state "0-7"'
    )
    assert start(replace(policy, gates=MANAGED), before) is before


def test_a_fresh_state_is_filled_whatever_else_it_holds() -> None:
    before = replace(state(""), pods={"u": CPUMask(1)})
    after = start(replace(static_policy("2S12", reserved="0"), gates=MANAGED), before)
    assert after == replace(before, default=mask("0-11"))


# Allocation.


def served(
    policy: StaticPolicy,
    before: CPUState,
    pod: Pod,
    *,
    index: int = 0,
    affinity: NUMAMask | None = None,
    reusable: Reusable | None = None,
) -> Allocated:
    answer = allocate(policy, before, reusable or Reusable(), pod, pod.containers[index], affinity)
    assert isinstance(answer, Allocated)
    return answer


def cpus_of(answer: Allocated, pod: str = "u", name: str = "c") -> object:
    return text(answer.state.assignments[pod][name])


@pytest.mark.parametrize(
    "pod",
    [
        guaranteed("u", container("c", "1500m")),
        guaranteed("u", container("c", "")),
        pod_level("u", "2", container("c", "2")),
    ],
)
def test_containers_without_a_claim_change_nothing(pod: Pod) -> None:
    before = state("0-11")
    assert served(static_policy("2S12", reserved="0"), before, pod).state is before


def test_reserved_cpus_are_never_given_away() -> None:
    policy = static_policy("2S12", reserved="0,6")
    answer = served(policy, state("0-11"), guaranteed("u", container("c", "10")))
    assert cpus_of(answer) == "1-5,7-11"
    refused = allocate(policy, state("0-11"), Reusable(), *one("11"), None)
    message = "not enough cpus available to satisfy request: requested=11, available=10"
    assert refused == AllocationError(message)


def one(cpu: str) -> tuple[Pod, Container]:
    pod = guaranteed("u", container("c", cpu))
    return pod, pod.containers[0]


def test_an_existing_set_is_kept_whatever_its_size() -> None:
    before = state("0-9", u={"c": "10-11"})
    answer = served(static_policy("2S12", reserved="0"), before, guaranteed("u", container("c", "5")))
    assert answer.state is before


def test_an_empty_set_is_an_existing_set() -> None:
    before = state("0-11", u={"c": ""})
    policy, pod = static_policy("2S12", reserved="0"), guaranteed("u", container("c", "2"))
    assert served(policy, before, pod).state is before
    assert container_hints(policy, before, Reusable(), pod, pod.containers[0]) == {"cpu": IMPOSSIBLE}
    assert pod_hints(policy, before, Reusable(), pod) == {"cpu": IMPOSSIBLE}


def test_a_negative_number_of_cpus_is_stored_as_an_empty_set() -> None:
    answer = served(
        static_policy("2S12", reserved="0"), state("0-11"), guaranteed("u", container("c", "9223372036854775808"))
    )
    assert answer.state.assignments == {"u": {"c": 0}}
    assert text(answer.state.default) == "0-11"


@pytest.mark.parametrize(("need", "ok"), [("3", False), ("4", True)])
def test_whole_cores_refuse_parts_of_a_core(need: str, ok: bool) -> None:
    policy = static_policy("2S12", rules=TakeRules(whole_cores=True), reserved="0")
    answer = allocate(policy, state("0-11"), Reusable(), *one(need), None)
    message = f"SMT Alignment Error: requested {need} cpus not multiple cpus per core = 2"
    assert isinstance(answer, Allocated) if ok else answer == AllocationError(message, "SMTAlignmentError")


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


def test_half_used_cores_count_for_the_check_of_whole_cores() -> None:
    """CPUs 1 to 5 are alone on their cores; core (0, 6) has a reserved CPU and does not count, but CPU 6 is taken."""
    policy = static_policy("2S12", rules=TakeRules(whole_cores=True), reserved="0")
    assert cpus_of(served(policy, state("0-6"), guaranteed("u", container("c", "4")))) == "1-2,4,6"
    answer = allocate(policy, state("0-6"), Reusable(), *one("6"), None)
    assert isinstance(answer, AllocationError)
    assert "available physical CPUs = 5, requested CPUs = 6" in answer.message


def test_cpus_of_init_containers_do_not_count_for_the_check_of_whole_cores() -> None:
    policy = static_policy("2S12", rules=TakeRules(whole_cores=True), reserved="0")
    answer = allocate(policy, state("0,6"), Reusable("u", mask("1,7")), *one("2"), None)
    assert isinstance(answer, AllocationError)
    assert "available physical CPUs = 0" in answer.message


def test_the_nodes_of_the_hint_come_first() -> None:
    policy = static_policy("2S12", reserved="0")
    pod = guaranteed("u", container("c", "2"))
    assert cpus_of(served(policy, state("0-11"), pod, affinity=None)) == "2,8"
    assert cpus_of(served(policy, state("0-11"), pod, affinity=NUMAMask(0b10))) == "1,7"


def test_what_the_hint_lacks_comes_from_anywhere_in_a_run_of_its_own() -> None:
    policy = static_policy("2S12", reserved="0")
    answer = served(policy, state("0-5,7"), guaranteed("u", container("c", "5")), affinity=NUMAMask(0b10))
    assert cpus_of(answer) == "1-3,5,7"


def test_a_hint_without_cpus_is_as_good_as_none() -> None:
    policy = static_policy("2S12", reserved="0")
    pod = guaranteed("u", container("c", "2"))
    assert cpus_of(served(policy, state("0-11"), pod, affinity=NUMAMask(0b100))) == "2,8"


def test_the_error_of_the_second_run_tells_what_is_left_outside_the_first() -> None:
    policy = static_policy("2S12", reserved="0")
    answer = allocate(policy, state("0,1,3,4"), Reusable(), *one("5"), NUMAMask(0b10))
    message = "not enough cpus available to satisfy request: requested=3, available=1"
    assert answer == AllocationError(message)


def test_align_by_socket_takes_from_all_sockets_of_the_hint() -> None:
    policy = static_policy("2S4N80", reserved="0")
    pod = guaranteed("u", container("c", "1"))
    before = CPUState("static", mask("0,15-39"), {})
    assert cpus_of(served(policy, before, pod, affinity=NUMAMask(0b1))) == "15"
    aligned = replace(policy, rules=TakeRules(align_by_socket=True))
    assert cpus_of(served(aligned, before, pod, affinity=NUMAMask(0b100))) == "20"
    assert cpus_of(served(aligned, replace(before, default=mask("0,15,30-39")), pod, affinity=NUMAMask(0b100))) == "30"
    assert cpus_of(served(policy, replace(before, default=mask("0,15,30-39")), pod, affinity=NUMAMask(0b100))) == "15"


def test_an_endless_take_is_passed_on() -> None:
    policy = static_policy("2S4N80", rules=TakeRules(distribute=True, whole_cores=True), reserved="79")
    before = CPUState("static", mask("0-4,10-14,20-24,30-34,79"), {})
    assert allocate(policy, before, Reusable(), *one("14"), None) == Endless("group-loop")


# Reuse.

INIT = container("i", "4", kind=ContainerKind.INIT)


def test_an_init_containers_cpus_serve_the_app_and_the_rest_of_them_comes_back_with_it() -> None:
    """The kubelet's own ReuseCPUs vector."""
    policy = static_policy("1S8")
    pod = guaranteed("u", INIT, container("a", "2"))
    first = served(policy, state("0-7"), pod)
    assert cpus_of(first, name="i") == "0-1,4-5"
    second = served(policy, first.state, pod, index=1, reusable=first.reusable)
    assert cpus_of(second, name="a") == "0,4"
    assert text(second.state.default) == "2-3,6-7"
    assert text(remove(policy, second.state, "u", "i").default) == "1-3,5-7"


def test_later_init_containers_use_the_cpus_too_and_sidecars_keep_theirs() -> None:
    pod = guaranteed("u", container("i", "2", kind=ContainerKind.INIT), container("s", "1", kind=ContainerKind.SIDECAR))
    record = Reusable().after("u", pod.containers[0], CPUMask(0b11))
    assert record == Reusable("u", CPUMask(0b11))
    assert record.after("u", pod.containers[0], CPUMask(0b110)) == Reusable("u", CPUMask(0b111))
    assert record.after("u", pod.containers[1], CPUMask(0b1)) == Reusable("u", CPUMask(0b10))
    assert record.after("u", container("a", "1"), CPUMask(0b100)) == Reusable("u", CPUMask(0b11))


def test_another_pod_forgets_the_record() -> None:
    record = Reusable("u", CPUMask(0b11))
    assert record.of("v") == 0
    assert record.after("v", container("a", "1"), CPUMask(0b100)) == Reusable("v", NO_CPUS)
    policy = static_policy("1S8")
    answer = served(policy, state("2-3,6-7"), guaranteed("v", container("c", "2")), reusable=Reusable("u", mask("0,4")))
    assert cpus_of(answer, "v") == "2,6"
    assert answer.reusable == Reusable("v", NO_CPUS)


def test_an_existing_set_updates_the_record() -> None:
    policy = static_policy("1S8")
    pod = guaranteed("u", INIT, container("a", "2"))
    before = state("2-3,6-7", u={"i": "0-1,4-5"})
    assert served(policy, before, pod).reusable == Reusable("u", mask("0-1,4-5"))


def test_a_shared_container_leaves_the_record_alone() -> None:
    policy = static_policy("1S8")
    pod = guaranteed("u", container("c", "500m"))
    assert served(policy, state("0-7"), pod, reusable=Reusable("v", CPUMask(1))).reusable == Reusable("v", CPUMask(1))


# Removal.


def test_removing_returns_the_cpus_and_drops_the_pod_with_its_last_container() -> None:
    policy = static_policy("2S12")
    before = state("0-5", u={"a": "6-7", "b": "8"}, v={"a": "9-11"})
    after = remove(policy, before, "u", "a")
    assert (text(after.default), after.assignments) == ("0-7", {"v": {"a": mask("9-11")}, "u": {"b": mask("8")}})
    after = remove(policy, after, "u", "b")
    assert (text(after.default), after.assignments) == ("0-8", {"v": {"a": mask("9-11")}})


@pytest.mark.parametrize(("pod", "name"), [("u", "x"), ("x", "a")])
def test_removing_what_holds_nothing_changes_nothing(pod: str, name: str) -> None:
    before = state("0-5", u={"a": "6-11"})
    assert remove(static_policy("2S12"), before, pod, name) is before


def test_cpus_that_other_containers_of_the_pod_hold_stay_with_them() -> None:
    before = state("0-5", u={"i": "6-9", "a": "6-7", "b": "9"})
    assert text(remove(static_policy("2S12"), before, "u", "i").default) == "0-5,8"


def test_cpus_that_another_pod_holds_come_back_all_the_same() -> None:
    before = state("0-5", u={"a": "6-9"}, v={"a": "9-11"})
    assert text(remove(static_policy("2S12"), before, "u", "a").default) == "0-9"


def test_a_pod_set_comes_back_with_the_last_container_only() -> None:
    policy = replace(static_policy("2S12"), gates=MANAGED)
    before = replace(state("0-5", u={"a": "6-7", "b": "8"}), pods={"u": mask("6-11")})
    after = remove(policy, before, "u", "a")
    assert (text(after.default), after.pods) == ("0-5", {"u": mask("6-11")})
    after = remove(policy, after, "u", "b")
    assert (text(after.default), after.pods, after.assignments) == ("0-11", {}, {})


# Baselines.


def test_the_first_set_of_a_container_is_its_baseline_until_it_is_removed() -> None:
    policy = static_policy("2S12", reserved="0")
    answer = served(policy, state("0-11"), guaranteed("u", container("c", "2")))
    assert answer.state.baselines == {"u": {"c": mask("2,8")}}
    known = replace(state("0-11"), baselines={"u": {"c": CPUMask(1), "d": CPUMask(2)}})
    kept = served(policy, known, guaranteed("u", container("c", "2"))).state
    assert kept.baselines == {"u": {"c": 1, "d": 2}}
    assert remove(policy, kept, "u", "c").baselines == {"u": {"d": 2}}
    assert remove(policy, answer.state, "u", "c").baselines == {}


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
    assert isinstance(answer, Allocated)
    facts.clear()
    allocate(policy, answer.state, Reusable(), pod, asked, None, facts.append)
    remove(policy, answer.state, "u", "c", facts.append)
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


def test_what_may_be_given_away_is_the_pool_without_the_reserved_cpus() -> None:
    policy = static_policy("2S12", reserved="0,6")
    assert text(available_cpus(policy, state("0-3"))) == "1-3"
    assert policy.shareable == fixture("2S12").all_cpus
    assert text(replace(policy, strict_reservation=True).shareable) == "1-5,7-11"
