"""Measures of a trial: every measure is a figure that can be looked up in the trial.

A container is aligned at a level when its CPUs touch as few elements of the level as this machine allows for their
number, whatever else ran there; at the level of cores, when its cores are its own with all their threads.

See docs/reference/compare.md for the definitions in words.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from fractions import Fraction
from hashlib import sha256
from typing import Annotated

from msgspec import field, structs

from mooring.answers.base.changes.configuration import AlignmentPromise, alignment_promise
from mooring.answers.base.plan_document import held_devices
from mooring.answers.base.trace import Trace
from mooring.answers.compare import trial as trials
from mooring.answers.compare.variant import Variant, VariantChangePart, options_on
from mooring.documents.plan import Code, Count, DocumentPart, one_of, told
from mooring.engine.core.bits import CPUMask
from mooring.engine.core.config import KubeletConfig, with_defaults
from mooring.engine.core.decision import StartRefusal
from mooring.engine.core.pod import ContainerKind, Pod
from mooring.engine.core.topology import Topology
from mooring.engine.kubelet.kubelet import Kubelet
from mooring.engine.memorymanager.state import NUMANodeState
from mooring.explanations.alignment import are_near, extent_of_nodes, memory_supplies, nodes_needed
from mooring.explanations.phrases import fewest_elements
from mooring.explanations.story import PodVerdict


class VariantSettingsPart(DocumentPart):
    """The settings of a variant, with the kubelet's defaults filled in."""

    cpu_manager_policy: str
    cpu_manager_policy_options: dict[str, str]
    memory_manager_policy: str
    topology_manager_policy: str
    topology_manager_scope: str
    topology_manager_policy_options: dict[str, str]
    feature_gates: dict[str, bool]


class AlignedContainersPart(DocumentPart):
    """How many containers lie on the fewest of each."""

    numa: Count
    socket: Count
    l3: Count
    core: Count
    memory: Annotated[Count, told("Of memoryContainers: memory and CPUs together on the fewest nodes.")]
    devices: Annotated[Count, told("Of deviceContainers: devices, memory and CPUs together.")]


class VariantPart(DocumentPart):
    """One variant and what it does with the pods."""

    group: Annotated[Count, told("Variants with the same outcome have the same number.")]
    name: str
    machine: str
    as_given: Annotated[bool, told("Whether it is the configuration as given.")]
    settings: VariantSettingsPart
    changes: list[VariantChangePart]
    starts: bool
    start_error_stage: str
    start_error: str
    start_error_code: Code
    admitted: Count
    rejected: Annotated[dict[str, Count], told("The kubelet's reason, or crash, endless or not asked, -> pods.")]
    lost: Annotated[Count, told("Running pods that the kubelet refused when it started.")]
    exclusive_containers: Annotated[Count, told("Containers of admitted pods that have exclusive CPUs.")]
    memory_containers: Annotated[Count, told("Containers of admitted pods whose memory is bound.")]
    device_containers: Annotated[Count, told("Containers of admitted pods with devices near NUMA nodes.")]
    aligned: AlignedContainersPart
    alignment_promise: Annotated[
        str,
        one_of("nothing", "attempt", "socket", "guarantee"),
        told("Of the topology manager policy; without a guarantee aligned containers are luck."),
    ]
    spread: Annotated[float, told("NUMA nodes of a container with exclusive CPUs, on average.")]
    stranded: trials.StrandedCPUsPart = field(name="strandedCPUs")
    memory_nodes_beyond_need: Annotated[
        Count, told("NUMA nodes that memory is bound to beyond those that its amount needs, added up.")
    ]

    @property
    def asked(self) -> int:
        """Pods that are to be admitted, each time one comes."""
        return self.admitted + sum(self.rejected.values())

    @property
    def is_yes(self) -> bool:
        """Tell whether the kubelet starts, every pod is admitted, and none that runs is lost."""
        return self.starts and not self.rejected and not self.lost

    @property
    def promise(self) -> AlignmentPromise:
        """What the topology manager policy promises about alignment."""
        return AlignmentPromise[self.alignment_promise.upper()]

    @property
    def is_luck(self) -> bool:
        """Tell whether there is something to align, and no policy guarantees that it is aligned to NUMA nodes."""
        return self._holders > 0 and self.promise is not AlignmentPromise.GUARANTEE

    @property
    def is_guaranteed(self) -> bool:
        """Tell whether something is aligned, and a policy guarantees that for CPUs, memory and devices."""
        return self._holders > 0 and not self.is_luck

    @property
    def is_socket_luck(self) -> bool:
        """Tell whether no policy guarantees that containers are aligned to sockets either."""
        return self.is_luck and self.promise is not AlignmentPromise.SOCKET

    @property
    def exact_spread(self) -> Fraction:
        """The mean of which ``spread`` has three digits."""
        count = self.exclusive_containers
        return Fraction(round(self.spread * count), count) if count else Fraction(0)

    @property
    def figures(self) -> str:
        """What became of the pods, equal for variants with which that is equal."""
        return repr(structs.astuple(self)[_FIRST_FIGURE:])

    @property
    def _holders(self) -> int:
        return self.exclusive_containers + self.memory_containers + self.device_containers


