"""What plugins cost: none, the kubelet's rules as a plugin, and three that score, filter and judge, on 256 CPUs."""

from __future__ import annotations

from dataclasses import replace

import pytest
from pytest_benchmark.fixture import BenchmarkFixture
from shapes import machine, pod, started, whole

from mooring.engine.core.config import ChosenPlugin, PluginChoice, Watch
from mooring.engine.core.cpuset import CPUSet
from mooring.engine.node import Node
from mooring.engine.plugins import CPURequest, hookimpl
from mooring.engine.plugins.host import PluginHost
from mooring.engine.plugins.loading import Watchman, points_of
from mooring.engine.plugins.values import machine_view
from mooring.inputs.configuration.mooring_config import plugin_choice


class Scores:
    """Prefers high numbers."""

    @hookimpl
    def pre_score(self, request: CPURequest) -> dict[int, float]:
        return {cpu: float(cpu % 4) for cpu in request.available}


class Filters:
    """Keeps one NUMA node free."""

    @hookimpl
    def filter_cpus(self, request: CPURequest) -> CPUSet:
        return request.machine.numa[0]


class Judges:
    """Prefers sets of few caches."""

    @hookimpl
    def score_set(self, request: CPURequest, candidate: CPUSet) -> float:
        return -float(sum(bool(cache & candidate) for cache in request.machine.caches.values()))


def three(watch: Watch) -> PluginChoice:
    made = {"scores": Scores(), "filters": Filters(), "judges": Judges()}
    plugins = (ChosenPlugin(name, {}, points_of(name, one)) for name, one in made.items())
    return PluginChoice(tuple(plugins), 10**10, watch)


def with_plugins(node: Node, choice: PluginChoice | None) -> Node:
    """Return the node with plugins, or with none at all."""
    policy, topology = node.settings.cpu, node.settings.topology
    assert policy is not None
    assert topology is not None
    if choice is None:
        assert policy.chooser is None
        return node
    view = machine_view(topology, policy.rules, machine(8).facts)
    host = PluginHost(choice, view).reserving(policy.reserved)
    return replace(node, settings=replace(node.settings, cpu=replace(policy, chooser=host), plugins=host))


CHOICES = {
    "none": None,
    "kubelet-rules": plugin_choice({"plugins": ["kubelet-rules"]}),
    "three": three(Watchman()),
}


@pytest.mark.parametrize("share", [0.0, 0.8], ids=["empty", "80-percent-full"])
@pytest.mark.parametrize("plugins", CHOICES)
def test_decision_with_plugins_on_256_cpus_of_8_nodes(benchmark: BenchmarkFixture, plugins: str, share: float) -> None:
    node = with_plugins(started(machine(8), whole("best-effort", 256), share).node, CHOICES[plugins])
    _, decision = benchmark(node.admit, pod("asked"))
    assert decision.admitted
    assert decision.plugin_failures == ()
