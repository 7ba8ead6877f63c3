"""The nodes of a fleet as shared states, and what is kept of them over time for answers that draw them.

Stranded capacity follows the fragmentation of "Beware of Fragmentation" (USENIX ATC 2023): of each node, what is free
counts as lost for the share of the work's pods that the node cannot take, by the sums of the scheduler.

What keeps nodes from taking one more pod.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable
from dataclasses import dataclass, field, replace
from typing import Final, TypeAlias

import numpy as np
from msgspec import structs

from mooring.engine.kubelet.start import emptied
from mooring.explanations.codes import page
from mooring.explanations.why import ADMITTED, Prediction
from mooring.fleet.cluster import NodeCluster, PodDemand, Work, offers_of
from mooring.fleet.documents import CausePart, FleetSamplePart, WaitCausePart
from mooring.fleet.scheduler.strategy import friendly
from mooring.fleet.scheduler.table import Amounts, NodeTable
from mooring.fleet.states import KubeletChange, SharedState, SharedStates, resizing


@dataclass(frozen=True, slots=True)
class PlacedPod:
    """A pod on a node."""

    name: str
    asked: PodDemand
    place: str
    """Its name in the node's state; empty for a pod to which no manager gives anything."""
    since: float
    """When it was admitted, in seconds since the beginning."""


