"""In which order things happened between two observations: every order that can be is tried until one fits.

Between two looks at a kubelet several pods can have come and gone, and the kubelet can have started again. Which came
first is not known, and where a pod lies depends on it. An order fits when every decision on its way is the kubelet's
and the state files at its end say what the kubelet's say.

A pod that was refused stands in no order: it has to be refused in the kubelet's words at some point of one. Only where
memory lies on several NUMA nodes it can change something: on which of them the memory of others counts.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final, TypeAlias

import msgspec

from mooring.core.bits import list_text
from mooring.core.pod import Pod
from mooring.devicemanager.state import DeviceState, Holdings
from mooring.kubelet.admit import AdmitMode, AdmitResult, admit
from mooring.kubelet.events import Readmit, after_event
from mooring.kubelet.kubelet import Kubelet, StateTexts
from mooring.manifest.steps import Admit, Remove, Restart
from mooring.memorymanager.state import Block
from mooring.planner.outcome import state_fields
from mooring.planner.replay.agreement import differences
from mooring.shadow.besides import Besides, possible_nodes
from mooring.shadow.judgement import DifferenceCause
from mooring.shadow.observed import UNRECOVERED, ObservedPod, is_critical

MOST_RUNS: Final = 600
"""Events that are tried for one pair of observations; with more the order is unknown."""
UNAVAILABLE: Final = re.compile(r"devices unavailable for (\S+)\. Requested")
"""In a message about too few devices of a resource: which of a container's resources comes first is random."""
_RANKS: Final = (DifferenceCause.MESSAGE, DifferenceCause.REASON, DifferenceCause.OUTCOME, DifferenceCause.UNSUPPORTED)
"""What departs in a refusal, the least first."""
Step: TypeAlias = Admit | Remove | Restart


@dataclass(frozen=True, slots=True)
class Changes:
    """What happened between two observations, in an order that is not known."""

    admitted: tuple[Pod, ...] = ()
    """In the order in which the API server told of them."""
    possible: tuple[Pod, ...] = ()
    """Pods that may have been there between the two."""
    leaving: tuple[str, ...] = ()
    """Uids of pods that the kubelet listed, or may have, and does not any more."""
    restart: Restart | None = None
    refused: tuple[Pod, ...] = ()
    """Refused pods that may have been asked about between the two."""
    asked: tuple[Pod, ...] = ()
    """Refused pods that were."""
    listed: tuple[tuple[Pod, ...], ...] = ()
    """New pods, refused ones included, about which a kubelet that starts may be asked together with those that run: by
    the second of their creation. Until it has asked about all of them its managers release nothing."""


@dataclass(frozen=True, slots=True)
class Mismatch:
    """The first thing in which an order departs from what was observed."""

    cause: DifferenceCause
    kubelet: str
    engine: str
    uid: str = ""
    """Of the pod; empty where it is of none."""


@dataclass(frozen=True, slots=True)
class Order:
    """An order, and the node on its way."""

    kubelet: Kubelet
    """At its end."""
    steps: tuple[Step, ...] = ()
    points: tuple[Kubelet, ...] = ()
    """Before the first step and after every one."""
    has_listed: bool = False
    """Whether a new pod was asked about together with those that run."""
    mismatch: Mismatch | None = None
    """Set when it does not fit."""


