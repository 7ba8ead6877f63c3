"""What each provider of resources said about NUMA nodes before one merge, read from the facts behind it.

With the extension device-alignment also why CPUs and memory could not follow the devices that are held.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import TypeVar

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
from mooring.engine.topologymanager.wide import AnyHints, Family, SocketRule
from mooring.engine.topologymanager.widemerge import best_preferred
from mooring.explanations import reason as code
from mooring.explanations.phrases import amounts_text, joined, node_sets, nodes_of, plural, positions, who
from mooring.explanations.reason import Reason
from mooring.explanations.story import Chapter, Opinion, Question
from mooring.lazy import dataclass, replace

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
    asked = _question(resource, facts)
    background = _background(resource, asked, settings)
    numa = settings.numa
    sets = _listed_sets(hints) if isinstance(hints, Hints) else _described_sets(hints, numa)
    wanted = sets.alone if policy == SINGLE_NUMA_NODE else sets.together
    indifferent = isinstance(hints, Hints) and True in hints.nil
    return Opinion(
        resource=resource,
        asked=asked,
        need=background.need,
        free=background.free,
        bound=background.bound,
        groups=background.groups,
        held=background.held,
        nodes=sets.nodes,
        indifferent=indifferent,
        preferred=sets.preferred,
        alone=sets.alone,
        together=sets.together,
        count=sets.count,
        narrowest=sets.narrowest,
        suffices=indifferent or policy in (NONE, BEST_EFFORT) or bool(wanted & numa.nodes),
    )


@dataclass(frozen=True, slots=True)
class _Sets:
    """The sets of NUMA nodes of some hints; the fields are those of an opinion."""

    nodes: int
    preferred: tuple[int, ...]
    alone: int
    together: int
    count: int | None
    narrowest: int


def _listed_sets(hints: Hints) -> _Sets:
    single = tuple(mask for mask in hints.preferred if mask.bit_count() == 1)
    masks = (*hints.preferred, *hints.others)
    return _Sets(
        nodes=_union(masks),
        preferred=hints.preferred,
        alone=_union(single),
        together=_union(hints.preferred),
        count=len(masks),
        narrowest=min((mask.bit_count() for mask in masks), default=0),
    )


def _described_sets(family: Family, numa: NUMAInfo) -> _Sets:
    """Return what is known of hints that are too many to list: each NUMA node is asked about by itself."""
    universe = tuple(members(family.universe))
    best = best_preferred([family], NUMAInfo(numa.nodes))
    around = {next(preferred_around(family, 1 << node), 0) for node in universe} if best else set()
    listed = tuple(mask for mask in family.listed if family.prefers(mask))
    return _Sets(
        nodes=_union(family.listed) | (family.universe if family.describes(family.universe) else 0),
        preferred=(best,) if best else (),
        alone=_union(1 << node for node in universe if family.holds(1 << node) and family.prefers(1 << node)),
        together=_union((best, *listed, *around)),
        count=None,
        narrowest=family.narrowest(),
    )


def preferred_around(family: Family, node: int) -> Iterator[int]:
    """Yield preferred sets that hold a node; of each size only the first few are tried."""
    sizes = [family.smallest] if family.sockets is None else range(1, _most_preferred(family, family.sockets) + 1)
    for size in sizes:
        for mask in islice(family.of_size(size, node), MOST_TRIED):
            if mask not in family.barred and family.prefers(mask):
                yield mask


def _most_preferred(family: Family, rule: SocketRule) -> int:
    """Return a size beyond which a set touches more sockets than preferred sets do, or is not preferred either."""
    sizes = sorted([(socket & family.universe).bit_count() for socket in rule.nodes], reverse=True)
    beside = (family.universe & ~_union(rule.nodes)).bit_count()
    return max(sum(sizes[: rule.span]) + beside, family.smallest)


def _union(masks: Iterable[int]) -> int:
    union = 0
    for mask in masks:
        union |= mask
    return union


@dataclass(frozen=True, slots=True)
class _Background:
    """From what a provider made its hints; the fields are those of an opinion."""

    need: Mapping[str, int]
    free: Mapping[int, Mapping[str, int]]
    bound: int = 0
    groups: tuple[tuple[int, ...], ...] = ()
    held: bool = False


def _question(resource: str, facts: Sequence[object]) -> Question | None:
    if resource == CPU:
        return last(facts, CPUHintsAsked)
    if resource == MEMORY:
        return last(facts, MemoryHintsAsked)
    return next((fact for fact in facts if isinstance(fact, DeviceHintsAsked) and fact.resource == resource), None)


def _background(resource: str, asked: Question | None, settings: Settings) -> _Background:
    match asked:
        case CPUHintsAsked():
            return _of_cpus(asked, settings)
        case MemoryHintsAsked():
            free = {node: {kind: types.get(kind, 0) for kind in asked.requests} for node, types in asked.free.items()}
            return _Background(asked.requests, free, groups=asked.groups)
        case DeviceHintsAsked():
            near = {node: {resource: _touching(asked, node)} for node in members(settings.numa.nodes)}
            return _Background({resource: asked.need}, near, held=asked.held > 0)
    return _Background({}, {}, held=resource == MEMORY)


def _of_cpus(asked: CPUHintsAsked, settings: Settings) -> _Background:
    topology = settings.cpu.topology if settings.cpu is not None else None
    if topology is None:
        return _Background({}, {})
    free = {node: {CPU: (mask & asked.available).bit_count()} for node, mask in topology.numa.items()}
    bound = mask_of(node for node in nodes_of(topology, asked.reusable) if node >= 0)
    return _Background({CPU: asked.need}, free, bound, held=asked.mismatch)


def _touching(asked: DeviceHintsAsked, node: int) -> int:
    return sum(1 for mask in asked.free.values() if mask >> node & 1)


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
    home = set.intersection(*(_wanted(opinion, ruled) for opinion in tied))
    holds = f"{who(chapter.container)} holds {joined([_held(opinion) for opinion in tied])}"
    if not home:
        return Reason(
            code.HELD_APART,
            f"{holds}: no set of NUMA nodes suits all of them, which {ruled} requires.",
            "Request devices that are near one another, for example by matchAttribute in a claim, or let CPUs and "
            f"memory ignore some of them ({_or_looser(policy)}).",
        )
    others = [opinion for opinion in chapter.opinions if opinion not in tied and not opinion.indifferent]
    if not all(opinion.suffices for opinion in others):
        return None
    far = [opinion for opinion in others if not _wanted(opinion, ruled) & home] or others
    gets = joined([f"{_amount(opinion)} only on {node_sets(sorted(_wanted(opinion, ruled)))}" for opinion in far])
    return Reason(
        code.FAR_FROM_DEVICES,
        f"{holds}, but can get {gets}; {ruled} requires one place for all of them.",
        "Remove a pod that has CPUs or memory where the devices are, request less, or let CPUs and memory come from "
        f"elsewhere ({_or_looser(policy)}).",
    )


def _or_looser(policy: str) -> str:
    if policy in (RESTRICTED, SINGLE_NUMA_NODE):
        return "deviceAlignment ignore, or topologyManagerPolicy best-effort"
    return "deviceAlignment follow instead of require"


def _held(opinion: Opinion) -> str:
    if not isinstance(opinion.asked, DeviceHintsAsked):
        return opinion.resource
    return f"{opinion.resource} {positions(opinion.asked.free)}"


def _wanted(opinion: Opinion, policy: str) -> set[int]:
    """Return the sets of NUMA nodes that the policy would admit for one resource."""
    if policy != SINGLE_NUMA_NODE:
        return {*opinion.preferred}
    return {1 << node for node in members(opinion.alone)}


def _amount(opinion: Opinion) -> str:
    if opinion.resource == CPU:
        return plural(opinion.need.get(CPU, 0), "exclusive CPU")
    return amounts_text(opinion.need) if opinion.resource == MEMORY else opinion.resource
