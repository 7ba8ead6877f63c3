"""Plans: order, state that nobody describes, kubelets that refuse, hang or crash, and what is left afterwards."""

from __future__ import annotations

import gc
from collections.abc import Sequence
from dataclasses import replace
from types import FunctionType, ModuleType
from typing import Any

import pytest
from msgspec import to_builtins
from tests.planner.recordings import machines, scenarios
from tests.plans import refused_plan, started_plan

from mooring.answers.base.picture import plan_view
from mooring.answers.base.plan import Plan, Question
from mooring.answers.base.plan_document import plan_document
from mooring.answers.base.rows import plan_rows
from mooring.answers.base.scenario import replay_scenario
from mooring.engine.checkpoint.cpu_file import cpu_state_text
from mooring.engine.core.config import KubeletConfig, MooringConfig, ReservedMemory
from mooring.engine.core.cpuset import CPUSet
from mooring.engine.core.machine import Finding, Machine
from mooring.engine.core.pod import Container, ContainerKind, Pod, QoS
from mooring.engine.core.quantity import Quantity
from mooring.engine.cpumanager.state import CPUState
from mooring.engine.devicemanager.state import Device
from mooring.engine.kubelet.events import Admit
from mooring.engine.kubelet.kubelet import Kubelet, StateTexts, read
from mooring.inputs.machines.compact import parse_compact
from mooring.inputs.pods.scenario import Scenario
from mooring.views.view import CPUUse

MACHINE = replace(parse_compact("sockets=2 numa=4 cores=16 threads=2 memory=16Gi distances=10,12,20"), findings=())
STATIC = KubeletConfig(cpu_manager_policy="static", reserved_system_cpus="0")
RESTRICTED = replace(STATIC, topology_manager_policy="restricted")
SINGLE = replace(STATIC, topology_manager_policy="single-numa-node")
NO_FIXES = MooringConfig()


RESERVED = (ReservedMemory(0, {"memory": "100Mi"}),)
WITH_MEMORY = replace(RESTRICTED, memory_manager_policy="Static", reserved_memory=RESERVED)


def container(name: str, cpu: str, kind: ContainerKind = ContainerKind.APP, **more: str) -> Container:
    limits = {"cpu": Quantity.parse(cpu), "memory": Quantity.parse("64Mi")}
    limits |= {resource.replace("_", "/"): Quantity.parse(amount) for resource, amount in more.items()}
    return Container(name, kind, limits, limits)


def wants(name: str, *containers: Container) -> Pod:
    return Pod(name, name, "ns", containers, QoS.GUARANTEED)


def pod(name: str, cpu: str = "2", *others: Container) -> Pod:
    return wants(name, *others, container("c", cpu))


def asked(config: KubeletConfig, pods: Sequence[Pod], **more: Any) -> Question:
    return Question(more.pop("machine", MACHINE), config, NO_FIXES, tuple(pods), **more)


def planned(config: KubeletConfig, pods: Sequence[Pod], **more: Any) -> Plan:
    return started_plan(asked(config, pods, **more))


def cpus(plan: Plan) -> list[str]:
    return [str(answer.decision.containers["c"].cpus) if answer.admitted else "" for answer in plan.answers]


def reasons(plan: Plan) -> list[str]:
    return [answer.decision.reason for answer in plan.answers]


def warnings(plan: Plan) -> list[str]:
    return [f"{finding.subject}: {finding.message}" for finding in plan.findings if finding.severity == "warning"]


def test_pods_are_admitted_in_their_order() -> None:
    first, second = (planned(STATIC, pods) for pods in ([pod("a", "4"), pod("b")], [pod("b"), pod("a", "4")]))
    assert (cpus(first), cpus(second)) == (["1-2,17-18", "3,19"], ["1,17", "2-3,18-19"])
    assert first.is_yes
    assert second.is_yes


