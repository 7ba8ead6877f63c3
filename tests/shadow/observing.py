"""A kubelet that is the engine, seen as a shadow sees a real one: files, listed pods, and what the API server has."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from tests.plans import started_kubelet

from mooring.engine.core.config import KubeletConfig, ReservedMemory
from mooring.engine.devicemanager.state import Device, DeviceState
from mooring.engine.kubelet.admit import AdmitResult
from mooring.engine.kubelet.events import Admit, Readmit, Restart, after_event, ended
from mooring.engine.kubelet.kubelet import Kubelet
from mooring.inputs.machines.compact import parse_compact
from mooring.inputs.pods.cluster_objects import REJECTED
from mooring.inputs.pods.defaults import PodGates
from mooring.monitoring.shadow.judge import judge
from mooring.monitoring.shadow.judgement import Judgement
from mooring.monitoring.shadow.unseen import ObservedNode, observed_pod
from mooring.published.objects import PodKey
from mooring.published.observation import EngineObserver
from mooring.published.restored import holds

MACHINE = parse_compact("sockets=2 numa=2 cores=8 threads=2 memory=8Gi").info
STATIC = KubeletConfig(cpu_manager_policy="static", reserved_system_cpus="0")
PINNED = replace(
    STATIC,
    memory_manager_policy="Static",
    reserved_memory=(ReservedMemory(0, {"memory": "512Mi"}),),
    system_reserved={"memory": "412Mi"},
)
"""Memory, too, is bound to NUMA nodes."""


@dataclass
class Node:
    """A node with an API server that has its pods."""

    kubelet: Kubelet
    starts: int = 1
    objects: dict[str, dict[str, Any]] = field(default_factory=dict)
    asked: dict[str, dict[str, Any]] = field(default_factory=dict)
    """What became of pods about which nothing is told yet: the kubelet lists them, their status is to be written."""

    @property
    def gates(self) -> PodGates:
        return PodGates.of_node(self.kubelet.settings.config, self.kubelet.mooring)

    def admit(self, uid: str, *cpus: str, memory: str = "1Mi", before: str = "", created: int | None = None) -> bool:
        """Admit a pod of class Guaranteed, with a container for each amount of CPU, and write its status.

        Args:
            uid: its name, too.
            cpus: of its containers.
            memory: of each of them.
            before: CPU of a container that runs before them; empty for none.
            created: its place in the order of creation; after all others by default.
        """
        init = [container("before", before, memory)] if before else []
        return self.admit_pod(
            uid, init, [container(f"c{number}", cpu, memory) for number, cpu in enumerate(cpus)], created=created
        )

    def admit_pod(
        self,
        uid: str,
        init: Sequence[dict[str, Any]],
        containers: Sequence[dict[str, Any]],
        *,
        created: int | None = None,
        starts: bool = True,
        is_listed: bool = False,
    ) -> bool:
        """Admit a pod with these containers, and write its status.

        Args:
            uid: its name, too.
            init: its init containers.
            containers: its other containers.
            created: its place in the order of creation; after all others by default.
            starts: whether its init containers end.
            is_listed: whether the kubelet finds it in its first list, with the pods that run.
        """
        asked = {"creationTimestamp": f"{len(self.objects) if created is None else created:06}"}
        content: dict[str, Any] = {
            "metadata": {"name": uid, "uid": uid, **asked},
            "spec": {"initContainers": list(init), "containers": list(containers)},
        }
        pod = observed_pod(content, self.gates).pod
        self.kubelet, result = after_event(self.kubelet, Readmit(pod) if is_listed else Admit(pod))
        [answer] = result.admissions
        if answer.admitted and not starts:
            self.kubelet = answer.decided.counting(self.kubelet.used)
        if answer.admitted:
            content["status"] = {"phase": "Running", "qosClass": "Guaranteed"}
        else:
            content["status"] = refusal(answer)
        self.objects[uid] = content
        return answer.admitted

    def start(self, uid: str) -> None:
        """Let the init containers of a pod end, and its other containers start."""
        self.kubelet = self.kubelet.start_containers(uid)

    def end(self, uid: str, *, released: bool = True) -> None:
        """Let a pod finish; the kubelet releases what it had now or later."""
        self.objects[uid]["status"]["phase"] = "Succeeded"
        if released:
            self.release(uid)

    def release(self, uid: str) -> None:
        self.kubelet = ended(self.kubelet, uid)

    def leave(self, uid: str) -> None:
        """Let a pod go that leaves in the state files what it had, until the next pod is asked about."""
        self.objects[uid]["status"]["phase"] = "Succeeded"
        self.kubelet = replace(self.kubelet, node=self.kubelet.node.withdraw(uid))

    def tell_later(self, uid: str) -> None:
        """Take back what the API server has of a decision, until it is told."""
        self.asked[uid] = self.objects[uid].pop("status")

    def tell(self) -> None:
        """Let the API server have everything."""
        for uid, status in self.asked.items():
            self.objects[uid]["status"] = status
        self.asked.clear()

    def reconcile(self) -> None:
        """Release the CPUs, not the memory, of pods that have gone."""
        settled = self.kubelet.settled()
        node = self.kubelet.node
        providers = replace(node.providers, cpu=settled.node.providers.cpu)
        self.kubelet = replace(self.kubelet, node=replace(node, providers=providers), cpu_file=settled.cpu_file)

    def lose_cpu_file(self, *uids: str) -> None:
        """Remove the CPU manager's state file; a kubelet that starts asks about its pods in this order."""
        active = self.kubelet.node.active
        node = replace(self.kubelet.node, active={uid: active[uid] for uid in uids or active})
        self.kubelet = replace(self.kubelet, node=node, cpu_file=None)

    def restart(self, config: KubeletConfig | None = None) -> None:
        before = self.kubelet
        was = before.settings.config
        if config is not None and config.cpu_manager_policy != was.cpu_manager_policy:
            before = replace(before, cpu_file=None)
        if config is not None and config.memory_manager_policy != was.memory_manager_policy:
            before = replace(before, memory_file=None)
        self.kubelet, result = after_event(before, Restart(config))
        assert result.refusal is None
        for answer in result.admissions:
            if not answer.admitted:
                self.objects[answer.pod.uid]["status"] = refusal(answer)
        self.starts += 1

    def observed(self) -> ObservedNode:
        seen = EngineObserver("node").observe(self.kubelet)
        waiting = tuple(PodKey("default", uid, uid) for uid in self.asked if uid not in self.kubelet.node.active)
        seen = replace(seen, state=replace(seen.state, pods=(*seen.state.pods, *waiting)))
        told = [observed_pod(content, self.gates) for content in self.objects.values()]
        pods = {one.pod.uid: one for one in told}
        node = self.kubelet.node
        holding = frozenset(uid for uid in node.active if holds(node, uid) is not None)
        return ObservedNode(seen.facts, seen.state, self.starts, pods, holding)


