"""Would a node admit a pod? The engine's answer and the code of its cause, without a word of explanation."""

from __future__ import annotations

from dataclasses import dataclass

from mooring.core.pod import Pod
from mooring.explain.chapters import Circumstances
from mooring.explain.why import why, why_crash, why_out_of
from mooring.kubelet.admit import AdmitMode, admit, decide, out_of
from mooring.kubelet.kubelet import Kubelet
from mooring.kubelet.shapes import Load, PodShape
from mooring.node import Decision
from mooring.node.settings import Settings


@dataclass(frozen=True, slots=True)
class Prediction:
    """What a node's kubelet would do with a pod."""

    code: str = ""
    """Of the cause of a refusal; empty when it admits the pod."""
    reason: str = ""
    """The kubelet's reason of a refusal; empty when it would crash or never return."""

    @property
    def admitted(self) -> bool:
        """Whether it would admit the pod."""
        return not self.code


ADMITTED = Prediction()


def predicted(kubelet: Kubelet, pod: Pod) -> tuple[Kubelet, Prediction]:
    """Ask the managers of a node.

    Returns:
        The kubelet with the pod, its containers started; of no use when it is refused.
    """
    after, result = admit(kubelet, pod, AdmitMode.MANAGERS)
    if result.admitted:
        return after, ADMITTED
    if result.crash:
        return after, Prediction(why_crash(result.crash).code)
    facts: list[object] = []
    decide(kubelet, pod, observer=facts.append)
    node = after.node
    return after, _refusal(
        result.decision, Circumstances(after.settings, pod, facts, node.memory, node.providers.devices)
    )


def check(shape: PodShape, load: Load, settings: Settings) -> Prediction:
    """Make the node resources check."""
    refused = out_of(shape.requests, dict(load.used), load.pods, settings)
    return ADMITTED if refused is None else Prediction(why_out_of(refused).code, refused.reason)


def _refusal(decision: Decision, circumstances: Circumstances) -> Prediction:
    return Prediction(why(decision, circumstances).code, decision.reason)
