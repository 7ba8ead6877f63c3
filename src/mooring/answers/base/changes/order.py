"""Order and removal as changes: a pod is asked earlier, or others end before it, for good or to come back last.

The search is for the place where that helps, and for one or two pods that make room.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import combinations, islice
from typing import ClassVar

from mooring.answers.base.changes import change as changing
from mooring.answers.base.changes.search import Proposal, QueueOutcome, Search, without
from mooring.answers.base.plan import Question, pods_in
from mooring.answers.base.pods import find_pod, find_pods
from mooring.engine.core.errors import InputError
from mooring.engine.core.pod import Pod
from mooring.engine.cpumanager.policy import available_cpus, exclusive_cpus_of_pod
from mooring.engine.devicemanager.state import Holdings
from mooring.engine.kubelet.admit import admit
from mooring.engine.kubelet.events import Admit
from mooring.engine.kubelet.kubelet import Kubelet
from mooring.engine.node.resources import allocatable, pod_requests, total_requests

MOST_PLACES = 48
"""How many places before the pod's own are tried at most, the nearest first, and then the very first."""


@dataclass(frozen=True, slots=True)
class EarlierTurn:
    """A pod is asked earlier."""

    kind: ClassVar[str] = "turn"
    stage: ClassVar[changing.ChangeStage] = changing.ChangeStage.ORDER
    target: ClassVar[str] = ""
    """Empty: several turns are made one after another."""

    pod: changing.PodRef
    before: changing.PodRef | None = None
    """The pod that is asked next; without it the pod is the first of all that are yet to be admitted."""

    @property
    def option(self) -> tuple[str, str]:
        """``--first POD[=NEXT]``."""
        return "--first", changing.pair_text(self.pod, self.before)

    def phrase(self, question: Question) -> str:  # noqa: ARG002 - reads the same on every question
        """Return it with the pod that is asked next."""
        return f"ask {self.pod} before {self.before}" if self.before else f"ask {self.pod} first"

    def applied_to(self, question: Question) -> Question:
        """Return the question with its pods in the other order."""
        pod = changing.listed(question, self.pod)
        others = tuple(other for other in question.pods if other.uid != pod.uid)
        if self.before is None:
            return replace(question, pods=(pod, *others))
        if self.before.uid == pod.uid:
            raise InputError(f"{pod.namespace}/{pod.name} cannot come before itself", remedy="name two pods")
        place = others.index(changing.listed(question, self.before))
        return replace(question, pods=(*others[:place], pod, *others[place:]))


def read_first(question: Question, text: str) -> list[EarlierTurn]:
    """Read the value of ``--first``.

    Raises:
        InputError: it cannot be understood.
    """
    name, before = changing.named_pair(question, text)
    return [EarlierTurn(changing.refs(question)[find_pod(changing.asked_about(question), name).uid], before)]


def proposals(search: Search) -> Iterator[Proposal]:
    """Yield the place that disturbs the fewest pods, the latest of several. Running pods cannot be asked later."""
    if not (search.is_new and search.has_room):
        return
    # Before each admitted pod that is new, too; in between nothing changes.
    places = [
        place
        for place in range(search.place - 1, -1, -1)
        if isinstance(entry := search.queue[place], Admit) and search.course.admitted(entry.pod.uid)
    ]
    places = places if len(places) <= MOST_PLACES else [*places[: MOST_PLACES - 1], places[-1]]

    def at(place: int) -> tuple[tuple[EarlierTurn], QueueOutcome | None]:
        between = search.queue[place : search.place]
        change = EarlierTurn(search.names[search.pod.uid], search.names[pods_in(between)[0].uid])
        queue = (search.entry, *between, *search.tail)
        return (change,), search.tried((change,), search.course.before[place], queue)

    yield from search.least(map(at, places))


MOST_PAIRS = 750
"""How many pairs of pods are tried at most, the cheapest first; pairs that release too little do not count."""


@dataclass(frozen=True, slots=True)
class PodRemoval:
    """A pod ends; with ``comes_back`` it comes back as a new pod after all others were asked.

    Without ``before`` a running pod ends before the first pod is asked, and a pod that is yet to be admitted is not
    asked at all.
    """

    pod: changing.PodRef
    before: changing.PodRef | None = None
    """The pod that is asked next."""
    comes_back: bool = False

    @property
    def kind(self) -> str:
        """``removal`` or ``move``."""
        return "move" if self.comes_back else "removal"

    @property
    def stage(self) -> changing.ChangeStage:
        """Last; pods that are not asked at all before the others."""
        return changing.ChangeStage.ABSENCE if self.before is None else changing.ChangeStage.END

    @property
    def target(self) -> str:
        """The fate of the pod."""
        return f"what becomes of {self.pod}"

    @property
    def option(self) -> tuple[str, str]:
        """``--remove POD[=NEXT]`` or ``--move POD[=NEXT]``."""
        return "--move" if self.comes_back else "--remove", changing.pair_text(self.pod, self.before)

    def phrase(self, question: Question) -> str:  # noqa: ARG002 - reads the same on every question
        """Return it with the pod that is asked next."""
        before = f" before {self.before} is asked" if self.before else ""
        return f"remove {self.pod}{before}{' and admit it again last' if self.comes_back else ''}"

    def applied_to(self, question: Question) -> Question:
        """Return the question in which the pod ends, and comes back if it does."""
        uid = self.pod.uid
        ran = next((pod for pod in question.active if pod.uid == uid), None)
        pod = ran or changing.listed(question, self.pod)
        back = (replace(pod, uid=f"{uid}{changing.AGAIN}"),) if self.comes_back else ()
        question = replace(question, claimed=_with_claims_again(question.claimed, uid))
        if self.before is None and ran is None:
            others = tuple(other for other in question.pods if other.uid != uid)
            return replace(question, pods=(*others, pod) if back else others)
        pods = (*question.pods, *back)
        if self.before is None:
            key = pods[0].uid if pods else ""
        else:
            other = changing.listed(question, self.before)
            if ran is None and pods.index(pod) >= pods.index(other):
                problem = f"{self.pod} is not admitted yet when {self.before} is asked"
                raise InputError(problem, remedy="swap the two")
            key = other.uid
        leaving = {**question.leaving, key: (*question.leaving.get(key, ()), uid)}
        return replace(question, pods=pods, leaving=leaving)


