"""A comparison: every variant is run through the trace; the best comes first, those that decide alike together."""

from __future__ import annotations

import os
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import BrokenExecutor, Future
from contextlib import suppress
from dataclasses import dataclass
from typing import Annotated, Literal

from msgspec import Meta, field

from mooring.answers.base.trace import Trace, shapes
from mooring.answers.compare.measures import VariantOutcome, judge, observed_key, rank_key
from mooring.answers.compare.variant import Variant, VariantChangePart, options_on
from mooring.documents.plan import (
    API_VERSION,
    APIVersion,
    Code,
    Count,
    DocumentPart,
    FindingPart,
    KubeletRelease,
    finding_parts,
    one_of,
)
from mooring.engine.core.config import KubeletConfig, with_defaults
from mooring.engine.core.decision import StartRefusal
from mooring.engine.core.machine import Finding
from mooring.engine.core.pod import Pod
from mooring.service.daemon import worker_processes


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
    memory: Annotated[Count, Meta(description="Of memoryContainers: memory and CPUs together on the fewest nodes.")]
    devices: Annotated[Count, Meta(description="Of deviceContainers: devices, memory and CPUs together.")]


class StrandedCPUsPart(DocumentPart):
    """CPUs that no container can use for itself, by cause."""

    total: Count
    init: Count
    siblings: Count
    fragments: Count


class VariantPart(DocumentPart):
    """One variant and what it does with the pods."""

    group: Annotated[Count, Meta(description="Variants with the same outcome have the same number.")]
    name: str
    machine: str
    as_given: Annotated[bool, Meta(description="Whether it is the configuration as given.")]
    settings: VariantSettingsPart
    changes: list[VariantChangePart]
    starts: bool
    start_error_stage: str
    start_error: str
    start_error_code: Code
    admitted: Count
    rejected: Annotated[
        dict[str, Count], Meta(description="The kubelet's reason, or crash, endless or not asked, -> pods.")
    ]
    lost: Annotated[Count, Meta(description="Running pods that the kubelet refused when it started.")]
    exclusive_containers: Annotated[Count, Meta(description="Containers of admitted pods that have exclusive CPUs.")]
    memory_containers: Annotated[Count, Meta(description="Containers of admitted pods whose memory is bound.")]
    device_containers: Annotated[Count, Meta(description="Containers of admitted pods with devices near NUMA nodes.")]
    aligned: AlignedContainersPart
    alignment_promise: Annotated[
        str,
        one_of("nothing", "attempt", "socket", "guarantee"),
        Meta(description="Of the topology manager policy; without a guarantee aligned containers are luck."),
    ]
    spread: Annotated[float, Meta(description="NUMA nodes of a container with exclusive CPUs, on average.")]
    stranded: StrandedCPUsPart = field(name="strandedCPUs")
    memory_nodes_beyond_need: Annotated[
        Count, Meta(description="NUMA nodes that memory is bound to beyond those that its amount needs, added up.")
    ]


class LeftOutPart(DocumentPart):
    """Variants with which the kubelet would not start."""

    count: Count
    start_error_stage: str
    start_error: str
    start_error_code: Code


class ComparisonDocument(DocumentPart, kw_only=True):
    """What mooring compare -o json prints: variants, best first."""

    api_version: APIVersion = API_VERSION
    kind: Literal["Comparison"] = "Comparison"
    kubelet: KubeletRelease
    by: Annotated[str, Meta(description="The measure by which variants are ordered.")]
    pods: Count
    steps: Count
    variants: list[VariantPart]
    left_out: list[LeftOutPart]
    never_admitted: Annotated[list[str], Meta(description="Pods that no variant admits.")]
    findings: list[FindingPart]


@dataclass(frozen=True, slots=True)
class Result:
    """A variant and what became of it."""

    variant: Variant
    outcome: VariantOutcome

    @property
    def is_yes(self) -> bool:
        """Tell whether the kubelet starts, every pod is admitted, and none that runs is lost."""
        return self.outcome.refusal is None and self.outcome.measures.is_yes


@dataclass(frozen=True, slots=True)
class Group:
    """Variants of one machine that decide everything alike, to the last CPU, and measure alike."""

    results: tuple[Result, ...]
    """The first departs least from what was given."""

    @property
    def first(self) -> Result:
        """The one that stands for all."""
        return self.results[0]