@dataclass(slots=True)
class OrderSearch:
    """Looks for an order that fits."""

    goal: Kubelet
    """The engine on the state that was observed afterwards."""
    refused: Mapping[str, ObservedPod] = field(default_factory=dict)
    """Pods that the kubelet refused, by uid; all others it admitted."""
    ran: frozenset[str] = frozenset()
    """Uids of refused pods that the kubelet had admitted before: it refused them when it started again."""
    memory: str | None = None
    """The memory manager's state file at the end, as it was observed."""
    left: Holdings = field(default_factory=dict)
    """Devices at the end of pods that are gone by then."""
    runs: int = 0
    nearest: Order | None = None
    """Of those that do not fit, the one that went furthest; of equals the first."""
    _seen: set[tuple[object, ...]] = field(default_factory=set)

    @property
    def is_cut(self) -> bool:
        """Whether there were too many orders to try them all."""
        return self.runs >= MOST_RUNS

    def run(self, base: Kubelet, changes: Changes) -> Order | None:
        """Return an order that fits; None when there is none, or too many were tried."""
        return next(self._orders(Order(base, points=(base,)), changes), None)

    def _orders(self, order: Order, left: Changes) -> Iterator[Order]:
        if self.is_cut:
            return
        if not left.admitted and not left.asked and left.restart is None:
            found = self._unlike_at_the_end(order.kubelet)
            if found is None:
                yield self._ended(order, left.leaving)
                return
            self._remember(replace(order, mismatch=found))
        for step, rest in _choices(left):
            self.runs += 1
            tried = self._after(order, step)
            if tried.mismatch is not None:
                self._remember(tried)
            elif self._is_new(tried, rest):
                yield from self._orders(tried, rest)

    def _unlike_at_the_end(self, kubelet: Kubelet) -> Mismatch | None:
        """Compare the state files without the pods that have left.

        What such a pod had is released before the next pod is asked about: its CPUs within the reconcile period, its
        memory blocks not before. Until then the files have it still.

        Source: kubelet v1.37.1, cm/cpumanager and cm/memorymanager (removeStaleState); spec: state-files.md.
        """
        there, goal = self.goal.node.active, with_started(self.goal).files
        kept = with_started(_as_read(kubelet).without([uid for uid in kubelet.node.active if uid not in there])).files
        # Where memory is released on several NUMA nodes depends on what is released first.
        if self.memory is not None and self.memory == kubelet.files.memory:
            kept = replace(kept, memory=goal.memory)
        return unlike_files(goal, kept)

    def _ended(self, order: Order, leaving: Iterable[str]) -> Order:
        for uid in leaving:
            order = self._after(order, Remove(uid))
        return order

    def _is_new(self, order: Order, rest: Changes) -> bool:
        files, left = order.kubelet.files, (*rest.admitted, *rest.possible, *rest.refused, *rest.asked)
        there, coming = tuple(sorted(order.kubelet.node.active)), tuple(one.uid for one in left)
        place = (rest.leaving, rest.restart is None, len(rest.listed), order.has_listed)
        key = (files.cpu, files.memory, there, coming, place)
        is_new = key not in self._seen
        self._seen.add(key)
        return is_new

    def _remember(self, order: Order) -> None:
        if self.nearest is None or len(order.steps) > len(self.nearest.steps):
            self.nearest = order

    def _after(self, order: Order, event: Step | Readmit) -> Order:
        is_asked = isinstance(event, Admit | Readmit)
        kubelet, result = after_event(self._knowing_devices(order.kubelet) if is_asked else order.kubelet, event)
        step: Step = Admit(event.pod) if isinstance(event, Readmit) else event
        has_listed = order.has_listed or isinstance(event, Readmit)
        steps, points = (*order.steps, step), (*order.points, kubelet)
        if result.crash or result.refusal is not None:
            words = result.crash or (result.refusal.message if result.refusal is not None else "")
            return Order(kubelet, steps, points, mismatch=Mismatch(DifferenceCause.START, "started", words))
        for answer in result.admissions:
            mismatch = self.unlike(answer, kubelet, is_first=is_asked)
            if mismatch is not None:
                return Order(kubelet, steps, points, mismatch=mismatch)
        return Order(kubelet, steps, points, has_listed)

    def unlike(self, answer: AdmitResult, kubelet: Kubelet, *, is_first: bool = False) -> Mismatch | None:
        """Return in what an answer departs from what the kubelet did with the pod.

        Args:
            answer: of the engine.
            kubelet: that answered, afterwards.
            is_first: whether the pod is new, and does not run already.
        """
        uid = answer.pod.uid
        refused = None if is_first and uid in self.ran else self.refused.get(uid)
        if refused is not None or not answer.admitted:
            return unlike_answers(answer, refused)
        there = self.goal.node.cpu.assignments.get(uid, {})
        here = kubelet.node.cpu.assignments.get(uid, {})
        for name, cpus in there.items():
            if here.get(name) != cpus:
                had, has = f"{name}: {list_text(cpus)}", f"{name}: {list_text(here.get(name, 0))}"
                return Mismatch(DifferenceCause.CPUS, had, has, uid)
        # Whether the init containers have ended since, and released theirs, is not known.
        blocks, placed = (one.node.memory.assignments.get(uid, {}) for one in (self.goal, answer.decided))
        for name, found in blocks.items():
            # The order of the blocks of several memory types is random.
            if set(found) != set(placed.get(name, ())):
                had, has = (f"{name}: {_block_text(one)}" for one in (found, placed.get(name, ())))
                return Mismatch(DifferenceCause.MEMORY, had, has, uid)
        given, chosen = (_devices(one.node.providers.devices, uid) for one in (self.goal, kubelet))
        return None if not given or given == chosen else Mismatch(DifferenceCause.DEVICES, str(given), str(chosen), uid)

    def _knowing_devices(self, kubelet: Kubelet) -> Kubelet:
        """Return the kubelet with what is known of the devices that pods were given: which of equal ones is random."""
        devices = kubelet.node.providers.devices
        held = {**self.left, **self.goal.node.providers.devices.held}
        return kubelet if devices.drawn == held else kubelet.with_devices(replace(devices, drawn=held))


