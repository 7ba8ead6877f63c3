"""Whatever breaks, no pod is bound where its node refuses it; and what is broken heals."""

from __future__ import annotations

import contextlib
import random
import socket
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import httpx2
import pytest
from tests.e2e.kube.conftest import Parts, Playing
from tests.e2e.kube.nodes import Nodes, contradiction
from tests.e2e.kube.plane import OURS, Extender, extender, free_port, scheduler
from tests.e2e.kube.pods import pod
from tests.e2e.kube.proxy import Trouble, proxy
from tests.e2e.kube.story import Story
from tests.e2e.kubelet.apiserver import APIServer
from tests.e2e.kubelet.patience import until

FEW, MANY = 8, 40
WANTS = {"limits": {"cpu": "4", "memory": "256Mi"}}


@dataclass(frozen=True, slots=True)
class World:
    """A cluster with eight nodes, in which the extender's way to the API server can be troubled."""

    api: APIServer
    nodes: Nodes
    extender: Extender
    trouble: Trouble
    story: Story
    folder: Path

    def go_on(self, count: int = MANY) -> None:
        """Let pods come and go; no node refuses any that the extender bound."""
        self.story.run(count, patience=240.0)
        assert not self.story.refused_by_promise()
        assert not [name for name in self.extender.metrics() if name.startswith("mispredictions")]

    def condition(self, name: str) -> str:
        """Return what ``kubectl describe pod`` shows about the scheduling of a pod."""
        found = self.api.pod(name) or {}
        conditions = found.get("status", {}).get("conditions", [])
        return next((str(one.get("message", "")) for one in conditions if one["type"] == "PodScheduled"), "")

    def node_of(self, name: str) -> str:
        return str((self.api.pod(name) or {}).get("spec", {}).get("nodeName", ""))


@pytest.fixture
def world(api: APIServer, parts: Parts, playing: Playing, folder: Path) -> Iterator[World]:
    with (
        playing(FEW, delay=1.0) as nodes,
        proxy(api, free_port(), folder) as (kubeconfig, trouble),
        extender(folder, kubeconfig, requestTime="2s") as asked,
        scheduler(parts.scheduler, folder, api.kubeconfig, asked.url),
    ):
        story = Story(api, nodes, random.Random(7))  # noqa: S311 - no secret
        yield World(api, nodes, asked, trouble, story, folder)
        story.settle()
        assert not story.refused_by_promise()
        assert [found for node in nodes.played.values() if (found := contradiction(node))] == []


def test_an_api_server_that_dies_and_comes_back_with_its_past_compacted(world: World) -> None:
    world.go_on()
    world.api.kill()
    compact(world.api)
    world.api.start()
    until(lambda: world.api.has_node(next(iter(world.nodes.played))), "the API server is back")
    world.go_on()


def test_watches_that_end_in_the_middle_are_refused_or_too_old(world: World) -> None:
    world.go_on(20)
    for status in (429, 410, 500):
        world.trouble.only_watches, world.trouble.refuse = True, status
        world.trouble.cut()
        until(lambda status=status: world.trouble.answered[status] >= 3, f"watches are answered {status}")  # type: ignore[misc]  # mypy guesses no lambda with a default
        world.story.run(5, patience=240.0)
        world.trouble.refuse = 0
        world.trouble.cut()
        world.go_on(20)


def test_binds_whose_outcome_nobody_knows(world: World) -> None:
    world.go_on(20)
    world.trouble.lose_answers = True
    for number in range(5):
        world.api.create_pod(pod(f"lost-{number}", WANTS))
    until(lambda: all(world.node_of(f"lost-{number}") for number in range(5)), "the binds arrive")
    world.trouble.lose_answers = False
    world.go_on()


