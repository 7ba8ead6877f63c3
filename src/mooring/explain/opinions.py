"""What the hints of one resource amount to when they stand alone."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice

from mooring.core.bits import mask_of, members
from mooring.cpumanager.facts import CPUHintsAsked
from mooring.devicemanager.facts import DeviceHintsAsked
from mooring.explain.circumstances import last
from mooring.explain.phrases import nodes_of
from mooring.explain.story import Merge, Opinion
from mooring.memorymanager.facts import MemoryHintsAsked
from mooring.memorymanager.reserved import is_memory
from mooring.node.facts import HintsGiven
from mooring.node.settings import Settings
from mooring.topologymanager.distances import NUMAInfo
from mooring.topologymanager.entries import AnyHints
from mooring.topologymanager.facts import HintsMerged
from mooring.topologymanager.hints import DONT_CARE, NOT_POSSIBLE, Hints
from mooring.topologymanager.merge import SINGLE_NUMA_NODE, merge, reach
from mooring.topologymanager.wide import Family


def is_impossible(hints: AnyHints) -> bool:
    """Tell whether no set of NUMA nodes will do."""
    return isinstance(hints, Hints) and not hints


def is_indifferent(hints: AnyHints) -> bool:
    """Tell whether any set of NUMA nodes will do."""
    return isinstance(hints, Hints) and True in hints.nil


def suffices(hints: AnyHints, policy: str, numa: NUMAInfo) -> bool:
    """Tell whether the policy would admit on these hints alone."""
    return merge(policy, [hints or NOT_POSSIBLE], numa).admitted


def wanted_sets(hints: AnyHints, policy: str, numa: NUMAInfo) -> Sequence[int]:
    """Return the sets of NUMA nodes (masks) that the policy would admit; of many just the best one."""
    if isinstance(hints, Hints):
        return [mask for mask in hints.preferred if policy != SINGLE_NUMA_NODE or mask.bit_count() == 1]
    best = merge(policy, [hints], numa)
    return [best.hint.mask] if best.admitted and best.hint.mask is not None else []


def narrowest(hints: AnyHints) -> int:
    """Return the size of the smallest set that will do; 0 when none will.

    >>> narrowest(Hints(preferred=(0b11,), others=(0b111,)))
    2
    """
    if isinstance(hints, Hints):
        return min((mask.bit_count() for mask in (*hints.preferred, *hints.others)), default=0)
    return hints.narrowest()


CPU = "cpu"
MEMORY = "memory"

MOST_TRIED = 64
"""Sets of one size that are tried on machines on which nobody can list all of them."""

_Background = tuple[Mapping[str, int], Mapping[int, Mapping[str, int]], int, tuple[tuple[int, ...], ...], bool]
"""Need, free amounts, bound nodes, groups, and whether it is held already."""


def opinions_of(facts: Sequence[object], settings: Settings) -> tuple[Opinion, ...]:
    """Return the opinions behind one merge; providers without one are left out."""
    given = last(facts, HintsGiven)
    if given is None:
        return ()
    found: dict[str, AnyHints] = {}
    for resource, hints in given.hints.items():
        if hints is not None:
            found.setdefault(MEMORY if is_memory(resource) else resource, hints)
    memory = last(facts, MemoryHintsAsked)
    if memory is not None and memory.hints is None:
        # Nothing fits, and the topology manager is told nothing: the failure shows when memory is allocated.
        found.setdefault(MEMORY, DONT_CARE)
    order = sorted(found, key=lambda resource: (resource != CPU, resource != MEMORY, resource))
    return tuple(_opinion(resource, found[resource], facts, settings) for resource in order)


def _opinion(resource: str, hints: AnyHints, facts: Sequence[object], settings: Settings) -> Opinion:
    need, free, bound, groups, held = _background(resource, facts, settings)
    policy, numa = settings.topology_policy, settings.numa
    sets = _listed_sets(hints) if isinstance(hints, Hints) else _described_sets(hints)
    return Opinion(
        resource=resource,
        need=need,
        free=free,
        bound=bound,
        groups=groups,
        held=held,
        nodes=sets.nodes,
        indifferent=is_indifferent(hints),
        preferred=sets.preferred,
        alone=sets.alone,
        together=sets.together,
        count=sets.count,
        narrowest=narrowest(hints),
        suffices=suffices(hints, policy, numa),
    )


@dataclass(frozen=True, slots=True)
class _Sets:
    """The sets of NUMA nodes of some hints; the fields are those of an opinion."""

    nodes: int
    preferred: tuple[int, ...]
    alone: int
    together: int
    count: int | None


def _listed_sets(hints: Hints) -> _Sets:
    single = tuple(mask for mask in hints.preferred if mask.bit_count() == 1)
    return _Sets(
        nodes=_union((*hints.preferred, *hints.others)),
        preferred=hints.preferred,
        alone=_union(single),
        together=_union(hints.preferred),
        count=len(hints.preferred) + len(hints.others),
    )


def _described_sets(family: Family) -> _Sets:
    """Return what can be said of hints that nobody can list: each NUMA node is asked about by itself."""
    members_ = tuple(members(family.universe))
    with_node = {node: next(_preferred_around(family, 1 << node), 0) for node in members_}
    listed = tuple(mask for mask in family.listed if family.prefers(mask))
    found = (*listed, *(mask for mask in with_node.values() if mask))
    return _Sets(
        nodes=_union(family.listed) | (family.universe if family.describes(family.universe) else 0),
        preferred=(min(found, key=lambda mask: (mask.bit_count(), mask)),) if found else (),
        alone=_union(1 << node for node in members_ if family.holds(1 << node) and family.prefers(1 << node)),
        together=_union(found),
        count=None,
    )


def _preferred_around(family: Family, node: int) -> Iterator[int]:
    """Yield preferred sets that hold a node; with a rule about sockets only as many are tried as it takes no time."""
    sizes = [family.smallest] if family.sockets is None else range(1, family.universe.bit_count() + 1)
    for size in sizes:
        for mask in islice(family.of_size(size, node), MOST_TRIED):
            if mask not in family.barred and family.prefers(mask):
                yield mask


def _union(masks: Iterable[int]) -> int:
    union = 0
    for mask in masks:
        union |= mask
    return union


def _background(resource: str, facts: Sequence[object], settings: Settings) -> _Background:
    if resource == CPU:
        asked = last(facts, CPUHintsAsked)
        topology = settings.cpu.topology if settings.cpu is not None else None
        if asked is None or topology is None:
            return {}, {}, 0, (), False
        free = {node: {CPU: (mask & asked.available).bit_count()} for node, mask in topology.numa.items()}
        bound = mask_of(node for node in nodes_of(topology, asked.reusable) if node >= 0)
        return {CPU: asked.need}, free, bound, (), asked.mismatch
    if resource == MEMORY:
        memory = last(facts, MemoryHintsAsked)
        if memory is None:
            return {}, {}, 0, (), True
        amounts = {node: {kind: types.get(kind, 0) for kind in memory.requests} for node, types in memory.free.items()}
        return memory.requests, amounts, 0, memory.groups, False
    device = next((fact for fact in facts if isinstance(fact, DeviceHintsAsked) and fact.resource == resource), None)
    if device is None:
        return {}, {}, 0, (), False
    near = {node: {resource: _touching(device, node)} for node in members(settings.numa.nodes)}
    return {resource: device.need}, near, 0, (), device.held > 0


def _touching(asked: DeviceHintsAsked, node: int) -> int:
    return sum(1 for mask in asked.free.values() if mask >> node & 1)


def merges_of(facts: Sequence[object], settings: Settings) -> Iterator[tuple[str, Merge, tuple[Opinion, ...]]]:
    """Yield container, merge and opinions of every merge, in order."""
    start = 0
    for position, fact in enumerate(facts):
        if not isinstance(fact, HintsMerged):
            continue
        part = facts[start : position + 1]
        start = position + 1
        given = last(part, HintsGiven)
        yield given.container if given is not None else "", _merge(fact, settings), opinions_of(part, settings)


def _merge(fact: HintsMerged, settings: Settings) -> Merge:
    options = reach(fact.policy, fact.entries, settings.numa)
    return Merge(
        policy=fact.policy,
        rule=fact.rule,
        mask=fact.result.mask,
        preferred=fact.result.preferred,
        admitted=fact.admitted,
        bound=fact.bound,
        common=options.preferred if options is not None else None,
        reachable=options.reachable if options is not None else None,
        by_distance=settings.numa.distances is not None,
    )
