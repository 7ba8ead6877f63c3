"""The verdict on a decision, and where the engine's answer about a pod or its state files differ from the kubelet's."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from typing import Final

import msgspec

from mooring.answers.base.agreement import differences
from mooring.answers.base.plan_document import state_fields
from mooring.engine.core.bits import list_text
from mooring.engine.core.pod import Pod
from mooring.engine.devicemanager.state import DeviceState
from mooring.engine.kubelet.admit import AdmitMode, AdmitResult, admit
from mooring.engine.kubelet.kubelet import Kubelet, StateTexts
from mooring.monitoring.shadow.unseen import UNRECOVERED, ObservedPod, UnseenPods, is_critical, possible_nodes


class Agreement(Enum):
    """Whether the engine decides as the kubelet did."""

    AGREED = "agreed"
    DIFFERS = "differs"
    UNKNOWN = "cannot tell"


class KubeletEvent(Enum):
    """What the kubelet did."""

    ADMITTED = "admitted"
    REFUSED = "refused"
    REMOVED = "removed"
    RESTARTED = "restarted"


class DifferenceCause(Enum):
    """What differs, or why there is no verdict."""

    NONE = ""
    OUTCOME = "outcome"
    """One of the two admits the pod, the other refuses it."""
    REASON = "reason"
    MESSAGE = "message"
    CPUS = "cpus"
    MEMORY = "memory"
    DEVICES = "devices"
    CPU_FILE = "cpu state file"
    MEMORY_FILE = "memory state file"
    START = "start"
    """The kubelet runs on a state on which the engine would not start."""
    ORDER = "order"
    """More happened between two observations than can be followed."""
    PODS = "pods"
    """A pod is not known."""
    AFTER_DIFFERENCE = "after a difference"
    """The engine's state differed already."""
    UNSUPPORTED = "unsupported"
    """The engine's kubelet would crash, or never return, or the kubelet ends other pods for a critical one."""


@dataclass(frozen=True, slots=True)
class Judgement:
    """The verdict on one decision."""

    verdict: Agreement
    event: KubeletEvent
    uid: str = ""
    """Of the pod; empty for a restart."""
    name: str = ""
    """Namespace and name of the pod."""
    cause: DifferenceCause = DifferenceCause.NONE
    kubelet: str = ""
    """What the kubelet did, where it differs."""
    engine: str = ""
    """What the engine does."""

    def line(self) -> str:
        """Return it in one line.

        >>> Judgement(Agreement.AGREED, KubeletEvent.ADMITTED, "1", "default/web").line()
        'agreed: default/web admitted'
        >>> cause = DifferenceCause.CPUS
        >>> Judgement(Agreement.DIFFERS, KubeletEvent.ADMITTED, "1", "default/web", cause, "2-3", "4-5").line()
        'differs: default/web admitted: cpus: the kubelet has 2-3, the engine 4-5'
        """
        said = f"{self.verdict.value}: {self.name or 'kubelet'} {self.event.value}"
        if self.cause is DifferenceCause.NONE:
            return said
        if self.verdict is Agreement.UNKNOWN:
            return f"{said}: {self.cause.value}" + (f": {self.engine}" if self.engine else "")
        return f"{said}: {self.cause.value}: the kubelet has {self.kubelet}, the engine {self.engine}"


UNAVAILABLE: Final = re.compile(r"devices unavailable for (\S+)\. Requested")
"""In a message about too few devices of a resource: which of a container's resources comes first is random."""
_RANKS: Final = (DifferenceCause.MESSAGE, DifferenceCause.REASON, DifferenceCause.OUTCOME, DifferenceCause.UNSUPPORTED)
"""What departs in a refusal, the least first."""


@dataclass(frozen=True, slots=True)
class Mismatch:
    """The first thing in which an order departs from what was observed."""

    cause: DifferenceCause
    kubelet: str
    engine: str
    uid: str = ""
    """Of the pod; empty where it is of none."""


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
    pod: Pod, refused: ObservedPod | None, points: Sequence[Kubelet], besides: UnseenPods
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
            for is_first, answer in _answers(kubelet, pod, in_first_list=besides.has_started):
                found = unlike_answers(answer, refused)
                if found is None:
                    return None, position if kubelet is point and not is_first else None
                if nearest is None or _RANKS.index(found.cause) < _RANKS.index(nearest.cause):
                    nearest = found
    return nearest or Mismatch(DifferenceCause.ORDER, "", "", pod.uid), None


