"""Why a pod that was admitted has what it has, in plain words."""

from __future__ import annotations

from mooring.core.cpuset import CPUSet
from mooring.core.pod import QoS
from mooring.core.topology import Topology
from mooring.devicemanager.state import Device
from mooring.explain import reason as code
from mooring.explain.circumstances import Circumstances
from mooring.explain.phrases import count, joined, nodes, nodes_of
from mooring.explain.reason import Reason
from mooring.explain.remarks import spoken_remarks
from mooring.node import Decision
from mooring.topologymanager.merge import NONE


def why_admitted(decision: Decision, circumstances: Circumstances) -> Reason:
    """Return the reason for a pod that the managers accept."""
    cpus = _of_cpus(decision, circumstances, circumstances.settings.topology)
    parts = [cpus.sentence]
    tied = sorted({node for placement in decision.containers.values() for node in placement.mems})
    if tied:
        parts.append(f"Its memory is tied to {nodes(tied)}.")
    parts += [f"{_devices(resource, found)}." for resource, found in _all_devices(decision).items()]
    return Reason(cpus.code, " ".join(parts), cpus.remedy)


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


def _of_cpus(decision: Decision, circumstances: Circumstances, topology: Topology | None) -> Reason:
    held = {name: placement.cpus for name, placement in decision.containers.items() if placement.cpus}
    if not held or topology is None:
        shared = why_shared(circumstances)
        return Reason(shared.code, f"It runs in the shared pool: {shared.sentence}.", shared.remedy)
    every = CPUSet(decision.pod.cpus.mask)
    for cpus in held.values():
        every |= cpus
    comes = "comes" if len(every) == 1 else "come"
    where = nodes(nodes_of(topology, every.mask))
    remarks = "".join(f"; {remark.sentence}" for remark in spoken_remarks(decision, circumstances, topology))
    return Reason(
        code.PARTITION if decision.pod.cpus else code.EXCLUSIVE_CPUS,
        f"Its {count(len(every), 'exclusive CPU')} {comes} from {where}{remarks}.",
    )


def why_shared(circumstances: Circumstances) -> Reason:
    """Return why nobody in the pod has exclusive CPUs; the sentence is a clause."""
    pod, settings = circumstances.pod, circumstances.settings
    if settings.cpu is None:
        return Reason(
            code.SHARED_BY_POLICY,
            "the CPU manager policy is none, so nobody gets exclusive CPUs",
            "For exclusive CPUs: cpuManagerPolicy static, a reservation, and a drained node.",
        )
    if pod.qos is not QoS.GUARANTEED:
        return Reason(
            code.SHARED_BY_QOS,
            f"its QoS class is {pod.qos.value}, and only Guaranteed pods get exclusive CPUs",
            "For exclusive CPUs: give every container, init containers and sidecars too, cpu and memory limits, and "
            "requests that equal them or none.",
        )
    if settings.pod_level.leaves_out(pod):
        return Reason(
            code.SHARED_BY_GATE,
            "it has pod-level resources, and the gate PodLevelResourceManagers is off",
            "For exclusive CPUs: leave spec.resources out, or switch the gate PodLevelResourceManagers on.",
        )
    if settings.pod_level.manages(pod):
        as_a_whole = settings.pod_scope and settings.topology_policy != NONE
        who = "the pod as a whole asks for no" if as_a_whole else "no container asks for a"
        clause = f"{who} whole number of CPUs" + ("" if as_a_whole else " with requests equal to limits")
    else:
        clause = "no container asks for a whole number of CPUs"
    return Reason(code.SHARED_BY_AMOUNT, clause, "For exclusive CPUs: ask for a whole number of them.")
