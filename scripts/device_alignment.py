"""Measure how well CPUs, memory, GPU and NIC of random pods are aligned, with and without the agent, by the engine.

Pods arrive one after another on a machine with eight GPUs and eight NICs, stay for a while, and leave. Four settings
see the same pods:

* kubelet, device plugins: one topology manager for CPUs, memory and devices;
* kubelet, claims: the scheduler allocates GPUs and NICs that match by their NUMA node, and the kubelet, whose topology
  manager does not see them, chooses CPUs and memory;
* agent, device plugins: the kubelet chooses devices alone, and the agent CPUs and memory beside them;
* agent, claims: the scheduler allocates as above, and the agent chooses CPUs and memory beside the devices.

A container is aligned when its CPUs, memory and devices lie on one NUMA node. Prints tables in Markdown. The last
column says how many of the agent's decisions, for device plugins and for claims, are those of a kubelet whose device
manager gave out the same devices.
"""

from __future__ import annotations

import argparse
import json
import random
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum
from pathlib import Path
from typing import Any

from mooring.engine.core.decision import Placement
from mooring.engine.core.machine import Machine
from mooring.engine.core.pod import Pod
from mooring.engine.devicemanager.state import Device, DeviceState
from mooring.engine.kubelet.admit import AdmitResult, admit
from mooring.engine.kubelet.kubelet import Kubelet, StateTexts
from mooring.engine.kubelet.start import NotStarted, start_on
from mooring.explanations.alignment import extent_of_nodes
from mooring.inputs.configuration.node_configuration import load_config
from mooring.inputs.machines.loader import load_machine
from mooring.inputs.pods.pods import pod_from_object

MACHINES = ("xeon-8480-2s", "xeon-6230-2s-snc2", "kunpeng-920-2s", "epyc-7763-2s-nps4")
GPU, NIC = "vendor.example/gpu", "vendor.example/nic"
DEVICES = 8
"""Of each resource."""
RESERVED_MEMORY = "1Gi"

Held = Mapping[str, Mapping[str, tuple[Device, ...]]]
"""Container -> resource -> devices."""


class Setting(Enum):
    """Who chooses what; the value is how the table names it."""

    KUBELET_PLUGINS = "kubelet, device plugins"
    KUBELET_CLAIMS = "kubelet, claims"
    AGENT_PLUGINS = "agent, device plugins"
    AGENT_CLAIMS = "agent, claims"


class Outcome(Enum):
    """What became of a pod."""

    ALIGNED = "aligned"
    REFUSED = "refused"
    MISALIGNED = "misaligned"


@dataclass(frozen=True, slots=True)
class Arrival:
    """A pod that arrives, and how many others arrive before it leaves."""

    document: Mapping[str, Any]
    stays: int


