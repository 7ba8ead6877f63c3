"""What a simulation says about a cluster: pods by what became of them, refusals by cause and group, use over time.

A simulation period by period: what was admitted, what was refused where and for what, and how long pods waited.

Pods that wait at the end of a simulation, and what keeps the nodes from taking them.

``mooring fleet simulate -o json``: the answer as a document.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Collection, Hashable, Iterable, Iterator, Sequence
from math import fsum
from typing import Final

from msgspec import structs

from mooring.explanations.phrases import duration
from mooring.fleet import documents
from mooring.fleet.cluster import REMADE, PodPhase, Record
from mooring.fleet.nodes import causes
from mooring.fleet.simulation import Simulation

MOST_KINDS: Final = 100
"""Kinds of waiting pods that are explained; those of most pods."""


def created(fates: documents.FatesPart) -> int:
    """Return how many pods were created."""
    return sum(structs.astuple(fates))


def admitted(fates: documents.FatesPart) -> int:
    """Return how many pods a kubelet admitted."""
    return fates.ran + fates.runs + fates.evicted


def answer_of(result: Simulation) -> documents.FleetDocument:
    """Return what a simulation came to, but for single pods, which :func:`with_pods` adds."""
    counted = Counter(record.fate for record in result.records)
    aligned = Counter(record.numa_nodes for record in result.records if record.numa_nodes)
    groups = {one.name: documents.FleetGroupPart(one.name, one.count, 0, {}) for one in result.cluster.groups}
    for record in result.records:
        if record.node is not None and record.fate is not PodPhase.HELD:
            group = groups[result.nodes.table.members[record.node].group.name]
            if record.fate is PodPhase.REFUSED:
                group.refused[record.code] = group.refused.get(record.code, 0) + 1
            else:
                group.admitted += 1
    for group in groups.values():
        group.refused = dict(sorted(group.refused.items()))
    return documents.FleetDocument(
        cluster=result.cluster.name,
        work=result.work.name,
        strategy=result.strategy.name,
        seed=result.seed,
        nodes=sum(group.count for group in result.cluster.groups),
        pods=documents.FatesPart(*(counted[fate] for fate in PodPhase)),
        waited=waited_of([one for record in result.records if (one := record.waited) is not None]),
        groups=list(groups.values()),
        uses=list(_uses(result)),
        runaways={name: times for one in result.controllers for name, times in one.runaways.items()},
        failed_jobs=[one.workload.name for one in result.controllers if one.given_up],
        preempted=result.preempted,
        cut_short=result.cut_short,
        problems=result.operations.problems,
        filtered=result.filtered,
        aligned={str(count): pods for count, pods in sorted(aligned.items())},
        samples=result.samples,
        periods=periods_of(result),
        records=[],
        waits=[],
        assumed=[*result.cluster.findings, *result.work.findings],
    )


def waited_of(seconds: Iterable[float]) -> documents.WaitedPart:
    """Return median, 99th percentile and most.

    >>> waited_of([1.0, 2.0, 3.0]).median
    2.0
    """
    ordered = sorted(seconds) or [0.0]
    median, late = (ordered[max(-int(-share * len(ordered) // 1) - 1, 0)] for share in (0.5, 0.99))
    return documents.WaitedPart(median, late, ordered[-1])


def periods_of(result: Simulation) -> list[documents.FleetPeriodPart]:
    """Return the periods between the samples."""
    ends = [sample.at for sample in result.samples]
    waited: list[list[float]] = [[] for _ in ends]
    refused: list[Counter[tuple[str, str]]] = [Counter() for _ in ends]
    members = result.nodes.table.members

    def place(time: float) -> int:
        return min(bisect_left(ends, time), len(ends) - 1)

    for record in result.records:
        if record.waited is not None and record.admitted is not None:
            waited[place(record.admitted)].append(record.waited)
        if record.fate is PodPhase.REFUSED and record.node is not None and record.ended is not None:
            refused[place(record.ended)][members[record.node].group.name, record.code] += 1
    return [
        documents.FleetPeriodPart(
            start,
            end,
            len(seconds),
            [documents.RefusedPart(*key, pods) for key, pods in sorted(codes.items())],
            waited_of(seconds),
        )
        for start, end, seconds, codes in zip([0.0, *ends[:-1]], ends, waited, refused, strict=True)
    ]


def joined_periods(
    periods: Sequence[documents.FleetPeriodPart], samples: Sequence[documents.FleetSamplePart], most: int
) -> Iterator[tuple[str, int, int, int, Counter[tuple[str, str]], str]]:
    """Yield the periods, joined until few enough are left to be read.

    Each with its end, pods that run, wait and were admitted, pods by group and code of a refusal, and the longest 99th
    percentile of the wait.
    """
    together = -(-len(periods) // most) or 1
    for first in range(0, len(periods), together):
        some = periods[first : first + together]
        last = samples[first + len(some) - 1]
        refused: Counter[tuple[str, str]] = Counter()
        for one in (one for period in some for one in period.refused):
            refused[one.group, one.code] += one.pods
        count = sum(period.admitted for period in some)
        waited = duration(max(period.waited.percentile99 for period in some)) if count else "–"
        yield duration(some[-1].ends), last.running, last.waiting, count, refused, waited


def _uses(result: Simulation) -> Iterator[documents.UsePart]:
    table, samples = result.nodes.table, result.samples

    def mean(shares: Sequence[float]) -> float:
        time = samples[-1].at - samples[0].at
        steps = zip(samples, samples[1:], shares, strict=False)
        return fsum((after.at - before.at) * share for before, after, share in steps) / time if time else shares[-1]

    for name in table.resources:
        offered = int(table.row(table.offered, name).sum())
        if offered and samples and name in samples[0].used:
            used = [sample.used[name] / offered for sample in samples]
            lost = [sample.stranded[name] / offered for sample in samples]
            yield documents.UsePart(name, offered, mean(used), max(used), mean(lost))


def unhappy(
    records: Iterable[Record], fates: Collection[PodPhase] = (PodPhase.REFUSED, PodPhase.WAITS, PodPhase.HELD)
) -> dict[str, list[Record]]:
    """Return the pods that were refused, held or found no node: name of the first -> it, and those made anew for it."""
    found: dict[str, list[Record]] = {}
    for record in records:
        if record.fate in fates:
            found.setdefault(record.arrival.name.partition(REMADE)[0], []).append(record)
    return found


def with_pods(found: documents.FleetDocument, result: Simulation) -> documents.FleetDocument:
    """Return an answer with what became of every pod, and why some wait; equal pods wait for the same reasons."""
    members, waits = result.nodes.table.members, list[documents.FleetWaitPart]()
    kinds: dict[Hashable, list[Record]] = {}
    for record in result.records:
        if record.fate is PodPhase.WAITS:
            kinds.setdefault(record.arrival.asked.key, []).append(record)
    for alike in sorted(kinds.values(), key=lambda records: -len(records))[:MOST_KINDS]:
        why = causes(result.nodes, alike[0].arrival.asked)
        parts = [documents.WaitCausePart(one.text, one.code, len(one.nodes)) for one in why]
        waits.append(documents.FleetWaitPart([record.arrival.name for record in alike], parts))
    codes = {pod: next((one.code for one in kind.causes if one.code), "") for kind in waits for pod in kind.pods}
    records = [
        documents.FleetPodPart(
            record.arrival.name,
            record.fate.value,
            "" if record.node is None else members[record.node].name,
            codes.get(record.arrival.name, record.code),
            record.arrival.at,
            record.admitted,
            record.ended,
        )
        for record in result.records
    ]
    return structs.replace(found, records=records, waits=waits)
