"""Filter, prioritize and preempt: from what the scheduler asks to what it is answered."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import combinations

import msgspec

from mooring.cluster.extender.claims import UNDECIDED, ClaimView, asked_node
from mooring.cluster.extender.deciding import CANNOT_BE_JUDGED, Decider, NodeVerdict, PossibleNode, Weights
from mooring.cluster.extender.pods import Shapes, seen_pod
from mooring.cluster.extender.view import ClusterView
from mooring.cluster.extender.wire import (
    Arguments,
    FilterAnswer,
    MetaPod,
    MetaVictims,
    NodeList,
    PreemptAnswer,
    PreemptArguments,
    Priority,
    Victims,
    node_names,
)
from mooring.engine.core.pod import Pod
from mooring.engine.kubelet.admit import AdmitMode, admit
from mooring.engine.kubelet.kubelet import Kubelet
from mooring.engine.kubelet.shapes import PodShape, shape_of
from mooring.published.possible_kubelets import possible_kubelets

_UNDECIDED = NodeVerdict("mooring: not decided within the time of the request", hopeless=True)
_MOST_MORE = 2
"""Victims that are added to those which the scheduler proposes."""
MOST_TRIES = 60
"""Sets of victims that are tried on one node."""


@dataclass(frozen=True, slots=True)
class Answers:
    """Answers from what is known; used by one thread at a time."""

    view: ClusterView
    decider: Decider
    weights: Weights
    shapes: Shapes
    claims: ClaimView | None = None
    """Of the cluster; None where claims do not count."""
    undecided: Callable[[str, str], object] = lambda _about, _why: None
    """Told of a claim whose devices cannot be foreseen, and why."""
    in_time: Callable[[], bool] = lambda: True
    """Tells whether the request that is being answered has time left."""

    def filtered(self, asked: Arguments) -> FilterAnswer:
        """Answer filter.

        Raises:
            InputError: the question cannot be understood.
        """
        pod, names = seen_pod(asked.Pod, self.shapes).pod, node_names(asked)
        for name, why in self.claims.undecided(pod).items() if self.claims is not None else ():
            self.undecided(
                f"ResourceClaim {pod.namespace}/{name}",
                f"its devices cannot be foreseen: {why}; nodes with room are let through, and the bind decides "
                f"({UNDECIDED})",
            )
        good, failed, hopeless = [], {}, {}
        for position, verdict in enumerate(self._verdicts(pod, names)):
            if not verdict.reason:
                good.append(position)
            elif verdict.hopeless:
                hopeless[names[position]] = verdict.reason
            else:
                failed[names[position]] = verdict.reason
        if asked.NodeNames is not None:
            return FilterAnswer(None, [names[one] for one in good], failed, hopeless)
        items = (asked.Nodes.items if asked.Nodes is not None else None) or []
        metadata = asked.Nodes.metadata if asked.Nodes is not None else {}
        return FilterAnswer(NodeList(metadata, [items[one] for one in good]), None, failed, hopeless)

    def prioritized(self, asked: Arguments) -> list[Priority]:
        """Answer prioritize.

        Raises:
            InputError: the question cannot be understood.
        """
        pod, names = seen_pod(asked.Pod, self.shapes).pod, node_names(asked)
        known: dict[object, int] = {None: 0}
        scores = []
        for name, (key, outlook, shape) in zip(names, self._asked(pod, names), strict=True):
            score = known.get(key)
            if score is None and outlook is not None:
                score = known[key] = self._score(name, outlook, shape) if self.in_time() else 0
            scores.append(Priority(name, score or 0))
        return scores

    def preempted(self, asked: PreemptArguments) -> PreemptAnswer:
        """Answer preempt: nodes on which the pod is admitted when the victims are gone, with no fewer of them.

        Raises:
            InputError: the question cannot be understood.
        """
        pod = seen_pod(asked.Pod, self.shapes).pod
        plain = shape_of(pod)
        kept: dict[str, MetaVictims] = {}
        for name, uids, violations in _proposed(asked):
            if not self.in_time():
                break
            victims = self.view.faults.guarded(
                name, partial(self._victims, name, pod, plain, uids), lambda _error: None
            )
            if victims is not None:
                kept[name] = MetaVictims([MetaPod(uid) for uid in victims], violations)
        return PreemptAnswer(kept)

    def _verdicts(self, pod: Pod, names: Sequence[str]) -> Iterator[NodeVerdict]:
        known: dict[object, NodeVerdict] = {None: _UNDECIDED}
        for name, (key, outlook, shape) in zip(names, self._asked(pod, names), strict=True):
            verdict = known.get(key)
            if verdict is None and outlook is not None and self.in_time():
                verdict = known[key] = self.verdict(name, outlook, shape)
            yield verdict or _UNDECIDED

    def verdict(self, name: str, outlook: PossibleNode, shape: PodShape) -> NodeVerdict:
        """Say whether a pod of this shape may be bound to a node."""
        return self.view.faults.guarded(
            name,
            lambda: self.decider.verdict(outlook, shape),
            lambda _error: self.decider.verdict(CANNOT_BE_JUDGED, shape),
        )

    def _asked(self, pod: Pod, names: Sequence[str]) -> Iterator[tuple[object, PossibleNode | None, PodShape]]:
        """Yield what is known about each node and the shape of the pod there, with a key of the question.

        Equal questions have equal keys; the key of a node of which nothing could be found out in time is None.
        """
        plain = shape_of(pod)
        outlooks = self.view.outlooks(names, pod, self.in_time)
        if self.claims is None or not pod.claims:
            yield from ((outlook, outlook, plain) for outlook in outlooks)
            return
        for name, outlook in zip(names, outlooks, strict=True):
            if outlook is None:
                yield None, None, plain
                continue
            shape = self.shape_on(name, pod, plain)
            yield (outlook, shape.key), outlook, shape

    def shape_on(self, name: str, pod: Pod, plain: PodShape) -> PodShape:
        """Return the shape of a pod with what its claims give it, or ask for, on a node."""
        if self.claims is None or not pod.claims:
            return plain
        return self.view.faults.guarded(
            name, partial(self._claimed_shape, self.claims, name, pod, plain), lambda _error: plain
        )

    def _claimed_shape(self, claims: ClaimView, name: str, pod: Pod, plain: PodShape) -> PodShape:
        state = self.view.situation(name, pod).state
        devices = {} if state is None or isinstance(state, str) else state.devices.devices
        return claims.shaped(plain, pod, devices)

    def _score(self, name: str, outlook: PossibleNode, shape: PodShape) -> int:
        merit = self.view.faults.guarded(name, lambda: self.decider.merit(outlook, shape), lambda _error: None)
        return 0 if merit is None else self.weights.score(merit)

    def _victims(self, name: str, pod: Pod, plain: PodShape, proposed: Sequence[str]) -> list[str] | None:
        """Return the victims of a node; None when the pod would not be admitted without them either."""
        shape = self.shape_on(name, pod, plain)
        situation = self.view.situation(name, pod)
        kubelets = possible_kubelets(situation)
        if isinstance(kubelets, str):
            outlook = self.view.outlook(name, pod)
            return None if self.verdict(name, outlook, shape).reason else list(proposed)
        if _admitted_without(kubelets, proposed, shape):
            return list(proposed)
        lower = sorted(
            (one for one in self.view.pods_on(name).values() if one.priority < pod.priority),
            key=lambda one: (one.priority, one.uid),
        )
        others = [one.uid for one in lower if one.uid not in proposed]
        for tries, more in enumerate(_sets(others)):
            if tries >= MOST_TRIES or not self.in_time():
                return None
            if _admitted_without(kubelets, [*proposed, *more], shape):
                return [*proposed, *more]
        return None


def _sets(uids: Sequence[str]) -> Iterator[tuple[str, ...]]:
    """Yield sets of more victims, the smaller ones and those of lower priority first."""
    for size in range(1, _MOST_MORE + 1):
        yield from combinations(uids, size)


def _admitted_without(kubelets: Iterable[Kubelet], victims: Sequence[str], shape: PodShape) -> bool:
    """Tell whether a pod is admitted in every way that things can have gone, once the victims have left."""
    for kubelet in kubelets:
        left = kubelet.without([uid for uid in victims if uid in kubelet.node.active])
        if not admit(asked_node(left, shape), shape.pod, AdmitMode.TRIAL)[1].admitted:
            return False
    return True


def _proposed(asked: PreemptArguments) -> Iterator[tuple[str, list[str], int]]:
    """Yield the node, the uids of the victims and how many disruption budgets they violate."""
    for name, meta in (asked.NodeNameToMetaVictims or {}).items():
        yield name, [one.UID for one in meta.Pods or ()], meta.NumPDBViolations
    if asked.NodeNameToMetaVictims is None:
        whole: dict[str, Victims] = asked.NodeNameToVictims or {}
        for name, victims in whole.items():
            yield name, [one.metadata.uid for one in victims.Pods or ()], victims.NumPDBViolations


def encoded(answer: object) -> bytes:
    """Return an answer as JSON."""
    return msgspec.json.encode(answer)
