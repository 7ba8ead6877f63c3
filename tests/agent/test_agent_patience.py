"""Who is waited for: pods that are just coming, and none of those that Synchronize tells."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from tests.agent.pods.fault_injector import FaultInjector, pod_object
from tests.agent.whole_agent import NODE, Node, pod, whole

from mooring.agent.pods.api import KnownPods
from mooring.engine.core.pod import Pod


@pytest.fixture
def cluster() -> Iterator[FaultInjector]:
    with FaultInjector(node=NODE) as one:
        yield one


@pytest.fixture
def waits(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, float]]:
    """Uids that are asked for with the patience for each; nobody waits."""
    asked: list[tuple[str, float]] = []
    find = KnownPods.find

    def without_waiting(self: KnownPods, uid: str, patience: float = 0.0) -> Pod | None:
        asked.append((uid, patience))
        return find(self, uid)

    monkeypatch.setattr(KnownPods, "find", without_waiting)
    return asked


def test_pods_of_synchronize_are_waited_for_by_nobody_and_one_that_is_created_is(
    cluster: FaultInjector, node: Node, waits: list[tuple[str, float]]
) -> None:
    cluster.put(pod_object("listed"))
    agent = node.agent(f"kubeconfig: {cluster.kubeconfig(node.folder / 'kubeconfig')}")
    runtime = node.listening.next()
    names = [f"unknown{number}" for number in range(30)]
    runtime.synchronize([pod(name) for name in names], [node.running(whole(name, 0), "0-7") for name in names])
    assert {patience for _, patience in waits} <= {0.0}
    assert len(agent.holder.state.kubelet.node.active) == 30, "all of them were derived"
    waits.clear()
    runtime.create(pod("coming"), whole("coming", 1))
    assert waits[0][0] == "uid-coming"
    assert waits[0][1] > 0
