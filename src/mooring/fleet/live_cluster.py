"""A live cluster as exact nodes: each is what it published, or a machine that is assumed, with the pods bound to it.

Both come to a :class:`~mooring.published.possible_kubelets.NodeKnowledge`, the extender's own value: one way leads from
objects to kubelets. Pods that no state names are admitted in the order of their start, and counted as assumed.

What is taken for granted about a live cluster, counted, for the reader of an answer.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from mooring.engine.core.errors import InputError
from mooring.engine.core.machine import Machine
from mooring.engine.core.pod import without_status
from mooring.engine.devicemanager.state import DeviceState
from mooring.engine.extensions.owners import claims_of
from mooring.engine.kubelet.admit import is_plain
from mooring.engine.kubelet.kubelet import Kubelet, StateTexts
from mooring.engine.kubelet.start import start_on
from mooring.engine.releases.catalog import KubeletVersion, chosen_release
from mooring.explanations.phrases import plural
from mooring.fleet import live_objects
from mooring.fleet.cluster import NodeCluster, RunningNode, offered
from mooring.fleet.live_objects import LivePod, live_pod, protected_pods
from mooring.inputs.configuration.node_configuration import configuration_of
from mooring.inputs.decoding.fields import Document
from mooring.inputs.node_groups import NodeGroup
from mooring.inputs.pods.defaults import PodGates
from mooring.inputs.pods.pod_relations import ZONE, PodSelector
from mooring.inputs.pods.scheduling_fields import NodeObject
from mooring.published.cluster_objects import BUDGET, NODE, POD, ClusterObjects
from mooring.published.facts_document import digest_of, facts_of
from mooring.published.objects import FACTS, STATE, NodeFacts, NodeState, object_name, state_of
from mooring.published.possible_kubelets import NodeFaults, NodeKnowledge, possible_kubelets, unjudged
from mooring.published.restored import NodeKind, kind_of

_MOST_NAMED: Final = 3


@dataclass(frozen=True, slots=True)
class LiveCluster:
    """A cluster as it is now."""

    cluster: NodeCluster
    pods: Mapping[str, tuple[LivePod, ...]]
    """Name of a node -> its pods, in the order of their start; under the empty name those that wait."""
    protected: tuple[PodSelector, ...]
    """The pods of which a PodDisruptionBudget lets none be evicted now."""

    def keeps(self, pod: LivePod) -> bool:
        """Tell whether a PodDisruptionBudget keeps a pod from being evicted now."""
        return any(one.matches(pod.pod.namespace, pod.labels) for one in self.protected)


_Described = tuple[Machine, NodeKind, NodeState]
"""What a node is, and what it has, as far as that is known."""


def live_cluster(objects: ClusterObjects, machines: Sequence[str] = (), config: Sequence[Document] = ()) -> LiveCluster:
    """Return the cluster of some objects.

    Args:
        objects: of the cluster.
        machines: ``KIND:MACHINE`` of nodes that publish nothing.
        config: configuration of kubelets of which none is known.

    Raises:
        InputError: an object is not valid, or the machine of a node is not known.
    """
    return _Reading(objects, live_objects.named_machines(machines), config).cluster()


class _Reading:
    """Objects on their way to a cluster."""

    def __init__(self, objects: ClusterObjects, named: Mapping[str, Machine], config: Sequence[Document]) -> None:
        self._objects, self._named, self._config = objects, named, config
        self._kinds: dict[str, NodeKind | str] = {}
        self._empty: dict[str, StateTexts] = {}
        # What is taken for granted, counted
        self._machines: Counter[str] = Counter()
        """Kind of the nodes whose machine is from the table or the person."""
        self._configurations = 0
        """Nodes whose kubelet's configuration is not known."""
        self._placed = 0
        """Pods that hold something, and that no published state names."""
        self._unplaced: list[str] = []
        """Pods of which the engine would refuse one in this order."""
        self._elsewhere = 0
        """Pods that are bound to nodes that are not listed."""
        self._left_out: dict[str, str] = {}
        """Node of which nothing can be said -> the reason."""
        self._releases: Counter[str] = Counter()
        """What is said of kubelets of other releases."""
        self._claiming = 0
        """Running pods with claims for which their node's state has no CPUs."""
        self._unknown: dict[str, list[str]] = {}
        self._states = {object_name(one): one for one in objects.of(STATE)}
        self._facts = {object_name(one): one for one in objects.of(FACTS)}
        self._bound: dict[str, list[Mapping[str, Any]]] = {}
        for content in objects.of(POD):
            spec = content.get("spec")
            name = spec.get("nodeName") if isinstance(spec, dict) else ""
            self._bound.setdefault(name if isinstance(name, str) else "", []).append(content)

    def cluster(self) -> LiveCluster:
        """Return it."""
        groups: list[NodeGroup] = []
        now: dict[str, RunningNode] = {}
        pods: dict[str, tuple[LivePod, ...]] = {"": self._pods_of("", PodGates())}
        nodes = [live_objects.node_object(content, self._objects.source) for content in self._objects.of(NODE)]
        live_objects.check_names((node.name for node in nodes), "node", self._objects.source)
        listed = {"", *(node.name for node in nodes)}
        self._elsewhere = sum(len(found) for name, found in self._bound.items() if name not in listed)
        for node in sorted(nodes, key=lambda one: one.name):
            described = self._described(node)
            if isinstance(described, str):
                self._left_out[node.name] = described
            elif described is not None:
                facts = described[1].facts
                pods[node.name] = self._pods_of(node.name, PodGates.of_node(facts.config, facts.mooring))
                self._add(groups, now, node, described, pods[node.name])
        # Refuse nodes whose machine is not known
        for kind, names in sorted(self._unknown.items()):
            others = f" and {len(names) - 1} more" if len(names) > 1 else ""
            what = f"instance type {kind!r:.60}" if kind else "a node without the label of an instance type"
            raise InputError(
                f"node {names[0]}{others}: the machine of {what} is not known, and nothing is published",
                source=self._objects.source,
                remedy=f"name it: --machine {kind or 'LABEL=VALUE'}:MACHINE, or let mooring publish run there",
            )
        live_objects.check_names((one.name for found in pods.values() for one in found), "pod", self._objects.source)
        if not groups:
            raise InputError(
                f"nothing can be said about any node: {next(iter(self._left_out.values()), 'there is none')}",
                source=self._objects.source,
                remedy="let mooring publish run on the nodes, or name their machines with --machine",
            )
        ignored = Counter(
            name
            for found in pods.values()
            for one in found
            for name in (*one.asked.fields.ignored, *one.asked.relations.ignored)
        )
        findings = (*self._objects.unread, *self._findings(len(pods[""]), ignored))
        cluster = NodeCluster(self._objects.source, tuple(groups), findings, now=now)
        return LiveCluster(cluster, pods, protected_pods(self._objects.of(BUDGET), self._objects.source))

    def _pods_of(self, node: str, gates: PodGates) -> tuple[LivePod, ...]:
        source = self._objects.source
        found = (
            live_pod(content, f"{source}: pod {object_name(content)}", gates) for content in self._bound.get(node, ())
        )
        return tuple(sorted((one for one in found if one is not None), key=lambda one: one.order))

    def _described(self, node: NodeObject) -> _Described | str | None:
        """Return what a node is; a text says why nothing can be said, None that its machine is to be named."""
        if node.name in self._states:
            state = state_of(self._states[node.name])
            if state.facts not in self._kinds:
                content = self._facts.get(state.facts)
                self._kinds[state.facts] = (
                    "its facts are not known" if content is None else kind_of(state.facts, facts_of(content))
                )
            kind = self._kinds[state.facts]
            return kind if isinstance(kind, str) else (Machine(node.name, kind.facts.machine), kind, state)
        machine = live_objects.machine_of_node(node, self._named)
        if machine is None:
            self._unknown.setdefault(live_objects.instance_type(node), []).append(node.name)
            return None
        by_name = any(live_objects.is_of_kind(node, kind) for kind in self._named)
        self._machines["--machine" if by_name else f"instance type {live_objects.instance_type(node)}"] += 1
        chosen = chosen_release([KubeletVersion(node.version, f"node {node.name}")], nearest=True)
        self._releases.update(one.message for one in chosen.findings)
        told = self._objects.configz.get(node.name)
        if told is not None:
            documents = [Document(dict(told), f"configuration of node {node.name}", 1, 1)]
        else:
            documents = list(self._config)
            self._configurations += not documents
        configuration = configuration_of(documents, machine=machine.info)
        facts = NodeFacts(machine.info, configuration.kubelet, replace(configuration.mooring, release=chosen.release))
        digest = digest_of(facts)
        if digest not in self._kinds:
            self._kinds[digest] = kind_of(digest, facts)
            start = start_on(machine, facts.config, facts.mooring, StateTexts())
            self._empty[digest] = start.files
        kind = self._kinds[digest]
        if isinstance(kind, str):
            return kind
        devices = DeviceState(live_objects.devices_of_node(node, machine))
        return machine, kind, NodeState(node.name, digest, self._empty[digest], devices)

    def _add(
        self,
        groups: list[NodeGroup],
        now: dict[str, RunningNode],
        node: NodeObject,
        described: _Described,
        pods: Sequence[LivePod],
    ) -> None:
        kubelet = self._kubelet(described, pods)
        if isinstance(kubelet, str):
            self._left_out[node.name] = kubelet
            return
        self._unplaced += [one.name for one in pods if not is_plain(one.pod) and one.uid not in kubelet.node.active]
        held = {(one.namespace, one.name) for one in claims_of(kubelet.node.cpu).values()}
        claims = [{(one.pod.namespace, name) for name in one.pod.claims} for one in pods]
        self._claiming += sum(not one <= held for one in claims)
        machine, kind, state = described
        facts = kind.facts
        groups.append(
            NodeGroup(
                node.name,
                1,
                machine,
                facts.config,
                facts.mooring,
                node.labels,
                node.taints,
                state.devices.devices,
                (node.labels[ZONE],) if node.labels.get(ZONE) else (),
                features=node.features,
            )
        )
        now[node.name] = RunningNode(kubelet, tuple(pods), {**offered(kubelet), **node.allocatable}, node.closed)

    def _kubelet(self, described: _Described, pods: Sequence[LivePod]) -> Kubelet | str:
        """Return the kubelet of a node as it is now; a text says why that cannot be told."""
        _, kind, state = described
        by_uid = {one.uid: one.pod for one in pods}
        named = {key.uid for key in state.pods if key.uid}
        nameless = {(key.namespace, key.name) for key in state.pods if not key.uid}
        new = [one for one in pods if one.uid not in named and (one.pod.namespace, one.pod.name) not in nameless]
        self._placed += sum(not is_plain(one.pod) for one in new)
        by_uid |= {one.uid: without_status(one.pod) for one in new}
        leaving = [one.uid for one in pods if one.leaving]
        situation = NodeKnowledge(kind, state, by_uid, leaving, [one.uid for one in new])
        found = NodeFaults().guarded(state.node, lambda: possible_kubelets(situation), unjudged)
        if isinstance(found, str):
            return found
        # The first is that in which no pod has left yet. What the cluster has no more is gone.
        gone = [uid for uid in found[0].node.active if uid not in by_uid]
        kubelet = found[0].without(gone) if gone else found[0]
        # From now on they have their statuses: a restart reads them.
        told = {one.uid: one.pod for one in new if one.uid in kubelet.node.active}
        return replace(kubelet, node=replace(kubelet.node, active={**kubelet.node.active, **told}))

    def _findings(self, waiting: int, ignored: Mapping[str, int]) -> Iterator[str]:
        """Yield what a reader has to know."""
        for kind, count in sorted(self._machines.items()):
            yield f"the machine of {plural(count, 'node')} is that of {kind}"
        if self._configurations:
            kubelets = plural(self._configurations, "kubelet")
            yield f"the configuration of {kubelets} is not known: its defaults are taken, --config names another"
        if self._placed:
            own, order = ("its own is", "its start") if self._placed == 1 else ("their own are", "their start")
            yield (
                f"{plural(self._placed, 'running pod')} with CPUs, memory or devices of {own} named by no "
                f"published state: admitted in the order of {order}"
            )
        if self._unplaced:
            named = ", ".join(self._unplaced[:_MOST_NAMED])
            pods = plural(len(self._unplaced), "running pod")
            yield f"{pods} would be refused in that order, counted in sums only: {named}"
        for message, count in sorted(self._releases.items()):
            yield f"{plural(count, 'kubelet')}: {message}"
        for name, reason in sorted(self._left_out.items()):
            yield f"node {name} is left out: {reason}"
        if self._elsewhere:
            yield f"{plural(self._elsewhere, 'pod')} on nodes that are not listed left out"
        if waiting:
            yield f"{plural(waiting, 'pod')} without a node left out"
        if self._claiming:
            yield f"{plural(self._claiming, 'running pod')} with claims that are assumed to take no CPU (MOOR-549)"
        for name, count in sorted(ignored.items()):
            yield f"{plural(count, 'pod')} {'has' if count == 1 else 'have'} {name}, which is not simulated"
