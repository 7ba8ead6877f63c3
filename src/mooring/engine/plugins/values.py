"""What plugins see and give.

The values are made for them: changing one changes nothing of the node.

The kubelet's own rules of taking are for plugins that only want to say from where. Those that come with Mooring read
their settings by functions that stand here.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import fields
from types import MappingProxyType
from typing import Any

import pluggy

from mooring.engine.core.bits import NO_CPUS, CPUMask, members
from mooring.engine.core.cpuset import CPUSet
from mooring.engine.core.errors import InputError, KubeletCrashError
from mooring.engine.core.machineinfo import CPUFacts
from mooring.engine.core.pod import Pod
from mooring.engine.core.topology import Topology
from mooring.engine.cpumanager.options import TakeRules
from mooring.engine.cpumanager.policy import Purpose
from mooring.engine.cpumanager.take import take
from mooring.engine.extensions.choosing import cores_of, whole_cores_in
from mooring.engine.topologymanager.hints import Hint
from mooring.lazy import dataclass, field, replace


@dataclass(frozen=True, slots=True)
class PodView:
    """A pod, as plugins know it."""

    uid: str
    namespace: str
    name: str
    qos: str
    """``Guaranteed``, ``Burstable`` or ``BestEffort``."""
    annotations: Mapping[str, str] = field(default_factory=dict)
    priority: int = 0
    """``spec.priority``."""
    is_pod_level: bool = False
    """Whether it has resources as a whole, so that CPUs are chosen for all its containers at once (KEP-5526)."""


@dataclass(frozen=True, slots=True)
class Holder:
    """An owner of exclusive CPUs: a container, a pod or a claim."""

    uid: str
    """Of the pod; of a claim of dynamic resource allocation what it stands under in the state file."""
    container: str
    cpus: CPUSet
    pod: PodView | None
    """None when the pod is not known any more."""


@dataclass(frozen=True, slots=True)
class MachineView:
    """The machine. All members are CPU ids of the operating system."""

    cpus: CPUSet
    numa: Mapping[int, CPUSet]
    """NUMA node -> its CPUs, ascending; likewise the others."""
    sockets: Mapping[int, CPUSet]
    caches: Mapping[int, CPUSet]
    """Uncore cache (the last level cache) -> its CPUs; of the socket where the machine tells none."""
    cores: Mapping[int, CPUSet]
    """Core, by its smallest CPU -> its threads."""
    kinds: Mapping[int, CPUSet]
    """Efficiency rank of a kind of core -> its CPUs; higher is faster, -1 unknown. Empty on uniform machines, and where
    nothing tells."""
    isolated: CPUSet
    """CPUs that the kernel keeps out of scheduling (isolcpus)."""
    reserved: CPUSet
    """CPUs that are kept for the system; empty while these are being chosen."""
    topology: Topology = field(repr=False)
    """For :func:`~mooring.engine.plugins.values.kubelet_choice`."""
    rules: TakeRules = field(repr=False)

    def whole_cores(self, cpus: CPUSet) -> CPUSet:
        """Return those of the CPUs whose core is entirely among them."""
        return CPUSet.from_ids(cpu for core in self.cores.values() if core <= cpus for cpu in core)


@dataclass(frozen=True, slots=True)
class CPURequest:
    """Somebody wants CPUs: what plugins are asked about."""

    purpose: str
    """``container``, ``pod`` (pod-level resources, or pod scope) or ``reserved`` (the system's own)."""
    pod: PodView | None
    """None for the system's own."""
    container: str
    """Empty for a whole pod."""
    need: int
    """How many CPUs."""
    available: CPUSet
    """CPUs that may be given, as far as plugins before this point left them."""
    near: CPUSet
    """Those of them to which the topology manager's hint points; empty when it has no opinion."""
    shared: CPUSet
    """The shared pool."""
    machine: MachineView
    siblings: CPUSet = field(default_factory=CPUSet)
    """CPUs that plugins withheld as siblings (:attr:`Withheld.as_siblings`)."""
    holders: Callable[[], tuple[Holder, ...]] = field(repr=False, default=tuple)
    """The present owners of CPUs; made on request."""


@dataclass(frozen=True, slots=True)
class Withheld:
    """Answer of ``filter_cpus``: CPUs that this pod may not get, and why."""

    cpus: CPUSet
    because: str = ""
    """In a few words; ``mooring explain`` repeats them."""
    as_siblings: bool = False
    """Whether those that share a core with a container's CPUs are hidden: not assigned as long as it runs."""


@dataclass(frozen=True, slots=True)
class Room:
    """Answer of ``post_filter``: CPUs that were withheld and may be given after all."""

    cpus: CPUSet
    because: str = ""


@dataclass(frozen=True, slots=True)
class Selected:
    """Answer of ``select_cpus``."""

    cpus: CPUSet
    """As many as are wanted."""
    hidden: CPUSet = field(default_factory=CPUSet)
    """Other threads of the same cores that are not assigned as long as these are held."""


@dataclass(frozen=True, slots=True)
class Change:
    """What ``allocated`` and ``deallocated`` receive: a container got CPUs, or released them."""

    uid: str
    """Of the pod."""
    container: str
    """Empty for a whole pod."""
    cpus: CPUSet


@dataclass(frozen=True, slots=True)
class NUMAChoice:
    """NUMA nodes, and whether they are as good as the machine allows."""

    nodes: frozenset[int] | None
    """None means any."""
    preferred: bool


@dataclass(frozen=True, slots=True)
class AffinityRequest:
    """The topology manager has merged: what ``choose_affinity`` is asked about."""

    pod: PodView
    container: str
    policy: str
    """The topology manager's policy, such as ``best-effort``."""
    merged: NUMAChoice
    """Of all providers together."""
    of_cpus: NUMAChoice
    """What the CPU manager alone would have."""


RESERVED = Purpose.RESERVED.value
"""Purpose of a question about the system's CPUs."""

PROJECT = "mooring"

hookimpl = pluggy.HookimplMarker(PROJECT)
"""Marks a plugin's method (or a module's function) as its answer at the extension point of the same name."""


def kubelet_choice(
    request: CPURequest, cpus: CPUSet, need: int | None = None, *, kept: CPUSet | None = None, exact: bool = False
) -> CPUSet | None:
    """Return what the kubelet's rules of taking choose from some CPUs.

    Args:
        request: says for which machine and with which policy options.
        cpus: to choose from.
        need: how many; all that the request requests when it is left out.
        kept: CPUs beside which they are chosen.
        exact: with the defects of the kubelet, as it is configured.

    Returns:
        The set (without those kept); None when the rules find none.
    """
    machine = request.machine
    rules = machine.rules if exact else machine.rules.mended()
    wanted = request.need if need is None else need
    held = kept.mask if kept is not None else NO_CPUS
    try:
        taken = take(machine.topology, cpus.mask & ~held, wanted, rules, kept=held)
    except KubeletCrashError:
        return None
    return CPUSet(taken) if isinstance(taken, int) else None


def is_whole(request: CPURequest, cpus: CPUSet) -> bool:
    """Tell whether CPUs are whole cores where the policy option full-pcpus-only requires it."""
    if not _needs_whole_cores(request):
        return True
    topology = request.machine.topology
    return not topology.core_siblings(cpus.mask) & ~(cpus.mask | request.siblings.mask)


def _needs_whole_cores(request: CPURequest) -> bool:
    """Tell whether the policy option full-pcpus-only holds for a request; for the system's own CPUs it does not."""
    return request.machine.rules.whole_cores and request.purpose != RESERVED


def can_hold(request: CPURequest, cpus: CPUSet) -> bool:
    """Tell whether some CPUs are enough for a request, in whole cores where the policy option requires it."""
    if not _needs_whole_cores(request):
        return len(cpus) >= request.need
    return cores_of(_cores_within(request, cpus), request.need) is not None


def _cores_within(request: CPURequest, cpus: CPUSet) -> list[int]:
    """Return what whole cores give of some CPUs; siblings that are hidden belong to their core."""
    cores = whole_cores_in(request.machine.topology, cpus.mask | request.siblings.mask)
    return [core & cpus.mask for core in cores if core & cpus.mask]


def scored_choice(request: CPURequest, scores: Mapping[int, float], places: Sequence[CPUSet] = ()) -> CPUSet | None:
    """Return the set that takes the best scores first, by the kubelet's rules among equal ones.

    Args:
        request: what is wanted.
        scores: of CPUs; a missing one counts 0.
        places: from where to take first, one after another; then from all available CPUs.

    Returns:
        The set; None when the rules find none.
    """
    taken = _level_by_level(request, scores, places)
    if not _needs_whole_cores(request) or (taken is not None and is_whole(request, taken)):
        return taken

    # The rules fill up with single threads where cores are uneven or scores go through cores.
    # Whole cores: of the first places first, then those with the best scores
    def order(core: int) -> tuple[int, float]:
        cpus = CPUSet(CPUMask(core))
        place = next((index for index, place in enumerate(places) if cpus <= place), len(places))
        return place, -sum(scores.get(cpu, 0.0) for cpu in cpus) / len(cpus)

    cores = sorted(_cores_within(request, request.available), key=order)
    found = cores_of(cores, request.need)
    return None if found is None else CPUSet(CPUMask(found))


def _level_by_level(request: CPURequest, scores: Mapping[int, float], places: Sequence[CPUSet]) -> CPUSet | None:
    levels = levels_of({cpu: scores.get(cpu, 0.0) for cpu in request.available})
    taken = CPUSet()
    for place in (*places, request.available):
        for mask in levels.values():
            missing = request.need - len(taken)
            open_here = (CPUSet(mask) & place) - taken
            if not missing or not open_here:
                continue
            if len(open_here) <= missing:
                taken |= open_here
                continue
            more = kubelet_choice(request, open_here, missing, kept=taken)
            if more is None:
                return None
            taken |= more
    return taken if len(taken) == request.need else None


def levels_of(scores: Mapping[int, float]) -> dict[float, CPUMask]:
    """Return score -> mask of the CPUs with it, highest first."""
    levels: dict[float, CPUMask] = {}
    for cpu, score in scores.items():
        levels[score] = levels.get(score, NO_CPUS) | 1 << cpu
    return dict(sorted(levels.items(), reverse=True))


def machine_view(topology: Topology, rules: TakeRules, facts: CPUFacts) -> MachineView:
    """Return what plugins know of a machine: values of their own, so that nothing they do reaches the engine's."""
    members_of = ((one.name, getattr(topology, one.name)) for one in fields(topology))
    maps: dict[str, Any] = {
        name: MappingProxyType(dict(value)) for name, value in members_of if isinstance(value, Mapping)
    }
    return MachineView(
        cpus=CPUSet(topology.all_cpus),
        numa=_sets(topology.numa),
        sockets=_sets(topology.sockets),
        caches=_sets(topology.uncores),
        cores=_sets(topology.cores),
        kinds=MappingProxyType({kind.efficiency: kind.cpus for kind in facts.kinds}),
        isolated=facts.isolated,
        reserved=CPUSet(),
        topology=replace(topology, **maps),
        rules=rules,
    )


def _sets(masks: Mapping[int, CPUMask]) -> Mapping[int, CPUSet]:
    return MappingProxyType({element: CPUSet(mask) for element, mask in masks.items()})


def pod_view(pod: Pod) -> PodView:
    """Return what plugins know of a pod."""
    annotations = MappingProxyType(dict(pod.annotations))
    return PodView(
        pod.uid, pod.namespace, pod.name, pod.qos.value, annotations, pod.priority, is_pod_level=pod.is_pod_level
    )


def numa_choice(hint: Hint) -> NUMAChoice:
    """Return what plugins know of a hint."""
    if hint.mask is None:
        return NUMAChoice(None, hint.preferred)
    return NUMAChoice(frozenset(members(hint.mask)), hint.preferred)


def text_of(ask: Callable[..., object], *given: object) -> str:
    """Return a text of a plugin's, such as of what it raised; its own code makes it, and may raise anything instead."""
    try:
        return str.__str__(str(ask(*given)))
    except (Exception, SystemExit):  # noqa: BLE001 - as the summary says
        return "(it cannot be printed)"


def check_fields(settings: Mapping[str, object], known: Collection[str]) -> None:
    """Refuse settings that a plugin does not have.

    Raises:
        InputError: naming the first one.
    """
    for name in settings:
        if name not in known:
            remedy = f"known are {', '.join(sorted(known))}" if known else "the plugin takes no settings"
            raise InputError(f"{str(name)[:60]!r} is not known", field=str(name)[:60], remedy=remedy)


def word(settings: Mapping[str, object], name: str, words: Collection[str], default: str) -> str:
    """Return a setting that is one of some words.

    Raises:
        InputError: it is none of them.
    """
    found = settings.get(name, default)
    # YAML reads on and off as truth values.
    if isinstance(found, bool) and {"on", "off"} <= set(words):
        found = "on" if found else "off"
    if not isinstance(found, str) or found not in words:
        raise InputError(f"{str(found)[:40]!r} is not known", field=name, remedy=f"write {' or '.join(words)}")
    return found


def flag(settings: Mapping[str, object], name: str, *, default: bool) -> bool:
    """Return a setting that is true or false.

    Raises:
        InputError: it is neither.
    """
    found = settings.get(name, default)
    if not isinstance(found, bool):
        raise InputError(f"{str(found)[:40]!r} is neither true nor false", field=name, remedy="write true or false")
    return found
