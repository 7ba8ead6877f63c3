"""Would a node admit a pod? The engine's answer and the code of its cause, without a word of explanation."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from mooring.engine.core.pod import Pod
from mooring.engine.kubelet.admit import AdmitMode, AdmitResult, admit, decide, out_of
from mooring.engine.kubelet.kubelet import Kubelet
from mooring.engine.kubelet.shapes import Load, PodShape
from mooring.engine.node.settings import Settings
from mooring.explain.chapters import Circumstances
from mooring.explain.why import why, why_crash, why_out_of


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
    facts: list[object] = []
    if not result.crash:
        decide(kubelet, pod, observer=facts.append)
    return after, prediction_of(result, after, facts)


def prediction_of(result: AdmitResult, after: Kubelet, facts: Sequence[object]) -> Prediction:
    """Return an answer about a pod as a prediction.

    Args:
        result: the answer.
        after: the kubelet that gave it.
        facts: what the engine found meanwhile.
    """
    if result.admitted:
        return ADMITTED
    if result.crash:
        return Prediction(why_crash(result.crash).code)
    if result.out_of is not None:
        return Prediction(why_out_of(result.out_of).code, result.out_of.reason)
    node, decision = after.node, result.decision
    circumstances = Circumstances(after.settings, result.pod, facts, node.memory, node.providers.devices)
    return Prediction(why(decision, circumstances).code, decision.reason)


def check(shape: PodShape, load: Load, settings: Settings) -> Prediction:
    """Make the node resources check."""
    refused = out_of(shape.requests, dict(load.used), load.pods, settings)
    return ADMITTED if refused is None else Prediction(why_out_of(refused).code, refused.reason)
