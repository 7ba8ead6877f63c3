"""One answer, told four times: tables, picture, report and story say what the document says."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from itertools import groupby
from typing import Any

from hypothesis import assume, given
from tests.laws.questions_anywhere import LAW, planned, questions_anywhere

from mooring.answers.base.picture import plan_view
from mooring.answers.base.plan import Question, make_plan
from mooring.answers.base.plan_document import decided, differing, plan_document, plan_json
from mooring.answers.base.pods import explain, explanation_document
from mooring.answers.base.report import report_of
from mooring.answers.base.rows import plan_rows
from mooring.answers.whatif.answer import differences, differs
from mooring.cli.output import json_text
from mooring.engine.core.config import CPU_HOTPLUG
from mooring.views.view import CPUUse, PlacementRow


def placed(part: Any) -> dict[str, tuple[str, str]]:
    """Return what a document says that a pod holds: as a whole, under the empty name, and for each container."""
    whole = {"": part.pod} if part.pod.cpus or part.pod.mems else {}
    return {name: (one.cpus, one.mems) for name, one in (whole | dict(part.containers)).items()}


def shown(rows: tuple[PlacementRow, ...]) -> dict[str, tuple[str, str]]:
    return {row.container: (str(row.cpus), ",".join(map(str, row.memory_nodes))) for row in rows}


@LAW
@given(questions_anywhere())
def test_a_plan_that_is_written_pod_by_pod_is_its_document_byte_for_byte(question: Question) -> None:
    plan = make_plan(question)
    assert "".join(plan_json(plan)) == f"{json_text(plan_document(plan))}\n"


@LAW
@given(questions_anywhere())
def test_the_table_of_a_plan_says_what_its_document_says(question: Question) -> None:
    plan = planned(question)
    pods = plan_document(plan).pods
    groups = [tuple(rows) for _, rows in groupby(plan_rows(plan, wide=True), key=lambda row: row.pod)]
    assert len(groups) == len(pods)
    for rows, part in zip(groups, pods, strict=True):
        again = " (runs already)" if part.admitted and part.running is True else ""
        assert rows[0].pod == f"{part.namespace}/{part.name}{again}"
        assert {row.admitted for row in rows} == {part.admitted}
        assert rows[0].why.endswith(f"[{part.code}]")
        assert part.why in rows[0].why
        if part.admitted:
            assert shown(rows) == placed(part)
        else:
            assert part.reason in rows[0].why
            assert part.message in rows[0].why
            assert (rows[0].verdict == "crash", rows[0].verdict == "endless") == (
                isinstance(part.crash, str),
                isinstance(part.endless, str),
            )


@LAW
@given(questions_anywhere())
def test_the_report_of_a_plan_says_what_its_document_says(question: Question) -> None:
    plan = planned(question)
    document, report = plan_document(plan), report_of(plan)
    asked = [pod for pod in report.pods if pod.step is not None]
    for pod, part in zip(asked, document.pods, strict=True):
        assert (pod.name, pod.uid) == (f"{part.namespace}/{part.name}", part.uid)
        assert (pod.admitted, pod.reason, pod.message) == (part.admitted, part.reason, part.message)
        assert (pod.why, pod.code, pod.remedy) == (part.why, part.code, part.remedy)
        if part.admitted:
            assert shown(pod.containers) == placed(part)
    unasked = document.unasked if isinstance(document.unasked, list) else []
    assert [pod.uid for pod in report.pods if pod.step is None] == [pod.uid for pod in unasked]
    assert [(one.code, one.message) for one in report.findings] == [
        (one.code, one.message) for one in document.findings
    ]
    assert report.kubelet == document.kubelet


@LAW
@given(questions_anywhere())
def test_the_picture_of_a_plan_says_what_its_document_says(question: Question) -> None:
    # What is offline, or is held twice, has a use of its own in a picture.
    assume(CPU_HOTPLUG not in question.mooring.extensions)
    plan = planned(question)
    document, view = plan_document(plan), plan_view(plan)
    assert isinstance(document.numa_nodes, list)
    for node, part in zip(view.numa, document.numa_nodes, strict=True):
        assert (node.id, str(node.cpus)) == (part.node, part.cpus)
        if not node.counts.get(CPUUse.CONTESTED):
            assert node.counts.get(CPUUse.FREE, 0) == part.free_count
    refused = [part for part in document.pods if not part.admitted]
    assert [(one.name, one.why) for one in view.rejected] == [
        (f"{one.namespace}/{one.name}", one.why) for one in refused
    ]


@LAW
@given(questions_anywhere())
def test_the_story_of_a_pod_says_what_the_document_of_the_plan_says(question: Question) -> None:
    plan = planned(question)
    for part, answer in zip(plan_document(plan).pods, plan.answers, strict=True):
        story = explanation_document(explain(plan, answer.pod), plan.machine.name, None)
        assert (story.uid, story.code, story.why, story.remedy) == (part.uid, part.code, part.why, part.remedy)
        assert (story.reason, story.message, story.running) == (part.reason, part.message, part.running is True)
        assert (story.verdict == "admitted") is part.admitted
        assert (story.verdict == "crash", story.verdict == "endless") == (
            isinstance(part.crash, str),
            isinstance(part.endless, str),
        )


@LAW
@given(questions_anywhere())
def test_plans_of_one_question_differ_in_nothing(question: Question) -> None:
    one, other = planned(question), planned(question)
    assert decided(one) == decided(other)
    assert not differing(one, other)
    assert not any(map(differs, differences(one, other)))
    *_, last = one.kubelets()
    assert len(list(one.kubelets())) == len(one.answers) + 1
    if not one.unasked and not question.leaving:
        assert one.kubelet is not None
        assert last.settled().node.active == one.kubelet.node.active


@LAW
@given(questions_anywhere())
def test_both_comparisons_of_two_plans_find_the_same_pods(question: Question) -> None:
    before = planned(question)
    pod = before.answers[0].pod if before.answers else None
    assume(pod is not None)
    assert pod is not None
    after = make_plan(replace(question, pods=tuple(one for one in question.pods if one.uid != pod.uid)))
    found = {one.uid for one in differences(before, after) if differs(one)}
    # Two rejections for one reason with other figures read differently, and nothing else does.
    more = differing(before, after) - found
    reasons: Mapping[str, str] = {one.pod.uid: one.decision.reason for one in before.answers}
    assert found <= differing(before, after) | {one.uid for one in (*before.unasked, *after.unasked)}
    assert all(reasons[uid] for uid in more)
