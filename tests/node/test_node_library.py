"""Mooring as a library: the node and the merge from the package's face."""

from __future__ import annotations

import copy
import pickle
from dataclasses import FrozenInstanceError

import pytest
from tests.cpumanager.pods import container, guaranteed
from tests.node.nodes import config, machine

from mooring import CPUSet, Node, merge_hints
from mooring.engine.core.decision import Placement


def test_a_node_is_made_asked_and_asked_again() -> None:
    fresh = Node.fresh(machine(), config("single-numa-node"))
    pod = guaranteed("u", container("main", "4"))
    node, decision = fresh.admit(pod)
    assert decision.admitted
    assert decision.containers["main"] == Placement(CPUSet.parse("1-2,9-10"))
    assert (fresh.shared_pool, node.shared_pool) == (CPUSet.parse("0-15"), decision.shared_pool)
    assert fresh.admit(pod) == (node, decision)
    assert node.remove("u")[0].shared_pool == fresh.shared_pool


def test_a_node_cannot_be_changed() -> None:
    node = Node.fresh(machine(), config())
    with pytest.raises(FrozenInstanceError):
        node.started = {}  # type: ignore[misc]


def test_copies_decide_the_same() -> None:
    node, _ = Node.fresh(machine(), config("best-effort")).admit(guaranteed("u", container("a", "3")))
    pod = guaranteed("v", container("b", "5"))
    for other in (copy.copy(node), copy.deepcopy(node), pickle.loads(pickle.dumps(node))):  # noqa: S301 - our own bytes
        assert other == node
        assert other.admit(pod) == node.admit(pod)


def test_the_merge_needs_no_node() -> None:
    cpu = {"cpu": [{"numa": [0], "preferred": True}, {"numa": [0, 1], "preferred": False}]}
    assert merge_hints("restricted", [cpu, None], numa_nodes=[0, 1]).numa == (0,)
