"""What a simulation says about a cluster: pods by what became of them, refusals by cause and group, use over time.

A simulation period by period: what was admitted, what was refused where and for what, and how long pods waited.

Pods that wait at the end of a simulation, and what keeps the nodes from taking them.

``mooring fleet simulate -o json``: the answer as a document.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from math import fsum
from typing import Final

from mooring.fleet.documents import (
    FatesPart,
    FleetDocument,
    FleetGroupPart,
    FleetPeriodPart,
    FleetPodPart,
    FleetSamplePart,
    FleetWaitPart,
    RefusedPart,
    UsePart,
    WaitCausePart,
    WaitedPart,
)
from mooring.fleet.nodes import Sample
from mooring.fleet.relocation.moves import SharedObstacle, causes
from mooring.fleet.simulation import SimulationResult
from mooring.fleet.work import ORDER, REMADE, PodPhase, Record


@dataclass(frozen=True, slots=True)
class Waited:
    """Seconds from creation to admission."""

    median: float = 0.0
    percentile99: float = 0.0
    most: float = 0.0


@dataclass(frozen=True, slots=True)
class FleetPeriod:
    """The time between two samples, its end included."""

    begins: float
    ends: float
    admitted: int
    refused: Mapping[tuple[str, str], int]
    """Group of nodes and code of the cause -> pods."""
    waited: Waited
    """Of the pods that were admitted in it."""


def waited_of(seconds: Sequence[float]) -> Waited:
    """Return median, 99th percentile and most.

    >>> waited_of([1.0, 3.0, 2.0])
    Waited(median=2.0, percentile99=3.0, most=3.0)
    """
    if not seconds:
        return Waited()
    ordered = sorted(seconds)
    return Waited(_percentile(ordered, 0.5), _percentile(ordered, 0.99), ordered[-1])


def _percentile(ordered: Sequence[float], share: float) -> float:
    """Return the smallest value that at least a share of all do not exceed."""
    return ordered[max(-int(-share * len(ordered) // 1) - 1, 0)]


def periods_of(result: SimulationResult) -> tuple[FleetPeriod, ...]:
    """Return the periods between the samples of a simulation; the first ends with the first sample."""
    ends = [sample.at for sample in result.samples]
    waited: list[list[float]] = [[] for _ in ends]
    refused: list[Counter[tuple[str, str]]] = [Counter() for _ in ends]
    members = result.nodes.table.members
    for record in result.records:
        if record.waited is not None and record.admitted is not None:
            waited[_place(ends, record.admitted)].append(record.waited)
        if record.fate is PodPhase.REFUSED and record.node is not None and record.ended is not None:
            refused[_place(ends, record.ended)][members[record.node].group.name, record.code] += 1
    begins = [0.0, *ends[:-1]]
    return tuple(
        FleetPeriod(start, end, len(seconds), dict(sorted(codes.items())), waited_of(seconds))
        for start, end, seconds, codes in zip(begins, ends, waited, refused, strict=True)
    )


def _place(ends: Sequence[float], time: float) -> int:
    return min(bisect_left(ends, time), len(ends) - 1)


MOST_KINDS: Final = 100
"""Kinds of pods for which the nodes are asked why none of them took one; those of most pods."""


@dataclass(frozen=True, slots=True)
class WaitingKind:
    """Equal pods: they wait for the same reasons."""

    pods: tuple[str, ...]
    causes: tuple[SharedObstacle, ...]
    """Those that concern most nodes first."""

    @property
    def code(self) -> str:
        """Of the first cause that has one; empty where no manager of a node would refuse the pods."""
        return next((one.obstacle.code for one in self.causes if one.obstacle.code), "")


def waiting_kinds(result: SimulationResult) -> tuple[WaitingKind, ...]:
    """Return the kinds of which most pods wait, and why."""
    kinds: dict[Hashable, list[Record]] = {}
    for record in result.records:
        if record.fate is PodPhase.WAITS:
            kinds.setdefault(record.arrival.asked.key, []).append(record)
    most = sorted(kinds.values(), key=lambda records: -len(records))[:MOST_KINDS]
    return tuple(
        WaitingKind(tuple(record.arrival.name for record in records), causes(result.nodes, records[0].arrival.asked))
        for records in most
    )


@dataclass(frozen=True, slots=True)
class GroupAnswer:
    """What became of the pods of one group of nodes."""

    name: str
    nodes: int
    admitted: int
    refused: Mapping[str, int]
    """Code of the cause -> pods."""

    @property
    def refusals(self) -> int:
        """Pods that a kubelet of the group refused."""
        return sum(self.refused.values())


@dataclass(frozen=True, slots=True)
class Use:
    """One resource of the whole cluster."""

    resource: str
    offered: int
    """cpu in millicores, all else in whole units."""
    mean: float
    """Share that pods on nodes request, over time."""
    most: float
    """The largest share at a moment that was looked at."""
    stranded: float
    """Share of the whole that is free and of no use to the pods of the work, over time."""


@dataclass(frozen=True, slots=True)
class FleetAnswer:
    """The figures of one simulation."""

    result: SimulationResult
    fates: Mapping[PodPhase, int]
    groups: tuple[GroupAnswer, ...]
    uses: tuple[Use, ...]
    waited: tuple[float, float, float]
    """Seconds from creation to admission: the median, the 99th percentile, the most."""
    periods: tuple[FleetPeriod, ...]
    aligned: Mapping[int, int]
    """Number of NUMA nodes -> pods whose own CPUs, devices and memory lie on so many, ascending."""

    @property
    def pods(self) -> int:
        """Pods that were created, those included that controllers made anew."""
        return sum(self.fates.values())

    @property
    def admitted(self) -> int:
        """Pods that a node took."""
        return self.fates[PodPhase.RAN] + self.fates[PodPhase.RUNS] + self.fates[PodPhase.EVICTED]

    @property
    def nodes(self) -> int:
        """Nodes of the cluster."""
        return sum(group.count for group in self.result.cluster.groups)

    @property
    def ends(self) -> float:
        """Seconds from the beginning to the last event."""
        return self.result.samples[-1].at if self.result.samples else 0.0


def answer_of(result: SimulationResult) -> FleetAnswer:
    """Return the figures of a simulation."""
    counted = Counter(record.fate for record in result.records)
    waited = waited_of([one for record in result.records if (one := record.waited) is not None])
    aligned = Counter(record.numa_nodes for record in result.records if record.numa_nodes)
    return FleetAnswer(
        result,
        {fate: counted[fate] for fate in PodPhase},
        _groups(result),
        tuple(_uses(result)),
        (waited.median, waited.percentile99, waited.most),
        periods_of(result),
        dict(sorted(aligned.items())),
    )


def _groups(result: SimulationResult) -> tuple[GroupAnswer, ...]:
    members = result.nodes.table.members
    admitted: Counter[str] = Counter()
    refused: dict[str, Counter[str]] = {}
    for record in result.records:
        if record.node is None:
            continue
        name = members[record.node].group.name
        if record.fate is PodPhase.REFUSED:
            refused.setdefault(name, Counter())[record.code] += 1
        elif record.fate is not PodPhase.HELD:
            admitted[name] += 1
    return tuple(
        GroupAnswer(one.name, one.count, admitted[one.name], dict(sorted(refused.get(one.name, {}).items())))
        for one in result.cluster.groups
    )


def _uses(result: SimulationResult) -> list[Use]:
    table, uses = result.nodes.table, []
    for name in table.resources:
        offered = int(table.row(table.offered, name).sum())
        if offered and result.samples and name in result.samples[0].used:
            used = [sample.used[name] / offered for sample in result.samples]
            lost = [sample.stranded[name] / offered for sample in result.samples]
            uses.append(Use(name, offered, _mean(result.samples, used), max(used), _mean(result.samples, lost)))
    return uses


def _mean(samples: Sequence[Sample], shares: Sequence[float]) -> float:
    """Return the mean over time; what was seen holds until the next look."""
    time = samples[-1].at - samples[0].at
    if not time:
        return shares[-1]
    steps = zip(samples, samples[1:], shares, strict=False)
    return fsum((after.at - before.at) * share for before, after, share in steps) / time


def unhappy(result: SimulationResult) -> dict[str, list[Record]]:
    """Return the pods that were refused, held or found no node: name of the first -> it, and those made anew for it."""
    found: dict[str, list[Record]] = {}
    for record in result.records:
        if record.fate in (PodPhase.REFUSED, PodPhase.WAITS, PodPhase.HELD):
            found.setdefault(record.arrival.name.partition(REMADE)[0], []).append(record)
    return found


def fleet_document(answer: FleetAnswer) -> FleetDocument:
    """Return the document."""
    result = answer.result
    members = result.nodes.table.members
    waiting = waiting_kinds(result)
    codes = {pod: kind.code for kind in waiting for pod in kind.pods}
    return FleetDocument(
        cluster=result.cluster.name,
        work=result.work.name,
        strategy=result.strategy.name,
        seed=result.seed,
        nodes=answer.nodes,
        pods=fates_part(answer),
        waited=WaitedPart(*answer.waited),
        groups=[FleetGroupPart(one.name, one.nodes, one.admitted, dict(one.refused)) for one in answer.groups],
        uses=[UsePart(one.resource, one.offered, one.mean, one.most, one.stranded) for one in answer.uses],
        runaways=dict(result.runaways),
        failed_jobs=list(result.given_up),
        preempted=result.preempted,
        cut_short=result.cut_short,
        problems=list(result.problems),
        filtered=dict(result.filtered),
        aligned={str(count): pods for count, pods in answer.aligned.items()},
        samples=[
            FleetSamplePart(
                one.at, one.counts.running, one.counts.waiting, one.counts.refused, dict(one.used), dict(one.stranded)
            )
            for one in result.samples
        ],
        periods=[
            FleetPeriodPart(
                one.begins,
                one.ends,
                one.admitted,
                [RefusedPart(group, code, count) for (group, code), count in one.refused.items()],
                WaitedPart(one.waited.median, one.waited.percentile99, one.waited.most),
            )
            for one in answer.periods
        ],
        records=[
            FleetPodPart(
                record.arrival.name,
                record.fate.value,
                "" if record.node is None else members[record.node].name,
                codes.get(record.arrival.name, record.code),
                record.arrival.at,
                record.admitted,
                record.ended,
            )
            for record in result.records
        ],
        waits=[
            FleetWaitPart(
                list(kind.pods),
                [WaitCausePart(one.obstacle.text, one.obstacle.code, len(one.nodes)) for one in kind.causes],
            )
            for kind in waiting
        ],
        assumed=[*result.cluster.findings, *result.work.findings],
    )


def fates_part(answer: FleetAnswer) -> FatesPart:
    """Return the pods by what became of them."""
    counted = answer.fates
    return FatesPart(*(counted[fate] for fate in ORDER))
