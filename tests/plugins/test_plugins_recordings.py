"""The kubelet's rules, said as a plugin, decide as the kubelet did: the pipeline itself changes nothing."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import replace

import pytest
from tests.planner.recordings import machines, scenarios

from mooring.answers.base.agreement import differences
from mooring.answers.base.scenario import replay_scenario
from mooring.answers.base.trace import machines_for
from mooring.engine.core.config import PluginChoice
from mooring.engine.plugins.facts import PluginFailed, PluginsChose
from mooring.engine.plugins.host import PluginHost
from mooring.inputs.configuration.mooring_config import plugin_choice
from mooring.inputs.pods.scenario import Scenario

THEMES = ("packed", "distributed", "uncore")


def with_rules(scenario: Scenario, choice: PluginChoice) -> Scenario:
    """Return a scenario with the plugins; its restarts keep them."""
    return replace(scenario, mooring=replace(scenario.mooring, plugins=choice))


@pytest.mark.parametrize("theme", THEMES)
def test_recordings_agree_with_the_kubelets_rules_as_a_plugin(theme: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every twelfth recording about CPUs; the choices of the plugin are counted, so that it must have been the one."""
    chosen: Counter[str] = Counter()
    observed = PluginHost.chosen

    def counted(self: PluginHost, state: object, wanted: object, observer: object) -> object:
        facts: list[object] = []
        answer = observed(self, state, wanted, facts.append)  # type: ignore[arg-type]  # passed through
        for fact in facts:
            chosen[type(fact).__name__] += 1
            if isinstance(fact, PluginsChose):
                chosen[fact.chosen.plugin] += 1
            if isinstance(fact, PluginFailed):
                # The kubelet counts uneven cores by their average. There it breaks its own option, or gives CPUs that
                # somebody has: the host notices, and leaves the choice to the kubelet's rules.
                assert re.search(r"no whole cores|may not be given", fact.why)
            if observer is not None:
                observer(fact)  # type: ignore[operator]  # an observer
        return answer

    monkeypatch.setattr(PluginHost, "chosen", counted)
    choice = plugin_choice({"plugins": ["kubelet-rules"]})
    compared = 0
    for scenario in scenarios(f"admission-cpu-{theme}.jsonl.gz", 12):
        answer = replay_scenario(with_rules(scenario, choice), machines_for(scenario, machines()))
        assert differences(scenario.expect, answer["expect"]) == [], scenario.id
        compared += 1
    assert compared >= 83
    assert chosen["kubelet-rules"] > 166
    assert chosen["PluginFailed"] * 10 < chosen["kubelet-rules"]
    assert set(chosen) <= {"kubelet-rules", "PluginsChose", "PluginFailed"}
