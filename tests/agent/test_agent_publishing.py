"""The agent tells the cluster what it has given away, and never lets the runtime wait for that."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

import pytest
from tests.agent.pods.fault_injector import Fault, FaultInjector
from tests.agent.small_node import CONFIG, INFO
from tests.agent.whole_agent import NODE, Node, pod, until, whole

from mooring.engine.core.config import MooringConfig
from mooring.engine.core.errors import InputError
from mooring.engine.kubelet.kubelet import Kubelet, StateTexts
from mooring.engine.kubelet.start import start_kubelet
from mooring.published.objects import state_of
from mooring.published.publisher import LiveSource

STATE = f"PATCH /apis/mooring.dev/v1alpha1/nodestates/{NODE}"


@pytest.fixture
def cluster() -> Iterator[FaultInjector]:
    with FaultInjector(node=NODE) as one:
        yield one


def available(cluster: FaultInjector) -> list[int]:
    return [request.body["status"]["exclusiveCPUs"]["available"] for request in cluster.asked(STATE)]


def test_what_the_runtime_starts_is_published(cluster: FaultInjector, node: Node) -> None:
    agent = node.agent(f"kubeconfig: {cluster.kubeconfig(node.folder / 'kubeconfig')}\npublish: true")
    runtime = node.listening.next()
    runtime.synchronize()
    until(lambda: cluster.asked(STATE), "the empty node is published")
    before = available(cluster)[-1]
    runtime.create(pod("a"), whole("a", 2))
    until(lambda: available(cluster)[-1] == before - 2, "the pod's CPUs are no longer available")
    state = state_of(cluster.asked(STATE)[-1].body)
    assert state.files == agent.holder.state.kubelet.files
    assert [key.uid for key in state.pods] == [*agent.holder.state.kubelet.node.active]
    until(lambda: writes(agent.metrics.text()) >= 2, "both writes are counted on the agent's page")


def writes(page: str) -> float:
    [line] = [line for line in page.splitlines() if line.startswith("mooring_publish_writes_total ")]
    return float(line.split()[1])


def test_server_that_refuses_holds_nobody_up(cluster: FaultInjector, node: Node) -> None:
    cluster.fail(STATE, *[Fault(503)] * 100)
    node.agent(f"kubeconfig: {cluster.kubeconfig(node.folder / 'kubeconfig')}\npublish: true")
    runtime = node.listening.next()
    runtime.synchronize()
    until(lambda: cluster.asked(STATE), "it was tried")
    assert runtime.create(pod("a"), whole("a", 2)) is not None


def test_without_the_option_nothing_is_published(cluster: FaultInjector, node: Node) -> None:
    agent = node.agent(f"kubeconfig: {cluster.kubeconfig(node.folder / 'kubeconfig')}")
    node.listening.next().synchronize()
    until(lambda: cluster.asked("list"), "the pods are listed")
    assert "mooring-publisher" not in [thread.name for thread in threading.enumerate()]
    assert not cluster.asked(STATE)
    assert "mooring_publish" not in agent.metrics.text()


def test_publishing_needs_a_cluster(node: Node) -> None:
    with pytest.raises(InputError, match="publish: needs the API server"):
        node.agent("publish: true")
    with pytest.raises(InputError, match="is not a usable kubeconfig"):
        node.agent(f"kubeconfig: {node.folder / 'none'}\npublish: true")


def kubelet(**more: Any) -> Kubelet:
    start = start_kubelet(INFO, CONFIG, MooringConfig(), StateTexts(**more))
    assert isinstance(start, Kubelet)
    return start


def test_engines_without_news_are_the_same_observation() -> None:
    present = [kubelet()]
    source = LiveSource(lambda: present[-1], NODE)
    first = source.observe()
    present.append(kubelet())
    assert first is not None
    assert source.observe() is first
