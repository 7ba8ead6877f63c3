"""Small nodes and pods in which one thing goes wrong, or one thing is worth knowing."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TypeVar

from tests.plans import started_plan

from mooring.answers.base.plan import AnyPlan, Plan, Question
from mooring.answers.base.pods import explain
from mooring.engine.core.config import KubeletConfig, MooringConfig, ReservedMemory
from mooring.engine.core.machine import Machine
from mooring.engine.core.machineinfo import MachineInfo
from mooring.engine.core.pod import Container, ContainerKind, Pod, PodResources, QoS
from mooring.engine.core.quantity import Quantity
from mooring.engine.devicemanager.state import Device, DeviceState
from mooring.engine.kubelet.events import Admit, Remove, Restart
from mooring.engine.kubelet.kubelet import Kubelet, StateTexts
from mooring.engine.kubelet.start import NotStarted, restart_kubelet, start_kubelet
from mooring.engine.node.settings import CPU_FILE, MEMORY_FILE
from mooring.explanations.story import Story
from mooring.inputs.machines.compact import parse_compact
from mooring.inputs.pods.scenario import Scenario

TWO_NODES = replace(parse_compact("sockets=2 cores=8 threads=2 memory=32Gi"), findings=())
"""Two NUMA nodes of 8 CPUs and 16 GiB each; a core has two threads."""

FOUR_CACHES = replace(parse_compact("sockets=1 cores=16 l3=4 memory=32Gi"), findings=())
"""One NUMA node of 16 CPUs, four under each last-level cache."""

STATIC = KubeletConfig(cpu_manager_policy="static", reserved_system_cpus="0,8")


def policy(name: str, scope: str = "container", **options: str) -> KubeletConfig:
    named = {option.replace("_", "-"): value for option, value in options.items()}
    return replace(STATIC, topology_manager_policy=name, topology_manager_scope=scope, cpu_manager_policy_options=named)


def with_memory(config: KubeletConfig) -> KubeletConfig:
    return replace(config, memory_manager_policy="Static", reserved_memory=(ReservedMemory(0, {"memory": "100Mi"}),))


def with_pod_level(config: KubeletConfig) -> KubeletConfig:
    return replace(config, feature_gates={"PodLevelResourceManagers": True})


def container(
    name: str, cpu: str, memory: str = "64Mi", kind: ContainerKind = ContainerKind.APP, nics: str = ""
) -> Container:
    limits = {"cpu": Quantity.parse(cpu), "memory": Quantity.parse(memory)}
    if nics:
        limits["example.com/nic"] = Quantity.parse(nics)
    return Container(name, kind, limits, limits)


def pod(name: str, *containers: Container) -> Pod:
    return Pod(name, name, "default", containers, QoS.GUARANTEED)


def simple(name: str, cpu: str, memory: str = "64Mi", nics: str = "") -> Pod:
    return pod(name, container("app", cpu, memory, nics=nics))


def pod_level(name: str, cpu: str, *containers: Container) -> Pod:
    own = {"cpu": Quantity.parse(cpu), "memory": Quantity.parse("1Gi")}
    return Pod(name, name, "default", containers, QoS.GUARANTEED, PodResources(own, own))


def planned(
    config: KubeletConfig,
    pods: Sequence[Pod],
    machine: Machine = TWO_NODES,
    files: StateTexts | None = None,
    devices: Mapping[str, tuple[Device, ...]] | None = None,
) -> Plan:
    return started_plan(
        Question(machine, config, MooringConfig(), tuple(pods), files=files or StateTexts(), devices=devices or {})
    )


def told(plan: AnyPlan, number: int = -1) -> Story:
    """Return the story of one pod, by default of the last one."""
    pods = [*(answer.pod for answer in plan.answers), *plan.unasked]
    return explain(plan, pods[number])


Told = TypeVar("Told")


def each_pod(
    scenario: Scenario,
    machines: Mapping[str, MachineInfo],
    ask: Callable[[Kubelet, Pod, bool], tuple[Kubelet | None, Told]],
    devices: DeviceState | None = None,
) -> Iterator[Told]:
    """Yield what is told of every pod of a recorded scenario, until the kubelet would not start or not return.

    Args:
        scenario: the recording.
        machines: by name.
        ask: takes the kubelet, a pod and whether it runs already; no kubelet goes on where it would not return.
        devices: of the node.
    """
    files = StateTexts(scenario.files.get(CPU_FILE), scenario.files.get(MEMORY_FILE))
    started = start_kubelet(machines[scenario.machine], scenario.kubelet, scenario.mooring, files)
    if not isinstance(started, Kubelet):
        return
    kubelet: Kubelet | NotStarted | None = started if devices is None else started.with_devices(devices)
    queue = [(pod, True) for pod in scenario.active]
    steps = list(scenario.steps)
    while isinstance(kubelet, Kubelet) and (queue or steps):
        if queue:
            kubelet, found = ask(kubelet, *queue.pop(0))
            yield found
            continue
        step = steps.pop(0)
        if isinstance(step, Remove):
            kubelet, _ = kubelet.remove(step.uid)
        elif isinstance(step, Admit):
            queue = [(step.pod, False)]
        elif isinstance(step, Restart):
            queue = [(pod, True) for pod in kubelet.node.active.values()]
            kubelet = restart_kubelet(kubelet, step.kubelet)
