"""A small node with its agent, as the outside sees it: pods that the engine admitted, containers of the runtime."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

from tests.agent.small_node import setting

from mooring.agent.nri.types import LinuxResources
from mooring.agent.state import AgentState, HeldPod, KnownContainer, Phase, Setting
from mooring.agent.status import (
    Snapshot,
    moment,
)
from mooring.documents.status import ConfigurationPart, RuntimePart
from mooring.engine.core.bits import NO_CPUS, NUMAMask
from mooring.engine.core.config import KubeletConfig, MooringConfig, ReservedMemory
from mooring.engine.core.cpuset import CPUSet
from mooring.engine.core.pod import Pod
from mooring.engine.kubelet.kubelet import Kubelet, StateTexts
from mooring.engine.kubelet.start import start_kubelet
from mooring.engine.node.metrics import Metrics, fold
from mooring.inputs.machines.loader import load_machine
from mooring.inputs.pods.pods import pod_from_object
from mooring.service.agent_configuration import FIXED_BY_DEFAULT

NOON = 1_770_000_000.0
MACHINE = "sockets=2 numa=2 cores=8 threads=2 memory=32Gi"
STATIC = KubeletConfig(
    cpu_manager_policy="static",
    reserved_system_cpus="0,8",
    memory_manager_policy="Static",
    reserved_memory=(ReservedMemory(0, {"memory": "1124Mi"}),),
    kube_reserved={"memory": "1Gi"},
    topology_manager_policy="best-effort",
)
GATES = {"PodLevelResources": True, "PodLevelResourceManagers": True}


def pod(name: str, *cpus: int, memory: str = "1Gi", whole: int = 0, sidecar: int = 0) -> Pod:
    """Return a Guaranteed pod with one container for each number of CPUs; without numbers a best-effort one.

    Args:
        name: of the pod.
        cpus: of each container; 0 leaves it without requests, for pods with numbers of their own.
        memory: of each container.
        whole: CPUs of the pod as a whole, where it has such.
        sidecar: CPUs of a sidecar before them, where it has one.
    """
    containers: list[dict[str, Any]] = [_container(f"c{index}", count, memory) for index, count in enumerate(cpus)]
    spec: dict[str, Any] = {"containers": containers or [{"name": "c0"}]}
    if sidecar:
        spec["initContainers"] = [{**_container("side", sidecar, memory), "restartPolicy": "Always"}]
    if whole:
        amounts = {"cpu": str(whole), "memory": "4Gi"}
        spec["resources"] = {"requests": amounts, "limits": amounts}
    metadata = {"name": name, "namespace": "apps", "uid": f"uid-{name}"}
    return pod_from_object({"kind": "Pod", "metadata": metadata, "spec": spec}, source=name)


def _container(name: str, cpus: int, memory: str) -> dict[str, Any]:
    return {"name": name, **({"resources": {"limits": {"cpu": str(cpus), "memory": memory}}} if cpus else {})}


@dataclass
class Told:
    """What an agent came to while pods arrived."""

    kubelet: Kubelet
    metrics: Metrics
    held: dict[str, HeldPod] = field(default_factory=dict)

    def admit(self, *pods: Pod) -> Told:
        for each in pods:
            facts: list[object] = []
            after, decision = self.kubelet.admit(each, facts.append)
            if decision.rejection is not None:
                node = self.kubelet.node
                self.held[each.uid] = HeldPod(each, decision.rejection, node.cpu, node.memory)
            self.kubelet = after.settled()
            self.metrics = fold(self.metrics, facts)
        return self

    def state(self) -> AgentState:
        containers = {one.id: one for one in map(self._container, self._names())}
        return AgentState(self.kubelet, containers=containers, held=self.held)

    def _names(self) -> list[tuple[Pod, str]]:
        return [(each, one.name) for each in self.kubelet.node.active.values() for one in each.containers]

    def _container(self, named: tuple[Pod, str]) -> KnownContainer:
        each, name = named
        node = self.kubelet.node
        cpus = CPUSet(node.cpu.assignments.get(each.uid, {}).get(name, NO_CPUS)) or node.shared_pool
        blocks = node.memory.assignments.get(each.uid, {}).get(name, ())
        mems = ",".join(str(one) for one in sorted({numa for block in blocks for numa in block.numa}))
        told = setting(str(cpus), mems)
        return KnownContainer(
            f"{each.name}-{name}-0123456789abcdef",
            f"sb-{each.name}",
            each.uid,
            name,
            Phase.RUNNING,
            told,
            LinuxResources(),
        )


def started(config: KubeletConfig = STATIC) -> Told:
    """Return an agent that has just started."""
    kubelet = start_kubelet(
        load_machine(MACHINE).info, config, MooringConfig(fixed_defects=FIXED_BY_DEFAULT), StateTexts()
    )
    assert isinstance(kubelet, Kubelet)
    return Told(kubelet, Metrics.initial(kubelet.settings, kubelet.node.cpu))


def snapshot_of(told: Told, **more: Any) -> Snapshot:
    """Return what the agent shows: ready, and everything in the kernel as it was told."""
    state = told.state()
    effective = {
        one.id: Setting(one.record.cpus, one.record.mems or NUMAMask(0b11)) for one in state.containers.values()
    }
    usual = Snapshot(
        load_machine(MACHINE),
        state,
        runtime=RuntimePart("containerd", "2.1.9", connected=True, synchronized=True, since=moment(NOON)),
        configuration=ConfigurationPart(["/etc/mooring/agent.yaml"], 1, moment(NOON), ""),
        metrics=told.metrics,
        effective=effective,
        node="edge-7",
        started=NOON,
        taken=NOON + 60,
    )
    return replace(usual, **more)


def busy() -> Told:
    """Return an agent with pods of all kinds, one of which was refused."""
    return started().admit(pod("db", 3, 1, memory="2Gi"), pod("web"), pod("cache", 2, sidecar=1), pod("wide", 40))


def partitioned() -> Told:
    """Return an agent with a pod that has CPUs as a whole, in the topology manager's pod scope."""
    config = replace(STATIC, topology_manager_scope="pod", feature_gates=GATES)
    return started(config).admit(pod("part", 2, 0, whole=4), pod("db", 3))
