"""What all families of the search share: the question answered as it is, and what an answer must keep."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, replace

from mooring.core.decision import StartRefusal
from mooring.core.pod import Pod
from mooring.node import Decision
from mooring.node.resources import check_amounts, pod_requests
from mooring.node.settings import Settings
from mooring.planner.changes.change import Change, PodRef
from mooring.planner.changes.cost import Cost
from mooring.planner.changes.course import Course, Standing, answered, followed, holding, queue_of
from mooring.planner.changes.naming import refs
from mooring.planner.changes.proposal import Proposal
from mooring.planner.changes.words import sentence
from mooring.planner.question import Question


@dataclass(frozen=True, slots=True)
class Search:
    """A pod that is not admitted, on a node on which the kubelet starts."""

    question: Question
    pod: Pod
    place: int
    """Index of the pod in the queue."""
    queue: tuple[tuple[Pod, bool], ...]
    """All pods in the order in which they are asked, and whether each ran already."""
    course: Course
    """The question answered as it is."""
    expected: frozenset[str]
    """Who is to be admitted afterwards: the pod, and all that are admitted without a change."""
    names: dict[str, PodRef]

    @property
    def standing(self) -> Standing:
        """The node just before the pod is asked."""
        return self.course.standings[self.place]

    @property
    def settings(self) -> Settings:
        """Configuration and policies, without a change."""
        return self.standing.node.settings

    @property
    def is_new(self) -> bool:
        """Tell whether the pod is yet to be admitted; else the kubelet refuses it when it starts again."""
        return not self.queue[self.place][1]

    @property
    def has_room(self) -> bool:
        """Tell whether the node's resources suffice for all that are expected at once.

        If not, neither another order nor another configuration helps: requests stay what they are.
        """
        if self.question.leaving:
            return True
        after, settings = self.course.after, self.settings
        wanted, count = pod_requests(self.pod), len(after.node.active)
        return check_amounts(wanted, after.used, count, settings.reservation, settings.config.max_pods) is None

    @property
    def earlier(self) -> tuple[Pod, ...]:
        """Pods that were admitted before the pod is asked, and still run then."""
        active = self.standing.node.active
        return tuple(pod for pod, _ in self.queue[: self.place] if pod.uid in active and self.course.admitted(pod.uid))

    @property
    def tail(self) -> tuple[tuple[Pod, bool], ...]:
        """Who is asked after the pod."""
        return self.queue[self.place + 1 :]

    def go_on(
        self,
        standing: Standing,
        queue: Sequence[tuple[Pod, bool]],
        *,
        without: Collection[str] = (),
        back: Iterable[str] = (),
    ) -> Course | None:
        """Ask on from some state; None when somebody who is expected is not admitted.

        Args:
            standing: the node.
            queue: who is asked from here on.
            without: uids of pods that are not expected.
            back: uids of pods that are expected beside the others.
        """
        return followed(standing, queue, self.question.leaving, self.expected.difference(without).union(back))

    def touched(self, course: Course) -> int:
        """Return how many of the earlier pods got something else in another course; who is not in it did not."""
        return sum(
            1
            for pod in self.earlier
            if pod.uid in course.decisions
            and holding(course.decisions[pod.uid]) != holding(self.course.decisions[pod.uid])
        )

    def proposal(self, changes: tuple[Change, ...], cost: Cost, course: Course) -> Proposal:
        """Return changes as a proposal."""
        return proposal(self.question, changes, cost, course.decisions[self.pod.uid])


def proposal(question: Question, changes: tuple[Change, ...], cost: Cost, decision: Decision) -> Proposal:
    """Return changes as a proposal."""
    return Proposal(changes, cost, sentence(changes, question), decision)


def begun(question: Question, uid: str) -> Search | StartRefusal | None:
    """Answer the question as it is.

    Returns:
        The kubelet's refusal where it does not start; None when there is nothing to look for: the pod is admitted, was
        not asked because the kubelet did not return from a pod before it, or is none of the question's.
    """
    course = answered(question)
    if isinstance(course, StartRefusal):
        return course
    queue = queue_of(question)
    place = next((place for place, (pod, _) in enumerate(queue) if pod.uid == uid), len(queue))
    if place >= len(course.standings) or course.admitted(uid):
        return None
    admitted = {one for one, decision in course.decisions.items() if decision.admitted}
    return Search(question, queue[place][0], place, queue, course, frozenset(admitted | {uid}), refs(question))


def cheaper(cost: Cost, best: Proposal | None) -> bool:
    """Tell whether a cost beats the best proposal so far."""
    return best is None or cost < best.cost


def plus(cost: Cost, **figures: int) -> Cost:
    """Return a cost with figures added.

    >>> plus(Cost(cpus=1000), touched=2)
    Cost(touched=2, restarts=0, state_files=0, devices=0, cpus=1000, bytes=0)
    """
    return replace(cost, **{name: getattr(cost, name) + figure for name, figure in figures.items()})