def test_after_the_managers_the_nodes_resources_are_checked() -> None:
    plan = planned(KubeletConfig(), [pod("a", "30"), pod("b", "3")])
    assert reasons(plan) == ["", "OutOfcpu"]
    assert plan.answers[1].decision.message.endswith("requested: 3000, used: 30000, capacity: 32000")
    assert not plan.is_yes


@pytest.mark.parametrize(
    ("most", "per_core", "capacity"), [(110, 1, 32), (20, 1, 20), (110, 0, 110), (110, 2**31 - 1, 110)]
)
def test_pods_per_core_are_a_limit_where_they_are_fewer(most: int, per_core: int, capacity: int) -> None:
    config = replace(STATIC, max_pods=most, pods_per_core=per_core)
    plan = planned(config, [pod(str(number), "1m") for number in range(capacity + 1)])
    assert reasons(plan) == [*[""] * capacity, "OutOfpods"]
    assert plan.answers[-1].decision.message.endswith(f"requested: 1, used: {capacity}, capacity: {capacity}")


def test_a_pod_that_is_refused_by_the_node_gives_its_cpus_back() -> None:
    config = replace(STATIC, max_pods=1)
    plan = planned(config, [pod("a"), pod("b"), pod("c")])
    assert reasons(plan) == ["", "OutOfpods", "OutOfpods"]
    assert list(plan.kubelet.node.cpu.assignments) == ["a"]
    # While it is refused it has them still, as in the kubelet.
    assert '"b":{"c":"2,18"}' in (read(plan.answers[1].cpu_file) or "")


def test_what_a_refused_pod_had_been_given_is_free_at_the_end() -> None:
    init = container("i", "2", ContainerKind.INIT)
    plan = planned(SINGLE, [pod("a", "8", init)])
    assert reasons(plan) == ["TopologyAffinityError"]
    assert str(plan.answers[0].decision.containers["i"].cpus) == "1,17"
    assert str(plan.kubelet.node.shared_pool) == "0-31"
    assert plan.files == planned(SINGLE, []).files


@pytest.mark.parametrize(
    ("config", "kind"),
    [
        pytest.param(STATIC, ContainerKind.INIT, id="static"),
        pytest.param(SINGLE, ContainerKind.INIT, id="single"),
        # A restart gives ended init containers their memory again (kubernetes/kubernetes#123971).
        pytest.param(WITH_MEMORY, ContainerKind.SIDECAR, id="memory"),
    ],
)
def test_going_on_from_the_files_is_like_never_having_stopped(config: KubeletConfig, kind: ContainerKind) -> None:
    first_one, sizes = container("i", "1", kind), {"a": "4", "b": "3", "c": "40", "d": "7", "e": "2", "f": "5"}
    pods = [pod(name, cpu, *((first_one,) if name in "bf" else ())) for name, cpu in sizes.items()]
    whole = planned(config, pods)
    for cut in range(1, len(pods)):
        first = planned(config, pods[:cut])
        running = [answer.pod for answer in first.answers if answer.admitted]
        second = planned(config, pods[cut:], files=first.files, active=running)
        assert [answer.decision for answer in second.answers if not answer.running] == [
            answer.decision for answer in whole.answers[cut:]
        ]
        assert all(answer.admitted for answer in second.answers if answer.running)
        assert second.files == whole.files


def test_running_pods_are_admitted_again_and_keep_what_they_have() -> None:
    before = planned(RESTRICTED, [pod("a", "4"), pod("b")])
    plan = planned(RESTRICTED, [], files=before.files, active=[pod("b"), pod("a", "4")])
    assert [(answer.running, answer.admitted) for answer in plan.answers] == [(True, True), (True, True)]
    assert cpus(plan) == ["3,19", "1-2,17-18"]
    assert plan.files == before.files
    assert warnings(plan) == []


def test_a_running_pod_that_asks_for_another_number_is_refused() -> None:
    before = planned(RESTRICTED, [pod("a", "4")])
    plan = planned(RESTRICTED, [pod("b", "4")], files=before.files, active=[pod("a", "5")])
    assert reasons(plan) == ["TopologyAffinityError", ""]
    assert "already holds 4 from its earlier admission" in plan.answers[0].why
    assert [row.verdict for row in plan_rows(plan, wide=False)] == ["refused though it ran already", "exclusive"]


