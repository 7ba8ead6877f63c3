"""Filter, prioritize and preempt: from what the scheduler asks to what it is answered."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import chain, combinations
from typing import TypeVar

import msgspec

from mooring.cluster.extender.claims import UNDECIDED, ClaimView, asked_node
from mooring.cluster.extender.deciding import Decider
from mooring.cluster.extender.options import Weights
from mooring.cluster.extender.pods import Shapes, seen_pod
from mooring.cluster.extender.possible_nodes import CANNOT_BE_JUDGED, NodeVerdict, PossibleNode
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
from mooring.engine.kubelet.admit import AdmitMode, Memo, PodShape, admit, shape_of
from mooring.engine.kubelet.kubelet import Kubelet
from mooring.published.possible_kubelets import possible_kubelets

_Answer = TypeVar("_Answer")
_UNDECIDED = NodeVerdict("mooring: not decided within the time of the request", hopeless=True)
_MOST_MORE = 2
"""Victims that are added to those which the scheduler proposes."""
_MOST_AT_ONCE = 1000
"""Nodes about which an answer from memory is given at once: it takes a millisecond."""
_MOST_READ = 32
"""Pods that were asked about last and are kept as they were read."""
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
    read: Memo[bytes, tuple[Pod, PodShape]] = field(default_factory=lambda: Memo(_MOST_READ))

    def filtered(self, asked: Arguments) -> FilterAnswer:
        """Answer filter.

        Raises:
            InputError: the question cannot be understood.
        """
        (pod, shape), names = self._asked(asked.Pod), node_names(asked)
        for name, why in self.claims.undecided(pod).items() if self.claims is not None else ():
            self.undecided(
                f"ResourceClaim {pod.namespace}/{name}",
                f"its devices cannot be foreseen: {why}; nodes with room are let through, and the bind decides "
                f"({UNDECIDED})",
            )
        verdicts = self._answered(pod, shape, names, self.verdict, _UNDECIDED)
        good, failed, hopeless = list[str](), dict[str, str](), dict[str, str]()
        for name, verdict in zip(names, verdicts, strict=True):
            if not verdict.reason:
                good.append(name)
            else:
                (hopeless if verdict.hopeless else failed)[name] = verdict.reason
        if asked.NodeNames is not None:
            return FilterAnswer(None, good, failed, hopeless)
        items = (asked.Nodes.items if asked.Nodes is not None else None) or []
        metadata = asked.Nodes.metadata if asked.Nodes is not None else {}
        kept = [item for item, verdict in zip(items, verdicts, strict=True) if not verdict.reason]
        return FilterAnswer(NodeList(metadata, kept), None, failed, hopeless)

    def prioritized(self, asked: Arguments) -> list[Priority]:
        """Answer prioritize.

        Raises:
            InputError: the question cannot be understood.
        """
        (pod, shape), names = self._asked(asked.Pod), node_names(asked)
        return list(map(Priority, names, self._answered(pod, shape, names, self._score, 0)))

    def knows(self, asked: Arguments, *, merit: bool) -> bool:
        """Tell whether filter, or prioritize, is answered from memory alone; the view is held.

        Raises:
            InputError: the question cannot be understood.
        """
        names = asked.NodeNames or ()
        (pod, shape) = self._asked(asked.Pod)
        if not 0 < len(names) <= _MOST_AT_ONCE or pod.claims:
            return False
        outlooks = self.view.outlooks(names, pod, lambda: False)
        return all(one is not None and self.decider.knows(one, shape, merit=merit) for one in set(outlooks))

    def preempted(self, asked: PreemptArguments) -> PreemptAnswer:
        """Answer preempt: nodes on which the pod is admitted when the victims are gone, with no fewer of them.

        Raises:
            InputError: the question cannot be understood.
        """
        pod, plain = self._asked(asked.Pod)
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

    def verdict(self, name: str, outlook: PossibleNode, shape: PodShape) -> NodeVerdict:
        """Say whether a pod of this shape may be bound to a node."""
        return self.view.faults.guarded(
            name,
            lambda: self.decider.verdict(outlook, shape),
            lambda _error: self.decider.verdict(CANNOT_BE_JUDGED, shape),
        )

    def _asked(self, data: msgspec.Raw) -> tuple[Pod, PodShape]:
        """Return a pod that is asked about: filter and prioritize send the same bytes."""

        def read() -> tuple[Pod, PodShape]:
            pod = seen_pod(data, self.shapes).pod
            return pod, shape_of(pod)

        return self.read.of(bytes(data), read)

    def _answered(
        self,
        pod: Pod,
        plain: PodShape,
        names: Sequence[str],
        ask: Callable[[str, PossibleNode, PodShape], _Answer],
        late: _Answer,
    ) -> list[_Answer]:
        """Return the answer about each node; equal questions are asked once, and none when there is no time left."""
        outlooks = self.view.outlooks(names, pod, self.in_time)
        keys: Sequence[object] = outlooks
        shapes: list[PodShape] = []
        if self.claims is not None and pod.claims:
            shapes = [self.shape_on(name, pod, plain) for name in names]
            keys = [(one, shape.key) for one, shape in zip(outlooks, shapes, strict=True)]
        known: dict[object, _Answer] = {}
        for key, number in dict(zip(keys, range(len(keys)), strict=True)).items():
            outlook, shape = outlooks[number], shapes[number] if shapes else plain
            if outlook is None or not self.in_time():
                known[key] = late
            else:
                known[key] = ask(names[number], outlook, shape)
        return list(map(known.__getitem__, keys))

    def shape_on(self, name: str, pod: Pod, plain: PodShape) -> PodShape:
        """Return the shape of a pod with what its claims give it, or ask for, on a node."""
        if self.claims is None or not pod.claims:
            return plain
        claims = self.claims

        def shaped() -> PodShape:
            state = self.view.situation(name, pod).state
            devices = {} if state is None or isinstance(state, str) else state.devices.devices
            return claims.shaped(plain, pod, devices)

        return self.view.faults.guarded(name, shaped, lambda _error: plain)

    def _score(self, name: str, outlook: PossibleNode, shape: PodShape) -> int:
        merit = self.view.faults.guarded(name, lambda: self.decider.merit(outlook, shape), lambda _error: None)
        return 0 if merit is None else merit.score(self.weights)

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
        # The smaller sets of more victims and those of lower priority first.
        sets = chain.from_iterable(combinations(others, size) for size in range(1, _MOST_MORE + 1))
        for tries, more in enumerate(sets):
            if tries >= MOST_TRIES or not self.in_time():
                return None
            if _admitted_without(kubelets, [*proposed, *more], shape):
                return [*proposed, *more]
        return None


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