def arrivals(machine: Machine, count: int, seed: int) -> list[Arrival]:
    """Return random pods with devices, each of which has room on one NUMA node of the empty machine."""
    drawn = random.Random(seed)  # noqa: S311 - drawn again for the same seed
    nodes = [node for node in machine.info.topology if node.cores]
    most = min(sum(len(core.thread_ids) for core in node.cores) for node in nodes) // 2
    each = max(1, DEVICES // len(nodes))
    return [_arrival(drawn, f"pod-{number:03}", most, each) for number in range(count)]


def _arrival(drawn: random.Random, name: str, most: int, each: int) -> Arrival:
    containers = []
    for number in range(drawn.choice((1, 1, 1, 2))):
        counts = {GPU: drawn.randint(0, each), NIC: drawn.randint(0, each)}
        if not any(counts.values()):
            counts[GPU] = 1
        limits = {"cpu": str(drawn.randint(1, most)), "memory": f"{drawn.randint(1, 8)}Gi"}
        limits.update({resource: str(wanted) for resource, wanted in counts.items() if wanted})
        containers.append({"name": f"app{number}", "image": "app", "resources": {"limits": limits}})
    metadata = {"name": name, "namespace": "default", "uid": name}
    document = {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": {"containers": containers}}
    return Arrival(document, drawn.randint(1, 8))


def devices_on(machine: Machine) -> dict[str, tuple[Device, ...]]:
    """Return the GPUs and NICs of a machine, spread evenly over its NUMA nodes."""
    nodes = [node.node_id for node in machine.info.topology if node.cores]

    def spread(kind: str) -> tuple[Device, ...]:
        return tuple(Device(f"{kind}-{one}", (nodes[one * len(nodes) // DEVICES],)) for one in range(DEVICES))

    return {GPU: spread("gpu"), NIC: spread("nic")}


def policies(topology: str, cpu: str = "static", memory: str = "Static") -> dict[str, Any]:
    """Return the fields of a KubeletConfiguration by which a kubelet or an agent decides."""
    kept = {"memory": RESERVED_MEMORY}
    return {
        "cpuManagerPolicy": cpu,
        "memoryManagerPolicy": memory,
        "topologyManagerPolicy": topology,
        "reservedSystemCPUs": "0",
        "kubeReserved": kept,
        **({"reservedMemory": [{"numaNode": 0, "limits": kept}]} if memory == "Static" else {}),
    }


@dataclass(slots=True)
class Node:
    """A machine in one setting."""

    machine: Machine
    policy: str
    setting: Setting
    devices: Mapping[str, tuple[Device, ...]]
    manager: Kubelet = field(init=False)
    """Who chooses CPUs and memory."""
    beside: Kubelet = field(init=False)
    """The kubelet beside the agent: only devices are its own."""
    judge: Kubelet = field(init=False)
    """A kubelet that manages everything, and has given out the same devices."""
    equal: int = 0
    """Decisions of the agent that are the judge's."""
    claimed: dict[str, Held] = field(default_factory=dict)
    """Pod -> what the scheduler allocated to its claims."""

    def __post_init__(self) -> None:
        """Start the kubelets."""
        follows = self.setting in (Setting.AGENT_PLUGINS, Setting.AGENT_CLAIMS)
        self.manager = self._started("static", "Static", follows=follows)
        self.beside = self._started("none", "None")
        self.judge = self._started("static", "Static")

    def ask(self, document: Mapping[str, Any]) -> Outcome:
        """Let a pod arrive."""
        pod, bare = _pod(document), _pod(_without_devices(document))
        if self.setting is Setting.KUBELET_PLUGINS:
            self.manager, answer = admit(self.manager, pod)
            return self._judged(answer, answer.decision.devices)
        held = self._chosen(pod)
        if held is None:
            self.equal += 1
            return Outcome.REFUSED
        if self.setting is Setting.KUBELET_CLAIMS:
            self.manager, answer = admit(self.manager, bare)
            return self._judged(answer, held)
        self.manager, answer = admit(holding(self.manager, pod.uid, held), bare)
        self.judge, other = admit(holding(self.judge, pod.uid, held), pod)
        self.equal += _of(answer) == _of(other)
        return self._judged(answer, held)

    def leave(self, uid: str) -> None:
        """Let a pod end, where it was admitted."""
        self.claimed.pop(uid, None)
        for name in ("manager", "beside", "judge"):
            kubelet: Kubelet = getattr(self, name)
            setattr(self, name, without(kubelet, uid))

    def _chosen(self, pod: Pod) -> Held | None:
        """Return the devices that the kubelet beside or the scheduler gives a pod; None when it gives none."""
        if self.setting is Setting.AGENT_PLUGINS:
            self.beside, answer = admit(self.beside, pod)
            return dict(answer.decision.devices) if answer.admitted else None
        found = self._allocated(pod)
        if found is not None:
            self.claimed[pod.uid] = found
        return found

    def _allocated(self, pod: Pod) -> Held | None:
        """Return the first devices in the order of the slices that match by their NUMA node."""
        taken = {
            one.id for held in self.claimed.values() for each in held.values() for got in each.values() for one in got
        }
        found: dict[str, Mapping[str, tuple[Device, ...]]] = {}
        for container in pod.containers:
            wanted = {name: container.limits[name].units for name in self.devices if name in container.limits}
            free = {name: [one for one in self.devices[name] if one.id not in taken] for name in wanted}
            nodes = dict.fromkeys(one.numa for devices in free.values() for one in devices)
            enough = (
                {
                    name: tuple(one for one in devices if one.numa == node)[: wanted[name]]
                    for name, devices in free.items()
                }
                for node in nodes
            )
            got = next((one for one in enough if all(len(one[name]) == wanted[name] for name in wanted)), None)
            if got is None:
                return None
            found[container.name] = got
            taken |= {one.id for devices in got.values() for one in devices}
        return found

    def _judged(self, answer: AdmitResult, held: Held) -> Outcome:
        if not answer.admitted:
            self.leave(answer.pod.uid)
            return Outcome.REFUSED
        settings, node = self.manager.settings, self.manager.node
        memory = node.memory.assignments.get(answer.pod.uid, {})
        extents = (
            extent_of_nodes(settings, node.providers, place, memory.get(name, ()), held.get(name, {}))
            for name, place in answer.decision.containers.items()
        )
        return Outcome.ALIGNED if all(one.held <= 1 for one in extents) else Outcome.MISALIGNED

    def _started(self, cpu: str, memory: str, *, follows: bool = False) -> Kubelet:
        content = {
            "kind": "KubeletConfiguration",
            "apiVersion": "kubelet.config.k8s.io/v1beta1",
            "evictionHard": {"memory.available": "0%"},
            **policies(self.policy, cpu, memory),
        }
        extensions = ["device-alignment"] if follows else []
        own = {"kind": "MooringConfiguration", "apiVersion": "mooring/v1alpha1", "extensions": extensions}
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "kubelet.yaml"
            path.write_text(f"{json.dumps(content)}\n---\n{json.dumps(own)}\n", encoding="utf-8")
            found = load_config(path)
        start = start_on(self.machine, found.kubelet, found.mooring, StateTexts())
        if isinstance(start, NotStarted):
            raise SystemExit(f"{self.machine.name}: {start.refusal.message}")
        return start.with_devices(DeviceState(self.devices))


def outcomes(machine: Machine, policy: str, setting: Setting, pods: Sequence[Arrival]) -> tuple[list[Outcome], int]:
    """Return what becomes of pods in the order of their arrival, and how many decisions are the judge's."""
    node = Node(machine, policy, setting, devices_on(machine))
    leaving: dict[int, list[str]] = {}
    found = []
    for number, pod in enumerate(pods):
        for uid in leaving.pop(number, ()):
            node.leave(uid)
        found.append(node.ask(pod.document))
        leaving.setdefault(number + pod.stays + 1, []).append(pod.document["metadata"]["uid"])
    return found, node.equal


def _pod(document: Mapping[str, Any]) -> Pod:
    return pod_from_object(document, source="random")


def _without_devices(document: Mapping[str, Any]) -> dict[str, Any]:
    containers = [
        {**one, "resources": {"limits": {key: one["resources"]["limits"][key] for key in ("cpu", "memory")}}}
        for one in document["spec"]["containers"]
    ]
    return {**document, "spec": {**document["spec"], "containers": containers}}


def holding(kubelet: Kubelet, uid: str, held: Held) -> Kubelet:
    """Return a kubelet whose device manager has given a pod these devices."""
    return kubelet.with_devices(kubelet.node.providers.devices.holding(uid, held))


def _of(answer: AdmitResult) -> tuple[bool, Mapping[str, Placement], str]:
    return answer.admitted, answer.decision.containers if answer.admitted else {}, answer.decision.reason


def without(kubelet: Kubelet, uid: str) -> Kubelet:
    """Return a kubelet after a pod has ended, whether it was admitted or not, and its devices were given back."""
    after = kubelet.without([uid]) if uid in kubelet.node.active else kubelet.settled()
    devices = after.node.providers.devices
    return after.with_devices(replace(devices, held={key: held for key, held in devices.held.items() if key != uid}))


def rows(machines: Sequence[str], policy: str, count: int, seed: int) -> Iterator[str]:
    """Yield the rows of the table for one topology policy: shares that are aligned, refused, misaligned."""
    for name in machines:
        machine = load_machine(name)
        pods = arrivals(machine, count, seed)
        cells, equal = [f"{name}, {sum(1 for node in machine.info.topology if node.cores)}"], []
        for setting in Setting:
            found, same = outcomes(machine, policy, setting, pods)
            cells.append(" / ".join(f"{100 * found.count(one) / count:g}" for one in Outcome))
            if setting in (Setting.AGENT_PLUGINS, Setting.AGENT_CLAIMS):
                equal.append(str(same))
        yield f"| {' | '.join([*cells, ', '.join(equal)])} |"


def main() -> int:
    """Print the tables."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--pods", type=int, default=200)
    parser.add_argument("--seed", type=int, default=19)
    parser.add_argument("--policy", action="append", help="of the topology manager; repeat for several")
    asked = parser.parse_args()
    heads = ["machine, NUMA nodes", *(one.value for one in Setting), "as a kubelet"]
    for policy in asked.policy or ["single-numa-node", "restricted", "best-effort"]:
        shares = ", ".join(one.value for one in Outcome)
        print(f"\n{policy}, {asked.pods} pods, per cent {shares}:\n")
        print(f"| {' | '.join(heads)} |")
        print("|---" * len(heads) + "|")
        for row in rows(MACHINES, policy, asked.pods, asked.seed):
            print(row, flush=True)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
