"""What all families of the search share: the question answered as it is, and what an answer must keep.

A question is answered with the verdicts of a plan and without its sentences: the same kubelet is asked the same
questions as by :func:`~mooring.answers.base.plan.make_plan`. Every state in between is kept, so that a search can
continue from any of them: kubelets are values and cost nothing to keep.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from mooring.answers.base.changes.change import AGAIN, ChangeStage, Cost, PlannedChange, PodRef, applied, refs, sentence
from mooring.answers.base.changes.configuration import Guarantee, given_up
from mooring.answers.base.plan import Entry, Question, Queue, happening, opened_for, pods_in, queue_of
from mooring.engine.core.decision import Placement, StartRefusal
from mooring.engine.core.errors import InputError
from mooring.engine.core.pod import Pod
from mooring.engine.kubelet.admit import out_of
from mooring.engine.kubelet.events import Admit, Offline, Remove, ended, ordered, run
from mooring.engine.kubelet.kubelet import Kubelet
from mooring.engine.kubelet.start import NotStarted
from mooring.engine.node import Decision
from mooring.engine.node.resources import pod_requests
from mooring.engine.node.settings import Settings
from mooring.explanations.alignment import AlignmentLevel, beyond_need, spread

_ALIGNMENT = frozenset({Guarantee.ALIGNED, Guarantee.ONE_NODE})


@dataclass(frozen=True, slots=True)
class Proposal:
    """Changes that together admit a pod and keep all others admitted, as running the engine showed."""

    changes: tuple[PlannedChange, ...]
    """To be made together, on the question that was searched."""
    cost: Cost
    text: str
    """One sentence, such as ``Let container app of default/web-0 request 6 CPUs instead of 8.``"""
    decision: Decision
    """The engine's answer for the pod when they are made."""
    guarantees: tuple[Guarantee, ...] = ()
    """What the configuration guarantees to every container and would guarantee no longer, the weightiest first."""
    alignment_lost: Mapping[AlignmentLevel, int] = field(default_factory=dict)
    """NUMA nodes, sockets and L3 caches on which the pod's containers lie beyond their need, and those of other pods
    beyond what they lie on without the changes, added up; levels without any are left out."""
    spread: Mapping[str, int] = field(default_factory=dict)
    """What the pod has on several NUMA nodes, with their number, where a guarantee of alignment is given up: ``CPUs``,
    ``memory`` or a resource of devices. The pod may need as many."""

    @property
    def options(self) -> tuple[tuple[str, str], ...]:
        """The options of ``mooring whatif`` that make the changes, each with its value."""
        return tuple(change.option for change in self.changes)


