"""From the facts of a decision to chapters: one for each container, and one for the pod as a whole in pod scope.

Reasons, stories, pictures and documents read the same chapters; the facts are walked once.

What each provider of resources said about NUMA nodes before one merge is read from the facts behind it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import cached_property, reduce
from itertools import islice
from operator import or_
from typing import Any, TypeVar

from mooring.engine.core.bits import mask_of, members
from mooring.engine.core.machineinfo import MachineInfo
from mooring.engine.core.pod import Pod, QoS, guaranteed_equivalent
from mooring.engine.cpumanager import facts as cpus
from mooring.engine.cpumanager.facts import CPUHintsAsked
from mooring.engine.cpumanager.policy import exclusive_cpus, exclusive_cpus_of_pod
from mooring.engine.devicemanager.facts import DeviceHintsAsked, DevicesTaken
from mooring.engine.devicemanager.state import Device, DeviceState
from mooring.engine.memorymanager.facts import MemoryAssigned, MemoryHintsAsked, MemoryPinningFailed
from mooring.engine.memorymanager.policy import is_memory
from mooring.engine.memorymanager.state import MemoryState
from mooring.engine.node import Decision
from mooring.engine.node.facts import HintScored, HintsGiven
from mooring.engine.node.settings import Settings
from mooring.engine.topologymanager.facts import HintsMerged
from mooring.engine.topologymanager.hints import DONT_CARE, Hints, NUMAInfo
from mooring.engine.topologymanager.merge import BEST_EFFORT, NONE, SINGLE_NUMA_NODE
from mooring.engine.topologymanager.wide import AnyHints, Family
from mooring.engine.topologymanager.widemerge import best_preferred
from mooring.explanations.phrases import nodes_of
from mooring.explanations.story import Chapter, Opinion, Pick, Refused, Run, Step, Taking, failed
from mooring.lazy import dataclass, field, lazily, replace

with lazily():
    import mooring.engine.plugins.facts as plugin_facts


POD_LEVEL_MANAGERS = "PodLevelResourceManagers"
"""The gate with which the managers serve pods with pod-level resources; older releases do not have it."""
POD = ""
"""The key of the chapter about the pod as a whole."""


@dataclass(frozen=True)
class Circumstances:
    """What a decision is explained from, besides the decision itself. Its chapters are read once, on first use."""

    settings: Settings
    pod: Pod
    facts: Sequence[object]
    """Everything that the engine reported, in order."""
    memory: MemoryState
    """The memory manager's state after the decision."""
    devices: DeviceState = field(default_factory=DeviceState)
    """The device manager's state after the decision."""
    machine: MachineInfo | None = None
    """As the kubelet sees it; None where no device is near to anything."""

    @cached_property
    def chapters(self) -> tuple[Chapter, ...]:
        """The chapters, in the order in which things happened; containers that were not reached have none."""
        mine = [fact for fact in self.facts if getattr(fact, "pod", self.pod.uid) == self.pod.uid]
        merges, start = dict[str, tuple[HintsMerged, tuple[Opinion, ...]]](), 0
        for position, fact in enumerate(mine):
            if isinstance(fact, HintsMerged):
                part, start = mine[start : position + 1], position + 1
                given = last(part, HintsGiven)
                container = given.container if given is not None else POD
                merges[container] = fact, opinions_of(part, self.settings, fact.policy, self.memory)
        steps: dict[str, list[Step]] = {}
        told = False
        for step in _steps(mine, plugins=self.settings.plugins is not None):
            # A refusal is reported once.
            if not (told and isinstance(step, cpus.CPUPinningFailed | MemoryPinningFailed)):
                steps.setdefault(step.container, []).append(step)
            told = failed(step)
        reached = {getattr(fact, "container", POD) for fact in mine} | set(merges)
        names = [POD] if POD in merges or POD in steps else []
        names += [container.name for container in self.pod.containers if container.name in reached]
        by_distance = self.settings.numa.distances is not None
        scores = {fact.container: fact.score for fact in mine if isinstance(fact, HintScored)}
        found = []
        for name in names:
            merge, opinions = merges.get(name, (None, ()))
            request, done = _request(self.pod, name, self.settings), tuple(steps.get(name, ()))
            found.append(Chapter(name, *request, opinions, merge, by_distance, scores.get(name), done))
        return tuple(found)

    @property
    def refused_in(self) -> Chapter | None:
        """The chapter in which the pod was refused; None when it was not, or when no fact says so."""
        return next((chapter for chapter in reversed(self.chapters) if chapter.failed), None)

    def refusal(self, kind: type[Refused]) -> Refused | None:
        """Return the last step of a kind in which the pod was refused; None when there is none."""
        chapter = self.refused_in
        return chapter.refusal(kind) if chapter is not None else None


