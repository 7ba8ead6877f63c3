"""The same pods on the same node with another configuration: which pods it would refuse."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass, replace
from hashlib import sha256
from typing import Final

import msgspec

from mooring.core.config import KubeletConfig
from mooring.kubelet.admit import readmit
from mooring.kubelet.events import after_event
from mooring.kubelet.kubelet import Kubelet, StateTexts
from mooring.kubelet.start import start_kubelet
from mooring.manifest.steps import Admit, Restart
from mooring.publisher.facts_document import kubelet_document
from mooring.shadow.judging.orders import Step
from mooring.shadow.observed import ObservedNode

_DIGITS: Final = 12


@dataclass(frozen=True, slots=True)
class WouldBe:
    """A node that does not exist, beside the one that does."""

    kubelet: Kubelet
    digest: str
    """Of its configuration: counts of one configuration are not continued with another."""


@dataclass(frozen=True, slots=True)
class WouldBeAnswer:
    """The outcome of one pod."""

    name: str
    """Namespace and name."""
    did: bool
    """Whether the kubelet admitted it."""
    would: bool
    """Whether the other node does."""


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
    digest = sha256(msgspec.json.encode(kubelet_document(config), order="sorted")).hexdigest()
    return WouldBe(kubelet, digest[:_DIGITS])


def after_steps(
    node: WouldBe, steps: Iterable[Step], refused: Collection[str]
) -> tuple[WouldBe, tuple[WouldBeAnswer, ...]]:
    """Apply the same steps to it, and return the outcome of the pods.

    Args:
        node: before.
        steps: what happened to the real node.
        refused: uids of the pods that its kubelet refused.
    """
    kubelet, answers = node.kubelet, list[WouldBeAnswer]()
    for step in steps:
        if isinstance(step, Restart):
            continue
        if not isinstance(step, Admit) and step.uid not in kubelet.node.active:
            continue
        kubelet, result = after_event(kubelet, step)
        if isinstance(step, Admit):
            name, did = f"{step.pod.namespace}/{step.pod.name}", step.pod.uid not in refused
            answers.append(WouldBeAnswer(name, did, result.admissions[0].admitted))
    return replace(node, kubelet=kubelet), tuple(answers)
