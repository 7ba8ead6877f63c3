"""What a change is, what it costs, and how it names pods: one small thing about a question made otherwise.

Every kind of change is a module of its own (:mod:`mooring.answers.base.changes.nearest` lists them). It says how a
change is
applied to a question, how it reads, how it is written on the command line, and where to search for one that helps.
Changes name pods by uid and show them by name. The cost decides which of two changes is nearer.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import IntEnum
from typing import Protocol

from mooring.answers.base.plan import Question
from mooring.answers.base.pods import Named, find_pod
from mooring.engine.core.errors import InputError
from mooring.engine.core.pod import Pod, QoS
from mooring.engine.cpumanager.policy import exclusive_cpus_of_pod
from mooring.engine.memorymanager.policy import is_memory
from mooring.engine.memorymanager.policy import pod_requests as memory_requests
from mooring.engine.node.resources import total_requests
from mooring.engine.node.settings import Settings
from mooring.explanations.phrases import joined
from mooring.inputs.decoding.fields import caused_in

AGAIN = "_again"
"""Behind the uid of a pod that comes back: it is another pod than the one that ended."""


@dataclass(frozen=True, slots=True)
class PodRef:
    """A pod of a question."""

    uid: str
    shown: str
    """``NAMESPACE/NAME``, or the uid where two pods of the question share that."""

    def __str__(self) -> str:
        return self.shown


class ChangeStage(IntEnum):
    """When a change is made among several; within a stage they are made as they are given."""

    NODE = 0
    AMOUNT = 1
    """After the changes of the node, whose gates decide about the QoS class."""
    ORDER = 2
    """When the pods are as they are asked, and before any ends."""
    ABSENCE = 3
    """A pod is not asked at all. It goes before pods that end: nothing ends before a pod that is not asked."""
    END = 4


class PlannedChange(Protocol):
    """A change, as a value."""

    @property
    def kind(self) -> str:
        """Its name in documents."""

    @property
    def stage(self) -> ChangeStage:
        """When it is made among several changes."""

    @property
    def target(self) -> str:
        """What it sets, in words, for changes of which there can be only one; else empty."""

    @property
    def option(self) -> tuple[str, str]:
        """The option of ``mooring whatif`` that makes it, and its value (docs/reference/whatif.md)."""

    def phrase(self, question: Question) -> str:
        """Return it as an instruction.

        Args:
            question: before the change.
        """

    def applied_to(self, question: Question) -> Question:
        """Return the question with the change.

        Raises:
            InputError: it cannot be made on this question.
        """


Reader = Callable[[Question, str], Sequence[PlannedChange]]
"""Reads the value of an option; a name with ``*`` makes one change for each pod.

Raises:
    InputError: the value cannot be understood.
