"""One sentence in plain words: why a pod was placed, shared or rejected.

Made from the facts that the engine reported during the decision and from the machine; nothing is guessed.
"""

from __future__ import annotations

import re

from mooring.core.cpuset import CPUSet
from mooring.core.decision import Rejection
from mooring.core.pod import ContainerKind, QoS
from mooring.core.topology import Topology
from mooring.devicemanager.state import Device
from mooring.node import Decision
from mooring.node.admission import TOPOLOGY_AFFINITY_ERROR
from mooring.planner.circumstances import Circumstances
from mooring.planner.phrases import count, fewest_nodes, joined, nodes, nodes_of
from mooring.planner.why_affinity import why_affinity
from mooring.planner.why_allocation import why_empty_shared_pool, why_smt, why_unexpected
from mooring.render.wording import size
from mooring.topologymanager.merge import BEST_EFFORT, NONE

__all__ = ["Circumstances", "why", "why_crash", "why_out_of"]

_OUT_OF = re.compile(r"resource: (\S+), requested: (\d+), used: (\d+), capacity: (\d+)")


def why(decision: Decision, circumstances: Circumstances) -> str:
    """Return the sentence for one decision of the managers."""
    if decision.endless is not None:
        return (
            f"The kubelet would never return from this admission (known defect {decision.endless.defect}); "
            "nothing was decided."
        )
    if decision.admitted:
        return _why_admitted(decision, circumstances)
    if decision.reason == TOPOLOGY_AFFINITY_ERROR:
        return why_affinity(decision, circumstances)
    if decision.reason == "SMTAlignmentError":
        return why_smt(decision, circumstances)
    if decision.reason == "EmptyPodSharedPoolError":
        return why_empty_shared_pool(decision)
    return why_unexpected(decision, circumstances)


def why_crash(crash: str) -> str:
    """Return the sentence for a pod on which the kubelet crashes."""
    return f"The kubelet would crash on this admission: {crash.removesuffix(': the kubelet crashes here')}."


def why_out_of(rejection: Rejection) -> str:
    """Return the sentence for the node resources check, which comes after the managers."""
    found = _OUT_OF.search(rejection.message)
    if found is None:
        return "The resource managers accepted it, but the node has too little left."
    resource = found.group(1)
    requested, used, capacity = (int(text) for text in found.groups()[1:])
    if resource == "pods":
        return f"The resource managers accepted it, but the node already runs {used} pods, and maxPods is {capacity}."
    asks = f"The resource managers accepted it, but it requests {_amount(resource, requested)}, and"
    if not used:
        return f"{asks} all pods of the node together may request only {_amount(resource, capacity)}."
    left = _amount(resource, max(capacity - used, 0))
    return f"{asks} of the {_amount(resource, capacity)} that all pods together may request only {left} are left."


def _amount(resource: str, amount: int) -> str:
    """Return an amount in the units of the check: thousandths of a CPU, bytes, or pieces."""
    if resource == "cpu":
        number = f"{amount / 1000:.3f}".rstrip("0").rstrip(".")
        return f"{number} CPU{'' if amount == 1000 else 's'}"
    in_bytes = resource in ("memory", "ephemeral-storage") or resource.startswith("hugepages-")
    return f"{size(amount) if in_bytes else amount} of {resource}"


def _why_admitted(decision: Decision, circumstances: Circumstances) -> str:
    topology = circumstances.settings.topology
    parts = [_cpu_sentence(decision, circumstances, topology)]
    tied = sorted({node for placement in decision.containers.values() for node in placement.mems})
    if tied:
        parts.append(f"Its memory is tied to {nodes(tied)}.")
    parts += [f"{_devices(resource, found)}." for resource, found in _all_devices(decision).items()]
    return " ".join(parts)


def _all_devices(decision: Decision) -> dict[str, list[Device]]:
    """Return what the containers hold of each resource, each device once."""
    found: dict[str, dict[str, Device]] = {}
    for resources in decision.devices.values():
        for resource, devices in resources.items():
            found.setdefault(resource, {}).update((device.id, device) for device in devices)
    return {resource: list(devices.values()) for resource, devices in found.items()}