@dataclass(frozen=True, slots=True)
class Search:
    """A pod that is not admitted, on a node on which the kubelet starts."""

    question: Question
    pod: Pod
    place: int
    """Index of the pod in the queue."""
    queue: Queue
    """What happens, in order."""
    course: QueueOutcome
    """The question answered as it is."""
    expected: frozenset[str]
    """Uids of the pods that are to be admitted afterwards: the pod, and all that are admitted without a change."""
    names: dict[str, PodRef]

    @property
    def kubelet(self) -> Kubelet:
        """The kubelet just before the pod is asked."""
        return self.course.before[self.place]

    @property
    def entry(self) -> Entry:
        """The pod in the queue."""
        return self.queue[self.place]

    @property
    def settings(self) -> Settings:
        """Configuration and policies, without a change."""
        return self.kubelet.settings

    @property
    def is_new(self) -> bool:
        """Tell whether the pod is yet to be admitted; else the kubelet refuses it when it starts again."""
        return isinstance(self.entry, Admit)

    @property
    def has_room(self) -> bool:
        """Tell whether the node's resources suffice for all that are expected at once.

        If not, neither another order nor another configuration helps: requests stay what they are.
        """
        if self.question.leaving:
            return True
        after = self.course.after
        wanted = pod_requests(self.pod)
        devices = after.node.providers.devices.capacity(wanted)
        return out_of(wanted, after.used, len(after.node.active), self.settings, devices) is None

    @property
    def earlier(self) -> tuple[Pod, ...]:
        """Pods that were admitted before the pod is asked, and still run then."""
        active = self.kubelet.node.active
        before = pods_in(self.queue[: self.place])
        return tuple(pod for pod in before if pod.uid in active and self.course.admitted(pod.uid))

    @property
    def tail(self) -> Queue:
        """What happens after the pod was asked."""
        return self.queue[self.place + 1 :]

    def tried(
        self,
        changes: tuple[PlannedChange, ...],
        kubelet: Kubelet,
        queue: Queue,
        *,
        without: Collection[str] = (),
        back: Iterable[str] = (),
    ) -> QueueOutcome | None:
        """Answer the question with changes; None when a pod that is expected is not admitted.

        Args:
            changes: that are made.
            kubelet: as the changes leave it before the first entry that they concern. Where plugins order the pods,
                changes may concern any of them, and the whole question is answered again.
            queue: what happens from there on.
            without: uids of pods that are not expected.
            back: uids of pods that are expected beside the others.
        """
        expected = self.expected.difference(without).union(back)
        leaving = self.question.leaving
        plugins = self.settings.plugins
        if plugins is not None and plugins.has_point("sort_pods"):
            try:
                changed = applied(self.question, changes)
            except InputError:
                return None
            begun = begin(changed)
            if isinstance(begun, StartRefusal):
                return None
            (kubelet, queue), leaving = begun, changed.leaving
        return followed(kubelet, queue, leaving, expected)

    def touched(self, course: QueueOutcome) -> int:
        """Return how many of the earlier pods got something else in another course, in which they are."""
        return sum(
            1
            for pod in self.earlier
            if pod.uid in course.decisions
            and holding(course.decisions[pod.uid]) != holding(self.course.decisions[pod.uid])
        )

    def least(
        self, tries: Iterable[tuple[tuple[PlannedChange, ...], QueueOutcome | None]], devices_added: int = 0
    ) -> Iterator[Proposal]:
        """Yield the first of the proposals that disturb the fewest pods; tries without an outcome are none."""
        best: tuple[Cost, tuple[PlannedChange, ...], QueueOutcome] | None = None
        for changes, course in tries:
            if course is not None:
                cost = Cost(touched=self.touched(course), devices_added=devices_added)
                best = (cost, changes, course) if best is None or cost < best[0] else best
        if best is not None:
            cost, changes, course = best
            yield self.proposal(changes, cost, course)

    def proposal(self, changes: tuple[PlannedChange, ...], cost: Cost, course: QueueOutcome) -> Proposal:
        """Return changes as a proposal."""
        return proposal(self.question, changes, cost, self.pod.uid, course, self.course)


def proposal(
    question: Question,
    changes: tuple[PlannedChange, ...],
    cost: Cost,
    uid: str,
    course: QueueOutcome,
    before: QueueOutcome | None = None,
) -> Proposal:
    """Return changes as a proposal.

    Args:
        question: before the changes.
        changes: to be made.
        cost: of them, without the guarantees given up.
        uid: of the pod that they admit.
        course: the question answered with them.
        before: the question answered without them; None where the kubelet does not start.
    """
    # What containers lie on beyond their need and did not before
    old = beyond_need(before.after, before.decisions) if before is not None else {}
    total: Counter[AlignmentLevel] = Counter()
    for one, count in beyond_need(course.after, course.decisions).items():
        total += count - old.get(one.removesuffix(AGAIN), Counter())
    lost = given_up(
        question.config, applied(question, [one for one in changes if one.stage is ChangeStage.NODE]).config
    )
    return Proposal(
        changes,
        replace(cost, guarantees=len(lost)),
        sentence(changes, question),
        course.decisions[uid],
        lost,
        {level: total[level] for level in AlignmentLevel if total[level]},
        spread(course.after, course.decisions[uid]) if _ALIGNMENT.intersection(lost) else {},
    )


