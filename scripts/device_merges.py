"""Measure how CPUs and memory that follow devices differ from one merge over all of them, decision by decision.

Random pods come to a machine with eight GPUs and eight NICs and leave again; every third has no devices. A kubelet with
device plugins decides about each by one merge over devices, CPUs and memory. From the same state the same pod is asked
about once more with the extension device-alignment, where devices are chosen first. Prints a table in Markdown.
"""

from __future__ import annotations

import argparse
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from device_alignment import MACHINES, RESERVED_MEMORY, Arrival, arrivals, devices_on

from mooring.engine.core.config import DeviceAlignments, KubeletConfig, MooringConfig, ReservedMemory
from mooring.engine.core.machine import Machine
from mooring.engine.devicemanager.state import DeviceState
from mooring.engine.kubelet.admit import AdmitResult, admit
from mooring.engine.kubelet.kubelet import Kubelet, StateTexts
from mooring.engine.kubelet.start import NotStarted, start_on
from mooring.inputs.machines.loader import load_machine
from mooring.inputs.pods.pods import pod_from_object

POLICIES = ("best-effort", "restricted", "single-numa-node")
SCOPES = ("container", "pod")
COLUMNS = ("same NUMA nodes", "other NUMA nodes", "both refuse", "only one merge admits", "only following admits")
WITHOUT = 3
"""Every so-manieth pod has no devices."""


def started(machine: Machine, policy: str, scope: str) -> Kubelet:
    """Start a kubelet with static policies on an empty machine."""
    first = next(node for node in machine.info.topology if node.cores)
    config = KubeletConfig(
        cpu_manager_policy="static",
        memory_manager_policy="Static",
        reserved_memory=(ReservedMemory(first.node_id, {"memory": RESERVED_MEMORY}),),
        kube_reserved={"memory": RESERVED_MEMORY},
        eviction_hard={"memory.available": "0%"},
        reserved_system_cpus=str(first.cores[0].thread_ids[0]),
        topology_manager_policy=policy,
        topology_manager_scope=scope,
    )
    start = start_on(machine, config, MooringConfig(), StateTexts())
    if isinstance(start, NotStarted):
        raise SystemExit(f"{machine.name}: {start.refusal}")
    return start.with_devices(DeviceState(devices_on(machine)))


def following(kubelet: Kubelet) -> Kubelet:
    """Return the same node with the extension."""
    settings = replace(kubelet.settings, device_alignments=DeviceAlignments())
    return replace(kubelet, node=replace(kubelet.node, settings=settings))


def compared(one_merge: AdmitResult, follows: AdmitResult) -> str:
    """Return the column of two answers about one pod."""
    if one_merge.admitted and follows.admitted:
        return COLUMNS[0] if _nodes(one_merge) == _nodes(follows) else COLUMNS[1]
    if one_merge.admitted or follows.admitted:
        return COLUMNS[3] if one_merge.admitted else COLUMNS[4]
    return COLUMNS[2]


def _nodes(result: AdmitResult) -> object:
    """Return the NUMA nodes of CPUs, memory and devices of each container."""
    topology = result.decided.settings.topology
    if topology is None:
        raise SystemExit("the machine has no topology")
    cpus = {
        name: {node for node, mask in topology.numa.items() if mask & place.cpus.mask}
        for name, place in result.decision.containers.items()
    }
    memory = {name: place.mems for name, place in result.decision.containers.items()}
    devices = {
        (name, resource): sorted(device.numa or () for device in found)
        for name, resources in result.decision.devices.items()
        for resource, found in resources.items()
    }
    return cpus, memory, devices


def shares(machine: Machine, policy: str, scope: str, pods: list[Arrival]) -> Counter[str]:
    """Return how many decisions are in each column."""
    kubelet, leaving, found = started(machine, policy, scope), dict[int, list[str]](), Counter[str]()
    for number, arrival in enumerate(pods):
        for uid in leaving.pop(number, ()):
            if uid in kubelet.node.active:
                kubelet = kubelet.without([uid])
        document = _plain(arrival.document) if number % WITHOUT == 0 else arrival.document
        pod = pod_from_object(dict(document), source="random")
        before = kubelet.settled()
        _, other = admit(following(before), pod)
        kubelet, answer = admit(before, pod)
        found[compared(answer, other)] += 1
        leaving.setdefault(number + arrival.stays + 1, []).append(pod.uid)
    return found


def _plain(document: Mapping[str, Any]) -> Mapping[str, Any]:
    containers = [
        {**one, "resources": {"limits": {name: one["resources"]["limits"][name] for name in ("cpu", "memory")}}}
        for one in document["spec"]["containers"]
    ]
    return {**document, "spec": {**document["spec"], "containers": containers}}


def rows(count: int, seed: int) -> Iterator[str]:
    """Yield the rows of the table."""
    for policy in POLICIES:
        for scope in SCOPES:
            for name in MACHINES:
                machine = load_machine(name)
                found = shares(machine, policy, scope, arrivals(machine, count, seed))
                nodes = sum(1 for node in machine.info.topology if node.cores)
                cells = " | ".join(f"{100 * found[column] / count:.1f} %" for column in COLUMNS)
                yield f"| {policy} | {scope} | {name} ({nodes}) | {cells} |"


def main() -> int:
    """Print the table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--pods", type=int, default=200)
    parser.add_argument("--seed", type=int, default=19)
    asked = parser.parse_args()
    print(f"| policy | scope | machine (NUMA nodes) | {' | '.join(COLUMNS)} |")
    print("|---|---|---|" + "---|" * len(COLUMNS))
    for row in rows(asked.pods, asked.seed):
        print(row, flush=True)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