"""


def applied(question: Question, changes: Sequence[PlannedChange]) -> Question:
    """Return the question with all changes made.

    Raises:
        InputError: changes contradict each other, or one cannot be made on this question.
    """
    seen: set[str] = set()
    for change in changes:
        if change.target in seen:
            raise InputError(f"{change.target} is changed twice", remedy="leave one of the changes out")
        if change.target:
            seen.add(change.target)
    for change in sorted(changes, key=lambda one: one.stage):
        try:
            question = change.applied_to(question)
        except InputError as error:
            raise caused_in(error, change.option[0]) from None
    # What a status records was the answer to another question.
    return replace(question, recorded={}) if changes else question


def sentence(changes: Sequence[PlannedChange], question: Question) -> str:
    """Return changes of a question as one sentence.

    >>> from mooring.answers.base.changes.configuration import ConfigField
    >>> from mooring.engine.core.config import KubeletConfig
    >>> from mooring.engine.core.machine import Machine
    >>> from mooring.engine.core.machineinfo import MachineInfo
    >>> question = Question(Machine("m", MachineInfo(1, 1, 0, ())), KubeletConfig())
    >>> sentence([ConfigField("topologyManagerScope", "pod")], question)
    'Set topologyManagerScope to pod.'
    """
    text = joined([change.phrase(question) for change in changes])
    return f"{text[:1].upper()}{text[1:]}."


def two_parts(text: str, form: str) -> tuple[str, str]:
    """Return what is left and right of the last ``=`` of an option's value.

    Args:
        text: the value.
        form: how it is to be written, for the message.

    Raises:
        InputError: a part is missing.
    """
    name, equals, value = text.rpartition("=")
    if not (equals and name):
        raise InputError(f"{text!r:.80} is incomplete", remedy=f"write {form}")
    return name, value


@dataclass(frozen=True, slots=True, order=True)
class Cost:
    """The cost of a change; the first figure that differs decides (docs/explanation/nearest-change.md).

    >>> Cost(cpus=32000) < Cost(restarts=1) < Cost(touched=1) < Cost(guarantees=1) < Cost(devices_added=1)
    True
    """

    devices_added: int = 0
    """Devices that have to be added to the node: hardware to buy is the last resort."""
    guarantees: int = 0
    """What the configuration guarantees to every container and would guarantee no longer."""
    touched: int = 0
    """Pods admitted before the asked one that are removed, moved, or get something else than they had."""
    restarts: int = 0
    """1 when the kubelet has to restart with another configuration."""
    state_files: int = 0
    """State files that have to be deleted for that."""
    devices: int = 0
    """Devices given up."""
    cpus: int = 0
    """CPUs given up, in thousandths: asked for no more, or no longer exclusive."""
    bytes: int = 0
    """Bytes of memory and huge pages given up."""


NOTHING = Cost()


def of_amounts(given_up: Mapping[str, int], touched: int = 0) -> Cost:
    """Return the cost of giving up amounts.

    Args:
        given_up: resource -> amount: cpu in thousandths, everything else in whole units; below 0 counts as 0.
        touched: pods touched.
    """
    cpus = size = devices = 0
    for resource, amount in given_up.items():
        if resource == "cpu":
            cpus += max(0, amount)
        elif is_memory(resource) or resource == "ephemeral-storage":
            size += max(0, amount)
        else:
            devices += max(0, amount)
    return Cost(touched=touched, devices=devices, cpus=cpus, bytes=size)


def of_removed(pods: Collection[Pod]) -> Cost:
    """Return the cost of pods that end: each is touched, and what they requested is given up."""
    return of_amounts(total_requests(pods), len(pods))


def _owed(settings: Settings, pod: Pod) -> dict[str, int]:
    """Return what the managers would give a pod for itself: exclusive CPUs in thousandths, and memory by type."""
    amounts: dict[str, int] = {}
    if pod.qos is not QoS.GUARANTEED or settings.pod_level.leaves_out(pod):
        return amounts
    if settings.cpu is not None:
        amounts["cpu"] = 1000 * exclusive_cpus_of_pod(pod, settings.pod_level)
    if settings.memory is not None:
        memory = memory_requests(pod, settings.pod_level)
        amounts.update({} if isinstance(memory, str) else memory)
    return amounts


def of_settings(before: Settings, after: Settings, pods: Iterable[Pod]) -> Cost:
    """Return what pods lose because the managers give them less for themselves under other settings."""
    lost: dict[str, int] = {}
    for pod in pods:
        then, now = _owed(before, pod), _owed(after, pod)
        for resource, amount in then.items():
            lost[resource] = lost.get(resource, 0) + max(0, amount - now.get(resource, 0))
    return of_amounts(lost)


def asked_about(question: Question) -> tuple[Pod, ...]:
    """Return all pods of a question, running ones first."""
    return (*question.active, *question.pods)


def refs(question: Question) -> dict[str, PodRef]:
    """Return how the pods of a question are named, by uid."""
    names = {pod.uid: Named(pod).full for pod in asked_about(question)}
    count = Counter(names.values())
    return {uid: PodRef(uid, name if count[name] == 1 else uid) for uid, name in names.items()}


def listed(question: Question, ref: PodRef) -> Pod:
    """Return a pod that is yet to be admitted.

    Raises:
        InputError: it runs already, or is not asked.
    """
    for pod in question.pods:
        if pod.uid == ref.uid:
            return pod
    raise InputError(f"{ref} is not asked: it runs already, or was removed", remedy="name a pod of -f")


def pair_text(pod: PodRef, before: PodRef | None) -> str:
    """Return a pod, and the one that is asked next, as an option's value."""
    return f"{pod}={before}" if before is not None else f"{pod}"


def named_pair(question: Question, text: str) -> tuple[str, PodRef | None]:
    """Read ``POD`` or ``POD=NEXT``: a name that may mean several pods, and the pod that is asked next.

    Raises:
        InputError: it cannot be understood.
    """
    name, equals, other = text.partition("=")
    if not name or (equals and not other):
        raise InputError(f"{text!r:.80} is incomplete", remedy="write POD or POD=OTHER")
    return name, refs(question)[find_pod(asked_about(question), other).uid] if other else None
