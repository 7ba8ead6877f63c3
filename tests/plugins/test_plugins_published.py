"""A node with plugins in the cluster, and plans with several pods: names and settings are told, order is kept."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import msgspec
import pytest
from tests.cpumanager.pods import container, guaranteed
from tests.node.nodes import config, machine
from tests.plans import started_plan
from tests.plugins.installed_plugins import install
from tests.plugins.made_plugins import answering, choice, cpus, plugin

from mooring.answers.base.plan import Plan, Question
from mooring.answers.base.trace import Trace
from mooring.answers.compare import answer as run
from mooring.answers.compare.variant import Variant
from mooring.engine.core.config import ChosenPlugin, KubeletConfig, MooringConfig
from mooring.engine.core.errors import InputError
from mooring.engine.core.machine import Machine
from mooring.engine.core.machineinfo import CoreKind, CPUFacts
from mooring.engine.kubelet.events import Admit
from mooring.engine.plugins import PodView
from mooring.inputs.configuration.mooring_config import mooring_config
from mooring.published.facts_document import digest_of, facts_document, facts_of, mooring_document
from mooring.published.objects import NodeFacts

PLUGINS = [
    {"name": "kubelet-rules", "settings": {}, "placement": "cpu-manager", "weight": 1},
    {"name": "good", "settings": {"limit": 3}, "placement": "hint-provider", "weight": 4},
]
DOCUMENT = {"extensions": ["plugins"], "plugins": PLUGINS, "pluginBudget": "20ms"}


def published(facts: NodeFacts) -> object:
    return json.loads(msgspec.json.encode(facts_document(facts)))


def test_what_is_published_of_a_node_with_plugins_makes_the_same_node(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    known = CPUFacts((CoreKind(10, cpus("0-3")), CoreKind(5, cpus("4-7"))), cpus("7"))
    info = replace(machine(1), facts=known)
    with monkeypatch.context() as there:
        install(tmp_path, there, {"good": "Good"})
        facts = NodeFacts(info, KubeletConfig(), mooring_config(DOCUMENT, source="x"))
        document = published(facts)
        again = facts_of(document)
        assert again == facts
        assert again.machine.facts == known
        assert again.mooring.plugins.plugins == facts.mooring.plugins.plugins
        assert mooring_document(again.mooring)["plugins"] == PLUGINS
        other = replace(facts, mooring=mooring_config({**DOCUMENT, "plugins": PLUGINS[:1]}, source="x"))
        assert digest_of(other) != digest_of(facts)
    # Whoever has not the same plugins cannot say what the node will do, and does not try.
    with pytest.raises(InputError) as caught:
        facts_of(document)
    assert "plugins[1].name: the plugin 'good' is not installed" in str(caught.value)


def test_without_plugins_nothing_more_is_published() -> None:
    known = replace(machine(1), facts=CPUFacts(isolated=cpus("7")))
    assert digest_of(NodeFacts(known, KubeletConfig(), MooringConfig())) == digest_of(
        NodeFacts(machine(1), KubeletConfig(), MooringConfig())
    )
    assert not {"plugins", "pluginBudget"} & mooring_document(MooringConfig()).keys()


def planned(*plugins: ChosenPlugin) -> Plan:
    pods = [guaranteed(f"u{number}", container("app", "2")) for number in range(3)]
    mooring = MooringConfig(plugins=choice(*plugins))
    return started_plan(Question(Machine("small", machine(1)), config(), mooring, tuple(pods)))


def backwards(pods: tuple[PodView, ...]) -> list[str]:
    return [pod.uid for pod in reversed(pods)]


def test_new_pods_of_a_plan_are_asked_for_in_the_order_of_plugins() -> None:
    assert [answer.pod.uid for answer in planned().answers] == ["u0", "u1", "u2"]
    assert [answer.pod.uid for answer in planned(plugin("x", score_set=answering(1))).answers] == ["u0", "u1", "u2"]
    found = planned(plugin("back", sort_pods=backwards))
    assert [answer.pod.uid for answer in found.answers] == ["u2", "u1", "u0"]
    assert found.findings == planned().findings


def test_an_order_that_loses_pods_is_a_finding_and_the_order_of_the_files_is_kept() -> None:
    found = planned(plugin("loses", sort_pods=answering(["u1"])))
    assert [answer.pod.uid for answer in found.answers] == ["u0", "u1", "u2"]
    (finding,) = [one for one in found.findings if one.code == "MOOR-531"]
    assert (finding.subject, finding.message) == (
        "plugin loses",
        "failed at sort_pods: it left pods out, repeated some or added others",
    )


def test_variants_with_plugins_are_compared_in_this_process(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run, "FEW", 0)
    trace = Trace((Admit(guaranteed("u", container("app", "2"))),))
    mooring = MooringConfig(plugins=choice(plugin("x", score_set=answering(1), pre_score=lambda **_asked: {7: 1.0})))
    variants = [Variant(name, Machine("small", machine(1)), config(), mooring) for name in ("one", "two")]
    found = run.compare(trace, variants, jobs=2)
    assert len(found.variants) == 2
