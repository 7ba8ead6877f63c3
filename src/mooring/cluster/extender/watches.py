"""What the extender hears from the API server: facts, states and pods of all nodes."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, TypeVar

import msgspec

from mooring.cluster.extender.claims import ClaimView
from mooring.cluster.extender.pods import Seen, Shapes, seen_pod
from mooring.cluster.extender.view import ClusterView
from mooring.engine.core.errors import InputError
from mooring.published.facts_document import facts_of
from mooring.published.naming import names_of
from mooring.published.objects import FACTS, PATHS, STATE, object_name, state_of
from mooring.published.possible_kubelets import unjudged
from mooring.service.apiserver import Cluster, ClusterError
from mooring.service.following import PODS, Follower, ObjectListener, mapping_of

Report = Callable[[str, str], object]
"""Takes what something is about, and what is the matter."""
_RESOURCE = "apis/resource.k8s.io/v1"
_CLAIM, _CLASS = "ResourceClaim", "DeviceClass"
_T = TypeVar("_T")


def facts_listener(view: ClusterView, report: Report) -> ObjectListener:
    """Return what brings facts to the view."""

    def put(content: dict[str, Any]) -> str:
        name = object_name(content)
        about = f"{FACTS} {name}"
        view.put_facts(name, view.faults.guarded(about, lambda: _read(facts_of, content, about, report), unjudged))
        return name

    # Deleted ones are kept: a state may still be about them, and they never change.
    return ObjectListener(put, lambda _: None, _outages(FACTS, report), view.keep_facts, every=True)


def state_listener(view: ClusterView, report: Report) -> ObjectListener:
    """Return what brings states to the view."""

    def put(content: dict[str, Any], *, listed: bool = False) -> str:
        name, text = object_name(content), str((content.get("metadata") or {}).get("resourceVersion"))
        state = view.faults.guarded(name, lambda: _read(state_of, content, f"{STATE} {name}", report), unjudged)
        view.put_state(name, int(text) if text.isdecimal() else 0, state, listed=listed)
        return name

    def drop(content: dict[str, Any]) -> None:
        view.drop_state(object_name(content))

    failed = _outages(STATE, report)
    return ObjectListener(put, drop, failed, view.keep_states, partial(put, listed=True), every=True)


def claim_listener(claims: ClaimView, view: ClusterView, report: Report) -> ObjectListener:
    """Return what brings claims to their view, and tells the pods' nodes."""

    def drop(content: dict[str, Any]) -> tuple[str, str]:
        [key] = names_of([content])
        claims.drop_claim(*key)
        return key

    def put(content: dict[str, Any], *, listed: bool = False) -> tuple[str, str]:
        try:
            claim = claims.put_claim(content, listed=listed)
        except InputError as error:
            key = drop(content)
            report(f"{_CLAIM} {'/'.join(key)}", str(error))
            return key
        view.given(claim.pods)
        return claim.namespace, claim.name

    failed = _outages(_CLAIM, report)
    return ObjectListener(put, drop, failed, claims.keep_claims, partial(put, listed=True), every=True)


def class_listener(claims: ClaimView, report: Report) -> ObjectListener:
    """Return what brings DeviceClasses to the view of claims; one that is gone is named by no new claim."""

    def drop(content: dict[str, Any]) -> None:
        claims.drop_class(object_name(content))

    def put(content: dict[str, Any]) -> None:
        try:
            claims.put_class(content)
        except InputError as error:
            report(f"{_CLASS} {object_name(content)}", str(error))
            drop(content)

    return ObjectListener(put, drop, _outages(_CLASS, report), every=True)


def pod_listener(view: ClusterView, shapes: Shapes, report: Report) -> ObjectListener:
    """Return what brings pods to the view, of which only a little is decoded."""
    read = partial(seen_pod, shapes=shapes)

    def seen(item: msgspec.Raw) -> Seen | str:
        return view.faults.guarded("pods", lambda: _read(read, item, "pods", report), unjudged)

    def put(item: msgspec.Raw) -> None:
        found = seen(item)
        if not isinstance(found, str):
            view.put_pod(found)

    def drop(item: msgspec.Raw) -> None:
        [uid] = names_of([mapping_of(item)]).values()
        view.drop_pod(uid)

    def keep(listed: list[Seen | str]) -> None:
        view.replace_pods(found for found in listed if not isinstance(found, str))

    return ObjectListener(put, drop, _outages("pods", report), keep, seen, every=True, read=lambda item: item)


def _read(read: Callable[[Any], _T], content: object, about: str, report: Report) -> _T | str:
    try:
        return read(content)
    except InputError as error:
        report(about, str(error))
        return str(error)


def _outages(about: str, report: Report) -> Callable[[ClusterError], object]:
    return lambda error: report(about, str(error))


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
    follower = partial(Follower, connect, name="extender")
    of_claims = []
    if claims is not None:
        of_claims = [
            follower(f"{_RESOURCE}/deviceclasses", class_listener(claims, report)),
            follower(f"{_RESOURCE}/resourceclaims", claim_listener(claims, view, report)),
        ]
    return [
        *of_claims,
        follower(PATHS[FACTS], facts_listener(view, report), is_behind=view.misses_facts),
        follower(PATHS[STATE], state_listener(view, report)),
        follower(PODS, pod_listener(view, shapes, report)),
    ]
