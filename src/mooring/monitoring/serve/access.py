"""Access: everything on loopback; elsewhere what the API server decides about a person's token.

A token is reviewed (TokenReview), and pods of a namespace are shown to people who may list pods there
(SubjectAccessReview). Answers are kept for a minute, as the kubelet keeps those of its webhook mode.

Source: Kubernetes documentation, "Authenticating" and "Authorization"; authentication.k8s.io/v1 TokenReview,
authorization.k8s.io/v1 SubjectAccessReview.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from hashlib import sha256
from typing import Any, Final, Protocol, TypeAlias
from weakref import WeakValueDictionary

from cachetools import TTLCache
from starlette.concurrency import run_in_threadpool

from mooring.inputs.decoding.fields import part_at
from mooring.service.apiserver import Cluster, check_response, cluster_errors

Person: TypeAlias = tuple[str, str, tuple[str, ...], tuple[tuple[str, tuple[str, ...]], ...]]
"""The identity behind a token, equal ones have the same rights: user, uid, groups, and what else authorizers read,
sorted by key: scopes can make one token of a person weaker than another."""


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
            status = _posted(cluster, "authentication.k8s.io/v1", "TokenReview", {"token": token})
        user = status.get("user") if status.get("authenticated") is True else None
        if not isinstance(user, dict) or not user.get("username"):
            return None
        extra = tuple(sorted((key, tuple(values or ())) for key, values in (user.get("extra") or {}).items()))
        return user["username"], user.get("uid") or "", tuple(user.get("groups") or ()), extra

    def may_list(self, person: Person, namespaces: Collection[str]) -> dict[str, bool]:
        """Return for each namespace whether a person may list its pods; the empty one stands for all namespaces.

        Raises:
            ClusterError: the API server does not answer.
        """
        user, uid, groups, extra = person
        who = {"user": user, "uid": uid, "groups": list(groups), "extra": {key: list(one) for key, one in extra}}
        found = {}
        with self._connected() as cluster:
            for one in namespaces:
                asked = {**who, "resourceAttributes": {"verb": "list", "resource": "pods", "namespace": one}}
                status = _posted(cluster, "authorization.k8s.io/v1", "SubjectAccessReview", asked)
                found[one] = status.get("allowed") is True and status.get("denied") is not True
        return found

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


def _posted(cluster: Cluster, version: str, kind: str, spec: Mapping[str, Any]) -> Mapping[str, Any]:
    content = {"apiVersion": version, "kind": kind, "spec": spec}
    answer = cluster.http.post(f"apis/{version}/{kind.lower()}s", json=content)
    check_response(answer)
    return part_at(answer.json(), "status")


KEPT: Final = 60.0
"""Seconds for which an answer of the API server counts."""
MOST_KEPT: Final = 10_000
"""Answers that are kept of each kind."""
REVIEWING: Final = 4
"""Tokens that are reviewed at once; every client can bring one."""
ASKING: Final = 8
"""People about whose rights the API server is asked at once."""


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


class ClusterGuard:
    """Asks the API server; used by one event loop.

    People whose answers are kept wait for no other: not for the API server, and not for its answers about others. Few
    tokens are reviewed at once, and what is kept of unknown ones takes no room from what is kept of people.
    """

    def __init__(self, connect: Callable[[], Cluster], clock: Callable[[], float] = time.monotonic) -> None:
        """Ask nothing yet.

        Args:
            connect: opens a way to the API server; its identity may create both kinds of reviews.
            clock: seconds that only go forward.
        """
        self._reviews = Reviews(connect)
        self._people: TTLCache[bytes, Person] = TTLCache(MOST_KEPT, KEPT, clock)
        self._unknown: TTLCache[bytes, bool] = TTLCache(MOST_KEPT, KEPT, clock)
        self._allowed: TTLCache[tuple[Person, str], bool] = TTLCache(MOST_KEPT, KEPT, clock)
        self._turns: WeakValueDictionary[object, asyncio.Lock] = WeakValueDictionary()
        """Of many requests that need the same answer, the first asks."""
        self._reviewing = asyncio.Semaphore(REVIEWING)
        self._asking = asyncio.Semaphore(ASKING)

    async def viewer(self, token: str, namespaces: Collection[str]) -> Viewer | None:
        """Return the person with a token, see :class:`Guard`."""
        if not token:
            return None
        key = sha256(token.encode(errors="replace")).digest()
        async with self._turn(key):
            person = self._people.get(key)
            if person is None and not self._unknown.get(key):
                async with self._reviewing:
                    person = await run_in_threadpool(self._reviews.person, token)
                if person is None:
                    self._unknown[key] = True
                else:
                    self._people[key] = person
        if person is None:
            return None
        if await self._listed(person, frozenset({""})):
            return EVERYTHING
        return Viewer(await self._listed(person, frozenset(namespaces) - {""}))

    async def _listed(self, person: Person, namespaces: frozenset[str]) -> frozenset[str]:
        """Return the namespaces whose pods a person may list; the empty one stands for all namespaces."""
        async with self._turn((person, namespaces)):
            known = {one: found for one in namespaces if (found := self._allowed.get((person, one))) is not None}
            if missing := sorted(namespaces - known.keys()):
                async with self._asking:
                    answers = await run_in_threadpool(self._reviews.may_list, person, missing)
                self._allowed.update({(person, one): may for one, may in answers.items()})
                known |= answers
        return frozenset(one for one, may in known.items() if may)

    def _turn(self, question: object) -> asyncio.Lock:
        return self._turns.setdefault(question, asyncio.Lock())

    def close(self) -> None:
        """Close the connections; the next question opens one with renewed credentials."""
        self._reviews.close()