def test_a_pod_with_state_that_is_given_as_new_runs_already() -> None:
    before = planned(STATIC, [pod("a", "4")])
    plan = planned(STATIC, [pod("b"), pod("a", "4")], files=before.files)
    assert not [line for line in warnings(plan) if "that no --active file describes" in line]
    assert [line for line in warnings(plan) if "given with -f (a)" in line]
    assert cpus(plan) == ["3,19", "1-2,17-18"]


def test_a_configuration_that_the_kubelet_refuses_is_answered_with_what_to_do() -> None:
    plan = refused_plan(asked(KubeletConfig(cpu_manager_policy="static"), [pod("a")]))
    assert plan.refusal.message == "[cpumanager] unable to determine reserved CPU resources for static policy"
    assert plan.remedy.endswith("the kubelet then starts (run here).")
    assert not plan.is_yes
    document = to_builtins(plan_document(plan))
    assert (document["startError"], document["pods"]) == (plan.refusal.message, [])
    assert plan.refusal.message in plan_view(plan).caption[-2]


def test_a_machine_that_cadvisor_cannot_describe_does_not_start_a_kubelet() -> None:
    broken = replace(MACHINE, info_error="open /proc/meminfo: no such file or directory")
    plan = refused_plan(asked(STATIC, [pod("a")], machine=broken))
    assert (plan.refusal.stage, plan.refusal.message) == ("machine", broken.info_error)
    # What the configuration alone gets wrong is said before.
    invalid = refused_plan(asked(replace(STATIC, topology_manager_policy="bogus"), [], machine=broken))
    assert invalid.refusal.stage == "validation"


def test_a_kubelet_that_would_never_return_ends_the_plan() -> None:
    # The state leaves five single CPUs on each of four nodes (spec: vectors.md, D-loop).
    free = CPUSet.parse("0-4,10-14,20-24,30-34,79")
    state = CPUState("static", free.mask, {"stranger": {"c": (CPUSet.parse("0-79") - free).mask}})
    files = StateTexts(cpu_state_text(state, pod_level=False, baselines=False))
    machine = parse_compact("sockets=2 numa=4 cores=40 threads=2 memory=16Gi")
    options = {"distribute-cpus-across-numa": "true", "full-pcpus-only": "true"}
    config = replace(STATIC, reserved_system_cpus="79", cpu_manager_policy_options=options)
    plan = planned(config, [pod("a", "500m"), pod("b", "14"), pod("late")], machine=machine, files=files)
    last = plan.answers[-1]
    assert [answer.pod.name for answer in plan.answers] == ["a", "b"]
    assert last.why.startswith("The kubelet never returns from this admission (known defect group-loop)")
    assert [left.name for left in plan.unasked] == ["late"]
    assert [line for line in warnings(plan) if "would not return from this admission" in line]
    assert not plan.is_yes
    assert plan_rows(plan, wide=False)[-1].verdict == "endless"
    document = to_builtins(plan_document(plan))
    assert document["pods"][-1]["endless"] == "group-loop"
    assert document["unasked"] == [{"uid": "late", "namespace": "ns", "name": "late"}]


def test_a_crash_of_the_kubelet_is_an_answer() -> None:
    gaps = parse_compact("sockets=2 numa=2 cores=8 memory=8Gi distances=10,20")
    nodes = tuple(replace(node, node_id=node.node_id * 3) for node in gaps.info.topology)
    machine = replace(gaps, info=replace(gaps.info, topology=nodes))
    config = replace(RESTRICTED, topology_manager_policy_options={"prefer-closest-numa-nodes": "true"})
    plan = planned(config, [pod("a"), pod("b")], machine=machine)
    assert plan.answers[-1].crash
    assert plan.answers[-1].why.startswith("The kubelet crashes on this admission: ")
    assert not plan.is_yes
    assert plan_rows(plan, wide=False)[-1].verdict == "crash"
    assert "crash" in to_builtins(plan_document(plan))["pods"][-1]


