"""What the extender hears from the API server: facts, states and pods of all nodes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

import msgspec

from mooring.cluster.extender.claims import ClaimView
from mooring.cluster.extender.pods import Seen, Shapes, seen_pod
from mooring.cluster.extender.view import ClusterView
from mooring.engine.core.errors import InputError
from mooring.inputs.pods.pods import MIRROR
from mooring.published.facts_document import facts_of
from mooring.published.objects import FACTS, GROUP, PLURALS, STATE, VERSION, NodeFacts, NodeState, state_of
from mooring.published.possible_kubelets import unjudged
from mooring.service.apiserver import Cluster, ClusterError
from mooring.service.following import PODS, Follower, mapping_of

Report = Callable[[str, str], object]
"""Takes what something is about, and what is the matter."""


_RESOURCE = "apis/resource.k8s.io/v1"


class _NamedMetadata(msgspec.Struct):
    name: str = ""
    namespace: str = ""
    uid: str = ""
    resourceVersion: str = ""  # noqa: N815 - the field's name on the wire
    annotations: dict[str, Any] | None = None


class _Named(msgspec.Struct):
    metadata: _NamedMetadata = msgspec.field(default_factory=_NamedMetadata)


@dataclass(frozen=True, slots=True)
class FactsListener:
    """Brings facts to the view."""

    view: ClusterView
    report: Report

    def listed(self, pages: Iterator[list[msgspec.Raw]]) -> None:
        """Take all facts."""
        names = [self._put(item) for page in pages for item in page]
        self.view.keep_facts(names)

    def changed(self, item: msgspec.Raw) -> None:
        """Take facts."""
        self._put(item)

    def deleted(self, item: msgspec.Raw) -> None:
        """Keep them: a state may still be about them, and they never change."""

    def failed(self, error: ClusterError, _times: int) -> None:
        """Report an outage."""
        self.report(FACTS, str(error))

    def _put(self, item: msgspec.Raw) -> str:
        name = _metadata(item).name
        self.view.put_facts(
            name, self.view.faults.guarded(f"{FACTS} {name}", partial(self._read, name, item), unjudged)
        )
        return name

    def _read(self, name: str, item: msgspec.Raw) -> NodeFacts | str:
        try:
            return facts_of(msgspec.json.decode(item))
        except InputError as error:
            self.report(f"{FACTS} {name}", str(error))
            return str(error)


@dataclass(frozen=True, slots=True)
class StateListener:
    """Brings states to the view."""

    view: ClusterView
    report: Report

    def listed(self, pages: Iterator[list[msgspec.Raw]]) -> None:
        """Take all states."""
        names = [self._put(item, listed=True) for page in pages for item in page]
        self.view.keep_states(names)

    def changed(self, item: msgspec.Raw) -> None:
        """Take a state."""
        self._put(item)

    def deleted(self, item: msgspec.Raw) -> None:
        """Forget a state."""
        self.view.drop_state(_metadata(item).name)

    def failed(self, error: ClusterError, _times: int) -> None:
        """Report an outage."""
        self.report(STATE, str(error))

    def _put(self, item: msgspec.Raw, *, listed: bool = False) -> str:
        metadata = _metadata(item)
        version = int(metadata.resourceVersion) if metadata.resourceVersion.isdecimal() else 0
        state = self.view.faults.guarded(metadata.name, partial(self._read, metadata.name, item), unjudged)
        self.view.put_state(metadata.name, version, state, listed=listed)
        return metadata.name

    def _read(self, name: str, item: msgspec.Raw) -> NodeState | str:
        try:
            return state_of(msgspec.json.decode(item))
        except InputError as error:
            self.report(f"{STATE} {name}", str(error))
            return str(error)


@dataclass(frozen=True, slots=True)
class PodListener:
    """Brings pods to the view."""

    view: ClusterView
    shapes: Shapes
    report: Report

    def listed(self, pages: Iterator[list[msgspec.Raw]]) -> None:
        """Take all pods."""
        found = (self._seen(item) for page in pages for item in page)
        self.view.replace_pods(seen for seen in found if seen is not None)

    def changed(self, item: msgspec.Raw) -> None:
        """Take a pod."""
        seen = self._seen(item)
        if seen is not None:
            self.view.put_pod(seen)

    def deleted(self, item: msgspec.Raw) -> None:
        """Take it that a pod is gone."""
        metadata = _metadata(item)
        self.view.drop_pod(str((metadata.annotations or {}).get(MIRROR) or metadata.uid))

    def failed(self, error: ClusterError, _times: int) -> None:
        """Report an outage."""
        self.report("pods", str(error))

    def _seen(self, item: msgspec.Raw) -> Seen | None:
        return self.view.faults.guarded("pods", partial(self._read, item), lambda _error: None)

    def _read(self, item: msgspec.Raw) -> Seen | None:
        try:
            return seen_pod(item, self.shapes)
        except InputError as error:
            self.report("pods", str(error))
            return None


@dataclass(frozen=True, slots=True)
class ClaimListener:
    """Brings claims to their view, and tells the pods' nodes."""

    claims: ClaimView
    view: ClusterView
    report: Report

    def listed(self, pages: Iterator[list[msgspec.Raw]]) -> None:
        """Take all claims."""
        self.claims.keep_claims([self._put(item, listed=True) for page in pages for item in page])

    def changed(self, item: msgspec.Raw) -> None:
        """Take a claim."""
        self._put(item)

    def deleted(self, item: msgspec.Raw) -> None:
        """Forget a claim."""
        metadata = _metadata(item)
        self.claims.drop_claim(metadata.namespace, metadata.name)

    def failed(self, error: ClusterError, _times: int) -> None:
        """Report an outage."""
        self.report("ResourceClaim", str(error))

    def _put(self, item: msgspec.Raw, *, listed: bool = False) -> tuple[str, str]:
        try:
            claim = self.claims.put_claim(mapping_of(item), listed=listed)
        except InputError as error:
            metadata = _metadata(item)
            self.report(f"ResourceClaim {metadata.namespace}/{metadata.name}", str(error))
            self.claims.drop_claim(metadata.namespace, metadata.name)
            return metadata.namespace, metadata.name
        self.view.given(claim.pods)
        return claim.namespace, claim.name


