"""Mixed containers in plans: the exclusive set stays the assignment, and a note says that they use the pool too."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from msgspec import to_builtins
from tests.agent.small_node import CONFIG, INFO, guaranteed
from tests.plans import started_plan

from mooring.answers.base.plan import Plan, Question
from mooring.answers.base.plan_document import plan_answer, plan_document
from mooring.answers.base.plan_text import plan_text
from mooring.answers.base.rows import mixed_lines
from mooring.documents.of_kubelet import pod_resources_document
from mooring.engine.core.config import MIXED_CPUS, MooringConfig
from mooring.engine.core.machine import Machine
from mooring.engine.node.isolation import ANNOTATION

EXTENDED = MooringConfig(frozenset({MIXED_CPUS}))
POD = guaranteed("a", "2", "1", annotations={f"{ANNOTATION}.main": "true"})


def planned(mooring: MooringConfig = EXTENDED) -> Plan:
    return started_plan(Question(Machine("small", INFO), CONFIG, mooring, (POD,)))


def without_note(plan: Plan) -> dict[str, Any]:
    [fields] = to_builtins(plan_document(plan))["pods"]
    return {name: value for name, value in fields.items() if name != "mixed"}


def test_the_note_is_all_that_the_extension_changes() -> None:
    mixed, plain = planned(), planned(MooringConfig())
    assert without_note(mixed) == without_note(plain)
    assert to_builtins(plan_document(mixed))["pods"][0]["mixed"] == ["main"]
    assert "mixed" not in to_builtins(plan_document(plain))["pods"][0]
    assert mixed.kubelet is not None
    assert plain.kubelet is not None
    assert to_builtins(pod_resources_document(mixed.kubelet.node)) == to_builtins(
        pod_resources_document(plain.kubelet.node)
    )


def test_text_and_picture_say_who_is_mixed_and_where_it_runs() -> None:
    line = "default/name-a/main is mixed: it has CPUs 1-2 for itself and runs in the shared pool too (0,4-7)."
    assert mixed_lines(planned()) == [line]
    text = plan_text(plan_answer(planned()), to="x")
    assert [each.split()[:3] for each in text.splitlines() if each.startswith("  ")][1:3] == [
        ["main", "mixed", "2"],
        ["c1", "exclusive", "1"],
    ]
    assert line in text
    assert mixed_lines(planned(MooringConfig())) == []


def test_an_empty_pool_is_said() -> None:
    strict = replace(CONFIG, cpu_manager_policy_options={"strict-cpu-reservation": "true"})
    pod = guaranteed("a", "7", annotations={ANNOTATION: "true"})
    plan = started_plan(Question(Machine("small", INFO), strict, EXTENDED, (pod,)))
    assert mixed_lines(plan) == [
        "default/name-a/main is mixed: it has CPUs 1-7 for itself and runs there alone while the shared pool is empty."
    ]
