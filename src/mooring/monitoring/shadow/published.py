"""Kubelets as they publish themselves: what a shadow of several nodes observes, from anywhere in the cluster.

Nodes publish within about a second of a change, so that more can happen between two observations than beside a kubelet.
A start of a kubelet is detected by the facts that it changed; one that changed none decides as before.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from typing import Any, Final

import msgspec

from mooring.engine.core.errors import InputError, MooringError
from mooring.engine.core.machine import Finding
from mooring.inputs.decoding.fields import Report, ignore, mapping_at, text_at
from mooring.inputs.pods.defaults import PodGates
from mooring.published.facts_document import facts_of
from mooring.published.objects import FACTS, GROUP, PLURALS, STATE, VERSION, NodeFacts, NodeState
from mooring.published.observation import Observation
from mooring.published.restored import kind_of, restored
from mooring.published.state_document import state_of
from mooring.service.cluster.apiserver import Cluster, ClusterError
from mooring.service.cluster.following import Follower, mapping_of

QUIET: Final = 3.0
"""Seconds without a change after which a change is judged: pods change before nodes publish."""
_FACTS: Final = f"apis/{GROUP}/{VERSION}/{PLURALS[FACTS]}"
_STATES: Final = f"apis/{GROUP}/{VERSION}/{PLURALS[STATE]}"


class UnpublishedError(MooringError):
    """A node publishes nothing, or nothing that can be read."""


class PublishedNodes:
    """Facts and states by name; written by threads, read by another."""

    def __init__(self) -> None:
        """Hold nothing yet."""
        self._lock = threading.Lock()
        self._facts: dict[str, NodeFacts | str] = {}
        self._states: dict[str, NodeState | str] = {}

    def known(self, node: str) -> tuple[NodeState, NodeFacts]:
        """Return what a node publishes.

        Raises:
            UnpublishedError: it publishes nothing, or nothing that can be read.
        """
        with self._lock:
            state = self._states.get(node, f"node {node} publishes nothing")
            if isinstance(state, str):
                raise UnpublishedError(state)
            facts = self._facts.get(state.facts, f"the facts of node {node} are not known")
        if isinstance(facts, str):
            raise UnpublishedError(facts)
        return state, facts

    def take_facts(self, content: dict[str, Any]) -> None:
        """Take facts; they never change, and a state may name them after their object is gone."""
        found = _read(facts_of, content)
        with self._lock:
            self._facts[_name(content)] = found

    def take_state(self, content: dict[str, Any]) -> None:
        """Take what a node publishes."""
        found = _read(state_of, content)
        with self._lock:
            self._states[_name(content)] = found

    def drop_state(self, content: dict[str, Any]) -> None:
        """Forget what a node published."""
        with self._lock:
            self._states.pop(_name(content), None)


class PublishedKubelet:
    """What one node publishes, as a source of a shadow; used by one thread."""

    def __init__(self, node: str, nodes: PublishedNodes) -> None:
        """Observe nothing yet."""
        self._node, self._nodes = node, nodes
        self._seen: Observation | None = None
        self.starts = 1
        """How often the kubelet has started with other facts while it was observed, counted from 1."""

    @property
    def gates(self) -> PodGates:
        """Of the node, as it publishes itself.

        Raises:
            UnpublishedError: it does not.
        """
        _, facts = self._nodes.known(self._node)
        return PodGates.of_node(facts.config, facts.mooring)

    def observe(self) -> Observation:
        """Return what the node publishes now, the same object while nothing changes.

        Raises:
            UnpublishedError: nothing that can be read.
        """
        found, facts = self._nodes.known(self._node)
        # It counts how often it was written.
        state = replace(found, sequence=0)
        if self._seen is not None and state == self._seen.state:
            return self._seen
        if self._seen is not None and state.facts != self._seen.state.facts:
            self.starts += 1
        kind = kind_of(state.facts, facts)
        kubelet = kind if isinstance(kind, str) else restored(kind, state, {})
        if isinstance(kubelet, str):
            self._seen = Observation(facts, state, None, kubelet)
        else:
            self._seen = Observation(facts, state, kubelet.node)
        return self._seen


class _Objects:
    """Brings objects of one kind."""

    def __init__(self, take: Callable[[dict[str, Any]], None], drop: Callable[[dict[str, Any]], None], report: Report):
        self._take, self._drop, self._report = take, drop, report

    def listed(self, pages: Iterator[list[msgspec.Raw]]) -> None:
        for page in pages:
            for item in page:
                self._take(mapping_of(item))

    def changed(self, item: msgspec.Raw) -> None:
        self._take(mapping_of(item))

    def deleted(self, item: msgspec.Raw) -> None:
        self._drop(mapping_of(item))

    def failed(self, error: ClusterError, times: int) -> None:
        if times == 1:
            self._report(Finding("warning", "API server", str(error)))


def followers_of(
    nodes: PublishedNodes, names: Iterable[str], connect: Callable[[], Cluster], report: Report = ignore
) -> list[Follower]:
    """Return what keeps the objects of nodes up to date once they are started."""
    states = _Objects(nodes.take_state, nodes.drop_state, report)
    queries = [{"fieldSelector": f"metadata.name={name}"} for name in names]
    return [
        Follower(connect, _FACTS, _Objects(nodes.take_facts, lambda _: None, report), name="record"),
        *(Follower(connect, _STATES, states, query=query, name="record") for query in queries),
    ]


def _read(read: Callable[[object], Any], content: dict[str, Any]) -> Any:
    try:
        return read(content)
    except InputError as error:
        return str(error)


def _name(content: dict[str, Any]) -> str:
    return text_at(mapping_at(content, "metadata"), "name")
