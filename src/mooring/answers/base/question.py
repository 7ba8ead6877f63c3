"""The question of a plan: everything that decides its answer, as one value, and what happens when it is asked.

To ask "and if it were otherwise?", take a question, change one thing, and ask again.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TypeAlias

from mooring.engine.core.bits import NO_CPUS
from mooring.engine.core.config import KubeletConfig, MooringConfig
from mooring.engine.core.cpuset import CPUSet
from mooring.engine.core.decision import Rejection
from mooring.engine.core.machine import Finding, Machine
from mooring.engine.core.observer import Observer
from mooring.engine.core.pod import Pod
from mooring.engine.devicemanager.state import Device, DeviceState, Holdings, Preference
from mooring.engine.kubelet.adoption import Opened, opened
from mooring.engine.kubelet.events import Admit, Event, Offline, Readmit, Remove
from mooring.engine.kubelet.kubelet import StateTexts
from mooring.engine.kubelet.start import NotStarted
from mooring.engine.node.hotplug import remembered

HELD_TWICE = "MOOR-312"
"""Code of plans and of the doctor: two pods hold one CPU."""
RESERVED_HELD = "MOOR-313"
"""Code of plans and of the doctor: a pod holds a reserved CPU."""

Entry: TypeAlias = Readmit | Offline | Admit
"""One entry of the queue: a pod, or CPUs that go offline."""
Queue: TypeAlias = tuple[Entry, ...]


@dataclass(frozen=True, slots=True)
class Question:
    """What would this node do with these pods?"""

    machine: Machine
    config: KubeletConfig
    mooring: MooringConfig = field(default_factory=MooringConfig)
    pods: tuple[Pod, ...] = ()
    """To be admitted, in order."""
    active: tuple[Pod, ...] = ()
    """Pods that run already; they are admitted again at the start."""
    files: StateTexts = field(default_factory=StateTexts)
    """Texts of existing state files."""
    devices: Mapping[str, tuple[Device, ...]] = field(default_factory=dict)
    """Resource -> devices of the node's device plugins; driver -> devices of its slices."""
    held: Holdings = field(default_factory=dict)
    """What the device manager gave to pods that run already."""
    findings: tuple[Finding, ...] = ()
    """What was noticed while the question was read."""
    leaving: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """Uid of one of ``pods`` -> uids of pods that end just before it is asked; under the empty text those that end when
    all were asked."""
    offline: CPUSet = CPUSet()  # noqa: RUF009 - frozen
    """CPUs that go offline when the running pods are back and no other has been asked (extension cpu-hotplug)."""
    displaced: Mapping[str, Mapping[int, int]] = field(default_factory=dict)
    """CPUs that are kept for pods that lost them, which no state file tells, as
    :attr:`~mooring.engine.cpumanager.state.CPUState.displaced`."""
    stop_at_crash: bool = False
    """Whether pods after one on which the kubelet crashes are not asked; else the plan goes on without that pod."""
    claimed: Holdings = field(default_factory=dict)
    """Uid of a pod -> container -> resource or driver -> ids of devices that it has elsewhere, such as by claims."""
    preferences: Mapping[str, Preference] = field(default_factory=dict)
    """Resource -> which of its devices its plugin prefers."""
    scaled_down: tuple[Pod, ...] = ()
    """Pods of workloads that are scaled to 0, under the workload's name: none of them is admitted, but they can be
    counted."""
    alone: bool = False
    """Whether each of ``pods`` ends before the next is asked about."""
    recorded: Mapping[str, Rejection] = field(default_factory=dict)
    """Uid of a pod that has failed -> reason and message that its status records."""


def opened_for(question: Question, observer: Observer | None = None) -> Opened:
    """Start the kubelet of a question, ready to be asked about its pods."""
    found = opened(
        question.machine,
        question.config,
        question.mooring,
        question.files,
        DeviceState(question.devices, question.held, question.claimed, question.preferences),
        active=question.active,
        pods=question.pods,
        observer=observer,
    )
    kubelet = found.start
    if not question.displaced or isinstance(kubelet, NotStarted):
        return found
    return replace(found, start=replace(kubelet, node=remembered(kubelet.node, NO_CPUS, question.displaced)))


def queue_of(question: Question, pods: Sequence[Pod]) -> Queue:
    """Return what happens, but for pods that end: running pods are readmitted, CPUs go offline, new pods are admitted.

    Args:
        question: the question.
        pods: its new pods in the order in which they are asked about.
    """
    offline = (Offline(question.offline),) if question.offline else ()
    return (*(Readmit(pod) for pod in question.active), *offline, *(Admit(pod) for pod in pods))


def pods_in(queue: Iterable[Entry]) -> tuple[Pod, ...]:
    """Return the pods of a queue, in order."""
    return tuple(entry.pod for entry in queue if not isinstance(entry, Offline))


def happening(queue: Iterable[Entry], leaving: Mapping[str, Sequence[str]], *, alone: bool = False) -> Iterator[Event]:
    """Yield all that happens, in order.

    Args:
        queue: pods, and CPUs that go offline.
        leaving: which pods end before which other, as in a question.
        alone: whether each new pod ends before the next, as in a question.
    """
    for entry in queue:
        if not isinstance(entry, Offline):
            yield from (Remove(uid) for uid in leaving.get(entry.pod.uid, ()))
        yield entry
        if alone and isinstance(entry, Admit):
            yield Remove(entry.pod.uid)
    yield from (Remove(uid) for uid in leaving.get("", ()))
