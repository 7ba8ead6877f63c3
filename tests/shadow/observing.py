"""A kubelet that is the engine, seen as a shadow sees a real one: files, listed pods, and what the API server has."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

from mooring.core.config import KubeletConfig, MooringConfig
from mooring.discovery.compact import parse_compact
from mooring.kubelet.events import after_event, ended
from mooring.kubelet.kubelet import Kubelet, StateTexts
from mooring.kubelet.start import start_kubelet
from mooring.manifest.defaults import PodGates
from mooring.manifest.steps import Admit, Restart
from mooring.publisher.observation import EngineObserver
from mooring.publisher.restored import holds
from mooring.shadow.observed import REJECTED, ObservedNode, observed_pod

MACHINE = parse_compact("sockets=2 numa=2 cores=8 threads=2 memory=8Gi").info
STATIC = KubeletConfig(cpu_manager_policy="static", reserved_system_cpus="0")


@dataclass
class Node:
    """A node with an API server that has its pods."""

    kubelet: Kubelet
    starts: int = 1
    objects: dict[str, dict[str, Any]] = field(default_factory=dict)

    @property
    def gates(self) -> PodGates:
        return PodGates.of_node(self.kubelet.settings.config, self.kubelet.mooring)

    def admit(self, uid: str, cpu: str, memory: str = "1Mi") -> bool:
        """Admit a pod of class Guaranteed and write its status."""
        resources = {"limits": {"cpu": cpu, "memory": memory}}
        content: dict[str, Any] = {
            "metadata": {"name": uid, "uid": uid, "creationTimestamp": f"{len(self.objects):06}"},
            "spec": {"containers": [{"name": "main", "resources": resources}]},
        }
        pod = observed_pod(content, self.gates).pod
        self.kubelet, result = after_event(self.kubelet, Admit(pod))
        [answer] = result.admissions
        if answer.admitted:
            content["status"] = {"phase": "Running", "qosClass": "Guaranteed"}
        else:
            content["status"] = {
                "phase": "Failed",
                "reason": answer.decision.reason,
                "message": REJECTED + answer.decision.message,
                "qosClass": "Guaranteed",
            }
        self.objects[uid] = content
        return answer.admitted

    def end(self, uid: str, *, released: bool = True) -> None:
        """Let a pod finish; the kubelet releases what it had now or later."""
        self.objects[uid]["status"]["phase"] = "Succeeded"
        if released:
            self.release(uid)

    def release(self, uid: str) -> None:
        self.kubelet = ended(self.kubelet, uid)

    def restart(self, config: KubeletConfig | None = None) -> None:
        before = self.kubelet
        if config is not None and config.cpu_manager_policy != before.settings.config.cpu_manager_policy:
            before = replace(before, cpu_file=None)
        self.kubelet, result = after_event(before, Restart(config))
        assert result.refusal is None
        for answer in result.admissions:
            assert answer.admitted
        self.starts += 1

    def observed(self) -> ObservedNode:
        seen = EngineObserver("node").observe(self.kubelet)
        pods = {uid: observed_pod(content, self.gates) for uid, content in self.objects.items()}
        node = self.kubelet.node
        holding = frozenset(uid for uid in node.active if holds(node, uid) is not None)
        return ObservedNode(seen.facts, seen.state, self.starts, pods, holding)


def node(config: KubeletConfig = STATIC) -> Node:
    kubelet = start_kubelet(MACHINE, config, MooringConfig(), StateTexts()).kubelet
    assert kubelet is not None
    return Node(kubelet)
