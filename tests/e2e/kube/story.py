"""The run: pods come and go while the cluster is nearly full, and those that fail are made anew."""

from __future__ import annotations

import contextlib
import random
import threading
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import httpx2
from tests.e2e.kube.nodes import Nodes
from tests.e2e.kube.pods import random_pod
from tests.e2e.kubelet.apiserver import PODS, APIServer
from tests.patience import until

RETRIES = 4
"""How often a pod is made anew whose predecessor was refused."""
FULL = 0.9
"""Part of the CPUs of all nodes that pods are to request while they come and go."""
WAITING = 12
"""Pods that wait for a place at once; more are not made then."""


@dataclass(slots=True)
class Story:
    """One run."""

    api: APIServer
    nodes: Nodes
    chance: random.Random
    direct: float = 0.0
    """Part of the pods that are bound past the scheduler."""
    made: dict[str, dict[str, Any]] = field(default_factory=dict)
    """Name -> pod, of all that were ever made."""
    past: set[str] = field(default_factory=set)
    """Names of those bound past the scheduler."""
    seconds: float = 0.0
    deleted: int = 0
    fullest: float = 0.0
    """Largest part of all CPUs that was requested."""
    _number: int = 0
    _retried: int = 0
    _resting: threading.Event = field(default_factory=threading.Event)

    def run(self, count: int, *, patience: float) -> None:
        """Make a number of pods, and delete others to make room for them.

        Args:
            count: of pods; those that are made anew come on top.
            patience: seconds until all must have been made.
        """
        began, goal = time.monotonic(), self._number + count
        while self._number < goal:
            assert time.monotonic() - began < patience, f"only {self._number} of {goal} pods after {patience:g} s"
            self.step()
        self.settle()
        self.seconds += time.monotonic() - began

    def step(self) -> None:
        """Make pods anew that failed, then a few more, and delete some when it is full."""
        found = list(self.nodes.pods.values())
        self._renew(found)
        waiting = [one for one in found if not one["spec"].get("nodeName")]
        bound = [one for one in found if one["spec"].get("nodeName") and "deletionTimestamp" not in one["metadata"]]
        stuck = [one for one in waiting if one["status"].get("conditions")]
        load = self._load(bound)
        self.fullest = max(self.fullest, load)
        if load > FULL or len(stuck) >= WAITING // 2:
            # Those that no node can ever take would be all that is left to wait.
            for one in [*stuck[:2], *self.chance.sample(bound, min(len(bound), self.chance.randint(1, 6)))]:
                self._delete(one["metadata"]["name"])
        for _ in range(min(self.chance.randint(2, 10), WAITING - len(waiting))):
            self._make()
        self._resting.wait(0.05)

    def settle(self) -> None:
        """Wait until every kubelet has come to every pod that is bound to its node."""
        until(self._is_settled, "the kubelets have decided about all pods", seconds=60, pause=0.5)

    def _is_settled(self) -> bool:
        found = self.api.pods()
        self._renew(found)
        return all(one["status"].get("phase") == "Running" for one in found if one["spec"].get("nodeName"))

    def _load(self, bound: list[dict[str, Any]]) -> float:
        used = sum(_cpus(one) for one in bound)
        kubelets = [node.kubelet for node in self.nodes.played.values()]
        return used / sum(one.settings.reservation.allocatable("cpu") / 1000 for one in kubelets)

    def _make(self) -> None:
        self._number += 1
        content = random_pod(self.chance, f"pod-{self._number}")
        if self.chance.random() < self.direct:
            content["spec"]["nodeName"] = self.chance.choice(sorted(self.nodes.played))
            self.past.add(content["metadata"]["name"])
        self._post(content)

    def _renew(self, found: list[dict[str, Any]]) -> None:
        """Be the controller of pods that failed."""
        for one in found:
            name = one["metadata"]["name"]
            if one["status"].get("phase") != "Failed":
                continue
            self._delete(name)
            self._retried += 1
            first, _, tries = name.partition("-again-")
            again = int(tries or 0) + 1
            if again <= RETRIES and name in self.made:
                content = dict(self.made[name])
                content["metadata"] = {**content["metadata"], "name": f"{first}-again-{again}"}
                if name in self.past:
                    self.past.add(f"{first}-again-{again}")
                self._post(content)

    def _post(self, content: dict[str, Any]) -> None:
        if content["metadata"]["name"] not in self.made:
            self.made[content["metadata"]["name"]] = content
            _insist(lambda: self.api.cluster.http.post(PODS, json=content))

    def _delete(self, name: str) -> None:
        self.deleted += 1
        _insist(lambda: self.api.cluster.http.delete(f"{PODS}/{name}"))

    # What came of it.

    def figures(self) -> Figures:
        """Return what has happened so far."""
        refused = Counter(one.reason for one in self.nodes.refusals if one.pod not in self.past)
        past = Counter(one.reason for one in self.nodes.refusals if one.pod in self.past)
        return Figures(len(self.made), len(self.nodes.admitted), self.deleted, self.seconds, dict(refused), dict(past))

    def refused_by_promise(self) -> list[str]:
        """Return what nodes refused of the pods that came through the scheduler."""
        return [f"{one.pod} on {one.node}: {one.reason}" for one in self.nodes.refusals if one.pod not in self.past]


@dataclass(frozen=True, slots=True)
class Figures:
    """What has happened in a run."""

    made: int
    admitted: int
    deleted: int
    seconds: float
    refused: dict[str, int]
    """The kubelets' reason -> pods that the scheduler had bound."""
    past: dict[str, int]
    """The same of pods that were bound past it."""

    @property
    def per_thousand(self) -> float:
        """Refusals of pods that the scheduler had bound, for a thousand pods."""
        return 1000 * sum(self.refused.values()) / max(self.made, 1)

    def __str__(self) -> str:
        return (
            f"{self.made} pods made, {self.admitted} admitted, {self.deleted} deleted, {self.seconds:.0f} s "
            f"({self.admitted / max(self.seconds, 0.1):.1f} pods/s); refused {sum(self.refused.values())} "
            f"({self.per_thousand:.1f} per 1,000) {self.refused}, bound past the scheduler and refused {self.past}"
        )


def _insist(ask: Callable[[], httpx2.Response]) -> None:
    """Ask until the API server has answered; that something is there or gone already is fine."""
    answers: list[httpx2.Response] = []

    def is_answered() -> bool:
        with contextlib.suppress(httpx2.HTTPError):
            answers[:] = [ask()]
            return answers[0].status_code < 500 and answers[0].status_code != 429
        return False

    until(is_answered, "the API server answers", seconds=60, pause=0.1)
    assert answers[0].is_success or answers[0].status_code in (404, 409), answers[0].text


def _cpus(document: dict[str, Any]) -> float:
    total = 0.0
    for container in document["spec"]["containers"]:
        text = container["resources"].get("requests", {}).get("cpu", "0")
        total += float(text[:-1]) / 1000 if text.endswith("m") else float(text)
    return total