class Nodes:
    """All nodes; the only place that changes them."""

    def __init__(self, cluster: NodeCluster) -> None:
        """Start each kind of node once.

        Raises:
            InputError: a kubelet does not start.
        """
        self.states = SharedStates()
        kubelets = {group.name: cluster.started(group) for group in cluster.groups}
        self._empty = {name: self.states.of(name, kubelet) for name, kubelet in kubelets.items()}
        offers = {group.name: offers_of(cluster.now.get(group.name), kubelets[group.name]) for group in cluster.groups}
        members = list(cluster.members())
        self.places = {one.name: place for place, one in enumerate(members)}
        self.table = NodeTable(members, [offers[one.group.name] for one in members])
        self.at: list[SharedState] = [self._empty[one.group.name] for one in members]
        self.pods: list[dict[str, PlacedPod]] = [{} for _ in members]
        """By the name of the pod, in the order of their admission; one for each node."""
        self.held: list[dict[str, PodDemand]] = [{} for _ in members]
        """Pods that wait on a node for room, in their order; the scheduler counts them."""
        for place, member in enumerate(members):
            if member.now is not None:
                self.table.open[place] = not member.now.closed
                for pod in member.now.pods:
                    self.table.add(place, pod.asked)
                    held = pod.uid if pod.uid in self.at[place].kubelet.node.active else ""
                    self.pods[place][pod.name] = PlacedPod(pod.name, pod.asked, held, 0.0)

    def would(self, node: int, asked: PodDemand) -> Prediction:
        """Return what a node's managers would do with a pod."""
        return ADMITTED if asked.plain else self.states.would(self.at[node], asked.shape)

    def takes(self, node: int, asked: PodDemand, *, exactly: bool) -> bool:
        """Tell whether a node would take a pod.

        Args:
            node: its place.
            asked: the pod.
            exactly: whether its managers are asked, too, as the extender does.
        """
        if not self.table.willing(asked)[node] or self.table.lacking(asked, node):
            return False
        return (not exactly or self.would(node, asked).admitted) and bool(friendly(self.table, asked)[node])

    def admit(self, node: int, asked: PodDemand) -> tuple[Prediction, str]:
        """Let a node decide about a pod; an admitted one is on it.

        Returns:
            The decision, and the pod's name in the node's state, by which it is removed.
        """
        if asked.plain:
            self.table.add(node, asked)
            return ADMITTED, ""
        prediction, after, pod = self.states.admit(self.at[node], asked.shape)
        if prediction.admitted:
            self.at[node] = after
            self.table.add(node, asked)
        return prediction, pod

    def remove(self, node: int, asked: PodDemand, pod: str) -> None:
        """Take a pod off a node.

        Args:
            node: its place.
            asked: the pod.
            pod: its name in the node's state.
        """
        self.table.remove(node, asked)
        if pod:
            self.at[node] = self.states.remove(self.at[node], pod)

    def begin(self, node: int, name: str, asked: PodDemand, now: float) -> Prediction:
        """Let a node decide about a pod, and remember an admitted one by its name.

        Args:
            node: its place.
            name: of the pod.
            asked: the pod.
            now: seconds since the beginning.
        """
        prediction, place = self.admit(node, asked)
        if prediction.admitted:
            self.pods[node][name] = PlacedPod(name, asked, place, now)
        return prediction

    def hold(self, node: int, name: str, asked: PodDemand) -> None:
        """Let a pod wait on a node that has no room for it."""
        self.held[node][name] = asked
        self.table.add(node, asked)

    def forget(self, node: int, name: str) -> None:
        """Take a pod off a node on which it waits for room."""
        self.table.remove(node, self.held[node].pop(name))

    def begin_held(self, node: int, now: float) -> list[str]:
        """Admit the pods that wait on a node and for which there is room now, and return their names."""
        found = []
        for name, asked in list(self.held[node].items()):
            self.forget(node, name)
            if self.begin(node, name, asked, now).admitted:
                found.append(name)
            else:
                self.hold(node, name, asked)
        return found

    def end(self, node: int, name: str) -> None:
        """Take a pod off a node by its name."""
        pod = self.pods[node].pop(name)
        self.remove(node, pod.asked, pod.place)

    def change(self, node: int, change: KubeletChange, key: Hashable) -> tuple[dict[str, Prediction], str]:
        """Let the kubelet or the CPUs of a node change.

        Args:
            node: its place.
            change: what happens.
            key: of the change; equal changes have equal keys.

        Returns:
            The pods that the node does not admit again, with the reasons; they are counted on it no more. And why the
            kubelet does not start again, empty when it does.
        """
        pods = list(self.pods[node].values())
        placed = [(one.place, one.asked.shape) for one in pods]
        self.at[node], by_number, message = self.states.changed(self.at[node], change, placed, key)
        # A pod without a place, which sums alone count, was refused before.
        refused = {number: why for number, why in by_number.items() if pods[number].place or pods[number].asked.plain}
        for number in refused:
            self.table.remove(node, pods[number].asked)
            del self.pods[node][pods[number].name]
        self.table.set_offer(node, offers_of(self.table.members[node].now, self.at[node].kubelet))
        return {pods[number].name: why for number, why in refused.items()}, message

    def resize(self, node: int, name: str, wanted: PodDemand) -> str:
        """Give a pod other resources, and return why it does not get them; empty when it does.

        Args:
            node: its place.
            name: of the pod.
            wanted: the pod with the resources that it wants.
        """
        pod = self.pods[node][name]
        number, key = list(self.pods[node]).index(name), ("resize", name, wanted.shape.key)
        _, message = self.change(node, resizing(number, wanted.shape.pod), key)
        if not message:
            self.table.remove(node, pod.asked)
            self.table.add(node, wanted)
            self.pods[node][name] = replace(pod, asked=wanted)
        return message

    def empty(self, node: int) -> None:
        """Let a node that has no pod begin anew, as it was at the beginning."""
        member = self.table.members[node]
        begun = self._empty[member.group.name]
        empty = emptied(begun.kubelet) if member.now is not None else None
        self.at[node] = begun if empty is None else self.states.of(member.group.name, empty)
        self.table.set_offer(node, offers_of(member.now, self.at[node].kubelet))


NodesSeen: TypeAlias = tuple[float, Amounts, tuple[SharedState, ...]]
"""All nodes at one moment: seconds since the beginning, requests, with a row for each resource of the table and a
column for each node, and the state of each node."""


@dataclass(slots=True)
class NodeHistory:
    """What a simulation keeps of its nodes where it is asked to."""

    moments: list[NodesSeen] = field(default_factory=list)
    refused: dict[str, SharedState] = field(default_factory=dict)
    """Name of a pod that a kubelet refused -> the state of its node then."""

    def look(self, time: float, nodes: Nodes) -> None:
        """Keep the nodes as they are."""
        self.moments.append((time, nodes.table.used.copy(), tuple(nodes.at)))


_NOT_SHOWN = ("pods", "ephemeral-storage")
_MOST_KINDS = 64
"""Kinds of pods, the most frequent ones, that stand for the work."""
_TIMES_AS_LONG = 10
"""Pods may run longer than new ones arrive: up to this many times the moments are kept, then half of them."""


Counts = tuple[int, int, int]
"""Pods that run, that wait, and refusals so far."""


