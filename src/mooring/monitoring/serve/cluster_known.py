"""The cluster as its page knows it: what nodes published, nodes and pods of the API server; usable from any thread.

Which nodes would take a pod, and why the others would not: grouped by cause, nodes in one state asked once.

It is for people: a pod that is bound and not in the state of its node yet is counted, and its place is not guessed. A
scheduler relies on the extender instead.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Final

from mooring.answers.base.plan import Question
from mooring.engine.core.cpuset import CPUSet
from mooring.engine.core.machine import Machine
from mooring.engine.core.pod import Pod
from mooring.engine.kubelet.admit import Load, Memo, PodShape, is_plain, load_of, shape_of, view_key
from mooring.engine.kubelet.kubelet import Kubelet
from mooring.explanations.codes import page
from mooring.explanations.why import ADMITTED, Prediction, check, predicted
from mooring.inputs.pods.defaults import PodGates
from mooring.inputs.pods.scheduling_fields import NO_FIELDS, NodeObject, SchedulingFields, Taint, scheduling_fields_of
from mooring.monitoring.serve.node_routes import Feed
from mooring.monitoring.serve.snapshot import ANY, NodeNotice, NodeSnapshot, ShownPod, pods_in_text, snapshot_of
from mooring.published.objects import FACTS, SHADOW, STATE, NodeFacts, NodeState
from mooring.published.possible_kubelets import UNJUDGED, NodeFaults, unjudged
from mooring.published.restored import KnownKinds, NodeKind, kind_of, restored
from mooring.published.shadow_document import ShadowStatus
from mooring.views.view import NodeView

NODE: Final = "Node"
POD: Final = "Pod"
UNPUBLISHED = "has published nothing"
UNUSABLE = "what the node published cannot be used"
_CLOSED = Taint("node.kubernetes.io/unschedulable", effect="NoSchedule")
"""The taint of a cordoned node."""


@dataclass(frozen=True, slots=True)
class ClusterPod:
    """A pod of the API server."""

    pod: Pod
    node: str = ""
    """Where it is bound; empty while it waits."""
    finished: bool = False
    refusal: str = ""
    """Why its node refused it, where one did."""
    fields: SchedulingFields = NO_FIELDS
    """What keeps it off nodes, where it waits or was refused."""
    since: float = 0.0
    """Unix time when it was refused, else when it was created; 0 where that is not known."""
    message: str = ""
    """Of its node about the refusal."""


@dataclass(frozen=True, slots=True)
class NodeNow:
    """One node with what is known of it."""

    node: NodeObject
    kubelet: Kubelet | str
    """As it published itself; a text says why it is unknown."""
    kind: NodeKind | None
    state: NodeState | None
    pods: tuple[ClusterPod, ...]
    """Bound to it and not finished."""
    refused: tuple[ClusterPod, ...]
    key: bytes = b""
    """Of all that decides about a new pod but the sums of its pods."""
    shadow: ShadowStatus | None = None
    """What a shadow of its kubelet counted, where one runs."""


class KnownCluster:
    """Takes objects of the cluster, and answers questions about them."""

    def __init__(self, faults: NodeFaults | None = None) -> None:
        """Begin without any knowledge; the engine cannot be asked about nodes with faults."""
        self.feed = Feed()
        self.faults = faults or NodeFaults()
        self._lock = threading.RLock()
        self._kinds = KnownKinds()
        self._states: dict[str, NodeState | str] = {}
        self._shadows: dict[str, ShadowStatus] = {}
        self._nodes: dict[str, NodeObject] = {}
        self._pods: dict[str, ClusterPod] = {}
        self._by_node: dict[str, dict[str, None]] = {}
        self._objects: dict[str, dict[str, Any]] = {
            STATE: self._states,
            SHADOW: self._shadows,
            NODE: self._nodes,
            POD: self._pods,
        }
        self._made: dict[str, NodeNow] = {}
        self._dirty = False

    def tick(self) -> None:
        """Announce what has changed since the last call: a hundred changes a second are one update."""
        with self._lock:
            dirty, self._dirty = self._dirty, False
        if dirty:
            self.feed.changed()

    # Reports.

    def put_facts(self, digest: str, facts: NodeFacts | str) -> None:
        """Take facts, or why they cannot be read; facts never change."""
        kind = self.faults.guarded(f"{FACTS} {digest}", partial(kind_of, digest, facts), unjudged)
        with self._lock:
            names = [name for name, one in self._states.items() if isinstance(one, NodeState) and one.facts == digest]
            self._kinds.put(digest, kind, is_used=bool(names))
            self._forget(names)

    def keep_facts(self, digests: Iterable[str]) -> None:
        """Forget all facts but these and those of a state."""
        with self._lock:
            self._kinds.keep(self._facts_of_states(), set(digests))

    def misses_facts(self) -> bool:
        """Tell whether facts of a state may have been dropped before the state came, and so are to be listed again."""
        with self._lock:
            used = self._facts_of_states()
            self._kinds.keep(used)
            return self._kinds.misses(used)

    def _facts_of_states(self) -> set[str]:
        return {one.facts for one in self._states.values() if isinstance(one, NodeState)}

    def put_state(self, name: str, state: NodeState | str) -> None:
        """Take what a node published, or why it cannot be read."""
        with self._lock:
            self._states[name] = state
            if isinstance(state, NodeState):
                self._kinds.used(state.facts)
            self._forget([name])

    def put_shadow(self, name: str, shadow: ShadowStatus) -> None:
        """Take what the shadow of a node counted."""
        with self._lock:
            self._shadows[name] = shadow
            self._forget([name])

    def put_node(self, node: NodeObject) -> None:
        """Take a Node."""
        with self._lock:
            self._nodes[node.name] = node
            self._forget([node.name])

    def put_pod(self, pod: ClusterPod) -> None:
        """Take a pod."""
        uid = pod.pod.uid
        with self._lock:
            before = self._pods.get(uid)
            if before is not None and before.node != pod.node:
                self._by_node.get(before.node, {}).pop(uid, None)
            self._pods[uid] = pod
            self._by_node.setdefault(pod.node, {})[uid] = None
            self._forget([pod.node])

    def keep(self, kind: str, names: Iterable[str]) -> None:
        """Forget all objects of a kind but these: states, shadows and Nodes by their names, pods by their uids."""
        kept = set(names)
        with self._lock:
            for name in self._objects[kind].keys() - kept:
                self.drop(kind, name)

    def drop(self, kind: str, name: str) -> None:
        """Forget an object."""
        with self._lock:
            found = self._objects[kind].pop(name, None)
            if isinstance(found, ClusterPod):
                self._by_node.get(found.node, {}).pop(name, None)
                name = found.node
            if found is not None:
                self._forget([name])

    def _forget(self, names: Iterable[str]) -> None:
        for name in names:
            self._made.pop(name, None)
        self._dirty = True

    # What is known.

    @property
    def names(self) -> list[str]:
        """Names of all nodes, in order."""
        with self._lock:
            return sorted({*self._nodes, *self._states})

    @property
    def namespaces(self) -> set[str]:
        """Those of all pods."""
        with self._lock:
            return {one.pod.namespace for one in self._pods.values()}

    def waiting(self) -> list[ClusterPod]:
        """Return the pods without a node, by name."""
        with self._lock:
            found = [self._pods[uid] for uid in self._by_node.get("", {})]
        return sorted((one for one in found if not one.finished), key=lambda one: (one.pod.namespace, one.pod.name))

    def pod(self, uid: str) -> ClusterPod | None:
        """Return a pod."""
        with self._lock:
            return self._pods.get(uid)

    def node(self, name: str) -> NodeNow | None:
        """Return a node with what is known of it."""
        with self._lock:
            if name not in self._nodes and name not in self._states:
                return None
            found = self._made.get(name)
            if found is None:
                found = self._made[name] = replace(self._node(name), shadow=self._shadows.get(name))
            return found

    def all(self) -> list[NodeNow]:
        """Return all nodes, by name."""
        return [found for name in self.names if (found := self.node(name)) is not None]

    def _node(self, name: str) -> NodeNow:
        pods = [self._pods[uid] for uid in self._by_node.get(name, {})]
        there = tuple(one for one in pods if not one.finished)
        refused = tuple(one for one in pods if one.refusal)
        node = self._nodes.get(name, NodeObject(name))
        state = self._states.get(name)
        if state is None or isinstance(state, str):
            return NodeNow(node, state or UNPUBLISHED, None, None, there, refused)
        kind = self._kinds.used(state.facts) or "its facts are not known"
        if isinstance(kind, str):
            return NodeNow(node, kind, None, state, there, refused)

        def made() -> tuple[Kubelet | str, bytes]:
            kubelet = restored(kind, state, {one.pod.uid: one.pod for one in there})
            return kubelet, b"" if isinstance(kubelet, str) else view_key(kind.digest, kubelet.node)

        kubelet, key = self.faults.guarded(name, made, lambda _error: (UNJUDGED, b""))
        return NodeNow(node, kubelet, kind, state, there, refused, key)


UNKNOWN = "nothing is known of the node"
KEPT_OFF = "labels, affinity or taints keep the pod off"
_MOST_ANSWERS: Final = 20_000


@dataclass(frozen=True, slots=True)
class Fitting:
    """Where a pod fits."""

    pod: str
    """``namespace/name``."""
    fits: tuple[str, ...]
    causes: tuple[tuple[str, str, tuple[str, ...]], ...]
    """Why nodes would not take it, with the code (empty for a cause of the scheduler) and the nodes; those of most
    nodes first."""


@dataclass(slots=True)
class FittingSearch:
    """Asks nodes about pods; answers of equal nodes are shared."""

    faults: NodeFaults = field(default_factory=NodeFaults)
    _known: Memo[tuple[bytes, Load, bytes], Prediction] = field(default_factory=lambda: Memo(_MOST_ANSWERS))

    def fitting(self, pod: Pod, nodes: Sequence[NodeNow], fields: SchedulingFields = NO_FIELDS) -> Fitting:
        """Return where a pod fits, of which the fields say what keeps it off nodes."""
        shape = shape_of(pod)
        fits: list[str] = []
        causes: dict[tuple[str, str], list[str]] = {}
        for one in nodes:
            cause = self.cause(pod, shape, one, fields)
            if cause is None:
                fits.append(one.node.name)
            else:
                causes.setdefault(cause, []).append(one.node.name)
        ordered = sorted(causes.items(), key=lambda entry: (-len(entry[1]), entry[0]))
        found = tuple((text, code, tuple(names)) for (text, code), names in ordered)
        return Fitting(f"{pod.namespace}/{pod.name}", tuple(fits), found)

    def cause(self, pod: Pod, shape: PodShape, node: NodeNow, fields: SchedulingFields) -> tuple[str, str] | None:
        """Return why a node would not take a pod, with the code; None where it would."""
        taints = (*node.node.taints, *([_CLOSED] if node.node.closed else []))
        if not fields.allows(node.node.labels, node.node.name) or not fields.tolerates(taints):
            return KEPT_OFF, ""
        if isinstance(node.kubelet, str) or node.kind is None:
            return UNKNOWN, ""
        kubelet = node.kubelet

        def asked() -> Prediction:
            load = load_of(kubelet)

            def ask() -> Prediction:
                managers = ADMITTED if is_plain(pod) else predicted(kubelet, shape.pod)[1]
                return managers if not managers.admitted else check(shape, load, kubelet.settings)

            return self._known.of((node.key, load, shape.key), ask)

        answer = self.faults.guarded(node.node.name, asked, lambda _error: None)
        if answer is None:
            return UNJUDGED, ""
        return None if answer.admitted else (page(answer.code).title, answer.code)


def fittings_in_text(manifest: bytes, cluster: KnownCluster) -> list[Fitting]:
    """Return where the pods of a manifest fit in a cluster, each with what its specification says about nodes.

    Raises:
        InputError: it cannot be understood, or has no pod or too many.
    """
    search, nodes = FittingSearch(cluster.faults), cluster.all()
    asked = [
        (pod, scheduling_fields_of(origin.content, origin.field)) for pod, origin in pods_in_text(manifest, PodGates())
    ]
    return [search.fitting(pod, nodes, fields) for pod, fields in asked]


def snapshot_of_node(node: NodeNow) -> NodeSnapshot:
    """Return a node of the cluster; an empty picture where nothing is known of it."""
    name = node.node.name
    if node.kind is None or node.state is None or isinstance(node.kubelet, str):
        words = str(node.kubelet)
        notice = NodeNotice(f"{name} {words}", warning=True) if words == UNPUBLISHED else quoted(words)
        return replace(unknown_node(name, notice), notices=(notice, *_shadow_notices(node)))
    facts, state = node.kind.facts, node.state
    named = {key.uid for key in state.pods} | set(state.devices.held)
    there = {one.pod.uid: one.pod for one in node.pods}
    running = tuple(there[key.uid] for key in state.pods if key.uid in there)
    question = Question(
        Machine(name, facts.machine),
        facts.config,
        facts.mooring,
        active=running,
        files=state.files,
        devices=state.devices.devices,
        held=state.devices.held,
        offline=CPUSet(node.kubelet.node.cpu.offline),
        displaced=node.kubelet.node.cpu.displaced,
    )
    found = snapshot_of(question)
    notices = [
        NodeNotice(f"{pod.namespace}/{pod.name} is bound and not yet in the node's state", namespace=pod.namespace)
        for uid, pod in there.items()
        if uid not in named
    ]
    refused = (
        ShownPod(pod.namespace, pod.name, pod.uid, one.refusal, False, (), "", one.message, one.since, pod)
        for one in node.refused
        for pod in [one.pod]
    )
    return replace(
        found,
        pods=(*refused, *found.pods),
        notices=(*found.notices, *notices, *_shadow_notices(node)),
    )


def unknown_node(name: str, notice: NodeNotice) -> NodeSnapshot:
    """Return an empty picture, with a notice that says why."""
    return NodeSnapshot(NodeView(name, "", notice.brief or notice.text, (), (), (), (), {}, ()), notices=(notice,))


def quoted(words: str) -> NodeNotice:
    """Return a notice with the words of the engine about the state, which can name any pod."""
    return NodeNotice(words, True, ANY, UNUSABLE)


def _shadow_notices(node: NodeNow) -> Iterator[NodeNotice]:
    """Yield what the shadow of the kubelet counted, and its newest difference."""
    found = node.shadow
    if found is None:
        return
    counts = f"agreed {found.agreed}, differs {found.differs}, cannot tell {found.unknown}"
    yield NodeNotice(f"Shadow of the kubelet since {found.since}: {counts}", warning=bool(found.differs))
    for one in found.differences[-1:]:
        # That of a restart is about all pods, and so is shown without its contents.
        what = f": the kubelet has {one.kubelet}, the engine {one.engine}" if one.pod else ""
        words = f"Newest difference: {one.pod or 'kubelet'} {one.event}: {one.cause}{what}"
        yield NodeNotice(words, warning=True, namespace=one.pod.partition("/")[0])