def _with_claims_again(claimed: Holdings, uid: str) -> Holdings:
    """Return the devices of claims with those of a pod that comes back, whose claims stay allocated."""
    return {**claimed, f"{uid}{changing.AGAIN}": claimed[uid]} if uid in claimed else claimed


def read_removal(question: Question, text: str, *, comes_back: bool = False) -> list[PodRemoval]:
    """Read the value of ``--remove``, or of ``--move`` if the pod comes back.

    Raises:
        InputError: it cannot be understood.
    """
    name, before = changing.named_pair(question, text)
    known = changing.refs(question)
    return [PodRemoval(known[pod.uid], before, comes_back) for pod in find_pods(changing.asked_about(question), name)]


def moves(search: Search) -> Iterator[Proposal]:
    """Yield the smallest pod that makes room by ending, and finds room itself when all others were asked."""
    if not (search.is_new and search.has_room):
        return
    for pod in _cheapest_first(search):
        kubelet = without(search.kubelet, [pod.uid])
        if not _admits(search, kubelet):
            continue
        back = replace(pod, uid=f"{pod.uid}{changing.AGAIN}")
        devices = kubelet.node.providers.devices
        kubelet = kubelet.with_devices(replace(devices, claimed=_with_claims_again(devices.claimed, pod.uid)))
        queue = (search.entry, *search.tail, Admit(back))
        changes = _removed(search, (pod,), comes_back=True)
        course = search.tried(changes, kubelet, queue, without={pod.uid}, back={back.uid})
        if course is not None:
            yield search.proposal(changes, changing.Cost(touched=1), course)
            return


def removals(search: Search) -> Iterator[Proposal]:
    """Yield the cheapest pod that makes room by ending."""
    yield from _first(search, ((pod,) for pod in _cheapest_first(search)))


def pairs(search: Search) -> Iterator[Proposal]:
    """Yield the cheapest two pods that make room by ending together, and neither of them alone.

    A pod that is refused even when all earlier pods have ended is not helped by two of them.
    """
    alone = without(search.kubelet, [pod.uid for pod in search.earlier])
    if not (search.is_new and _admits(search, alone)):
        return
    too_few = [pod for pod in _cheapest_first(search) if _course_without(search, (pod,)) is None]
    both = sorted(combinations(too_few, 2), key=changing.of_removed)
    could = (pair for pair in both if _could_suffice(search, pair))
    yield from _first(search, islice(could, MOST_PAIRS))


def _first(search: Search, choices: Iterable[Sequence[Pod]]) -> Iterator[Proposal]:
    if not search.is_new:
        return
    for pods in choices:
        course = _course_without(search, pods)
        if course is not None:
            yield search.proposal(_removed(search, pods), changing.of_removed(pods), course)
            return


def _removed(search: Search, pods: Sequence[Pod], *, comes_back: bool = False) -> tuple[PodRemoval, ...]:
    return tuple(PodRemoval(search.names[pod.uid], search.names[search.pod.uid], comes_back) for pod in pods)


def _course_without(search: Search, pods: Sequence[Pod]) -> QueueOutcome | None:
    """Return what becomes of all others when pods end; None when that does not help."""
    uids = [pod.uid for pod in pods]
    kubelet = without(search.kubelet, uids)
    if not _admits(search, kubelet):
        return None
    return search.tried(_removed(search, pods), kubelet, (search.entry, *search.tail), without=uids)


def _cheapest_first(search: Search) -> list[Pod]:
    return sorted(search.earlier, key=lambda pod: changing.of_removed((pod,)))


def _admits(search: Search, kubelet: Kubelet) -> bool:
    return admit(kubelet, search.pod)[1].admitted


def _could_suffice(search: Search, pods: Sequence[Pod]) -> bool:
    """Tell whether there are enough CPUs and requests when pods end; where they lie is for the engine to say."""
    kubelet, settings = search.kubelet, search.settings
    node, wanted, given = allocatable(settings.reservation), pod_requests(search.pod), total_requests(pods)
    for resource, amount in wanted.items():
        if resource in node:
            left = node[resource] - kubelet.used.get(resource, 0)
            if amount > left + given.get(resource, 0):
                return False
    policy, state = settings.cpu, kubelet.node.cpu
    if policy is None or policy.gates.leaves_out(search.pod):
        return True
    freed = sum(mask.bit_count() for pod in pods for mask in state.assignments.get(pod.uid, {}).values())
    freed += sum(state.pods.get(pod.uid, 0).bit_count() for pod in pods)
    free = available_cpus(policy, kubelet.node.settled().cpu).bit_count()
    return exclusive_cpus_of_pod(search.pod, policy.gates) <= free + freed