@dataclass(frozen=True, slots=True)
class LeftOut:
    """Combinations with which the kubelet would not start."""

    refusal: StartRefusal
    count: int


@dataclass(frozen=True, slots=True)
class Comparison:
    """The answer to "which is best?"."""

    trace: Trace
    by: str
    """The measure that counted first."""
    groups: tuple[Group, ...]
    """The best first; variants with which the kubelet would not start are last."""
    left_out: tuple[LeftOut, ...]
    """Combinations that were made and that the kubelet refuses, the most frequent reason first."""

    @property
    def results(self) -> tuple[Result, ...]:
        """All variants, in the order of their groups."""
        return tuple(result for group in self.groups for result in group.results)

    @property
    def is_yes(self) -> bool:
        """Tell whether at least one variant admits everything; of pods that are alone, whether one admits each."""
        if self.trace.alone:
            return not self.never_admitted
        return any(group.first.is_yes for group in self.groups)

    @property
    def lucky(self) -> Result | None:
        """A variant that aligns more than the best one in this run, admits as much, and guarantees nothing."""
        if not self.groups:
            return None
        best = self.groups[0].first.outcome.measures
        for group in self.groups[1:]:
            found = group.first.outcome.measures
            is_even = (found.lost, -found.admitted) <= (best.lost, -best.admitted)
            if found.is_luck and not best.is_luck and is_even and observed_key(found) < observed_key(best):
                return group.first
        return None

    @property
    def never_admitted(self) -> tuple[str, ...]:
        """Pods that no variant admits at any time, as ``namespace/name``, in their order."""
        admitted: set[int] = set()
        for group in self.groups:
            admitted |= group.first.outcome.admitted
        pods = self.trace.pods
        running = {(pods[position].namespace, pods[position].name) for position in admitted}
        names = dict.fromkeys((pod.namespace, pod.name) for pod in pods)
        return tuple(f"{namespace}/{name}" for namespace, name in names if (namespace, name) not in running)


def ranked(trace: Trace, variants: Sequence[Variant], outcomes: Iterable[VariantOutcome], by: str) -> Comparison:
    """Put the variants in order.

    A combination with which the kubelet would not start, for another reason than the state files, is no variant and is
    left out; a configuration as it was given stays, so that it is reported.

    Args:
        trace: that was run.
        variants: that were compared.
        outcomes: one for each, in their order.
        by: the measure that counts first.
    """
    results, refused = [], []
    for variant, outcome in zip(variants, outcomes, strict=True):
        if outcome.refusal is not None and not variant.is_given and outcome.refusal.stage != "start":
            refused.append(outcome.refusal)
        else:
            results.append(Result(variant, outcome))
    order = sorted(range(len(results)), key=lambda position: (*_order(results[position], by), position))
    together: dict[tuple[int, str, str], list[Result]] = {}
    for position in order:
        found = results[position]
        # Decisions can be alike where measures are not: what fits into the rest depends on options, too.
        key = (id(found.variant.machine), found.outcome.digest, repr(found.outcome.measures))
        together.setdefault(key, []).append(found)
    return Comparison(trace, by, tuple(Group(tuple(group)) for group in together.values()), _counted(refused))


def _order(result: Result, by: str) -> tuple[object, ...]:
    """Return what results are sorted by; among equals the one that is given, then the one that changes least."""
    refused = result.outcome.refusal is not None
    changes = len(result.variant.changes)
    return (refused, *rank_key(result.outcome.measures, by), changes)


def _counted(refusals: Iterable[StartRefusal]) -> tuple[LeftOut, ...]:
    counts: dict[StartRefusal, int] = {}
    for refusal in refusals:
        counts[refusal] = counts.get(refusal, 0) + 1
    ordered = sorted(counts.items(), key=lambda item: -item[1])
    return tuple(LeftOut(refusal, count) for refusal, count in ordered)


FEW = 4000
"""Steps of all trials together below which starting workers costs more than it saves."""

Watch = Callable[[Iterable[VariantOutcome]], Iterable[VariantOutcome]]
"""Receives each outcome, for progress."""