def test_devices_of_a_refused_pod_are_free_at_the_end() -> None:
    nics = {"example/nic": (Device("nic-0", (0,)),)}
    plan = planned(SINGLE, [wants("a", container("c", "2", example_nic="1"), container("d", "9"))], devices=nics)
    assert reasons(plan) == ["TopologyAffinityError"]
    assert [device.id for device in plan.answers[0].decision.devices["c"]["example/nic"]] == ["nic-0"]
    assert plan.kubelet.node.providers.devices.available("example/nic") == {"nic-0"}


def test_resources_that_nobody_declares_are_named() -> None:
    limits: dict[str, Any] = {"example_nic": "1", "kubernetes.io_own": "1", "hugepages-2Mi": "2Mi", "other_x": "1"}
    plan = planned(SINGLE, [wants(name, container("c", "2", **limits)) for name in ("a", "b")])
    assert [line.partition(",")[0] for line in warnings(plan)] == [
        "example/nic: 2 pods ask for this resource",
        "other/x: 2 pods ask for this resource",
    ]


def test_findings_of_the_reading_come_first() -> None:
    odd = Finding("info", "file", "something was odd")
    assert planned(STATIC, [], findings=[odd]).findings[0] == odd


def fresh(scenario: Scenario) -> bool:
    """Tell whether pods only arrive, on a fresh node without devices."""
    before = scenario.active or scenario.files or scenario.devices or "startError" in scenario.expect
    return not before and all(isinstance(step, Admit) for step in scenario.steps)


def test_a_plan_says_of_recorded_pods_what_a_replay_says() -> None:
    compared = 0
    themes = ("topology", "memory", "podlevel", "cpu-uncore")
    recorded = (one for theme in themes for one in scenarios(f"admission-{theme}.jsonl.gz", 20))
    for scenario in filter(fresh, recorded):
        plan = planned(
            replace(scenario.kubelet, max_pods=10**6),
            [step.pod for step in scenario.steps if isinstance(step, Admit)],
            machine=Machine(scenario.machine, machines()[scenario.machine]),
        )
        # The recordings ask the managers alone: not the check before them, nor the one after them.
        beside = ("OutOf", "PodLevelResourcesNotSupported")
        if any(answer.decision.reason.startswith(beside) for answer in plan.answers):
            continue
        steps = replay_scenario(scenario, machines())["expect"]["steps"]
        for told, replayed in zip(to_builtins(plan_document(plan))["pods"], steps, strict=True):
            assert {name: told[name] for name in replayed} == replayed
        if plan.answers[-1].admitted:
            files = plan.files.cpu, plan.files.memory
            assert files == (steps[-1]["cpuManagerState"], steps[-1]["memoryManagerState"])
        compared += 1
    assert compared > 50


def test_no_pod_runs_on_the_cpus_of_a_kubelet_that_would_not_start() -> None:
    view = plan_view(refused_plan(asked(replace(STATIC, reserved_system_cpus="900"), [])))
    assert list(view.legend) == [CPUUse.LEFT_OUT]


def test_a_plan_keeps_two_kubelets_however_many_pods_it_has() -> None:
    # Each kubelet holds all pods before it: with one for each answer, memory would grow with the square of the pods.
    plan = planned(STATIC, [pod(f"pod-{number}") for number in range(20)])
    assert len(list(plan.kubelets())) == len(plan.answers) + 1
    waiting: list[object] = [plan]
    seen: dict[int, object] = {}
    while waiting:
        one = waiting.pop()
        if id(one) not in seen and not isinstance(one, type | ModuleType | FunctionType):
            seen[id(one)] = one
            waiting += gc.get_referents(one)
    kept = [one for one in seen.values() if isinstance(one, Kubelet)]
    assert all(one in (plan.began, plan.kubelet) for one in kept)
