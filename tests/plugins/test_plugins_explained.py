"""What plugins did is told: in the story, in its document, in the reason of a refusal, and in findings."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

from msgspec import to_builtins
from tests.documents.validation import complaints
from tests.plans import started_plan
from tests.plugins.plugged_nodes import STATIC, WHOLE, machine_named, named, plugged, pod

from mooring.answers.base.plan import Plan, Question
from mooring.answers.base.pods import explain
from mooring.answers.explain import explanation_document
from mooring.engine.core.bits import CPUMask
from mooring.engine.core.config import ChosenPlugin, MooringConfig, PluginChoice
from mooring.engine.node.facts import PodAdmitted
from mooring.engine.plugins.facts import Candidate, PluginMadeRoom, PluginsChose, PluginScored
from mooring.explanations.lines import plugin_line, story_lines
from mooring.explanations.story import walk

HYBRID = "i7-1370p"


def told(plan: Plan, number: int = -1) -> list[str]:
    return [line.text for line in walk(story_lines(explain(plan, plan.answers[number].pod), None))]


def failing(point: str, error: Exception) -> MooringConfig:
    def fail(**_asked: object) -> object:
        raise error

    points: Mapping[str, Callable[..., object]] = {point: fail}
    choice = PluginChoice((ChosenPlugin("broken", {}, points, is_shipped=True),))
    return MooringConfig(extensions=frozenset({"plugins"}), plugins=choice)


def test_the_story_says_who_withheld_preferred_and_chose() -> None:
    mooring = plugged(named("core-kinds", strict=True), "hidden-siblings")
    one = pod("web", 2, core_kind="performance", hide_siblings="true")
    plan = started_plan(Question(machine_named(HYBRID), WHOLE, mooring, (one,)))
    lines = told(plan)
    assert "core-kinds withholds 7 CPUs (13-19): they are on cores of another kind than performance" in lines
    assert "hidden-siblings withholds 6 CPUs (1,3,5,7,9,11): one thread of each free core is given" in lines
    assert "best scores first, by the kubelet's rules among equal ones: 0,2; 1,3 on the same cores stay idle" in lines


def test_what_a_plugin_says_for_hints_and_for_the_choice_is_reported_once() -> None:
    config = replace(STATIC, topology_manager_policy="best-effort")
    plan = started_plan(
        Question(
            machine_named(HYBRID),
            config,
            plugged(named("core-kinds", strict=True)),
            (pod("web", 2, core_kind="efficiency"),),
        )
    )
    assert sum(line.startswith("core-kinds withholds") for line in told(plan)) == 1


def test_a_refusal_names_plugin_cpus_and_reason() -> None:
    plan = started_plan(
        Question(
            machine_named(HYBRID),
            STATIC,
            plugged(named("core-kinds", strict=True)),
            (pod("web", 13, core_kind="performance"),),
        )
    )
    answer = plan.answers[0]
    assert answer.code == "MOOR-125"
    assert answer.why == (
        "Container c0 requests 13 exclusive CPUs, but plugins withhold too many of the 19 available. "
        "The plugin core-kinds withholds 13-19: they are on cores of another kind than performance."
    )


def test_a_refusal_by_the_topology_manager_names_them_too() -> None:
    config = replace(STATIC, topology_manager_policy="single-numa-node")
    plan = started_plan(
        Question(
            machine_named(HYBRID),
            config,
            plugged(named("core-kinds", strict=True)),
            (pod("web", 13, core_kind="performance"),),
        )
    )
    assert plan.answers[0].decision.reason == "TopologyAffinityError"
    assert "The plugin core-kinds withholds 13-19" in plan.answers[0].why


def test_a_plugin_that_fails_is_a_finding_once_and_a_line_of_each_story() -> None:
    mooring = failing("pre_score", ValueError("no such table"))
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
