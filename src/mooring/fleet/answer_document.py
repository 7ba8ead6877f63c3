"""``mooring fleet simulate -o json``: the answer as a document."""

from __future__ import annotations

from mooring.documents.cluster.fleet import (
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
from mooring.fleet.answer import FleetAnswer
from mooring.fleet.records import ORDER
from mooring.fleet.waiting import waiting_kinds


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