class Sampler:
    """Looks at a cluster at evenly spaced moments."""

    def __init__(self, nodes: Nodes, work: Work, most: int, history: NodeHistory | None = None) -> None:
        """Begin before the first event.

        Args:
            nodes: of the simulation.
            work: its work.
            most: number of moments until the last time that the work names.
            history: takes the states of the nodes at these moments, where they are wanted.
        """
        self.samples: list[FleetSamplePart] = []
        self._history = history
        self._nodes, self._step = nodes, work.ends / most if most and work.ends else 0.0
        self._most_kept = most * _TIMES_AS_LONG
        self._shown = [name for name in nodes.table.resources if name not in _NOT_SHOWN]
        kinds: dict[object, PodDemand] = {}
        counts: Counter[object] = Counter()
        for asked, count in work.demands():
            kinds[asked.key] = asked
            counts[asked.key] += count
        self._kinds = [(kinds[key], count) for key, count in counts.most_common(_MOST_KINDS)]

    def until(self, time: float, counts: Counts) -> None:
        """Look at every moment before a time; nothing has changed since the last event."""
        seen: FleetSamplePart | None = None
        while self._step and len(self.samples) * self._step < time:
            moment = len(self.samples) * self._step
            self._remember(moment)
            seen = self._sample(moment, counts) if seen is None else structs.replace(seen, at=moment)
            self.samples.append(seen)
            if len(self.samples) == self._most_kept:
                # Forget every other moment, and look half as often
                self._step *= 2
                del self.samples[1::2]
                if self._history is not None:
                    del self._history.moments[1::2]

    def last(self, time: float, counts: Counts) -> None:
        """Look for the last time."""
        self._remember(time)
        self.samples.append(self._sample(time, counts))

    def _remember(self, time: float) -> None:
        if self._history is not None:
            self._history.look(time, self._nodes)

    def _sample(self, time: float, counts: Counts) -> FleetSamplePart:
        table = self._nodes.table
        used = {name: int(table.row(table.used, name).sum()) for name in self._shown}
        lost = dict.fromkeys(self._shown, 0.0)
        free = {name: table.row(table.offered, name) - table.row(table.used, name) for name in self._shown}
        total = sum(count for _, count in self._kinds)
        for asked, count in self._kinds:
            not_taking = ~(table.willing(asked) & table.fitting(asked))
            for name in self._shown:
                lost[name] += int(np.where(not_taking, free[name], 0).sum()) * count / total
        return FleetSamplePart(time, *counts, used, {name: round(amount) for name, amount in lost.items()})


_CONSTRAINTS: Final = "taints, node selector or node affinity"
_RELATIONS: Final = "affinity to pods or spread constraints"


def obstacle(nodes: Nodes, place: int, asked: PodDemand) -> tuple[str, str] | None:
    """Return why a node does not take a pod, with the code where its managers would refuse it; None when it does."""
    table = nodes.table
    member = table.members[place]
    if not table.open[place]:
        return (member.now.closed if member.now is not None else "") or "drained", ""
    if (needed := asked.fields.features) and (undeclared := needed - member.group.declared):
        return f"does not declare {', '.join(sorted(undeclared))}", ""
    if not table.allowed(asked.fields)[place]:
        return _CONSTRAINTS, ""
    if not friendly(table, asked)[place]:
        return _RELATIONS, ""
    if lacking := table.lacking(asked, place):
        return f"too little free {lacking}", ""
    prediction = nodes.would(place, asked)
    return None if prediction.admitted else (page(prediction.code).title, prediction.code)


def causes(nodes: Nodes, asked: PodDemand) -> list[CausePart]:
    """Return why nodes do not take one more pod, the causes that concern most nodes first."""
    found: dict[tuple[str, str], list[str]] = {}
    for place, member in enumerate(nodes.table.members):
        if (cause := obstacle(nodes, place, asked)) is not None:
            found.setdefault(cause, []).append(member.name)
    ordered = sorted(found.items(), key=lambda entry: (-len(entry[1]), entry[0][0]))
    return [CausePart(*cause, names) for cause, names in ordered]


def cause_words(cause: CausePart | WaitCausePart) -> str:
    """Return a cause with its code, where it has one."""
    return f"{cause.text} ({cause.code})" if cause.code else cause.text
