"""Measures of a trial: every measure is a figure that can be looked up in the trial.

A container is aligned at a level when its CPUs touch as few elements of the level as this machine allows for their
number, whatever else ran there; at the level of cores, when its cores are its own with all their threads.

See docs/reference/compare.md for the definitions in words. An outcome is small enough to be sent from one process to
another.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from hashlib import sha256

from mooring.answers.base.changes.configuration import AlignmentPromise, alignment_promise
from mooring.answers.base.plan_document import held_devices
from mooring.answers.base.trace import Trace
from mooring.answers.compare.trial import SharedKubelet, Stranded, Trial, TrialAdmission, run_trials, stranded_cpus
from mooring.answers.compare.variant import Variant
from mooring.engine.core.bits import CPUMask
from mooring.engine.core.decision import StartRefusal
from mooring.engine.core.pod import ContainerKind, Pod
from mooring.engine.core.topology import Topology
from mooring.engine.kubelet.kubelet import Kubelet
from mooring.engine.memorymanager.state import Block, NUMANodeState
from mooring.explanations.alignment import are_near, extent_of_nodes
from mooring.explanations.story import PodVerdict


@dataclass(frozen=True, slots=True)
class Alignment:
    """How many containers are aligned at each level."""

    numa: int = 0
    socket: int = 0
    l3: int = 0
    """By the kubelet's uncore caches; the socket where it knows of none."""
    core: int = 0


def fewest(elements: Collection[int], count: int, left_out: int = 0) -> int:
    """Return how many of the elements hold ``count`` CPUs at least; 0 when all together do not.

    Args:
        elements: masks of CPUs.
        count: of CPUs.
        left_out: mask of CPUs that are not allocated, the reserved ones.

    >>> fewest([0b1111, 0b11110000], 4), fewest([0b1111, 0b11110000], 4, left_out=0b1), fewest([0b1111], 5)
    (1, 1, 0)
    >>> fewest([0b1111, 0b11110000], 5, left_out=0b1)
    2
    """
    total = 0
    for number, size in enumerate(sorted(((mask & ~left_out).bit_count() for mask in elements), reverse=True), 1):
        total += size
        if total >= count:
            return number
    return 0


def touched(elements: Collection[int], cpus: int) -> int:
    """Return how many of the elements have one of the CPUs."""
    return sum(1 for mask in elements if mask & cpus)


def alignment(topology: Topology, reserved: int, holders: Iterable[int]) -> Alignment:
    """Count the aligned containers.

    Args:
        topology: of the machine, as the kubelet sees it.
        reserved: mask of the CPUs that are not allocated.
        holders: the CPUs of each container as a mask.
    """
    levels = (topology.numa.values(), topology.sockets.values(), topology.uncores.values())
    counts = [0, 0, 0]
    cores = 0
    for cpus in holders:
        for position, elements in enumerate(levels):
            counts[position] += touched(elements, cpus) == fewest(elements, cpus.bit_count(), reserved)
        cores += topology.core_siblings(CPUMask(cpus)) == cpus
    numa, socket, l3 = counts
    return Alignment(numa, socket, l3, cores)


@dataclass(frozen=True, slots=True)
class Together:
    """How many containers have something on as few NUMA nodes as the empty machine allows, and how many have it."""

    aligned: int = 0
    holders: int = 0


@dataclass(frozen=True, slots=True)
class Measures:
    """What became of a variant, in figures."""

    asked: int
    """Pods that are to be admitted, each time one comes."""
    admitted: int
    rejected: Mapping[str, int]
    """The kubelet's reason (or ``crash``, ``endless``, ``not asked``) -> pods; together with ``admitted`` all that are
    asked."""
    lost: int = 0
    """Running pods that the kubelet refused when it started."""
    exclusive: int = 0
    """Containers of admitted pods that have CPUs to themselves as long as the pod runs."""
    aligned: Alignment = field(default_factory=Alignment)
    """How many of these are aligned."""
    numa_nodes: int = 0
    """NUMA nodes of the CPUs of these, added up."""
    stranded: Stranded = field(default_factory=Stranded)
    memory_beyond: int = 0
    """NUMA nodes that the memory of containers is bound to beyond those that its amount needs, added up."""
    memory: Together = field(default_factory=Together)
    """Containers with memory bound to NUMA nodes, and those with memory and CPUs together on the fewest."""
    devices: Together = field(default_factory=Together)
    """Containers with devices of known NUMA nodes, and those with devices, memory and CPUs together on the fewest."""
    promise: AlignmentPromise = AlignmentPromise.GUARANTEE
    """What the topology manager policy promises about alignment."""

    @property
    def is_luck(self) -> bool:
        """Tell whether there is something to align, and no policy guarantees that it is aligned to NUMA nodes."""
        holders = self.exclusive + self.memory.holders + self.devices.holders
        return holders > 0 and self.promise is not AlignmentPromise.GUARANTEE

    @property
    def is_guaranteed(self) -> bool:
        """Tell whether something is aligned, and a policy guarantees that for CPUs, memory and devices."""
        return self.exclusive + self.memory.holders + self.devices.holders > 0 and not self.is_luck

    @property
    def is_socket_luck(self) -> bool:
        """Tell whether no policy guarantees that containers are aligned to sockets either."""
        return self.is_luck and self.promise is not AlignmentPromise.SOCKET

    @property
    def spread(self) -> Fraction:
        """NUMA nodes that a container with exclusive CPUs lies on, on average; 0 without such containers."""
        return Fraction(self.numa_nodes, self.exclusive) if self.exclusive else Fraction(0)

    @property
    def is_yes(self) -> bool:
        """Tell whether every pod is admitted and none is lost."""
        return self.admitted == self.asked and not self.lost


