"""One sentence in plain words: why a pod was placed, shared or rejected.

Made from the facts that the engine reported during the decision; nothing is computed again and nothing is guessed.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TypeVar

from mooring.core.cpuset import CPUSet
from mooring.core.pod import Pod, QoS
from mooring.core.topology import Topology
from mooring.cpumanager.facts import CPUHintsAsked, CPUsTaken, ExclusiveCPUsCounted, WholeCoresChecked
from mooring.node import Decision
from mooring.node.settings import Settings
from mooring.topologymanager.facts import HintsMerged

Fact = TypeVar("Fact")


@dataclass(frozen=True, slots=True)
class Circumstances:
    """What a sentence may need besides the decision."""

    settings: Settings
    pod: Pod
    facts: Sequence[object]


def why(decision: Decision, circumstances: Circumstances) -> str:
    """Return the sentence for one decision of the managers."""
    if decision.endless is not None:
        return (
            f"The kubelet would never return from this admission (known defect {decision.endless.defect}); "
            "nothing was decided."
        )
    if decision.admitted:
        return _why_admitted(decision, circumstances)
    if decision.reason == "TopologyAffinityError":
        return _why_affinity(circumstances)
    if decision.reason == "SMTAlignmentError":
        return _why_smt(circumstances)
    return _why_unexpected(decision, circumstances)


def _last(facts: Iterable[object], kind: type[Fact]) -> Fact | None:
    found: Fact | None = None
    for fact in facts:
        if isinstance(fact, kind):
            found = fact
    return found


def _why_admitted(decision: Decision, circumstances: Circumstances) -> str:
    held = {name: placement.cpus for name, placement in decision.containers.items() if placement.cpus}
    if not held:
        return f"It runs in the shared pool: {_why_shared(circumstances)}."
    topology = circumstances.settings.topology
    every = CPUSet()
    for cpus in held.values():
        every |= cpus
    where = _places(topology, every)
    shared = len(decision.containers) - len(held)
    rest = (
        f"; {_count(shared, 'container')} without a claim to exclusive CPUs {_runs(shared)} in the shared pool"
        if shared
        else ""
    )
    merged = _last(circumstances.facts, HintsMerged)
    not_best = ""
    if merged is not None and not merged.result.preferred:
        not_best = ", although fewer would do on an empty node: best-effort takes what there is"
    return f"Its {_count(len(every), 'exclusive CPU')} {_come(len(every))} from {where}{not_best}{rest}."


def _runs(count: int) -> str:
    return "runs" if count == 1 else "run"


def _come(count: int) -> str:
    return "comes" if count == 1 else "come"


def _why_shared(circumstances: Circumstances) -> str:
    pod, settings = circumstances.pod, circumstances.settings
    if settings.cpu is None:
        return "the CPU manager policy is none, so nobody gets exclusive CPUs"
    if pod.qos is not QoS.GUARANTEED:
        return f"its QoS class is {pod.qos.value}, and only Guaranteed pods get exclusive CPUs"
    if pod.is_pod_level:
        return "it has pod-level resources, and the gate PodLevelResourceManagers is off"
    return "no container asks for a whole number of CPUs"


def _places(topology: Topology | None, cpus: CPUSet) -> str:
    if topology is None:
        return "the machine"
    nodes = [node for node, mask in topology.numa.items() if mask & cpus.mask]
    return f"NUMA node{'s' if len(nodes) > 1 else ''} {', '.join(map(str, nodes))}"


def _why_affinity(circumstances: Circumstances) -> str:
    asked = _last(circumstances.facts, CPUHintsAsked)
    merged = _last(circumstances.facts, HintsMerged)
    settings = circumstances.settings
    policy = settings.topology_policy
    if settings.cpu is None or asked is None:
        return f"The topology policy {policy} found no set of NUMA nodes that suits every resource."
    topology = settings.cpu.topology
    who = f"Container {asked.container}" if asked.container else "The pod as a whole"
    asks = f"{who} asks for {_count(asked.need, 'exclusive CPU')}"
    if asked.mismatch:
        return f"{asks}, but it holds another number of CPUs since before the restart of the kubelet."
    usable = (asked.available | asked.reusable).bit_count()
    if usable < asked.need:
        return f"{asks}, but only {usable} are free on the whole node."
    if asked.reusable:
        return f"{asks}, and {_why_stay(topology, asked)}."
    free = _free_per_node(topology, CPUSet(asked.available))
    if policy == "single-numa-node":
        return f"{asks}, and no single NUMA node has that many free: {free}."
    nodes = merged.result.numa if merged is not None else None
    needed = f"at least {len(nodes)} NUMA nodes" if nodes else "more NUMA nodes than necessary"
    wide = f"which now takes {needed} although fewer would do on an empty node"
    return f"{asks}, {wide}, and {policy} refuses that: {free}."


def _why_stay(topology: Topology, asked: CPUHintsAsked) -> str:
    """Say that init containers pin the pod to a node (kubernetes/kubernetes#123816)."""
    nodes = [mask for mask in topology.numa.values() if mask & asked.reusable]
    usable = (sum(nodes) & (asked.available | asked.reusable)).bit_count()
    where = _places(topology, CPUSet(asked.reusable))
    return (
        f"the kubelet makes it stay on {where}, where an init container of the pod got its CPUs; "
        f"counting those, {usable} are free there"
    )


def _free_per_node(topology: Topology, available: CPUSet) -> str:
    counts: dict[int, list[int]] = {}
    for node, mask in topology.numa.items():
        counts.setdefault((mask & available.mask).bit_count(), []).append(node)
    parts = [
        f"{count} free on node{'s' if len(nodes) > 1 else ''} {', '.join(map(str, nodes))}"
        for count, nodes in sorted(counts.items(), reverse=True)
    ]
    return "; ".join(parts)


def _why_smt(circumstances: Circumstances) -> str:
    checked = _last(circumstances.facts, WholeCoresChecked)
    if checked is None:
        return "full-pcpus-only gives whole cores only."
    need, group = checked.need, checked.group
    if need % group:
        below, above = need // group * group, (need // group + 1) * group
        ask = f"ask for {below} or {above}" if below else f"ask for {above}"
        rule = f"{need} is not a multiple of the {group} CPUs of a core"
        return f"full-pcpus-only gives whole cores only, and {rule}: {ask}."
    return (
        f"Container {checked.container} asks for {need} CPUs in whole cores, "
        f"and {checked.available} are left on cores without a reserved CPU."
    )


def _why_unexpected(decision: Decision, circumstances: Circumstances) -> str:
    taken = _last(circumstances.facts, CPUsTaken)
    counted = _last(circumstances.facts, ExclusiveCPUsCounted)
    if taken is not None and taken.error:
        free = taken.pool.bit_count()
        if taken.need > free:
            return (
                f"Container {taken.container} asks for {_count(taken.need, 'exclusive CPU')}, but only {free} are free."
            )
        return (
            f"Container {taken.container} asks for {_count(taken.need, 'exclusive CPU')}; {free} are free, "
            "but the kubelet's algorithm fails on how they lie."
        )
    if counted is not None:
        return f"Container {counted.container} could not be served: {decision.message}."
    return f"The managers refused it: {decision.message}."


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"