def unlike_answers(answer: AdmitResult, refused: ObservedPod | None) -> Mismatch | None:
    """Compare an answer with what the kubelet did: it refused the pod, or, for None, admitted it."""
    uid, decision = answer.pod.uid, answer.decision
    if answer.never_returns:
        return Mismatch(DifferenceCause.UNSUPPORTED, "", answer.crash or "an admission that never ends", uid)
    if refused is None and answer.out_of is not None and is_critical(answer.pod):
        return Mismatch(DifferenceCause.UNSUPPORTED, "", "the kubelet ends other pods for a critical one", uid)
    said = "admitted" if answer.admitted else f"{decision.reason}: {decision.message}"
    if answer.admitted != (refused is None):
        did = "admitted" if refused is None else f"{refused.reason}: {refused.message}"
        return Mismatch(DifferenceCause.OUTCOME, did, said, uid)
    if refused is None or (refused.reason, refused.message) == (decision.reason, decision.message):
        return None
    unrecovered = UNRECOVERED.match(refused.message)
    if unrecovered is not None and decision.reason == f"OutOf{unrecovered['resource']}":
        return None
    if refused.reason != decision.reason:
        return Mismatch(DifferenceCause.REASON, refused.reason, decision.reason, uid)
    return Mismatch(DifferenceCause.MESSAGE, repr(refused.message), repr(decision.message), uid)


def unlike_outcome(
    pod: Pod, refused: ObservedPod | None, points: Sequence[Kubelet], besides: Besides
) -> tuple[Mismatch | None, int | None]:
    """Find a point of an order at which the engine answers as the kubelet did about a pod that is not there any more.

    Pods that left may have been there still, or gone already, when it was asked about.

    Args:
        pod: the pod.
        refused: the words of its refusal; None where it was admitted.
        points: nodes on the way.
        besides: which pods may have been there, or not.

    Returns:
        In what the nearest answer departs, None where one does not, and the point that needs no other pods gone.
    """
    nearest: Mismatch | None = None
    if refused is None:
        besides = replace(besides, ending=())
    for position, point in enumerate(points):
        for kubelet in possible_nodes(point, besides, "" if refused is None else refused.message):
            for answer in _answers(kubelet, pod):
                found = unlike_answers(answer, refused)
                if found is None:
                    return None, position if kubelet is point else None
                if nearest is None or _RANKS.index(found.cause) < _RANKS.index(nearest.cause):
                    nearest = found
    return nearest or Mismatch(DifferenceCause.ORDER, "", "", pod.uid), None


def _answers(kubelet: Kubelet, pod: Pod) -> Iterator[AdmitResult]:
    """Yield the engine's answer, and those in which another of its resources with too few devices is named.

    Source: kubelet v1.37.1, devicemanager manager.go (allocateContainerResources): a walk over a map.
    """
    while True:
        _, answer = admit(kubelet, pod, AdmitMode.TRIAL)
        yield answer
        devices = kubelet.node.providers.devices
        named = UNAVAILABLE.search(answer.decision.message)
        if named is None or named[1] not in devices.devices:
            return
        others = {resource: known for resource, known in devices.devices.items() if resource != named[1]}
        kubelet = kubelet.with_devices(replace(devices, devices=others))


