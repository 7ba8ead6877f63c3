"""Plugins and CPUs that go offline: what stands in is such as the pod may have."""

from __future__ import annotations

from tests.node.hotpluggable import TWO_NODES, config, cpus, offline, online, pod, set_of, with_pods
from tests.plugins.made_plugins import choice, plugin

from mooring.engine.core.config import CPU_HOTPLUG, FIXABLE_DEFECTS, PLUGINS, SAME_NODES, MooringConfig
from mooring.engine.core.cpuset import CPUSet
from mooring.engine.node import Node
from mooring.engine.node.hotplug import Broken
from mooring.engine.plugins import CPURequest


def plugged(allowed: str) -> Node:
    """Return a node whose plugin lets pods have some CPUs only."""

    def filter_cpus(request: CPURequest) -> CPUSet:
        assert request.pod is not None
        return request.available - CPUSet(cpus(allowed))

    chosen = choice(plugin("odd", filter_cpus=filter_cpus))
    extensions = frozenset({CPU_HOTPLUG, PLUGINS})
    mooring = MooringConfig(extensions, FIXABLE_DEFECTS, SAME_NODES, chosen)
    return Node.fresh(TWO_NODES, config("single-numa-node"), mooring)


def test_a_withheld_cpu_does_not_stand_in() -> None:
    node = with_pods(plugged("1,3,5,7,9,11"), pod(3))
    assert set_of(node, "p") == "1,3,5"
    after, change = offline(node, "3")
    assert change.broken == (Broken("p", "a", cpus("1,3,5"), cpus("3"), cpus("7")),)
    assert online(after, "3")[0] == node


def test_a_set_stays_broken_when_all_that_is_free_is_withheld() -> None:
    node = with_pods(plugged("1,3,5,9"), pod(3))
    after, change = offline(node, "3")
    assert set_of(after, "p") == "1,3,5"
    assert change.broken[0].why == "1 needed, 0 free on NUMA node 0"