@dataclass(frozen=True, slots=True)
class ClassListener:
    """Brings DeviceClasses to the view of claims."""

    claims: ClaimView
    report: Report

    def listed(self, pages: Iterator[list[msgspec.Raw]]) -> None:
        """Take all classes; one that is gone is named by no new claim."""
        for page in pages:
            for item in page:
                self.changed(item)

    def changed(self, item: msgspec.Raw) -> None:
        """Take a class."""
        try:
            self.claims.put_class(mapping_of(item))
        except InputError as error:
            self.report(f"DeviceClass {_metadata(item).name}", str(error))
            self.claims.drop_class(_metadata(item).name)

    def deleted(self, item: msgspec.Raw) -> None:
        """Forget a class."""
        self.claims.drop_class(_metadata(item).name)

    def failed(self, error: ClusterError, _times: int) -> None:
        """Report an outage."""
        self.report("DeviceClass", str(error))


def followers(
    connect: Callable[[], Cluster], view: ClusterView, shapes: Shapes, report: Report, claims: ClaimView | None = None
) -> list[Follower]:
    """Return the followers of facts, states and pods; facts first, because states are about them.

    Args:
        connect: opens a way to the API server.
        view: what is known of nodes and pods.
        shapes: lets pods share what they have in common.
        report: receives what is the matter with what.
        claims: what is known of claims; None where they do not count.
    """
    group = f"apis/{GROUP}/{VERSION}"
    of_claims = []
    if claims is not None:
        of_claims = [
            Follower(connect, f"{_RESOURCE}/deviceclasses", ClassListener(claims, report), name="extender"),
            Follower(connect, f"{_RESOURCE}/resourceclaims", ClaimListener(claims, view, report), name="extender"),
        ]
    return [
        *of_claims,
        Follower(
            connect,
            f"{group}/{PLURALS[FACTS]}",
            FactsListener(view, report),
            name="extender",
            is_behind=view.misses_facts,
        ),
        Follower(connect, f"{group}/{PLURALS[STATE]}", StateListener(view, report), name="extender"),
        Follower(connect, PODS, PodListener(view, shapes, report), name="extender"),
    ]


def _metadata(item: msgspec.Raw) -> _NamedMetadata:
    try:
        return msgspec.json.decode(item, type=_Named).metadata
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise ClusterError(f"the API server's object cannot be read: {error}") from None
