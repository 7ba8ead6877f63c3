"""What each provider of resources said about NUMA nodes before one merge, read from the facts behind it.

With the extension device-alignment also why CPUs and memory could not follow the devices that are held.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import reduce
from itertools import islice
from operator import or_
from typing import Any, TypeVar

from mooring.engine.core.bits import mask_of, members
from mooring.engine.cpumanager.facts import CPUHintsAsked
from mooring.engine.devicemanager.facts import DeviceHintsAsked
from mooring.engine.memorymanager.facts import MemoryHintsAsked
from mooring.engine.memorymanager.policy import is_memory
from mooring.engine.memorymanager.state import MemoryState
from mooring.engine.node.facts import HintsGiven
from mooring.engine.node.settings import Settings
from mooring.engine.topologymanager.hints import DONT_CARE, Hints, NUMAInfo
from mooring.engine.topologymanager.merge import BEST_EFFORT, NONE, RESTRICTED, SINGLE_NUMA_NODE
from mooring.engine.topologymanager.wide import AnyHints, Family
from mooring.engine.topologymanager.widemerge import best_preferred
from mooring.explanations import reason as code
from mooring.explanations.phrases import amounts_text, joined, node_sets, nodes_of, plural, positions, who
from mooring.explanations.reason import Reason
from mooring.explanations.story import Chapter, Opinion
from mooring.lazy import replace

CPU = "cpu"
MEMORY = "memory"

MOST_TRIED = 64
"""Sets of one size that are tried where the sets of a machine are too many to list."""

Fact = TypeVar("Fact")


def last(facts: Iterable[object], kind: type[Fact]) -> Fact | None:
    """Return the last fact of a kind, or None."""
    found: Fact | None = None
    for fact in facts:
        if isinstance(fact, kind):
            found = fact
    return found


def opinions_of(facts: Sequence[object], settings: Settings, policy: str, memory: MemoryState) -> tuple[Opinion, ...]:
    """Return the opinions behind one merge: CPUs first, then memory, then devices by name.

    Providers without an opinion are left out. All types of memory have the same hints and are one opinion.

    Args:
        facts: from the first question to a provider to the result of the merge.
        settings: of the node.
        policy: the topology policy of the merge.
        memory: the memory manager's state after the decision.
    """
    serving = mask_of(node for node, state in memory.nodes.items() if state.assignments)
    given = last(facts, HintsGiven)
    if given is None:
        return ()
    found: dict[str, AnyHints] = {}
    for resource, hints in given.hints.items():
        if hints is not None:
            found.setdefault(MEMORY if is_memory(resource) else resource, hints)
    asked = last(facts, MemoryHintsAsked)
    if asked is not None and asked.hints is None:
        # Nothing fits, and the topology manager gets no hint: the failure shows when memory is allocated.
        found.setdefault(MEMORY, DONT_CARE)
    order = sorted(found, key=lambda resource: (resource != CPU, resource != MEMORY, resource))
    opinions = (_opinion(resource, found[resource], facts, settings, policy) for resource in order)
    return tuple(replace(one, serving=serving) if one.nothing_fits else one for one in opinions)


def _opinion(resource: str, hints: AnyHints, facts: Sequence[object], settings: Settings, policy: str) -> Opinion:
    if isinstance(hints, Hints):
        masks, indifferent = (*hints.preferred, *hints.others), True in hints.nil
        sets: dict[str, Any] = {
            "nodes": _union(masks),
            "preferred": hints.preferred,
            "alone": _union(mask for mask in hints.preferred if mask.bit_count() == 1),
            "together": _union(hints.preferred),
            "count": len(masks),
            "narrowest": min((mask.bit_count() for mask in masks), default=0),
        }
    else:
        sets, indifferent = _described(hints, settings.numa), False
    wanted = sets["alone" if policy == SINGLE_NUMA_NODE else "together"]
    suffices = indifferent or policy in (NONE, BEST_EFFORT) or bool(wanted & settings.numa.nodes)
    asked = _asked(resource, facts, settings)
    return Opinion(resource=resource, **asked, **sets, indifferent=indifferent, suffices=suffices)


def _asked(resource: str, facts: Sequence[object], settings: Settings) -> dict[str, Any]:
    """Return what a provider was asked about a resource, and from what it made its hints: members of its opinion."""
    if resource == CPU:
        cpus, topology = last(facts, CPUHintsAsked), settings.cpu.topology if settings.cpu is not None else None
        if cpus is None or topology is None:
            return {"asked": cpus}
        free = {node: {CPU: (mask & cpus.available).bit_count()} for node, mask in topology.numa.items()}
        bound = mask_of(node for node in nodes_of(topology, cpus.reusable) if node >= 0)
        return {"asked": cpus, "need": {CPU: cpus.need}, "free": free, "bound": bound, "held": cpus.mismatch}
    if resource == MEMORY:
        memory = last(facts, MemoryHintsAsked)
        if memory is None:
            return {"asked": None, "held": True}
        free = {node: {kind: types.get(kind, 0) for kind in memory.requests} for node, types in memory.free.items()}
        return {"asked": memory, "need": memory.requests, "free": free, "groups": memory.groups}
    devices = next((one for one in facts if isinstance(one, DeviceHintsAsked) and one.resource == resource), None)
    if devices is None:
        return {"asked": None}
    near = {
        node: {resource: sum(1 for mask in devices.free.values() if mask >> node & 1)}
        for node in members(settings.numa.nodes)
    }
    return {"asked": devices, "need": {resource: devices.need}, "free": near, "held": devices.held > 0}


def _described(family: Family, numa: NUMAInfo) -> dict[str, Any]:
    """Return what is known of hints that are too many to list: each NUMA node is asked about by itself."""
    universe = tuple(members(family.universe))
    best = best_preferred([family], NUMAInfo(numa.nodes))
    around = {next(preferred_around(family, 1 << node), 0) for node in universe} if best else set()
    listed = tuple(mask for mask in family.listed if family.prefers(mask))
    return {
        "nodes": _union(family.listed) | (family.universe if family.describes(family.universe) else 0),
        "preferred": (best,) if best else (),
        "alone": _union(1 << node for node in universe if family.holds(1 << node) and family.prefers(1 << node)),
        "together": _union((best, *listed, *around)),
        "count": None,
        "narrowest": family.narrowest(),
    }


def preferred_around(family: Family, node: int) -> Iterator[int]:
    """Yield preferred sets that hold a node; of each size only the first few are tried."""
    most = family.smallest
    if (rule := family.sockets) is not None:
        # A larger set touches more sockets than preferred sets do, or is not preferred either.
        sizes = sorted([(socket & family.universe).bit_count() for socket in rule.nodes], reverse=True)
        beside = (family.universe & ~_union(rule.nodes)).bit_count()
        most = max(sum(sizes[: rule.span]) + beside, family.smallest)
    for size in range(1 if rule is not None else most, most + 1):
        for mask in islice(family.of_size(size, node), MOST_TRIED):
            if mask not in family.barred and family.prefers(mask):
                yield mask


def _union(masks: Iterable[int]) -> int:
    return reduce(or_, masks, 0)


def is_followed(opinion: Opinion) -> bool:
    """Tell whether an opinion is about devices that are held, and that CPUs and memory follow."""
    return isinstance(opinion.asked, DeviceHintsAsked) and opinion.asked.follows


def follows_words(resource: str, chapters: Iterable[Chapter]) -> str:
    """Return what devices of a resource mean for CPUs and memory of an admitted pod; empty where nothing follows them.

    Args:
        resource: of a device plugin, or a DRA driver.
        chapters: of the pod.
    """
    merges = [
        chapter.merge
        for chapter in chapters
        for opinion in chapter.opinions
        if chapter.merge is not None and opinion.resource == resource and is_followed(opinion)
    ]
    if not merges:
        return ""
    if all(merge.result.preferred for merge in merges):
        return ", which CPUs and memory follow"
    return f", which CPUs and memory cannot all follow; {merges[0].policy} admits that"


def why_followed(chapter: Chapter, policy: str) -> Reason | None:
    """Return the reason for a refusal that devices cause; None when no device is followed, or something else does.

    Args:
        chapter: in which the pod was refused.
        policy: the node's topology policy.
    """
    tied = [opinion for opinion in chapter.opinions if is_followed(opinion)]
    if not tied or chapter.merge is None:
        return None
    ruled = chapter.merge.policy
    home = set[int].intersection(*({*wanted(opinion, ruled)} for opinion in tied))
    devices = [(one.resource, one.asked) for one in tied]
    held = [f"{name} {positions(asked.free)}" for name, asked in devices if isinstance(asked, DeviceHintsAsked)]
    holds = f"{who(chapter.container)} holds {joined(held)}"
    looser = "deviceAlignment follow instead of require"
    if policy in (RESTRICTED, SINGLE_NUMA_NODE):
        looser = "deviceAlignment ignore, or topologyManagerPolicy best-effort"
    if not home:
        return Reason(
            code.HELD_APART,
            f"{holds}: no set of NUMA nodes suits all of them, which {ruled} requires.",
            "Request devices that are near one another, for example by matchAttribute in a claim, or let CPUs and "
            f"memory ignore some of them ({looser}).",
        )
    others = [opinion for opinion in chapter.opinions if opinion not in tied and not opinion.indifferent]
    if not all(opinion.suffices for opinion in others):
        return None
    far = [opinion for opinion in others if home.isdisjoint(wanted(opinion, ruled))] or others
    gets = []
    for opinion in far:
        amount = amounts_text(opinion.need) if opinion.resource == MEMORY else opinion.resource
        if opinion.resource == CPU:
            amount = plural(opinion.need.get(CPU, 0), "exclusive CPU")
        gets.append(f"{amount} only on {node_sets(wanted(opinion, ruled))}")
    return Reason(
        code.FAR_FROM_DEVICES,
        f"{holds}, but can get {joined(gets)}; {ruled} requires one place for all of them.",
        "Remove a pod that has CPUs or memory where the devices are, request less, or let CPUs and memory come from "
        f"elsewhere ({looser}).",
    )


def wanted(opinion: Opinion, policy: str) -> list[int]:
    """Return the sets of NUMA nodes that the policy would admit for one resource; of more than can be listed one."""
    return [1 << node for node in members(opinion.alone)] if policy == SINGLE_NUMA_NODE else [*opinion.preferred]