def _answers(kubelet: Kubelet, pod: Pod, *, in_first_list: bool) -> Iterator[tuple[bool, AdmitResult]]:
    """Yield the engine's answers, each with whether it is one about a pod of the first list of a kubelet.

    A starting kubelet releases nothing before it has asked about its first list. If a container gets too few devices
    of several resources, each of them may be named.

    Source: kubelet v1.37.1, devicemanager manager.go (UpdateAllocatedDevices, and allocateContainerResources: a walk
    over a map).
    """
    for running in (False, True) if in_first_list else (False,):
        asked, (_, answer) = kubelet, admit(kubelet, pod, AdmitMode.TRIAL, running=running)
        yield running, answer
        while (named := UNAVAILABLE.search(answer.decision.message)) is not None:
            devices = asked.node.providers.devices
            if named[1] not in devices.devices:
                break
            others = {resource: known for resource, known in devices.devices.items() if resource != named[1]}
            asked = asked.with_devices(replace(devices, devices=others))
            _, answer = admit(asked, pod, AdmitMode.TRIAL, running=running)
            if UNAVAILABLE.search(answer.decision.message) is not None:
                yield running, answer


def unlike_places(answer: AdmitResult, kubelet: Kubelet, goal: Kubelet) -> Mismatch | None:
    """Compare what the engine gave a pod that it admitted with what the pod was observed to have.

    Args:
        answer: of the engine.
        kubelet: that answered, afterwards.
        goal: the engine on the state that was observed afterwards.
    """
    uid = answer.pod.uid
    there = goal.node.cpu.assignments.get(uid, {})
    here = kubelet.node.cpu.assignments.get(uid, {})
    for name, cpus in there.items():
        if here.get(name) != cpus:
            had, has = f"{name}: {list_text(cpus)}", f"{name}: {list_text(here.get(name, 0))}"
            return Mismatch(DifferenceCause.CPUS, had, has, uid)
    # Whether the init containers have ended since, and released theirs, is not known.
    blocks, placed = (one.node.memory.assignments.get(uid, {}) for one in (goal, answer.decided))
    for name, found in blocks.items():
        # The order of the blocks of several memory types is random.
        if set(found) != set(placed.get(name, ())):
            had, has = (
                ", ".join(sorted(f"{one.size} {one.type} on {list_text(one.mask)}" for one in blocks)) or "none"
                for blocks in (found, placed.get(name, ()))
            )
            return Mismatch(DifferenceCause.MEMORY, f"{name}: {had}", f"{name}: {has}", uid)
    given, chosen = (_devices(one.node.providers.devices, uid) for one in (goal, kubelet))
    return None if not given or given == chosen else Mismatch(DifferenceCause.DEVICES, str(given), str(chosen), uid)


def unlike_files(files: StateTexts, engine: StateTexts) -> Mismatch | None:
    """Return the first member of a state file in which two differ; orders that the kubelet does not fix are excused."""
    for found in differences(state_fields(files), state_fields(engine)):
        cause = DifferenceCause.CPU_FILE if found.field == "cpuManagerState" else DifferenceCause.MEMORY_FILE
        return Mismatch(cause, *_first_member(str(found.recorded), str(found.answered)))
    return None


def _first_member(recorded: str, answered: str) -> tuple[str, str]:
    # Bytes that are not UTF-8 are lone surrogates here, which neither JSON nor the files of a shadow can have.
    recorded, answered = (text.encode(errors="replace").decode() for text in (recorded, answered))
    try:
        texts = ({"file": msgspec.json.decode(text)} for text in (recorded, answered))
        found = list(differences(*texts))
        # A checksum differs wherever anything does.
        first = next((one for one in found if "hecksum" not in one.field), found[0])
    except (msgspec.DecodeError, IndexError):
        return recorded[:200], answered[:200]
    place = first.field.removeprefix("file.")
    return f"{place} {first.recorded}", f"{place} {first.answered}"


def _devices(devices: DeviceState, uid: str) -> dict[str, dict[str, list[str]]]:
    """Return what a pod holds, by container and resource."""
    return {
        name: {resource: sorted(ids) for resource, ids in sorted(held.items()) if ids}
        for name, held in sorted(devices.held.get(uid, {}).items())
        if any(held.values())
    }