_FIRST_FIGURE = VariantPart.__struct_fields__.index("starts")


def _settings(config: KubeletConfig) -> VariantSettingsPart:
    config = with_defaults(config)
    return VariantSettingsPart(
        cpu_manager_policy=config.cpu_manager_policy,
        cpu_manager_policy_options=options_on(config.cpu_manager_policy_options),
        memory_manager_policy=config.memory_manager_policy,
        topology_manager_policy=config.topology_manager_policy,
        topology_manager_scope=config.topology_manager_scope,
        topology_manager_policy_options=options_on(config.topology_manager_policy_options),
        feature_gates=dict(sorted(config.feature_gates.items())),
    )


def touched(elements: Collection[int], cpus: int) -> int:
    """Return how many of the elements have one of the CPUs."""
    return sum(1 for mask in elements if mask & cpus)


def alignment(topology: Topology, reserved: int, holders: Iterable[int]) -> tuple[int, int, int, int]:
    """Count the aligned containers: to NUMA nodes, sockets, L3 caches and cores.

    The caches are the kubelet's uncore caches; the socket where it knows of none.

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
            counts[position] += touched(elements, cpus) == fewest_elements(elements, cpus.bit_count(), reserved)
        cores += topology.core_siblings(CPUMask(cpus)) == cpus
    numa, socket, l3 = counts
    return numa, socket, l3, cores


def measures(
    trace: Trace, trial: trials.Trial, variants: Mapping[int, Variant], shapes: Sequence[Pod]
) -> dict[int, VariantPart]:
    """Return what became of the variants of a trial: position -> variant, in no group yet.

    Args:
        trace: that was run.
        trial: what came of it.
        variants: of the comparison.
        shapes: of the pods in the trace, see :func:`~mooring.answers.compare.trial.stranded_cpus`.
    """
    new = [admission for admission in trial.admissions if not admission.running]
    placed = [admission for admission in new if admission.decision.admitted]
    lost = sum(1 for one in trial.admissions if one.running and not one.decision.admitted)
    rejected = _rejected(new, trial, len(trace.pods))
    end = trial.end
    refusal = end if isinstance(end, StartRefusal) else None
    masks, aligned, numa_nodes, beyond = list[int](), (0, 0, 0, 0), 0, 0
    memory = devices = (0, 0)
    stranded = dict.fromkeys(trial.variants, trials.StrandedCPUsPart(0, 0, 0, 0))
    promises = dict.fromkeys(trial.variants, AlignmentPromise.GUARANTEE)
    if isinstance(end, trials.SharedKubelet):
        kubelet, policy = end.kubelet, end.kubelet.settings.cpu
        beyond = sum(_beyond(admission, kubelet.node.memory.nodes) for admission in placed)
        memory, devices = _nearby(kubelet, placed)
        if policy is not None:
            masks = [one.decision.containers[name].cpus.mask for one in placed for name in one.exclusive]
            aligned = alignment(policy.topology, policy.reserved, masks)
            numa_nodes = sum(touched(policy.topology.numa.values(), cpus) for cpus in masks)
        stranded = trials.stranded_cpus(end, shapes)
        promises = {position: alignment_promise(settings.config) for position, settings in end.followers.items()}
    return {
        position: VariantPart(
            group=0,
            name=variant.name,
            machine=variant.machine.name,
            as_given=variant.is_given,
            settings=_settings(variant.config),
            changes=list(variant.changes),
            starts=refusal is None,
            start_error_stage="" if refusal is None else refusal.stage,
            start_error="" if refusal is None else refusal.message,
            start_error_code="" if refusal is None else refusal.code,
            admitted=len(placed),
            rejected=rejected,
            lost=lost,
            exclusive_containers=len(masks),
            memory_containers=memory[1],
            device_containers=devices[1],
            aligned=AlignedContainersPart(*aligned, memory=memory[0], devices=devices[0]),
            alignment_promise=promises[position].name.lower(),
            spread=round(numa_nodes / len(masks), 3) if masks else 0.0,
            stranded=stranded[position],
            memory_nodes_beyond_need=beyond,
        )
        for position, variant in ((position, variants[position]) for position in trial.variants)
    }


def _nearby(kubelet: Kubelet, placed: Iterable[trials.TrialAdmission]) -> tuple[tuple[int, int], tuple[int, int]]:
    """Return of containers with bound memory, and of those with devices near NUMA nodes, how many are aligned, and all.

    The former have memory and CPUs together on the fewest NUMA nodes, the latter their devices, too.
    """
    memory, devices = [], []
    settings, providers = kubelet.settings, kubelet.node.providers
    for one in placed:
        for name, placement in one.decision.containers.items():
            blocks, held = one.memory.get(name, ()), one.decision.devices.get(name)
            is_bound, has_near = name in one.memory and bool(placement.mems), held is not None and are_near(held)
            if (is_bound or has_near) and not _is_init(one.pod, name):
                memory += [extent_of_nodes(settings, providers, placement, blocks)] if is_bound else []
                devices += [extent_of_nodes(settings, providers, placement, blocks, held or {})] if has_near else []
    memory_aligned, devices_aligned = (sum(not extent.beyond for extent in found) for found in (memory, devices))
    return (memory_aligned, len(memory)), (devices_aligned, len(devices))


def _rejected(new: Sequence[trials.TrialAdmission], trial: trials.Trial, asked: int) -> dict[str, int]:
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


def _beyond(admission: trials.TrialAdmission, nodes: Mapping[int, NUMANodeState]) -> int:
    """Return how many NUMA nodes more than needed the memory of a pod's containers is bound to."""
    return sum(
        len({node for block in blocks for node in block.numa})
        - max(nodes_needed(memory_supplies([block], nodes)) or len(block.numa) for block in blocks)
        for name, blocks in admission.memory.items()
        if blocks and not _is_init(admission.pod, name)
    )


