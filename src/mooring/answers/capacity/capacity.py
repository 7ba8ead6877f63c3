"""The whole answer: how many more fit, where, what stops the next, fragmentation, and evictions that help."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from mooring.answers.base.answering import Answer, answered
from mooring.answers.base.plan import Plan, make_plan
from mooring.answers.base.plan_findings import device_findings, pool_findings
from mooring.answers.base.probes import PodPlace, placed
from mooring.answers.base.question import Question
from mooring.answers.capacity.eviction import Eviction, evictions
from mooring.answers.capacity.fragmentation import Fragmentation, fragmentation
from mooring.answers.capacity.replicas import Count, Replica, Subject, count_replicas, default_limit
from mooring.engine.core.machine import Finding
from mooring.engine.core.pod import Pod
from mooring.engine.kubelet.admit import AdmitMode
from mooring.engine.kubelet.kubelet import Kubelet
from mooring.engine.kubelet.start import emptied
from mooring.explain.chapters import Circumstances

ADMITTED = "admitted"
ALIGNED = "aligned"

EMPTY_REFUSES = "even the empty node refuses it"
NOBODY = "no other pod is on the node"
NOTHING_FOUND = "no eviction was found"


@dataclass(frozen=True, slots=True)
class Advice:
    """Who could go so that a replica is admitted, or is aligned."""

    goal: str
    """:data:`ADMITTED` or :data:`ALIGNED`."""
    replica: int
    """The first replica that misses the goal, from 1; those before it are on the node."""
    evictions: tuple[Eviction, ...]
    """The best first; each was tried."""
    remark: str = ""
    """Why there is none."""


@dataclass(frozen=True, slots=True)
class Capacity:
    """How many more pods of a shape fit on a node."""

    shape: Pod
    plan: Plan
    """The node before the first replica, and how it came to be."""
    replicas: tuple[Replica, ...]
    limit: int
    """How many were counted at most."""
    next: Answer | None
    """The answer for the first replica that does not fit; None when the limit came first, or no kubelet runs."""
    after: Plan
    """The node with all replicas, and the refused one."""
    fragmentation: tuple[Fragmentation, ...]
    """Of the node before the first replica."""
    advice: tuple[Advice, ...]

    @property
    def findings(self) -> tuple[Finding, ...]:
        """What to know about the answer: of the node as it is, and with all replicas."""
        emptied = self.after.emptied_pool
        if emptied is None or emptied in self.plan.findings:
            return self.plan.findings
        return (*self.plan.findings, emptied)

    @property
    def can_be_asked(self) -> bool:
        """Tell whether there is a kubelet that could admit anything."""
        return _answers(self.plan)

    @property
    def is_limited(self) -> bool:
        """Tell whether more may fit than were counted."""
        return self.can_be_asked and self.next is None


@dataclass(frozen=True, slots=True)
class LargestRequests:
    """The largest requests that a node still takes, of each resource."""

    plan: Plan
    """The node, and how it came to be."""
    resources: tuple[Fragmentation, ...]
    """Empty where no kubelet runs."""

    @property
    def can_be_asked(self) -> bool:
        """Tell whether there is a kubelet that could admit anything."""
        return _answers(self.plan)


def largest_requests(question: Question) -> LargestRequests:
    """Return the largest requests that a node takes after the pods of a question."""
    plan = make_plan(question)
    if plan.kubelet is None or not _answers(plan):
        return LargestRequests(plan, ())
    now = plan.kubelet.counting(plan.kubelet.used)
    return LargestRequests(plan, fragmentation(now, emptied(now, now.node.cpu.offline)))


def capacity_of(subject: Subject, limit: int | None = None) -> Capacity:
    """Admit replicas of a pod until the kubelet says no, and look at what is left.

    Args:
        subject: the pod, and the question about the node without it.
        limit: how many replicas at most; None for :func:`~mooring.answers.capacity.replicas.default_limit`.
    """
    pod, question = subject.pod, subject.question
    plan = make_plan(question)
    known = {finding.subject for finding in plan.findings}
    unknown = [finding for finding in device_findings([pod], question.devices) if finding.subject not in known]
    plan = replace(plan, findings=(*plan.findings, *unknown))
    if plan.kubelet is None or not _answers(plan):
        return Capacity(pod, plan, (), limit or 0, None, plan, (), ())
    now = plan.kubelet.counting(plan.kubelet.used)
    empty = emptied(now, now.node.cpu.offline)
    limit = default_limit(now) if limit is None else limit
    on_empty = placed(empty, pod) if empty is not None else None
    fewest = max(len(on_empty.nodes), 1) if on_empty is not None else 1
    count = count_replicas(now, pod, limit, fewest)
    stopped = answered(count.after, count.refused, AdmitMode.TRIAL)[1] if count.refused is not None else None
    return Capacity(
        shape=pod,
        plan=plan,
        replicas=count.replicas,
        limit=limit,
        next=stopped,
        after=_with_replicas(plan, count, stopped),
        fragmentation=fragmentation(now, empty),
        advice=tuple(_advice(list(now.node.active.values()), count, on_empty, fewest)),
    )


def _answers(plan: Plan) -> bool:
    return plan.kubelet is not None and not (plan.answers and plan.answers[-1].decision.endless is not None)


def _with_replicas(plan: Plan, count: Count, stopped: Answer | None) -> Plan:
    """Return the plan as if the replicas had been part of it; state files are left as they were."""
    if plan.kubelet is None:
        return plan
    answers = [
        Answer(
            one.pod,
            one.decision,
            "",
            plan.kubelet.node.providers,
            Circumstances(plan.kubelet.settings, one.pod, (), count.after.node.memory),
        )
        for one in count.replicas
    ]
    return replace(
        plan,
        answers=(*plan.answers, *answers, *([stopped] if stopped else [])),
        kubelet=count.after,
        findings=(*plan.findings, *([] if plan.emptied_pool else pool_findings(plan.kubelet, answers, count.after))),
    )


def _advice(running: Sequence[Pod], count: Count, on_empty: PodPlace | None, fewest: int) -> Iterator[Advice]:
    """Yield the advice for the first replica that is not aligned, and for the one that is refused."""
    spread = next((number for number, one in enumerate(count.replicas, 1) if not one.aligned), 0)
    if spread and count.before_spread is not None:
        wanted = count.replicas[spread - 1].pod

        def is_aligned(kubelet: Kubelet) -> bool:
            place = placed(kubelet, wanted)
            return place is not None and len(place.nodes) <= fewest

        found = evictions(count.before_spread, running, wanted, is_aligned)
        yield Advice(ALIGNED, spread, found, _remark(found, running))
    refused = count.refused
    if refused is not None:

        def fits(kubelet: Kubelet) -> bool:
            return placed(kubelet, refused) is not None

        found = evictions(count.after, running, refused, fits) if on_empty is not None else ()
        remark = _remark(found, running) if on_empty is not None else EMPTY_REFUSES
        yield Advice(ADMITTED, len(count.replicas) + 1, found, remark)


def _remark(options: tuple[Eviction, ...], running: Sequence[Pod]) -> str:
    if options:
        return ""
    return NOTHING_FOUND if running else NOBODY