def _devices(resource: str, devices: list[Device]) -> str:
    ids = joined([device.id for device in devices])
    near = {node for device in devices for node in device.numa or ()}
    return f"Of {resource} it gets {ids}" + (f" on {nodes(near)}" if near else "")


def _cpu_sentence(decision: Decision, circumstances: Circumstances, topology: Topology | None) -> str:
    held = {name: placement.cpus for name, placement in decision.containers.items() if placement.cpus}
    if not held or topology is None:
        return f"It runs in the shared pool: {_why_shared(circumstances)}."
    every = CPUSet(decision.pod.cpus.mask)
    for cpus in held.values():
        every |= cpus
    comes = "comes" if len(every) == 1 else "come"
    where = nodes(nodes_of(topology, every.mask))
    return (
        f"Its {count(len(every), 'exclusive CPU')} {comes} from {where}{_remarks(decision, circumstances, topology)}."
    )


def _remarks(decision: Decision, circumstances: Circumstances, topology: Topology) -> str:
    remarks = [_spread(decision, circumstances, topology), _stranded(decision, circumstances)]
    shared = sum(1 for placement in decision.containers.values() if not placement.cpus)
    if shared:
        remarks.append(f"{count(shared, 'other container')} {'runs' if shared == 1 else 'run'} in the shared pool")
    return "".join(f"; {remark}" for remark in remarks if remark)


def _spread(decision: Decision, circumstances: Circumstances, topology: Topology) -> str:
    """Say which container is spread over more NUMA nodes than its number of CPUs asks for, and why."""
    reserved = circumstances.settings.cpu.reserved if circumstances.settings.cpu is not None else 0
    for name, placement in decision.containers.items():
        used = len(nodes_of(topology, placement.cpus.mask))
        fewest = fewest_nodes(topology, len(placement.cpus), reserved)
        if placement.cpus and 0 < fewest < used:
            return (
                f"{name} is spread over {used} NUMA nodes although {fewest} could hold it on an empty machine"
                f"{_why_spread(circumstances)}"
            )
    return ""


def _why_spread(circumstances: Circumstances) -> str:
    policy = circumstances.settings.topology_policy
    cpu = circumstances.settings.cpu
    if cpu is not None and cpu.rules.distribute:
        return ", as distribute-cpus-across-numa may do"
    if policy == NONE:
        return ": topology manager policy none does not look at NUMA nodes"
    return ": best-effort takes what there is" if policy == BEST_EFFORT else ""


def _stranded(decision: Decision, circumstances: Circumstances) -> str:
    """Say how many CPUs were for ended init containers alone and stay bound (kubernetes/kubernetes#112228)."""
    of_init = of_others = CPUSet()
    for container in circumstances.pod.containers:
        cpus = decision.containers[container.name].cpus
        if container.kind is ContainerKind.INIT:
            of_init |= cpus
        else:
            of_others |= cpus
    idle = len(of_init - of_others)
    if not idle or decision.pod.cpus:
        return ""
    return f"{idle} of them {'is' if idle == 1 else 'are'} for init containers only and {_stay(idle)} bound to the pod"


def _stay(number: int) -> str:
    return "stays" if number == 1 else "stay"


def _why_shared(circumstances: Circumstances) -> str:
    pod, settings = circumstances.pod, circumstances.settings
    if settings.cpu is None:
        return "the CPU manager policy is none, so nobody gets exclusive CPUs"
    if pod.qos is not QoS.GUARANTEED:
        return f"its QoS class is {pod.qos.value}, and only Guaranteed pods get exclusive CPUs"
    if settings.pod_level.leaves_out(pod):
        return "it has pod-level resources, and the gate PodLevelResourceManagers is off"
    if settings.pod_level.manages(pod):
        as_a_whole = settings.pod_scope and settings.topology_policy != NONE
        who = "the pod as a whole asks for no" if as_a_whole else "no container asks for a"
        return f"{who} whole number of CPUs" + ("" if as_a_whole else " with requests equal to limits")
    return "no container asks for a whole number of CPUs"
