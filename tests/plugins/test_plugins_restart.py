"""A restart takes no pod away that plugins once let in."""

from __future__ import annotations

import pytest
from tests.node.hotpluggable import TWO_NODES, config, cpus, pod, set_of
from tests.plugins.made_plugins import choice, plugin

from mooring.engine.core.config import FIXABLE_DEFECTS, PLUGINS, MooringConfig
from mooring.engine.core.cpuset import CPUSet
from mooring.engine.node import Node
from mooring.engine.plugins import CPURequest


def plugged(allowed: str, scope: str) -> Node:
    def filter_cpus(request: CPURequest) -> CPUSet:
        return request.available - CPUSet(cpus(allowed))

    mooring = MooringConfig(
        frozenset({PLUGINS}), FIXABLE_DEFECTS, plugins=choice(plugin("odd", filter_cpus=filter_cpus))
    )
    return Node.fresh(TWO_NODES, config("restricted", scope), mooring)


@pytest.mark.parametrize("scope", ["container", "pod"])
def test_a_pod_keeps_nodes_that_are_the_fewest_only_for_its_plugins(scope: str) -> None:
    """Three CPUs of each node are within reach: four need both nodes, though one node has eight CPUs."""
    node, decision = plugged("1,3,5,9,11,13", scope).admit(pod(4))
    assert decision.admitted, decision.message
    before = set_of(node, "p")
    restarted = node.restart()
    assert isinstance(restarted, tuple)
    node, readmission = restarted
    assert readmission.refused == ()
    assert set_of(node, "p") == before
