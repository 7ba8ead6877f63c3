"""What a simulation says about a cluster: pods by what became of them, refusals by cause and group, use over time."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import fsum

from mooring.fleet.periods import FleetPeriod, periods_of, waited_of
from mooring.fleet.records import Fate, Record
from mooring.fleet.samples import Sample
from mooring.fleet.simulation import SimulationResult
from mooring.fleet.work import REMADE


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
    fates: Mapping[Fate, int]
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
        return self.fates[Fate.RAN] + self.fates[Fate.RUNS] + self.fates[Fate.EVICTED]

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
        {fate: counted[fate] for fate in Fate},
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
        if record.fate is Fate.REFUSED:
            refused.setdefault(name, Counter())[record.code] += 1
        elif record.fate is not Fate.HELD:
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
        if record.fate in (Fate.REFUSED, Fate.WAITS, Fate.HELD):
            found.setdefault(record.arrival.name.partition(REMADE)[0], []).append(record)
    return found
