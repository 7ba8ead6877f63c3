"""The verdict on a decision: agreed, differs, or cannot tell."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum


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
