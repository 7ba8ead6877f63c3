"""What plugins did is told and published; the kubelet's rules, said as a plugin, decide as the kubelet did."""

from __future__ import annotations

import json
import re
from collections import Counter
from dataclasses import replace
from pathlib import Path

import msgspec
import pytest
from msgspec import to_builtins
from tests.cpumanager.pods import container, guaranteed
from tests.documents.validation import complaints
from tests.node.nodes import config, machine
from tests.planner.recordings import machines, scenarios
from tests.plans import started_plan
from tests.plugins.installed_plugins import install
from tests.plugins.made_plugins import answering, choice, cpus, plugin, raising
from tests.plugins.plugged_nodes import STATIC, WHOLE, machine_named, named, plugged, pod

from mooring.answers.base.agreement import differences
from mooring.answers.base.plan import Plan, Question
from mooring.answers.base.pods import explain, explanation_document
from mooring.answers.base.scenario import replay_scenario
from mooring.answers.base.trace import Trace, machines_for
from mooring.answers.compare.answer import compare
from mooring.answers.compare.variant import Variant
from mooring.engine.core.bits import CPUMask
from mooring.engine.core.config import ChosenPlugin, KubeletConfig, MooringConfig, PluginChoice
from mooring.engine.core.errors import InputError
from mooring.engine.core.machine import Machine
from mooring.engine.core.machineinfo import CPUFacts, CPUKind
from mooring.engine.kubelet.events import Admit
from mooring.engine.node.facts import PodAdmitted
from mooring.engine.plugins import PodView
from mooring.engine.plugins.facts import Candidate, PluginFailed, PluginMadeRoom, PluginsChose, PluginScored
from mooring.engine.plugins.host import PluginHost
from mooring.explanations.lines import plugin_line, story_lines
from mooring.explanations.story import walk
from mooring.inputs.configuration.mooring_config import mooring_config, plugin_choice
from mooring.inputs.pods.scenario import Scenario
from mooring.published.facts_document import digest_of, facts_document, facts_of, mooring_document
from mooring.published.objects import NodeFacts

HYBRID = "i7-1370p"


def told(plan: Plan, number: int = -1) -> list[str]:
    return [line.text for line in walk(story_lines(explain(plan, plan.answers[number].pod), None))]


def of_kinds(config: KubeletConfig, cpus: int, kind: str) -> Plan:
    """Plan a pod on a machine whose cores of another kind are withheld."""
    mooring = plugged(named("core-kinds", strict=True))
    return started_plan(Question(machine_named(HYBRID), config, mooring, (pod("web", cpus, core_kind=kind),)))


def test_the_story_says_who_withheld_preferred_and_chose() -> None:
    mooring = plugged(named("core-kinds", strict=True), "hidden-siblings")
    one = pod("web", 2, core_kind="performance", hide_siblings="true")
    plan = started_plan(Question(machine_named(HYBRID), WHOLE, mooring, (one,)))
    lines = told(plan)
    assert "core-kinds withholds 7 CPUs (13-19): they are on cores of another kind than performance" in lines
    assert "hidden-siblings withholds 6 CPUs (1,3,5,7,9,11): one thread of each free core is given" in lines
    assert "best scores first, by the kubelet's rules among equal ones: 0,2; 1,3 on the same cores stay idle" in lines


def test_what_a_plugin_says_for_hints_and_for_the_choice_is_reported_once() -> None:
    plan = of_kinds(replace(STATIC, topology_manager_policy="best-effort"), 2, "efficiency")
    assert sum(line.startswith("core-kinds withholds") for line in told(plan)) == 1


def test_a_refusal_names_plugin_cpus_and_reason() -> None:
    plan = of_kinds(STATIC, 13, "performance")
    answer = plan.answers[0]
    assert answer.code == "MOOR-125"
    assert answer.why == (
        "Container c0 requests 13 exclusive CPUs, but plugins withhold too many of the 19 available. "
        "The plugin core-kinds withholds 13-19: they are on cores of another kind than performance."
    )


def test_a_refusal_by_the_topology_manager_names_them_too() -> None:
    plan = of_kinds(replace(STATIC, topology_manager_policy="single-numa-node"), 13, "performance")
    assert plan.answers[0].decision.reason == "TopologyAffinityError"
    assert "The plugin core-kinds withholds 13-19" in plan.answers[0].why


def test_a_plugin_that_fails_is_a_finding_once_and_a_line_of_each_story() -> None:
    broken = plugin("broken", pre_score=raising(ValueError("no such table")), is_shipped=True)
    mooring = MooringConfig(extensions=frozenset({"plugins"}), plugins=choice(broken))
    plan = started_plan(Question(machine_named(HYBRID), STATIC, mooring, (pod("one", 1), pod("two", 1))))
    assert plan.is_yes
    found = [finding for finding in plan.findings if finding.code == "MOOR-531"]
    assert [finding.subject for finding in found] == ["plugin broken"]
    assert found[0].message == (
        "failed at pre_score, first for default/one (2 times): it raised ValueError: no such table; "
        "its answer was left out"
    )
    assert "broken failed at pre_score, and its answer is ignored: it raised ValueError: no such table" in told(plan)


def test_lines_stay_short_with_many_levels_and_proposals() -> None:
    scored = PluginScored("u", "c", "table", {float(-level): CPUMask(1 << level) for level in range(9)})
    assert plugin_line(scored).text == "table prefers 0 to 1, then 2, then 3, and so on"
    candidates = tuple(Candidate("table", 1 << cpu, scores={"judge": 1.0 / (cpu + 1)}) for cpu in range(9))
    line = plugin_line(PluginsChose("u", "c", candidates, candidates[0], as_hint=True))
    assert line.text == "as a hint, chosen by table (score 1 by judge), of 9 proposals: 0"
    assert [child.text for child in line.children][-1] == "nor 4 others"
    room = PluginMadeRoom("u", "c", "table", CPUMask(0b11), "nobody else wants them")
    assert plugin_line(room).text == "table releases 2 CPUs (0-1) after all: nobody else wants them"


def test_the_document_keeps_its_schema() -> None:
    mooring = plugged(named("core-kinds", strict=True), "hidden-siblings", "spread")
    pods = [pod("web", 2, core_kind="performance", hide_siblings="true", spread_group="a"), pod("db", 1)]
    plan = started_plan(Question(machine_named(HYBRID), STATIC, mooring, tuple(pods)))
    document = to_builtins(explanation_document(explain(plan, pods[0]), "example", None))
    assert complaints("Explanation", document) == []
    told_of = {fact["fact"] for fact in document["facts"]}
    assert {"PluginFiltered", "PluginScored", "PluginsChose", PodAdmitted.__name__} <= told_of


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
    known = CPUFacts((CPUKind(10, cpus("0-3")), CPUKind(5, cpus("4-7"))), cpus("7"))
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
    monkeypatch.setattr("mooring.answers.compare.answer.FEW", 0)
    trace = Trace((Admit(guaranteed("u", container("app", "2"))),))
    mooring = MooringConfig(plugins=choice(plugin("x", score_set=answering(1), pre_score=lambda **_asked: {7: 1.0})))
    variants = [Variant(name, Machine("small", machine(1)), config(), mooring) for name in ("one", "two")]
    found = compare(trace, variants, jobs=2)
    assert len(found.variants) == 2


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
