"""What the API server says about a token and a person: TokenReview and SubjectAccessReview; usable from any thread.

Source: authentication.k8s.io/v1 TokenReview, authorization.k8s.io/v1 SubjectAccessReview.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Final

from mooring.service.cluster.apiserver import Cluster, check_response, cluster_errors

_REVIEW: Final = "apis/authentication.k8s.io/v1/tokenreviews"
_ACCESS: Final = "apis/authorization.k8s.io/v1/subjectaccessreviews"


@dataclass(frozen=True, slots=True)
class Person:
    """The identity behind a token; equal ones have the same rights."""

    user: str
    uid: str
    groups: tuple[str, ...]
    extra: tuple[tuple[str, tuple[str, ...]], ...] = ()
    """What else authorizers read, sorted by key: scopes can make one token of a person weaker than another."""


class Reviews:
    """Asks the API server, on as many connections as there are questions at once."""

    def __init__(self, connect: Callable[[], Cluster]) -> None:
        """Ask nothing yet.

        Args:
            connect: opens a way to the API server; its identity may create both kinds of reviews.
        """
        self._connect = connect
        self._lock = threading.Lock()
        self._idle: list[Cluster] = []

    def person(self, token: str) -> Person | None:
        """Return the person of a token; None for a token that the API server does not know.

        Raises:
            ClusterError: the API server does not answer.
        """
        with self._connected() as cluster:
            status = _posted(cluster, _REVIEW, "authentication.k8s.io/v1", "TokenReview", {"token": token})
        return _person_of(status) if status.get("authenticated") is True else None

    def may_list(self, person: Person, namespaces: Collection[str]) -> dict[str, bool]:
        """Return for each namespace whether a person may list its pods; the empty one stands for all namespaces.

        Raises:
            ClusterError: the API server does not answer.
        """
        with self._connected() as cluster:
            return {one: _may_list(cluster, person, one) for one in namespaces}

    @contextmanager
    def _connected(self) -> Iterator[Cluster]:
        """Give a connection that no other thread uses; after a failure the next question opens one anew.

        Credentials may have been renewed meanwhile.
        """
        with self._lock:
            cluster = self._idle.pop() if self._idle else None
        try:
            with cluster_errors():
                cluster = cluster or self._connect()
                yield cluster
        except BaseException:
            if cluster is not None:
                cluster.close()
            self.close()
            raise
        with self._lock:
            self._idle.append(cluster)

    def close(self) -> None:
        """Close the connections that are not in use."""
        with self._lock:
            idle, self._idle = self._idle, []
        for one in idle:
            one.close()


def _may_list(cluster: Cluster, person: Person, namespace: str) -> bool:
    spec = {
        "user": person.user,
        "uid": person.uid,
        "groups": list(person.groups),
        "extra": {key: list(values) for key, values in person.extra},
        "resourceAttributes": {"verb": "list", "resource": "pods", "namespace": namespace},
    }
    status = _posted(cluster, _ACCESS, "authorization.k8s.io/v1", "SubjectAccessReview", spec)
    return status.get("allowed") is True and status.get("denied") is not True


def _posted(cluster: Cluster, path: str, version: str, kind: str, spec: Mapping[str, Any]) -> Mapping[str, Any]:
    answer = cluster.http.post(path, json={"apiVersion": version, "kind": kind, "spec": spec})
    check_response(answer)
    status = answer.json().get("status")
    return status if isinstance(status, dict) else {}


def _person_of(status: Mapping[str, Any]) -> Person | None:
    user = status.get("user")
    if not isinstance(user, dict) or not user.get("username"):
        return None
    extra = tuple(sorted((key, tuple(values or ())) for key, values in (user.get("extra") or {}).items()))
    return Person(user["username"], user.get("uid") or "", tuple(user.get("groups") or ()), extra)