def _request(pod: Pod, container: str, settings: Settings) -> tuple[int, str]:
    """Return how many exclusive CPUs a container requests, or the whole pod for an empty name, and why."""
    if not container:
        need = exclusive_cpus_of_pod(pod, settings.pod_level) if settings.cpu is not None else 0
        if need and not settings.pod_level.leaves_out(pod):
            if settings.pod_level.manages(pod):
                return need, "the pod's own resources request them"
            return need, "the most that its containers need at once"
        if settings.cpu is not None and settings.pod_level.manages(pod) and pod.qos is QoS.GUARANTEED:
            return 0, "the pod's own cpu request is not a whole number"
        return 0, _why_none_requests(pod, settings) or "no container requests a whole number of CPUs"
    one = next(found for found in pod.containers if found.name == container)
    need = exclusive_cpus(pod, one, settings.pod_level) if settings.cpu is not None else 0
    managed, asked = settings.pod_level.manages(pod), settings.pod_level.requests_of(one)
    if need and not settings.pod_level.leaves_out(pod):
        why = "the pod is Guaranteed and the request is a whole number"
        if managed and settings.pod_scope and settings.topology_policy != NONE:  # KEP-5526
            why = "its requests equal its limits and the number is whole; they come from the CPUs of the pod"
        return need, why
    if not (why := _why_none_requests(pod, settings)):
        if "cpu" not in asked:
            why = "it requests no CPU" if asked is one.requests else "its status allocates no CPU"
        elif managed and not guaranteed_equivalent(one):
            why = "its cpu and memory requests are not both set and equal to its limits"
        else:
            why = f"{asked['cpu']} is not a whole number of CPUs"
    return 0, why


def _why_none_requests(pod: Pod, settings: Settings) -> str:
    """Return what keeps every container of the pod from exclusive CPUs, or an empty text."""
    if settings.cpu is None:
        return "the CPU manager policy is none"
    if pod.qos is not QoS.GUARANTEED:
        return f"the QoS class of the pod is {pod.qos.value}"
    if settings.pod_level.leaves_out(pod):
        return f"the pod has pod-level resources, and {why_left_out(settings)}"
    return ""


def devices_of(decision: Decision) -> dict[str, dict[str, Device]]:
    """Return what the containers of a pod hold of each resource, by id."""
    found: dict[str, dict[str, Device]] = {}
    for resources in decision.devices.values():
        for resource, devices in resources.items():
            found.setdefault(resource, {}).update((device.id, device) for device in devices)
    return found


def why_left_out(settings: Settings) -> str:
    """Return why the managers leave out pods with pod-level resources; a clause."""
    if POD_LEVEL_MANAGERS in settings.gates.values:
        return f"the gate {POD_LEVEL_MANAGERS} is off"
    return f"the managers of kubelet {settings.release.name} leave such pods out"


def _steps(facts: Iterable[object], *, plugins: bool) -> Iterator[Step]:
    """Yield what was done, in order; the facts of one taking become one step."""
    open_run: list[object] = []
    told: list[object] = []
    for fact in facts:
        match fact:
            case cpus.TakeBegun() | cpus.CPUsPicked() | cpus.DistributionChosen() | cpus.SharePicked():
                open_run.append(fact)
            case cpus.CPUsTaken():
                runs = tuple(_runs(open_run))
                yield Taking(
                    fact.container, fact.need, fact.reusable, fact.pool, fact.affinity, runs, fact.taken, fact.error
                )
                open_run = []
            case cpus.PodShareCut():
                yield from _cut(open_run, fact.cpus, "")
                yield fact
                open_run = []
            case cpus.CPUPinningFailed():
                yield from _cut(open_run, 0, fact.error)
                yield fact
                open_run = []
            case _ if plugins and isinstance(fact, plugin_facts.PluginStep):
                # A plugin that is asked for hints and for the choice says the same twice.
                if fact not in told:
                    yield fact
                told.append(fact)
            case (
                cpus.WholeCoresChecked()
                | cpus.ExistingCPUsKept()
                | MemoryAssigned()
                | MemoryPinningFailed()
                | DevicesTaken()
            ):
                yield fact


def _cut(facts: list[object], taken: int, error: str) -> Iterator[Taking]:
    """Yield the taking from the CPUs of the pod, whose end is not a fact."""
    begun = next((fact for fact in facts if isinstance(fact, cpus.TakeBegun)), None)
    if begun is not None:
        yield Taking(begun.container, begun.need, 0, begun.candidates, None, tuple(_runs(facts)), taken, error)


def _runs(facts: list[object]) -> Iterator[Run]:
    starts = [position for position, fact in enumerate(facts) if isinstance(fact, cpus.TakeBegun)]
    # Plugins choose without a run of the kubelet's rules.
    for start, end in zip(starts, [*starts[1:], len(facts)] if starts else [], strict=True):
        begun, *rest = facts[start:end]
        if not isinstance(begun, cpus.TakeBegun):
            continue
        chosen = next((fact for fact in rest if isinstance(fact, cpus.DistributionChosen)), None)
        picks = tuple(
            Pick(one.rule, one.cpus)
            if isinstance(one, cpus.CPUsPicked)
            else Pick("rest" if one.is_rest else "share", one.cpus, one.node)
            for one in rest
            if isinstance(one, cpus.CPUsPicked | cpus.SharePicked)
        )
        yield Run(begun.place, begun.need, begun.candidates, chosen, picks)


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
    if family.sockets:
        # A larger set touches more sockets than preferred sets do, or is not preferred either.
        sizes = sorted([(socket & family.universe).bit_count() for socket in family.sockets], reverse=True)
        beside = (family.universe & ~_union(family.sockets)).bit_count()
        most = max(sum(sizes[: family.span]) + beside, family.smallest)
    for size in range(1 if family.sockets else most, most + 1):
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