def refusal(answer: AdmitResult) -> dict[str, Any]:
    decision = answer.decision
    told = {"reason": decision.reason, "message": REJECTED + decision.message}
    return {"phase": "Failed", "qosClass": "Guaranteed", **told}


def container(name: str, cpu: str, memory: str = "1Mi", **devices: str) -> dict[str, Any]:
    """Return a container; devices are named without their domain."""
    wanted = {f"vendor.example/{device}": count for device, count in devices.items()}
    return {"name": name, "resources": {"limits": {"cpu": cpu, "memory": memory, **wanted}}}


def devices(**counts: int) -> DeviceState:
    """Return devices on NUMA node 0, named by the first letter of their kind and a number."""
    found = {
        f"vendor.example/{kind}": tuple(Device(f"{kind[0]}{number}", (0,)) for number in range(count))
        for kind, count in counts.items()
    }
    return DeviceState(found)


def said(before: ObservedNode, *looks: ObservedNode) -> list[Judgement]:
    """Return what is judged of a kubelet since an observation."""
    return [one for interval in judge(before, *looks) for one in interval.judgements]


def agreed(before: ObservedNode, *looks: ObservedNode) -> list[str]:
    """Return it as lines; those of what agrees without that word and the namespace."""
    return [one.line().removeprefix("agreed: ").removeprefix("default/") for one in said(before, *looks)]


def node(config: KubeletConfig = STATIC) -> Node:
    return Node(started_kubelet(MACHINE, config))
