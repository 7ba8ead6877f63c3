"""The plugin keeps the rules, and does what it says."""

from __future__ import annotations

import pytest
from quiet_caches import ANNOTATION, QuietCaches

from mooring.engine.core.config import ChosenPlugin, KubeletConfig, MooringConfig, PluginChoice
from mooring.engine.core.errors import InputError
from mooring.engine.core.pod import Container, Pod, QoS
from mooring.engine.core.quantity import Quantity
from mooring.engine.node import Node
from mooring.engine.plugins.loading import points_of
from mooring.plugintesting import MACHINES, check_plugin


@pytest.mark.parametrize("settings", [{}, {"always": True}])
def test_it_keeps_the_rules(settings: dict[str, object]) -> None:
    check_plugin(QuietCaches, settings, annotations={ANNOTATION: ["true", "false"]}, budget=10**10)


def pod(name: str, **annotations: str) -> Pod:
    amounts = {"cpu": Quantity.parse("1"), "memory": Quantity.parse("1Gi")}
    app = Container("app", requests=amounts, limits=amounts)
    return Pod(name, name, containers=(app,), qos=QoS.GUARANTEED, annotations=annotations)


def node_with(settings: dict[str, object]) -> Node:
    """Return a node of 4 NUMA nodes with 2 caches of 2 CPUs each; CPU 0 is the system's."""
    plugin = ChosenPlugin("quiet-caches", settings, points_of("quiet-caches", QuietCaches(settings)))
    machine = MACHINES["1 socket of 4 NUMA nodes, 2 caches in each, 1 thread a core"]
    config = KubeletConfig(cpu_manager_policy="static", reserved_system_cpus="0")
    return Node.fresh(machine, config, MooringConfig(plugins=PluginChoice((plugin,))))


def cpus_of(settings: dict[str, object], **annotations: str) -> list[str]:
    node, found = node_with(settings), []
    for number in range(3):
        node, decision = node.admit(pod(f"pod-{number}", **annotations))
        found.append(str(decision.containers["app"].cpus))
    return found


def test_quiet_pods_lie_in_caches_of_their_own() -> None:
    assert cpus_of({}) == ["1", "2", "3"]
    assert cpus_of({"always": True}) == cpus_of({}, **{ANNOTATION: "true"}) == ["1", "2", "4"]


@pytest.mark.parametrize("settings", [{"allways": True}, {"always": "yes"}])
def test_wrong_settings_are_refused(settings: dict[str, object]) -> None:
    with pytest.raises(InputError):
        QuietCaches(settings)