def measures(trace: Trace, trial: Trial, shapes: Sequence[Pod]) -> dict[int, Measures]:
    """Return the measures of a trial: position of each variant -> its measures.

    Args:
        trace: that was run.
        trial: what came of it.
        shapes: of the pods in the trace, see :func:`~mooring.answers.compare.trial.stranded_cpus`.
    """
    asked = len(trace.pods)
    new = [admission for admission in trial.admissions if not admission.running]
    placed = [admission for admission in new if admission.decision.admitted]
    lost = sum(1 for one in trial.admissions if one.running and not one.decision.admitted)
    rejected = _rejected(new, trial, asked)
    shared = trial.end
    if not isinstance(shared, SharedKubelet):
        return dict.fromkeys(trial.variants, Measures(asked, len(placed), rejected, lost))
    kubelet = shared.kubelet
    found = Measures(
        asked=asked,
        admitted=len(placed),
        rejected=rejected,
        lost=lost,
        memory_beyond=sum(_beyond(admission, kubelet.node.memory.nodes) for admission in placed),
        memory=_memory(kubelet, placed),
        devices=_devices(kubelet, placed),
    )
    policy = kubelet.settings.cpu
    if policy is not None:
        masks = [one.decision.containers[name].cpus.mask for one in placed for name in one.exclusive]
        topology = policy.topology
        found = replace(
            found,
            exclusive=len(masks),
            aligned=alignment(topology, policy.reserved, masks),
            numa_nodes=sum(touched(topology.numa.values(), cpus) for cpus in masks),
        )
    stranded = stranded_cpus(shared, shapes)
    return {
        position: replace(found, stranded=stranded[position], promise=alignment_promise(settings.config))
        for position, settings in shared.followers.items()
    }


def _memory(kubelet: Kubelet, placed: Iterable[TrialAdmission]) -> Together:
    found = [
        extent_of_nodes(kubelet.settings, kubelet.node.providers, one.decision.containers[name], blocks)
        for one in placed
        for name, blocks in one.memory.items()
        if name in one.decision.containers and one.decision.containers[name].mems and not _is_init(one.pod, name)
    ]
    return Together(sum(not extent.beyond for extent in found), len(found))


def _devices(kubelet: Kubelet, placed: Iterable[TrialAdmission]) -> Together:
    found = [
        extent_of_nodes(
            kubelet.settings, kubelet.node.providers, one.decision.containers[name], one.memory.get(name, ()), held
        )
        for one in placed
        for name, held in one.decision.devices.items()
        if name in one.decision.containers and are_near(held) and not _is_init(one.pod, name)
    ]
    return Together(sum(not extent.beyond for extent in found), len(found))


def _rejected(new: Sequence[TrialAdmission], trial: Trial, asked: int) -> dict[str, int]:
    """Count the reasons, the kubelet's own in the order of the alphabet."""
    reasons: list[str] = sorted(
        PodVerdict.CRASH if one.crashes else one.decision.reason for one in new if not one.decision.admitted
    )
    unanswered = asked - len(new)
    if unanswered and isinstance(trial.end, PodVerdict):
        reasons.append(trial.end)
        unanswered -= 1
    reasons += [PodVerdict.NOT_ASKED] * unanswered
    return {reason: reasons.count(reason) for reason in dict.fromkeys(reasons)}


def _beyond(admission: TrialAdmission, nodes: Mapping[int, NUMANodeState]) -> int:
    """Return how many NUMA nodes more than needed the memory of a pod's containers is bound to."""
    return sum(
        len({node for block in blocks for node in block.numa}) - max(_needed(block, nodes) for block in blocks)
        for name, blocks in admission.memory.items()
        if blocks and not _is_init(admission.pod, name)
    )


def _is_init(pod: Pod, name: str) -> bool:
    return any(container.name == name and container.kind is ContainerKind.INIT for container in pod.containers)


