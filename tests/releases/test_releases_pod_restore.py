"""What kubelet v1.38.0-beta.0 makes of the CPUs and memory of a pod-level pod when it starts again."""

from __future__ import annotations

from dataclasses import replace

import pytest
from tests.cpumanager.machines import mask
from tests.cpumanager.pods import container, pod_level

from mooring.engine.core.bits import list_text
from mooring.engine.core.decision import AllocationError
from mooring.engine.core.pod import Container, ContainerKind, Pod, PodLevelGates
from mooring.engine.core.topology import discover_topology
from mooring.engine.cpumanager.facts import CPUsAssigned, PodPartitioned, PodShareCut
from mooring.engine.cpumanager.options import CPUOptions
from mooring.engine.cpumanager.pod_allocation import allocate_pod
from mooring.engine.cpumanager.policy import StaticPolicy
from mooring.engine.cpumanager.state import CPUState
from mooring.engine.releases.catalog import RELEASES
from mooring.inputs.machines.compact import parse_compact

MACHINE = discover_topology(parse_compact("cores=8 threads=1").info)
KINDS = {"c": ContainerKind.APP, "s": ContainerKind.SIDECAR, "i": ContainerKind.INIT}


def policy(release: str) -> StaticPolicy:
    gates = PodLevelGates(resources=True, managers=True)
    rules = CPUOptions().take_rules(frozenset(), RELEASES[release].rules)
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
