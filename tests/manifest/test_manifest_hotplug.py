"""Where CPUs stand in for offline ones, as MooringConfiguration says it, and steps of scenarios."""

from __future__ import annotations

from typing import Any

import pytest

from mooring.engine.core.config import CPU_HOTPLUG, REPLACE, MooringConfig
from mooring.engine.core.cpuset import CPUSet
from mooring.engine.core.errors import InputError
from mooring.engine.kubelet.events import Offline, Online
from mooring.inputs.configuration.mooring_config import mooring_config
from mooring.inputs.pods.pods import hotplug_step

ON = MooringConfig(frozenset({CPU_HOTPLUG}))


@pytest.mark.parametrize("rule", REPLACE)
def test_each_rule_is_read(rule: str) -> None:
    content = {"extensions": ["cpu-hotplug"], "cpuHotplug": {"replace": rule}}
    assert mooring_config(content, source="test") == MooringConfig(frozenset({CPU_HOTPLUG}), replace_offline=rule)


def test_the_same_nodes_are_the_default() -> None:
    assert mooring_config({"extensions": ["cpu-hotplug"]}, source="test").replace_offline == "same-nodes"
    assert mooring_config({"cpuHotplug": {}}, source="test") == MooringConfig()


@pytest.mark.parametrize(
    ("hotplug", "message"),
    [
        ({"replace": "always"}, r"cpuHotplug\.replace: 'always' is not a rule; .*never, same-nodes, anywhere"),
        ({"replace": 3}, r"replace"),
        ({"replaced": "never"}, r"cpuHotplug.replaced: 'replaced' is not known; did you mean replace"),
        (["never"], r"cpuHotplug"),
    ],
)
def test_anything_else_is_refused_with_its_field(hotplug: Any, message: str) -> None:
    with pytest.raises(InputError, match=message):
        mooring_config({"cpuHotplug": hotplug}, source="test")


def test_steps_are_told_apart() -> None:
    assert hotplug_step({"offline": "2-3,7"}, ON) == Offline(CPUSet.parse("2-3,7"))
    assert hotplug_step({"online": "0"}, ON) == Online(CPUSet.of(0))
    assert hotplug_step({"remove": "a"}, ON) is None