def test_states_that_grow_old_and_states_that_vanish(world: World) -> None:
    world.go_on(20)
    world.nodes.publishing.clear()
    world.go_on(30)
    # Nothing is published any more: what was is taken away, one after another, while pods come.
    for number, name in enumerate(sorted(world.nodes.played)):
        world.api.delete(f"{OURS}/nodestates/{name}")
        world.api.create_pod(pod(f"after-{number}", WANTS))
    until(lambda: "has not published its state" in world.condition("after-7"), "the extender says why")
    world.nodes.publishing.set()
    world.story.settle()
    assert not world.story.refused_by_promise()


def test_an_extender_that_dies_and_begins_with_nothing(world: World) -> None:
    for life in range(3):
        world.story.run(20, patience=240.0)
        world.extender.kill()
        # Bound moments ago, with states that do not name all of them yet: the scheduler waits until there is one again.
        world.api.create_pod(pod(f"meanwhile-{life}", WANTS))
        world.extender.start()
    world.go_on()


def test_bodies_and_clients_that_are_no_scheduler(world: World) -> None:
    ask = f"{world.extender.url}/filter"
    for content in (b"", b"{", b"[]", b"null", b'{"Pod": 3}', b'{"Pod": {}}' * 2, b"\xff\xfe", b'{"a":' * 5000):
        assert httpx2.post(ask, content=content, timeout=20).status_code == 400, content[:20]
    for content in (b"{}", b'{"PodName":"x"}'):
        answer = httpx2.post(f"{world.extender.url}/bind", content=content, timeout=20)
        assert answer.status_code == 400 or answer.json()["Error"], content
    with contextlib.ExitStack() as slow:
        for _ in range(10):
            made = slow.enter_context(socket.create_connection(("127.0.0.1", world.extender.port)))
            made.sendall(b"POST /filter HTTP/1.1\r\nHost: x\r\nContent-Length: 1000\r\n\r\n{")
        world.go_on(20)
    # They are counted when their time is over or their end is noticed, whichever comes first.
    late = "requests_total{status=408,verb=filter}"
    until(lambda: world.extender.metrics().get(late, 0) >= 10, "all slow bodies are refused")


@pytest.mark.parametrize("ignorable", [False, True], ids=["waits", "goes on"])
def test_an_extender_that_is_away_or_cannot_bind(
    api: APIServer, parts: Parts, playing: Playing, folder: Path, *, ignorable: bool
) -> None:
    with (
        playing(2) as nodes,
        proxy(api, free_port(), folder) as (kubeconfig, trouble),
        extender(folder, kubeconfig) as asked,
        scheduler(parts.scheduler, folder, api.kubeconfig, asked.url, ignorable=ignorable) as running,
    ):

        def create(name: str, said: str) -> None:
            """Let the extender fail for a pod: it waits, or is bound without a promise."""
            before = len(nodes.admitted)
            api.create_pod(pod(name, WANTS))
            until(lambda: said in condition_or_log(api, name, running.log), f"the scheduler says {said}")
            if ignorable:
                until(lambda: len(nodes.admitted) == before + 1, "the pod runs without a promise")
            else:
                assert not (api.pod(name) or {})["spec"].get("nodeName")

        trouble.refuse = 500
        create("not-bound", "mooring: status 500")
        trouble.refuse = 0
        until(lambda: len(nodes.admitted) == 1, "the pod runs")
        asked.kill()
        create("without", "connection refused")
        asked.start()
        until(lambda: len(nodes.admitted) == 2, "the other one runs")
        assert nodes.refusals == []


def condition_or_log(api: APIServer, name: str, log: Path) -> str:
    found = (api.pod(name) or {}).get("status", {}).get("conditions", [])
    return " ".join(str(one.get("message", "")) for one in found) + log.read_text(encoding="utf-8")


def compact(api: APIServer) -> None:
    """Let etcd forget everything but what there is, so that no watch can go on from where it was."""
    etcd = f"http://127.0.0.1:{api.ports.etcd}/v3/kv"
    key = "AA=="  # a range from the first key on
    found = httpx2.post(f"{etcd}/range", json={"key": key, "range_end": key, "count_only": True}).json()
    answer = httpx2.post(f"{etcd}/compaction", json={"revision": found["header"]["revision"], "physical": True})
    assert answer.is_success, answer.text