def _choices(left: Changes) -> Iterator[tuple[Step | Readmit, Changes]]:
    """Yield what can have come next, the likely first: the restart, pods as they were told of, pods that left."""
    if left.restart is not None:
        yield left.restart, replace(left, restart=None)
    for number, pods in enumerate(left.listed if left.restart is None else ()):
        later = left.listed[number + 1 :]
        for pod in pods:
            second = tuple(one for one in pods if one is not pod)
            yield Readmit(pod), _without(replace(left, listed=(second, *later) if second else later), pod)
    left = replace(left, listed=left.listed if left.restart is not None else ())
    for pod in left.admitted:
        yield Admit(pod), replace(left, admitted=tuple(one for one in left.admitted if one is not pod))
    for uid in left.leaving:
        yield Remove(uid), replace(left, leaving=tuple(one for one in left.leaving if one != uid))
    for pod in left.possible:
        rest = replace(left, possible=tuple(one for one in left.possible if one is not pod))
        yield Admit(pod), replace(rest, leaving=(*left.leaving, pod.uid))
    for pod in left.asked:
        yield Admit(pod), replace(left, asked=tuple(one for one in left.asked if one is not pod))
    for pod in left.refused:
        yield Admit(pod), replace(left, refused=tuple(one for one in left.refused if one is not pod))


def _without(left: Changes, pod: Pod) -> Changes:
    admitted, refused, asked = (
        tuple(one for one in pods if one.uid != pod.uid) for pods in (left.admitted, left.refused, left.asked)
    )
    return replace(left, admitted=admitted, refused=refused, asked=asked)


def with_started(kubelet: Kubelet) -> Kubelet:
    """Return the kubelet when the containers of all pods have started: init containers have released their memory."""
    for uid in kubelet.node.active:
        kubelet = kubelet.start_containers(uid)
    return kubelet


def _as_read(kubelet: Kubelet) -> Kubelet:
    """Return the kubelet with its memory assignments in the order in which a file has them."""
    node = kubelet.node
    memory = node.memory
    ordered = {uid: dict(sorted(held.items())) for uid, held in sorted(memory.assignments.items())}
    providers = replace(node.providers, memory=replace(memory, assignments=ordered))
    return replace(kubelet, node=replace(node, providers=providers))


def unlike_files(files: StateTexts, engine: StateTexts) -> Mismatch | None:
    """Return the first member of a state file in which two differ; orders that the kubelet does not fix are excused."""
    for found in differences(state_fields(files), state_fields(engine)):
        cause = DifferenceCause.CPU_FILE if found.field == "cpuManagerState" else DifferenceCause.MEMORY_FILE
        return Mismatch(cause, *_first_member(str(found.recorded), str(found.answered)))
    return None


def _first_member(recorded: str, answered: str) -> tuple[str, str]:
    try:
        texts = ({"file": msgspec.json.decode(text)} for text in (recorded, answered))
        found = list(differences(*texts))
        # A checksum differs wherever anything does.
        first = next((one for one in found if "hecksum" not in one.field), found[0])
    except (msgspec.DecodeError, IndexError):
        return recorded[:200], answered[:200]
    place = first.field.removeprefix("file.")
    return f"{place} {first.recorded}", f"{place} {first.answered}"


def _block_text(blocks: Sequence[Block]) -> str:
    """Return memory blocks in words.

    >>> _block_text((Block((0, 1), "memory", 512),))
    '512 memory on 0-1'
    """
    return ", ".join(sorted(f"{one.size} {one.type} on {list_text(one.mask)}" for one in blocks)) or "none"


def _devices(devices: DeviceState, uid: str) -> dict[str, dict[str, list[str]]]:
    """Return what a pod holds, by container and resource."""
    return {
        name: {resource: sorted(ids) for resource, ids in sorted(held.items()) if ids}
        for name, held in sorted(devices.held.get(uid, {}).items())
        if any(held.values())
    }
