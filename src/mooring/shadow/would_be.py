"""The same pods on the same node with another configuration: what would have been refused, and what not."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass, replace

from mooring.core.config import KubeletConfig
from mooring.kubelet.admit import readmit
from mooring.kubelet.events import after_event
from mooring.kubelet.kubelet import Kubelet, StateTexts
from mooring.kubelet.start import start_kubelet
from mooring.manifest.steps import Admit, Restart
from mooring.shadow.observed import ObservedNode
from mooring.shadow.orders import Step


@dataclass(frozen=True, slots=True)
class WouldBe:
    """A node that does not exist, beside the one that does."""

    kubelet: Kubelet
    config: KubeletConfig
    refused: tuple[str, ...] = ()
    """Namespace and name of the pods that only this node refuses, the newest last."""
    admitted: tuple[str, ...] = ()
    """Of those that only this node admits."""
    refusals: int = 0


MOST_NAMED = 100
"""Pods that are named; all are counted."""


def would_be(seen: ObservedNode, config: KubeletConfig) -> WouldBe | str:
    """Return the node that would be there had its kubelet another configuration; a text says why it would not start.

    The pods of the node are admitted in the order of their creation, on a node without state files.
    """
    start = start_kubelet(seen.facts.machine, config, seen.facts.mooring, StateTexts())
    if start.kubelet is None:
        return start.refusal.message if start.refusal is not None else "the kubelet would not start"
    pods = [one for uid, one in seen.pods.items() if uid in seen.held]
    empty = start.kubelet.with_devices(replace(seen.state.devices, held={}))
    ordered = sorted(pods, key=lambda one: (one.created, one.pod.uid))
    kubelet, _ = readmit(empty, [one.pod for one in ordered])
    return WouldBe(kubelet, config)


def after_steps(node: WouldBe, steps: Iterable[Step], refused: Collection[str]) -> WouldBe:
    """Let the same happen to it.

    Args:
        node: before.
        steps: what happened to the real node.
        refused: uids of the pods that its kubelet refused.
    """
    for step in steps:
        if isinstance(step, Restart):
            continue
        if not isinstance(step, Admit) and step.uid not in node.kubelet.node.active:
            continue
        kubelet, result = after_event(node.kubelet, step)
        node = replace(node, kubelet=kubelet)
        if isinstance(step, Admit):
            admits = result.admissions[0].admitted
            name = f"{step.pod.namespace}/{step.pod.name}"
            did = step.pod.uid not in refused
            node = replace(node, refusals=node.refusals + (not admits))
            if admits and not did:
                node = replace(node, admitted=(*node.admitted, name)[-MOST_NAMED:])
            elif did and not admits:
                node = replace(node, refused=(*node.refused, name)[-MOST_NAMED:])
    return node
