"""The search for what gives a pod exclusive CPUs: a Guaranteed pod, whole CPUs, the static policy.

Requests and limits become equal at the limit where there is one, else at the request; what a container does not name at
all is assumed to be little. As everywhere, the engine runs every proposal.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Final

from mooring.answers.base.changes.change import NOTHING, Cost, PlannedChange, PodRef, applied, asked_about, refs
from mooring.answers.base.changes.configuration import ConfigField, FreshState
from mooring.answers.base.changes.requests import Amount
from mooring.answers.base.changes.search import Proposal, QueueOutcome, begin, followed, holding, proposal
from mooring.answers.base.question import Question
from mooring.engine.core.decision import StartRefusal
from mooring.engine.core.errors import InputError
from mooring.engine.core.pod import Pod, ResourceList
from mooring.engine.core.quantity import Quantity
from mooring.engine.cpumanager.policy import STATIC
from mooring.engine.node import Decision

_ASSUMED: Final[Mapping[str, Quantity]] = {"cpu": Quantity.parse("100m"), "memory": Quantity.parse("128Mi")}
"""What a container that names no amount gets: little, in the shared pool."""
_STATIC: Final = ConfigField("cpuManagerPolicy", "static")
_RESERVED: Final = ConfigField("reservedSystemCPUs", "0")
_GATE: Final = ConfigField("featureGates.PodLevelResourceManagers", "true")
_SCOPE: Final = ConfigField("topologyManagerScope", "pod")
_FRESH: Final = FreshState("cpu")
_OF_POD_LEVEL: Final[tuple[tuple[PlannedChange, ...], ...]] = ((_SCOPE,), (_GATE,), (_GATE, _SCOPE))
_OF_POLICY: Final[tuple[tuple[PlannedChange, ...], ...]] = (
    (_STATIC,),
    (_STATIC, _FRESH),
    (_STATIC, _RESERVED),
    (_STATIC, _RESERVED, _FRESH),
)
"""Changes of the node that a pod may need, the nearest first."""
WHOLE: Final = 1000
"""A container that names so many thousandths of a CPU may want CPUs of its own."""


def is_exclusive(decision: Decision | None) -> bool:
    """Tell whether a pod, or a container of it, is given CPUs of its own."""
    return decision is not None and bool(decision.pod.cpus or any(one.cpus for one in decision.containers.values()))


def exclusive_changes(question: Question, uid: str, limit: int, least: int = 0) -> tuple[Proposal, ...]:
    """Return the nearest changes with which a pod has exclusive CPUs and all admitted pods stay admitted.

    Args:
        question: the node and its pods.
        uid: of one of the pods.
        limit: how many at most.
        least: thousandths of a CPU from which a fraction may be rounded up to whole CPUs.
    """
    begun = begin(question)
    before = None if isinstance(begun, StartRefusal) else followed(*begun, question.leaving)
    pod = next((pod for pod in asked_about(question) if pod.uid == uid), None)
    if before is None or pod is None:
        return ()
    found: list[Proposal] = []
    of_policy = () if question.config.cpu_manager_policy == STATIC else _OF_POLICY
    for of_node in ((), *(_OF_POD_LEVEL if pod.is_pod_level else ()), *of_policy):
        for of_pod in _amounts(pod, refs(question)[uid], sorted({WHOLE, least}, reverse=True)):
            changes = (*of_node, *of_pod)
            course = _course(question, changes, before, uid) if changes else None
            if course is None or any(changes == one.changes for one in found):
                continue
            others = before.decisions.keys() & course.decisions.keys() - {uid}
            touched = sum(holding(before.decisions[one]) != holding(course.decisions[one]) for one in others)
            cost = replace(Cost(restarts=1) if of_node else NOTHING, touched=touched)
            found.append(proposal(question, changes, cost, uid, course, before))
        if found:
            break
    return tuple(found[:limit])


def _course(
    question: Question, changes: tuple[PlannedChange, ...], before: QueueOutcome, uid: str
) -> QueueOutcome | None:
    """Return the question answered with changes; None where the pod has no CPUs of its own then, or another is lost."""
    expected = {one for one, decision in before.decisions.items() if decision.admitted} | {uid}
    try:
        changed = applied(question, changes)
    except InputError:
        return None
    begun = begin(changed)
    course = None if isinstance(begun, StartRefusal) else followed(*begun, changed.leaving, expected)
    return course if course is not None and is_exclusive(course.decisions.get(uid)) else None


def _amounts(pod: Pod, ref: PodRef, rounded: Sequence[int]) -> Iterator[tuple[Amount, ...]]:
    """Yield what makes a pod Guaranteed, and then the same with fractions from some thousandths on rounded up."""
    owners: list[tuple[str, ResourceList, ResourceList]]
    if pod.resources is not None and pod.is_pod_level:
        owners = [("", pod.resources.requests, pod.resources.limits)]
    else:
        owners = [(one.name, one.requests, one.limits) for one in pod.containers]
    for threshold in (None, *rounded):
        changes = []
        for owner, requests, limits in owners:
            for resource, little in _ASSUMED.items():
                given = limits.get(resource) or requests.get(resource)
                amount = given or little
                if resource == "cpu" and given and threshold is not None and threshold <= given.milli:
                    amount = Quantity.parse(str(-(-given.milli // 1000)))
                if not requests.get(resource) == limits.get(resource) == amount:
                    changes.append(Amount(ref, owner, resource, amount, both=True, assumed=given is None))
        yield tuple(changes)
