"""Changes of a node beside pods that come and go: a restart of its kubelet, CPUs offline or online, a resize.

The kubelet of a shared state has no pods to which no manager gives anything. For a change it gets all pods of the node,
in the order of their admission, so that the answer is that of a kubelet which had them all along.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TypeAlias

from mooring.engine.core.pod import Pod
from mooring.engine.kubelet.events import Offline, Online, Restart, after_event
from mooring.engine.kubelet.kubelet import Kubelet
from mooring.engine.kubelet.shapes import PodShape
from mooring.engine.node import Node
from mooring.explain.prediction import Prediction, prediction_of
from mooring.fleet.cluster_events import CPUsOffline, CPUsOnline, NodeRestart
from mooring.published.restored import holds

PodsInOrder: TypeAlias = Sequence[tuple[str, PodShape]]
"""Name in the state, empty for a pod to which no manager gives anything, and shape."""
_PLAIN = "plain"


@dataclass(frozen=True, slots=True)
class KubeletOutcome:
    """A kubelet after a change."""

    kubelet: Kubelet
    refused: Mapping[str, Prediction] = field(default_factory=dict)
    """Uid of a pod that is not admitted again -> why."""
    kind: str = ""
    """Configuration and release from then on, as text; empty where they cannot have changed."""
    message: str = ""
    """Why the change was not made; empty when it was."""


KubeletChange: TypeAlias = Callable[[Kubelet], KubeletOutcome]


def with_all(kubelet: Kubelet, pods: PodsInOrder) -> tuple[Kubelet, list[str]]:
    """Return a kubelet that runs all pods of a node, and their uids in order."""
    active: dict[str, Pod] = {}
    for number, (place, shape) in enumerate(pods):
        uid = place or f"{_PLAIN}.{number}"
        active[uid] = kubelet.node.active[place] if place else replace(shape.pod, uid=uid, name=uid)
    return replace(kubelet, node=replace(kubelet.node, active=active, started=frozenset(active))), list(active)


def without_plain(kubelet: Kubelet, names: Sequence[str]) -> Kubelet:
    """Return a kubelet without the pods to which no manager gives anything, and without resizes that wait."""
    plain = {name for name in names if name.startswith(f"{_PLAIN}.")}
    active = {uid: pod for uid, pod in kubelet.node.active.items() if uid not in plain}
    node = replace(kubelet.node, active=active, started=frozenset(active), waiting={})
    return replace(kubelet, node=node).settled()


def held_by(kubelet: Kubelet) -> dict[str, str]:
    """Return what each pod of a kubelet holds, as text."""
    return {uid: held_text(kubelet.node, uid) for uid in kubelet.node.active}


def held_text(node: Node, uid: str) -> str:
    """Return what a pod holds, as text; what a resize may take back and what it will take count, too."""
    text, resized = repr(holds(node, uid)), (node.cpu.baselines.get(uid), node.cpu.pre_assignments.get(uid))
    return text if not any(resized) else f"{text}{resized}"


def restarting(restart: NodeRestart) -> KubeletChange:
    """Return the change that a restart makes.

    Args:
        restart: with the configuration and the release from then on.
    """

    def change(kubelet: Kubelet) -> KubeletOutcome:
        facts: list[object] = []
        after, result = after_event(kubelet, Restart(restart.config, restart.release), observer=facts.append)
        if result.refusal is not None or result.crash:
            message = result.crash if result.refusal is None else result.refusal.message
            return KubeletOutcome(kubelet, message=message)
        refused = {one.pod.uid: prediction_of(one, after, facts) for one in result.admissions if not one.admitted}
        return KubeletOutcome(after, refused, repr((after.settings.config, after.mooring.release)))

    return change


def changing_cpus(change: CPUsOffline | CPUsOnline) -> KubeletChange:
    """Return the change that CPUs make which go offline or come online."""
    event = Offline(change.cpus) if isinstance(change, CPUsOffline) else Online(change.cpus)
    return lambda kubelet: KubeletOutcome(after_event(kubelet, event)[0])


def resizing(number: int, pod: Pod) -> KubeletChange:
    """Return the change that a resize makes.

    Args:
        number: of the pod among those of the node.
        pod: with the resources that it wants.
    """

    def change(kubelet: Kubelet) -> KubeletOutcome:
        uid = list(kubelet.node.active)[number]
        after, answer = kubelet.resize(replace(pod, uid=uid, name=uid))
        return KubeletOutcome(after, message="" if answer.accepted else f"{answer.reason}: {answer.message}")

    return change
