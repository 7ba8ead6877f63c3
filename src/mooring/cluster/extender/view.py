"""The cluster as the extender knows it: facts, states and pods of all nodes, and what it bound itself.

The API server's word on where a pod is bound is the truth; a published state only tells where the pods lie that it
names. So a state may come late, twice, or not at all: what is bound and not named is still to be admitted, and what is
named and no longer bound may leave at any moment.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial

from cachetools import LRUCache

from mooring.cluster.extender.claims import ClaimView
from mooring.cluster.extender.known_node import KnownNode, published
from mooring.cluster.extender.pods import ClusterPods, Seen
from mooring.cluster.extender.possible_nodes import TOO_OLD, PossibleNode, PossibleNodes
from mooring.engine.core.pod import Pod
from mooring.published.objects import FACTS, NodeFacts, NodeState
from mooring.published.possible_kubelets import UNJUDGED, NodeFaults, NodeKnowledge, Steps, unjudged
from mooring.published.restored import KnownKinds, NodeKind, kind_of

ASSUMED_FOR = 600.0
"""Seconds for which a bind counts whose pod the API server has not shown since."""
_MOST_IN_STEPS = 128
"""Nodes whose outlook was made last, and whose next one begins with the steps of that: pods are bound to a few at once,
and the steps of a node with many pods that no state names take a megabyte."""

_NOTHING = NodeKnowledge(None, None, {}, (), ())


class ClusterView:
    """Takes reports and answers what is known about a node; usable from any thread."""

    def __init__(
        self,
        clock: Callable[[], float],
        *,
        assumed_for: float = ASSUMED_FOR,
        longest_age: float | None = None,
        claims: ClaimView | None = None,
        faults: NodeFaults | None = None,
    ) -> None:
        """Begin without any knowledge.

        Args:
            clock: seconds that only go forward.
            assumed_for: seconds for which a bind counts that the API server does not confirm.
            longest_age: seconds after which a state is too old to say anything; None for never.
            claims: of the cluster; None where they do not count.
            faults: of nodes that the engine cannot be asked about.
        """
        self.faults = faults or NodeFaults()
        self._clock = clock
        self._assumed_for = assumed_for
        self._longest_age = longest_age
        self._claims = claims
        self._lock = threading.RLock()
        self._outlooks = PossibleNodes()
        self._kinds = KnownKinds()
        self._nodes: dict[str, KnownNode] = {}
        self._pods = ClusterPods(self._node, clock)
        self._steps: LRUCache[str, Steps] = LRUCache(_MOST_IN_STEPS)

    def report_refusals(self, report: Callable[[str], object]) -> None:
        """Report the reason whenever a node refuses a pod that this extender has bound to it."""
        self._pods.refused = report

    # Reports.

    def put_facts(self, digest: str, facts: NodeFacts | str) -> None:
        """Take facts, or the reason why they cannot be read."""
        with self._lock:
            if isinstance(self._kinds.get(digest), NodeKind):
                return  # facts never change
        kind = self.faults.guarded(f"{FACTS} {digest}", partial(kind_of, digest, facts), unjudged)
        with self._lock:
            nodes = [node for node in self._nodes.values() if node.state.facts == digest]
            self._kinds.put(digest, kind, is_used=bool(nodes))
            for node in nodes:
                node.changed()

    def keep_facts(self, digests: Iterable[str]) -> None:
        """Forget all facts but these and those of a state."""
        with self._lock:
            self._kinds.keep(self._facts_of_states(), set(digests))

    def misses_facts(self) -> bool:
        """Tell whether facts of a state may have been dropped before the state came, and so are to be listed again."""
        with self._lock:
            return self._kinds.misses(self._facts_of_states())

    def put_state(self, name: str, version: int, state: NodeState | str, *, listed: bool = False) -> None:
        """Take a state, or the reason why it cannot be read; one that is older than what is known is left alone.

        Args:
            name: of the node.
            version: of the object, which grows.
            state: what it says.
            listed: whether it is from a list, which is believed whatever its version: a restored cluster counts again.
        """
        new = published(state, version, self._clock())
        with self._lock:
            node = self._node(name)
            node.take_state(new, None if isinstance(state, str) else state, listed=listed)
            self._kinds.used(node.state.facts)

    def drop_state(self, name: str) -> None:
        """Forget the state of a node, which is no longer published."""
        with self._lock:
            if name in self._nodes:
                self._nodes[name].forget_state()

    def keep_states(self, names: Iterable[str]) -> None:
        """Forget the states of all nodes but these."""
        kept = set(names)
        with self._lock:
            for name, node in self._nodes.items():
                if name not in kept and node.state.is_there:
                    node.forget_state()

    def put_pod(self, seen: Seen) -> None:
        """Take a pod as a watch shows it: pods are shown in the order of their binding."""
        with self._lock:
            self._pods.put(seen)

    def replace_pods(self, pods: Iterable[Seen]) -> None:
        """Take all pods that there are; the order of new ones is known by the second only."""
        listed = list(pods)  # the pages of a list may take their time
        with self._lock:
            self._pods.replace(listed)

    def read_pods(self, read: Callable[[], Iterable[Seen]]) -> None:
        """Take pods that are read beside the watch: those whose binding it has not shown; their order is not known.

        Args:
            read: reads them from the API server; meanwhile the watch goes on.
        """
        listed: list[Seen] = []
        with self._lock:
            self._pods.begin_list()
        try:
            listed.extend(read())
        finally:
            with self._lock:
                self._pods.end_list(listed)

    def drop_pod(self, uid: str) -> None:
        """Take it that a pod is deleted."""
        with self._lock:
            self._pods.deleted(uid)

    def given(self, uids: Iterable[str]) -> None:
        """Take it that claims of pods have changed, by the uids of these pods."""
        with self._lock:
            for uid in uids:
                entry = self._pods.bound.get(uid)
                if entry is not None and not entry.named:
                    self._node(entry.node).changed()

    # What this extender does.

    def lock_of(self, name: str, *, checks: bool = False) -> threading.Lock:
        """Return the lock that is held while a pod is bound to a node, or while it is checked for the last time."""
        with self._lock:
            return self._node(name).checking if checks else self._node(name).binding

    # The scheduler's next request comes soon: the outlook is made here, where no request waits for it.

    def assume(self, pod: Pod, name: str) -> None:
        """Count a pod as bound from now on, before the request to the API server; its outcome is still open."""
        with self._lock:
            node, is_new = self._node(name), pod.uid not in self._pods.bound
            before = node.outlook
            self._pods.assume(pod, name)
            if is_new and node.outlook is None and node.only_adds and before is not None and before.kind is not None:
                node.outlook = self._outlooks.with_sums(before, before.kind, pod)
        self.outlook(name)

    def bound(self, uid: str, name: str) -> None:
        """Take the API server's word that a pod is bound to a node."""
        with self._lock:
            self._pods.is_bound(uid)
        self.outlook(name)

    def not_bound(self, uid: str) -> None:
        """Take the API server's word that a pod is not bound to where it was to be."""
        with self._lock:
            self._pods.is_not_bound(uid)

    # What can be said.

    def waiting(self, uid: str) -> Pod | None:
        """Return a pod that is known to wait; None for one that is bound or may be."""
        with self._lock:
            return self._pods.waiting(uid)

    @contextmanager
    def held(self) -> Iterator[bool]:
        """Let nothing change meanwhile; false at once, and nothing is held, where another thread changes something."""
        is_held = self._lock.acquire(blocking=False)
        try:
            yield is_held
        finally:
            if is_held:
                self._lock.release()

    def names(self) -> list[str]:
        """Return the nodes of which anything is known."""
        with self._lock:
            return list(self._nodes)

    def pods_on(self, name: str) -> dict[str, Pod]:
        """Return the pods of a node that are not known to leave."""
        with self._lock:
            entries = self._nodes[name].pods if name in self._nodes else {}
            return {uid: entry.pod for uid, entry in entries.items() if not entry.leaving}

    def outlook(self, name: str, asked: Pod | None = None) -> PossibleNode:
        """Return what is known about a node.

        Args:
            name: of the node.
            asked: the pod that is asked about. It is left out, and pods of no lower priority for which others were
                preempted on the node may come before it.
        """
        with self._lock:
            node = self._nodes.get(name)
            if node is None:
                return self._outlooks.of(_NOTHING)
            age = None if self._longest_age is None or not node.state.packed else self._clock() - node.state.received
            if age is not None and self._longest_age is not None and age > self._longest_age:
                return self._outlooks.trouble(TOO_OLD)
            before = self._pods.possibly_before(name, asked) if asked is not None and self._pods.nominated else []
            special = bool(before) or (asked is not None and asked.uid in node.pods)
            if node.outlook is not None and not special:
                return node.outlook
            situation = self._situation(node, Steps()) if special else _NOTHING
        if special and asked is not None:
            return self._made(name, situation.without(asked.uid).with_possible(before))
        with node.making:
            with self._lock:
                if node.outlook is not None:  # another thread has just made it
                    return node.outlook
                steps = self._steps.setdefault(name, Steps())
                steps.begin()
                situation, stamp = self._situation(node, steps), node.stamp
            found = self._made(name, situation)
            with self._lock:
                if node.stamp == stamp:
                    node.outlook = found
        return found

    def _made(self, name: str, situation: NodeKnowledge) -> PossibleNode:
        return self.faults.guarded(
            name, lambda: self._outlooks.of(situation), lambda _error: self._outlooks.trouble(UNJUDGED)
        )

    def outlooks(self, names: Sequence[str], asked: Pod, in_time: Callable[[], bool]) -> list[PossibleNode | None]:
        """Return what is known about many nodes, as :meth:`outlook` does; None where no time is left to find out.

        Almost all outlooks are made before they are needed. They are read under one lock.

        Args:
            names: of the nodes.
            asked: the pod that is asked about.
            in_time: tells whether outlooks may still be made.
        """
        with self._lock:
            nodes = list(map(self._nodes.get, names))
            made = [None if node is None else node.outlook for node in nodes]
            if self._longest_age is not None:
                oldest = self._clock() - self._longest_age
                made = [
                    one if node and node.state.received >= oldest else None
                    for one, node in zip(made, nodes, strict=True)
                ]
            bound = self._pods.bound.get(asked.uid)
            special = {*self._pods.nominated.values(), *([bound.node] if bound is not None else ())}
            if special:
                made = [None if name in special else one for name, one in zip(names, made, strict=True)]
        for number in [number for number, one in enumerate(made) if one is None]:
            made[number] = self.outlook(names[number], asked) if in_time() else None
        return made

    def situation(self, name: str, asked: Pod) -> NodeKnowledge:
        """Return everything that is known about a node, as far as it concerns a pod."""
        with self._lock:
            node = self._nodes.get(name)
            if node is None:
                return _NOTHING
            before = self._pods.possibly_before(name, asked)
            return self._situation(node, Steps()).without(asked.uid).with_possible(before)

    def changed_nodes(self) -> list[str]:
        """Return the nodes whose outlook is to be made again."""
        with self._lock:
            return [name for name, node in self._nodes.items() if node.outlook is None and node.state.packed]

    def prune(self) -> None:
        """Forget what is over: to be called now and then."""
        with self._lock:
            for name, node in list(self._nodes.items()):
                self._forget_over(node)
                if node.is_forgotten:
                    del self._nodes[name]
            self._kinds.keep(self._facts_of_states())

    def counts(self) -> dict[str, int]:
        """Return how much is known, for metrics."""
        with self._lock:
            entries = self._pods.bound.values()
            return {
                "nodes": sum(1 for node in self._nodes.values() if node.state.packed),
                "unreadable": sum(1 for node in self._nodes.values() if node.state.trouble),
                "unjudged": self.faults.count,
                "pods": len(self._pods),
                "assumed": sum(1 for entry in entries if not entry.named and entry.gone is None),
                "unconfirmed": sum(1 for entry in entries if entry.ours and not entry.confirmed),
            }

    # Within the lock.

    def _facts_of_states(self) -> set[str]:
        return {node.state.facts for node in self._nodes.values() if node.state.facts}

    def _node(self, name: str) -> KnownNode:
        found = self._nodes.get(name)
        if found is None:
            found = self._nodes[name] = KnownNode(name)
        return found

    def _situation(self, node: KnownNode, steps: Steps) -> NodeKnowledge:
        self._forget_over(node)
        return node.situation(self._kinds.used(node.state.facts), self._claims, steps)

    def _forget_over(self, node: KnownNode) -> None:
        for uid in node.over(self._clock(), self._assumed_for):
            self._pods.forget(uid)