def _needed(block: Block, nodes: Mapping[int, NUMANodeState]) -> int:
    """Return how many NUMA nodes a block needs at least on an empty machine."""
    tables = (state.memory.get(block.type) for state in nodes.values())
    total = 0
    for number, size in enumerate(sorted((table.allocatable for table in tables if table), reverse=True), 1):
        total += size
        if total >= block.size:
            return number
    return len(block.numa)


def digest(trial: Trial) -> str:
    """Return a text that two trials share when everything was decided alike, down to the last CPU."""
    return sha256("\n".join(_outcome_lines(trial)).encode("utf-8", "surrogatepass")).hexdigest()


def _outcome_lines(trial: Trial) -> Iterator[str]:
    for admission in trial.admissions:
        decision = admission.decision
        held = [(name, str(one.cpus), one.mems) for name, one in decision.containers.items()]
        whole = (str(decision.pod.cpus), decision.pod.mems)
        answer = (decision.uid, admission.running, decision.admitted, decision.reason, decision.message)
        yield repr((answer, held, whole, held_devices(decision), str(decision.shared_pool)))
    match trial.end:
        case SharedKubelet() as shared:
            yield str(shared.kubelet.node.shared_pool)
        case StartRefusal() as refusal:
            yield f"{refusal.stage}: {refusal.message}"
        case verdict:
            yield verdict


@dataclass(frozen=True, slots=True)
class VariantOutcome:
    """What became of a variant."""

    measures: Measures
    digest: str
    """Equal for variants that decide everything alike, see :func:`~mooring.answers.compare.measures.digest`."""
    admitted: frozenset[int] = frozenset()
    """Positions of the admitted pods among those of the trace."""
    refusal: StartRefusal | None = None
    """Set when the kubelet would not start, at first or again."""


def judge(trace: Trace, variants: Mapping[int, Variant], shapes: Sequence[Pod]) -> dict[int, VariantOutcome]:
    """Run variants through the trace and measure what comes of them: position of each variant -> its outcome.

    Args:
        trace: what happens to each.
        variants: position -> variant, see :func:`~mooring.answers.compare.trial.run_trials`.
        shapes: of the pods in the trace.
    """
    # Where plugins order the pods, none of them is there twice.
    places = {pod.uid: place for place, pod in enumerate(trace.pods)} if trace.waits else {}
    outcomes: dict[int, VariantOutcome] = {}
    for trial in run_trials(trace, variants):
        new = [admission for admission in trial.admissions if not admission.running]
        admitted = frozenset(places.get(one.pod.uid, place) for place, one in enumerate(new) if one.decision.admitted)
        text, refusal = digest(trial), trial.end if isinstance(trial.end, StartRefusal) else None
        for position, found in measures(trace, trial, shapes).items():
            outcomes[position] = VariantOutcome(found, text, admitted, refusal)
    return outcomes


Value = Callable[[Measures], tuple[int | Fraction, ...]]

MEASURES: Mapping[str, Value] = {
    "admitted": lambda found: (-found.admitted,),
    "numa": lambda found: (-_guaranteed(found, found.aligned.numa),),
    "devices": lambda found: (-_guaranteed(found, found.devices.aligned),),
    "memory": lambda found: (-_guaranteed(found, found.memory.aligned), found.memory_beyond),
    "l3": lambda found: (-_guaranteed(found, found.aligned.l3),),
    "core": lambda found: (-found.aligned.core,),
    "stranded": lambda found: (found.stranded.total,),
    "socket": lambda found: (0 if found.is_socket_luck else -found.aligned.socket,),
    "spread": lambda found: (found.is_luck, found.spread),
    "guaranteed": lambda found: (not found.is_guaranteed,),
}
"""Name of a measure on the command line -> its value, the smaller the better, in the order in which they count.

Where no policy guarantees alignment, aligned containers do not count: another order of pods can end otherwise.
"""


def _guaranteed(found: Measures, aligned: int) -> int:
    return 0 if found.is_luck else aligned


def observed_key(found: Measures) -> tuple[int | Fraction, ...]:
    """Return what variants with the same guarantees are sorted by: alignment as it happened to be, the best first."""
    aligned = (found.aligned.numa, found.devices.aligned, found.memory.aligned, found.aligned.l3, found.aligned.socket)
    return (*(-one for one in aligned), found.spread)


def rank_key(found: Measures, by: str = "guaranteed") -> tuple[int | Fraction, ...]:
    """Return what variants are sorted by, the best first.

    Args:
        found: of a variant.
        by: the measure that counts before all others; running pods that would be lost come before even that.
    """
    ordered = [part for name in (by, *MEASURES) for part in MEASURES[name](found)]
    promise = -found.promise if found.is_luck else -AlignmentPromise.GUARANTEE
    return (found.lost, *ordered, promise, *observed_key(found))
