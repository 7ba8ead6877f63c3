"""The engine's predictions for pods that are bound to the node and not decided yet."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass

from mooring.engine.core.bits import list_text
from mooring.engine.kubelet.events import Admit, after_event
from mooring.engine.kubelet.kubelet import Kubelet
from mooring.monitoring.shadow.judging.beginning import engine_on
from mooring.monitoring.shadow.observed import ObservedNode


@dataclass(frozen=True, slots=True)
class PendingPrediction:
    """The engine's answer about a pod before its kubelet has decided."""

    uid: str
    name: str
    """Namespace and name."""
    admits: bool
    words: str
    """Exclusive CPUs of its containers, or reason and message of its refusal."""

    def line(self) -> str:
        """Return it in one line.

        >>> PendingPrediction("1", "default/web", True, "main: 2-3").line()
        'predicted: default/web admitted, main: 2-3'
        """
        did = "admitted" if self.admits else "refused"
        return f"predicted: {self.name} {did}" + (f", {self.words}" if self.words else "")


def undecided(seen: ObservedNode) -> list[str]:
    """Return the uids of the pods that are bound and not decided, the oldest first."""
    waiting = [(one.created, uid) for uid, one in seen.pods.items() if not (one.leaving or seen.is_decided(uid))]
    return [uid for _, uid in sorted(waiting)]


def predictions(seen: ObservedNode, uids: Collection[str]) -> Iterator[PendingPrediction]:
    """Yield what happens when the kubelet decides about pods one after another; nothing where the engine cannot tell.

    Args:
        seen: the node; other pods that are not decided are left out.
        uids: of the pods.
    """
    engine = engine_on(seen, seen.pods)
    if isinstance(engine, str):
        return
    engine = engine.without([uid for uid in undecided(seen) if uid in engine.node.active])
    for uid in uids:
        pod = seen.pods[uid].pod
        engine, result = after_event(engine, Admit(pod))
        [answer] = result.admissions
        if answer.crash or answer.never_returns:
            return
        refusal = f"{answer.decision.reason}: {answer.decision.message}"
        words = _cpus(engine, uid) if answer.admitted else refusal
        yield PendingPrediction(uid, f"{pod.namespace}/{pod.name}", answer.admitted, words)


def _cpus(engine: Kubelet, uid: str) -> str:
    return ", ".join(f"{name}: {list_text(cpus)}" for name, cpus in engine.node.cpu.assignments.get(uid, {}).items())