def _is_init(pod: Pod, name: str) -> bool:
    return any(container.name == name and container.kind is ContainerKind.INIT for container in pod.containers)


def digest(trial: trials.Trial) -> str:
    """Return a text that two trials share when everything was decided alike, down to the last CPU."""
    lines = []
    for admission in trial.admissions:
        decision = admission.decision
        held = [(name, str(one.cpus), one.mems) for name, one in decision.containers.items()]
        whole = (str(decision.pod.cpus), decision.pod.mems)
        answer = (decision.uid, admission.running, decision.admitted, decision.reason, decision.message)
        lines.append(repr((answer, held, whole, held_devices(decision), str(decision.shared_pool))))
    match trial.end:
        case trials.SharedKubelet() as shared:
            lines.append(str(shared.kubelet.node.shared_pool))
        case StartRefusal() as refusal:
            lines.append(f"{refusal.stage}: {refusal.message}")
        case verdict:
            lines.append(verdict)
    return sha256("\n".join(lines).encode("utf-8", "surrogatepass")).hexdigest()


Value = Callable[[VariantPart], tuple[int | Fraction, ...]]

MEASURES: Mapping[str, Value] = {
    "admitted": lambda found: (-found.admitted,),
    "numa": lambda found: (-_guaranteed(found, found.aligned.numa),),
    "devices": lambda found: (-_guaranteed(found, found.aligned.devices),),
    "memory": lambda found: (-_guaranteed(found, found.aligned.memory), found.memory_nodes_beyond_need),
    "l3": lambda found: (-_guaranteed(found, found.aligned.l3),),
    "core": lambda found: (-found.aligned.core,),
    "stranded": lambda found: (found.stranded.total,),
    "socket": lambda found: (0 if found.is_socket_luck else -found.aligned.socket,),
    "spread": lambda found: (found.is_luck, found.exact_spread),
    "guaranteed": lambda found: (not found.is_guaranteed,),
}
"""Name of a measure on the command line -> its value, the smaller the better, in the order in which they count.

Where no policy guarantees alignment, aligned containers do not count: another order of pods can end otherwise.
"""


def _guaranteed(found: VariantPart, aligned: int) -> int:
    return 0 if found.is_luck else aligned


def observed_key(found: VariantPart) -> tuple[int | Fraction, ...]:
    """Return what variants with the same guarantees are sorted by: alignment as it happened to be, the best first."""
    aligned = (found.aligned.numa, found.aligned.devices, found.aligned.memory, found.aligned.l3, found.aligned.socket)
    return (*(-one for one in aligned), found.exact_spread)


def rank_key(found: VariantPart, by: str = "guaranteed") -> tuple[int | Fraction, ...]:
    """Return what variants are sorted by, the best first.

    Args:
        found: of a variant.
        by: the measure that counts before all others; running pods that would be lost come before even that.
    """
    ordered = [part for name in (by, *MEASURES) for part in MEASURES[name](found)]
    promise = -found.promise if found.is_luck else -AlignmentPromise.GUARANTEE
    return (found.lost, *ordered, promise, *observed_key(found))
