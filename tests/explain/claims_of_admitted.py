"""What is said of admitted pods."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping

from tests.explain.claims import NODES, Say, Told, fewest, ids, says

from mooring.engine.core.pod import ContainerKind, guaranteed_equivalent

POOL = "It runs in the shared pool: "


@says(rf"Its (?P<count>\d+) exclusive CPUs? comes? from {NODES.format('nodes')}(?:; (?P<remarks>.*))?\.")
def placed(told: Told, say: Say) -> bool:
    every = told.decision.pod.cpus.mask
    for placement in told.decision.containers.values():
        every |= placement.cpus.mask
    assert int(say["count"]) == every.bit_count()
    assert ids(say["nodes"]) == [node for node, mask in told.cpus.items() if mask & every]
    return all(remark(told, text) for text in filter(None, (say["remarks"] or "").split("; ")))


def remark(told: Told, text: str) -> bool:
    spread = re.fullmatch(
        r"(\S+) is spread over (\d+) NUMA nodes although (\d+) can hold it on an empty machine(.*)", text
    )
    if spread is not None:
        name, used, few, cause = spread.groups()
        cpus = told.decision.containers[name].cpus
        nodes = [node for node, mask in told.cpus.items() if mask & cpus.mask]
        assert cause in CAUSES
        assert CAUSES[cause](told)
        return int(used) == len(nodes) > int(few) == fewest(told, len(cpus), ~told.reserved)
    stranded = re.fullmatch(r"(\d+) of them (?:is|are) for init containers only and stays? allocated to the pod", text)
    if stranded is not None:
        kept = idle = 0
        for container in told.pod.containers:
            mask = told.decision.containers[container.name].cpus.mask
            if container.kind is ContainerKind.INIT:
                idle |= mask
            else:
                kept |= mask
        return int(stranded.group(1)) == (idle & ~kept).bit_count()
    shared = re.fullmatch(r"(\d+) other containers? runs? in the shared pool", text)
    assert shared is not None, text
    without = [name for name, placement in told.decision.containers.items() if not placement.cpus]
    return int(shared.group(1)) == len(without)


def distributes(told: Told) -> bool:
    return told.after.settings.cpu is not None and told.after.settings.cpu.rules.distribute


CAUSES: Mapping[str, Callable[[Told], bool]] = {
    "": lambda told: told.after.settings.topology_policy not in ("none", "best-effort"),
    ", which distribute-cpus-across-numa allows": distributes,
    ": topology manager policy none ignores NUMA nodes": lambda told: told.after.settings.topology_policy == "none",
    ": best-effort accepts any set": lambda told: told.after.settings.topology_policy == "best-effort",
}


def in_shared_pool(told: Told, say: Say) -> bool:
    del say
    return not any(placement.cpus for placement in told.decision.containers.values())


@says(rf"{POOL}its QoS class is (?P<qos>\w+)( \((?P<faults>.+)\))?, and only Guaranteed pods get exclusive CPUs\.")
def qos(told: Told, say: Say) -> bool:
    faulty = {one.name for one in told.pod.containers if not guaranteed_equivalent(one)}
    if told.after.settings.pod_level.resources and told.pod.is_pod_level:
        faulty = {"spec.resources"}
    said = {
        name
        for part in (say["faults"] or "").split("; ")
        for name in part.partition(" has ")[0].partition(" have ")[0].replace(" and ", ", ").split(", ")
    }
    # A status may name another class than the containers have.
    named = said == faulty or not say["faults"]
    return in_shared_pool(told, say) and told.pod.qos.value == say["qos"] != "Guaranteed" and named


@says(rf"{POOL}the CPU manager policy is none, so no container gets exclusive CPUs\.")
def policy_none(told: Told, say: Say) -> bool:
    return in_shared_pool(told, say) and told.after.settings.cpu is None


@says(rf"{POOL}no container requests a whole number of CPUs\.")
@says(rf"{POOL}no container requests a whole number of CPUs with requests equal to limits\.")
def fraction(told: Told, say: Say) -> bool:
    return in_shared_pool(told, say) and not any(told.need(one.name) for one in told.pod.containers)


@says(
    rf"{POOL}a cpu request exceeds 64 bits, so that the kubelet counts a negative number of CPUs and allocates none\."
)
def negative(told: Told, say: Say) -> bool:
    return in_shared_pool(told, say) and any(told.need(one.name) < 0 for one in told.pod.containers)


@says(rf"{POOL}the pod as a whole does not request a whole number of CPUs\.")
def no_whole_pod(told: Told, say: Say) -> bool:
    return in_shared_pool(told, say) and told.need("") == 0 and told.after.settings.pod_scope


@says(
    rf"{POOL}it has pod-level resources, and (the gate PodLevelResourceManagers is off"
    r"|the managers of kubelet (?P<release>\S+) leave such pods out)\."
)
def gate_off(told: Told, say: Say) -> bool:
    settings = told.after.settings
    assert say["release"] == (None if "PodLevelResourceManagers" in settings.gates.values else settings.release.name)
    return in_shared_pool(told, say) and told.pod.is_pod_level and not settings.pod_level.managers


@says(rf"Its memory is pinned to {NODES.format('nodes')}\.")
def tied(told: Told, say: Say) -> bool:
    nodes = {node for placement in told.decision.containers.values() for node in placement.mems}
    return ids(say["nodes"]) == sorted(nodes)