def compare(
    trace: Trace, variants: Sequence[Variant], *, by: str = "guaranteed", jobs: int = 1, watch: Watch = iter
) -> Comparison:
    """Run every variant through the trace and rank them.

    Args:
        trace: what happens to each.
        variants: what is compared.
        by: the measure that counts first, see :data:`~mooring.answers.compare.measures.MEASURES`.
        jobs: how many processes to use at most; the answer does not depend on it.
        watch: is handed the outcomes as they come, and passes them on.
    """
    numbers: dict[Hashable, int] = {}
    groups: list[dict[int, Variant]] = []
    for position, variant in enumerate(variants):
        number = numbers.setdefault(variant.shared_by, len(groups))
        groups += [{}] if number == len(groups) else []
        groups[number][position] = variant
    workers = min(jobs, len(groups))
    # Plugins are functions of this process, and cannot be sent to another.
    plugged = any(one.mooring.plugins.plugins for one in variants)
    is_little = len(variants) * (len(trace.steps) + len(trace.active)) < FEW
    pods = shapes(trace)
    is_alone = workers < 2 or is_little or plugged
    here = (judge(trace, members, pods) for members in groups)
    outcomes = here if is_alone else _spread(trace, groups, pods, workers)
    return ranked(trace, variants, watch(_in_order(outcomes, len(variants))), by)


def _spread(
    trace: Trace, groups: Sequence[Mapping[int, Variant]], pods: Sequence[Pod], workers: int
) -> Iterator[dict[int, VariantOutcome]]:
    """Yield the outcomes of each group in order, from worker processes; what a killed one had, this process does."""
    with worker_processes(workers) as pool:
        futures: list[Future[dict[int, VariantOutcome]]] = []
        with suppress(OSError, BrokenExecutor):
            futures += (pool.submit(judge, trace, members, pods) for members in groups)
        for number, members in enumerate(groups):
            try:
                found = futures[number].result() if number < len(futures) else judge(trace, members, pods)
            except BrokenExecutor:
                found = judge(trace, members, pods)
            yield found


def _in_order(outcomes: Iterator[dict[int, VariantOutcome]], count: int) -> Iterator[VariantOutcome]:
    """Yield the outcomes of variants in the order of the variants, in which the groups come too."""
    found: dict[int, VariantOutcome] = {}
    for position in range(count):
        while position not in found:
            found |= next(outcomes)
        yield found.pop(position)


def usable_cores() -> int:
    """Return how many cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def comparison_document(comparison: Comparison, findings: Iterable[Finding] = ()) -> ComparisonDocument:
    """Return the document."""
    return ComparisonDocument(
        kubelet=comparison.results[0].variant.mooring.release.tag,
        by=comparison.by,
        pods=len(comparison.trace.pods),
        steps=len(comparison.trace.steps),
        variants=[
            _variant(number, result) for number, group in enumerate(comparison.groups, 1) for result in group.results
        ],
        left_out=[
            LeftOutPart(one.count, one.refusal.stage, one.refusal.message, one.refusal.code)
            for one in comparison.left_out
        ],
        never_admitted=list(comparison.never_admitted),
        findings=finding_parts(findings),
    )


def _variant(group: int, result: Result) -> VariantPart:
    variant, refusal, found = result.variant, result.outcome.refusal, result.outcome.measures
    aligned, stranded = found.aligned, found.stranded
    return VariantPart(
        group=group,
        name=variant.name,
        machine=variant.machine.name,
        as_given=variant.is_given,
        settings=_settings(variant.config),
        changes=list(variant.changes),
        starts=refusal is None,
        start_error_stage=refusal.stage if refusal is not None else "",
        start_error=refusal.message if refusal is not None else "",
        start_error_code=refusal.code if refusal is not None else "",
        admitted=found.admitted,
        rejected=dict(found.rejected),
        lost=found.lost,
        exclusive_containers=found.exclusive,
        memory_containers=found.memory.holders,
        device_containers=found.devices.holders,
        aligned=AlignedContainersPart(
            aligned.numa, aligned.socket, aligned.l3, aligned.core, found.memory.aligned, found.devices.aligned
        ),
        alignment_promise=found.promise.name.lower(),
        spread=round(float(found.spread), 3),
        stranded=StrandedCPUsPart(stranded.total, stranded.init, stranded.siblings, stranded.fragments),
        memory_nodes_beyond_need=found.memory_beyond,
    )


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
