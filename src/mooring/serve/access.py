"""Access: everything on loopback; elsewhere what the API server decides about a person's token.

A token is reviewed (TokenReview), and pods of a namespace are shown to people who may list pods there
(SubjectAccessReview). Answers are kept for a minute, as the kubelet keeps those of its webhook mode.

Source: Kubernetes documentation, "Authenticating" and "Authorization"; authentication.k8s.io/v1 TokenReview,
authorization.k8s.io/v1 SubjectAccessReview.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from hashlib import sha256
from typing import Any, Final, Protocol

from cachetools import TTLCache
from starlette.concurrency import run_in_threadpool

from mooring.service.cluster.apiserver import Cluster, ClusterError, check_response, cluster_errors

KEPT: Final = 60.0
"""Seconds for which an answer of the API server counts."""
MOST_KEPT: Final = 10_000
"""Answers that are kept."""
_REVIEW: Final = "apis/authentication.k8s.io/v1/tokenreviews"
_ACCESS: Final = "apis/authorization.k8s.io/v1/subjectaccessreviews"


@dataclass(frozen=True, slots=True)
class Viewer:
    """A person, and what they may list of what was asked about."""

    namespaces: frozenset[str] | None
    """In which they may list pods; None for all."""

    def may_list(self, namespace: str) -> bool:
        """Return whether they may list the pods of a namespace."""
        return self.namespaces is None or namespace in self.namespaces


EVERYTHING: Final = Viewer(None)


class Guard(Protocol):
    """Decides who may see what."""

    async def viewer(self, token: str, namespaces: Collection[str]) -> Viewer | None:
        """Return the person with a token; None if the token gives access to nothing.

        Args:
            token: a bearer token; empty without any.
            namespaces: those that matter now.

        Raises:
            ClusterError: the API server does not answer.
        """


class OpenGuard:
    """Shows everything to every person who reaches the page: for loopback."""

    async def viewer(self, token: str, namespaces: Collection[str]) -> Viewer | None:  # noqa: ARG002 - the protocol's
        """Return a person who may see everything."""
        return EVERYTHING


@dataclass(frozen=True, slots=True)
class _Person:
    user: str
    uid: str
    groups: tuple[str, ...]
    extra: Mapping[str, Any] = field(default_factory=dict, compare=False, hash=False)


class ClusterGuard:
    """Asks the API server."""

    def __init__(self, connect: Callable[[], Cluster], clock: Callable[[], float] = time.monotonic) -> None:
        """Ask nothing yet.

        Args:
            connect: opens a way to the API server; its identity may create both kinds of reviews.
            clock: seconds that only go forward.
        """
        self._connect = connect
        self._cluster: Cluster | None = None
        self._lock = threading.Lock()
        self._people: TTLCache[bytes, _Person | None] = TTLCache(MOST_KEPT, KEPT, clock)
        self._allowed: TTLCache[tuple[_Person, str], bool] = TTLCache(MOST_KEPT, KEPT, clock)

    async def viewer(self, token: str, namespaces: Collection[str]) -> Viewer | None:
        """Return the person with a token, see :class:`Guard`."""
        if not token:
            return None
        return await run_in_threadpool(self._viewer, token, frozenset(namespaces))

    def _viewer(self, token: str, namespaces: frozenset[str]) -> Viewer | None:
        with self._lock:
            person = self._person(token)
            if person is None:
                return None
            if self._may(person, ""):
                return EVERYTHING
            return Viewer(frozenset(one for one in namespaces if one and self._may(person, one)))

    def _person(self, token: str) -> _Person | None:
        key = sha256(token.encode(errors="replace")).digest()
        if key not in self._people:
            status = self._posted(_REVIEW, "authentication.k8s.io/v1", "TokenReview", {"token": token})
            self._people[key] = _person_of(status) if status.get("authenticated") is True else None
        return self._people[key]

    def _may(self, person: _Person, namespace: str) -> bool:
        """Return whether a person may list the pods of a namespace; of all namespaces for the empty one."""
        key = person, namespace
        if key not in self._allowed:
            attributes = {"verb": "list", "resource": "pods", "namespace": namespace}
            spec = {
                "user": person.user,
                "uid": person.uid,
                "groups": list(person.groups),
                "extra": dict(person.extra),
                "resourceAttributes": attributes,
            }
            status = self._posted(_ACCESS, "authorization.k8s.io/v1", "SubjectAccessReview", spec)
            self._allowed[key] = status.get("allowed") is True and status.get("denied") is not True
        return self._allowed[key]

    def _posted(self, path: str, version: str, kind: str, spec: Mapping[str, Any]) -> Mapping[str, Any]:
        try:
            with cluster_errors():
                self._cluster = self._cluster or self._connect()
                answer = self._cluster.http.post(path, json={"apiVersion": version, "kind": kind, "spec": spec})
                check_response(answer)
                status = answer.json().get("status")
        except ClusterError:
            self.close()
            raise
        return status if isinstance(status, dict) else {}

    def close(self) -> None:
        """Close the connection; the next question opens one with renewed credentials."""
        if self._cluster is not None:
            self._cluster.close()
            self._cluster = None


def _person_of(status: Mapping[str, Any]) -> _Person | None:
    user = status.get("user")
    if not isinstance(user, dict) or not user.get("username"):
        return None
    return _Person(user["username"], user.get("uid") or "", tuple(user.get("groups") or ()), user.get("extra") or {})
