"""The engine's predictions for pods that are bound to the node and not decided yet.

The same pods on the same node with another configuration: which pods it would refuse.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass, replace
from hashlib import sha256
from typing import Final

import msgspec

from mooring.engine.core.bits import list_text
from mooring.engine.core.config import KubeletConfig
from mooring.engine.core.pod import Pod
from mooring.engine.kubelet.admit import readmit
from mooring.engine.kubelet.events import Admit, Remove, Restart, after_event
from mooring.engine.kubelet.kubelet import Kubelet, StateTexts
from mooring.engine.kubelet.start import NotStarted, start_kubelet
from mooring.monitoring.shadow.orders import Step
from mooring.monitoring.shadow.starts import engine_on
from mooring.monitoring.shadow.unseen import ObservedNode
from mooring.published.facts_document import kubelet_document

_DIGITS: Final = 12


@dataclass(frozen=True, slots=True)
class WouldBe:
    """A node that does not exist, beside the one that does."""

    kubelet: Kubelet
    digest: str
    """Of its configuration: counts of one configuration are not continued with another."""
    asked: frozenset[str] = frozenset()
    """Uids of the pods of the real node about which it was asked, whatever it answered."""


@dataclass(frozen=True, slots=True)
class WouldBeAnswer:
    """The outcome of one pod."""

    uid: str
    name: str
    """Namespace and name."""
    did: bool
    """Whether the kubelet admitted it."""
    would: bool
    """Whether the other node does."""


def would_be(seen: ObservedNode, config: KubeletConfig) -> WouldBe | str:
    """Return the node that would be there had its kubelet another configuration; a text says why it would not start.

    The pods of the node are admitted in the order of their creation, on a node without state files. It is asked about
    those that the kubelet has not decided about when they are decided.
    """
    start = start_kubelet(seen.facts.machine, config, seen.facts.mooring, StateTexts())
    if isinstance(start, NotStarted):
        return start.refusal.message
    empty = start.with_devices(replace(seen.state.devices, held={}))
    pods = _admitted(seen)
    kubelet, _ = readmit(empty, pods)
    digest = sha256(msgspec.json.encode(kubelet_document(config), order="sorted")).hexdigest()
    return WouldBe(kubelet, digest[:_DIGITS], frozenset(pod.uid for pod in pods))


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
            pod, would = step.pod, result.admissions[0].admitted
            answers.append(WouldBeAnswer(pod.uid, f"{pod.namespace}/{pod.name}", pod.uid not in refused, would))
    asked = node.asked.union(one.uid for one in answers)
    return replace(node, kubelet=kubelet, asked=asked), tuple(answers)


def reconciled(node: WouldBe, seen: ObservedNode) -> tuple[WouldBe, tuple[WouldBeAnswer, ...]]:
    """Give it the pods of the real node, and return the outcome of those about which it was not asked yet.

    Steps do not tell all: where no order fits, or a pod is not known, admissions and removals are missing, and what
    the kubelet refused has no removal.

    Args:
        node: before.
        seen: the real node.
    """
    held = seen.held
    gone = [Remove(uid) for uid in node.kubelet.node.active if uid not in held]
    missed = [Admit(pod) for pod in _admitted(seen) if pod.uid not in node.asked]
    after, answers = after_steps(node, [*gone, *missed], refused=())
    return replace(after, asked=after.asked & held), answers


def _admitted(seen: ObservedNode) -> list[Pod]:
    """Return the pods that a kubelet has admitted, in the order of their creation."""
    there = seen.held - seen.waiting
    ordered = sorted(seen.pods.items(), key=lambda item: (item[1].created, item[0]))
    return [one.pod for uid, one in ordered if uid in there]


def undecided(seen: ObservedNode) -> list[str]:
    """Return the uids of the pods that are bound and not decided, the oldest first."""
    waiting = [(one.created, uid) for uid, one in seen.pods.items() if not (one.leaving or seen.is_decided(uid))]
    return [uid for _, uid in sorted(waiting)]


def predictions(seen: ObservedNode, uids: Collection[str]) -> Iterator[tuple[str, bool, str]]:
    """Yield what happens when the kubelet decides about pods one after another; nothing where the engine cannot tell.

    Each with its uid, whether the engine admits it, and a line with the exclusive CPUs of its containers, or reason and
    message of its refusal.

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
        given = engine.node.cpu.assignments.get(uid, {}) if answer.admitted else {}
        words = [f"{name}: {list_text(cpus)}" for name, cpus in given.items()]
        words += [] if answer.admitted else [f"{answer.decision.reason}: {answer.decision.message}"]
        did = f"predicted: {pod.namespace}/{pod.name} {'admitted' if answer.admitted else 'refused'}"
        yield uid, answer.admitted, ", ".join((did, *words))
