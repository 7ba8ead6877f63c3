from __future__ import annotations

import logging
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.agent.cgroups.made_up_tree import made_up_machine
from tests.agent.devices.made_up_podresources import PodResources
from tests.agent.nri.runtime_side import TIMEOUT
from tests.agent.pods.fault_injector import FaultInjector
from tests.agent.whole_agent import NODE, Listening, Node, until


@pytest.fixture
def patience(monkeypatch: pytest.MonkeyPatch) -> None:
    """Give whatever is waited for a test's time: on a machine that stands still for seconds nothing else must happen.

    The agent goes on without the taint, without pods, or without the end of a thread when these are over. A server that
    fails is tried again at once.
    """
    for place in ("agent._TAINTING", "agent._PATIENCE", "pods.cluster._LISTING"):
        monkeypatch.setattr(f"mooring.agent.{place}", TIMEOUT)
    monkeypatch.setattr("mooring.service.agent_status.SECONDS", TIMEOUT)
    monkeypatch.setattr("mooring.service.http.SECONDS", TIMEOUT)
    for module in ("service.following", "agent.pods.writer"):
        monkeypatch.setattr(f"mooring.{module}.pause_before", lambda _tries, _node: 0.01)


@pytest.fixture
def node(tmp_path: Path, patience: None) -> Iterator[Node]:  # noqa: ARG001 - for what it does
    """A machine with a runtime; agents that a test has started are closed and leave no thread behind."""
    root = logging.getLogger()
    handlers = root.handlers
    tree = made_up_machine(tmp_path / "root", 2)
    made = Node(tmp_path, tree, Listening(tmp_path / "nri.sock"))
    before = set(threading.enumerate())
    yield made
    for agent in made.agents:
        agent.close()
    made.listening.close()
    root.handlers = handlers
    until(
        lambda: not [one for one in set(threading.enumerate()) - before if one.name.startswith("mooring-")],
        "the agents' threads have ended",
    )


@pytest.fixture(params=[1, 2], ids=["v1", "v2"])
def any_node(request: pytest.FixtureRequest, node: Node, tmp_path: Path) -> Node:
    """Return the node with control groups of either version."""
    if request.param == 1:
        node.tree = made_up_machine(tmp_path / "root1", 1)
        node.tree.group("pods")
    return node


@pytest.fixture
def cluster() -> Iterator[FaultInjector]:
    """An API server."""
    with FaultInjector(node=NODE) as one:
        yield one


@pytest.fixture
def kubelet(tmp_path: Path) -> Iterator[PodResources]:
    """A kubelet that answers for its PodResources API, and knows no pod yet."""
    made = PodResources(tmp_path / "kubelet.sock")
    made.start()
    yield made
    made.stop()