def begun(question: Question, uid: str) -> Search | StartRefusal | None:
    """Answer the question as it is.

    Returns:
        The kubelet's refusal where it does not start; None when there is nothing to search: the pod is admitted, was
        not asked because the kubelet did not return from a pod before it, or is none of the question's.
    """
    start = begin(question)
    if isinstance(start, StartRefusal):
        return start
    kubelet, queue = start
    course = followed(kubelet, queue, question.leaving)
    if course is None:
        raise AssertionError("a course from which nothing is expected has an end")
    places = {entry.pod.uid: place for place, entry in enumerate(queue) if not isinstance(entry, Offline)}
    place = places.get(uid, len(queue))
    if place >= len(course.before) or course.admitted(uid):
        return None
    pod = next(pod for pod in pods_in(queue[place:]))
    admitted = {one for one, decision in course.decisions.items() if decision.admitted}
    return Search(question, pod, place, queue, course, frozenset(admitted | {uid}), refs(question))


def plus(cost: Cost, **figures: int) -> Cost:
    """Return a cost with figures added.

    >>> plus(Cost(cpus=1000), touched=2)
    Cost(devices_added=0, guarantees=0, touched=2, restarts=0, state_files=0, devices=0, cpus=1000, bytes=0)
    """
    return replace(cost, **{name: getattr(cost, name) + figure for name, figure in figures.items()})


Holding = tuple[Placement, tuple[tuple[Placement, tuple[str, ...]], ...]]
"""What a pod holds: as a whole, and for each container with the ids of its devices."""


@dataclass(frozen=True, slots=True)
class QueueOutcome:
    """A question, answered: every pod's verdict, and the kubelet before each entry of the queue."""

    before: tuple[Kubelet, ...]
    """Before each entry of the queue that was reached, when the pods that end before it have ended."""
    decisions: Mapping[str, Decision]
    """By uid of the pods that were asked."""
    after: Kubelet
    """When all were asked, and the pods that end then have ended."""

    def admitted(self, uid: str) -> bool:
        """Tell whether a pod was asked and admitted."""
        decision = self.decisions.get(uid)
        return decision is not None and decision.admitted


def begin(question: Question) -> tuple[Kubelet, Queue] | StartRefusal:
    """Return the kubelet before the first pod is asked, and what happens to it."""
    start, _ = opened_for(question)
    if isinstance(start, NotStarted):
        return start.refusal
    kubelet = start.counting(start.used)
    return kubelet, queue_of(question, ordered(kubelet, question.pods))


def followed(
    kubelet: Kubelet, queue: Queue, leaving: Mapping[str, Sequence[str]], expected: Collection[str] = ()
) -> QueueOutcome | None:
    """Let a queue happen.

    Args:
        kubelet: before.
        queue: pods, and CPUs that go offline.
        leaving: which pods end before which other, as in a question.
        expected: uids of pods that are to be admitted.

    Returns:
        None as soon as an expected pod is not admitted. The pods behind one from which the kubelet does not return are
        not asked.
    """
    before: list[Kubelet] = []
    decisions: dict[str, Decision] = {}
    for happened in run(kubelet, happening(queue, leaving)):
        kubelet = happened.after
        if not isinstance(happened.event, Remove):
            before.append(happened.before)
        for one in happened.result.admissions:
            if one.pod.uid in expected and not one.admitted:
                return None
            if not one.crash:
                decisions[one.pod.uid] = one.decision
    unasked = {pod.uid for pod in pods_in(queue[len(before) :])}
    return None if unasked.intersection(expected) else QueueOutcome(tuple(before), decisions, kubelet)


def without(kubelet: Kubelet, uids: Iterable[str]) -> Kubelet:
    """Return the kubelet after some of its pods have ended."""
    for uid in uids:
        kubelet = ended(kubelet, uid)
    return kubelet


def holding(decision: Decision) -> Holding:
    """Return what a pod got, in a form that can be compared."""
    return decision.pod, tuple(
        (
            placement,
            tuple(
                f"{resource}/{device.id}"
                for resource, devices in sorted(decision.devices.get(name, {}).items())
                for device in devices
            ),
        )
        for name, placement in decision.containers.items()
    )
