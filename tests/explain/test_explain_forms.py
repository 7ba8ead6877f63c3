"""Forms of an explanation: facts as documents, codes in the reference, marks of the picture, names."""

from __future__ import annotations

import pytest
from tests.explain.situations import container, planned, pod, policy, simple, told, with_memory

from mooring.answers.base.pods import find, first_refused, pods_of
from mooring.answers.explain.text import without_details
from mooring.documents.explanation import StoryLinePart
from mooring.documents.facts import fact_members
from mooring.engine.core.bits import NUMAMask
from mooring.engine.core.errors import InputError
from mooring.engine.cpumanager import facts as cpu_facts
from mooring.engine.devicemanager import facts as device_facts
from mooring.explanations import reason
from mooring.explanations.codes import all_codes
from mooring.views.decision import SIGNS, Mark, decision_view
from mooring.views.svg.decision import decision_svg


def test_a_fact_becomes_lists_and_texts() -> None:
    chosen = cpu_facts.DistributionChosen((0, 1), (0, 1), 4, 1, (0,), 1)
    assert fact_members(chosen)["takers"] == [0]
    taken = device_facts.DevicesTaken("p", "c", "example.com/nic", 1, None, ("nic-0",), NUMAMask(0b1), "")
    assert fact_members(taken) == {
        "fact": "DevicesTaken",
        "pod": "p",
        "container": "c",
        "resource": "example.com/nic",
        "need": 1,
        "affinity": None,
        "taken": ["nic-0"],
        "near": "0",
        "error": "",
    }


def test_every_code_of_a_reason_is_given_once() -> None:
    codes = [value for name, value in vars(reason).items() if name.isupper() and name[0] != "_"]
    assert sorted(codes) == sorted(set(codes)) == [code for code in all_codes() if code.startswith("MOOR-1")]


def test_the_picture_says_what_hints_allow_and_what_was_chosen() -> None:
    plan = planned(policy("restricted"), [simple("one", "4"), simple("two", "7")])
    view = decision_view(told(plan), (0, 1), plan.kubelet.settings.topology)
    [panel] = view.panels
    marks = {row.name: [cell.mark for cell in row.cells] for row in panel.rows}
    assert marks["cpu"] == [Mark.POSSIBLE, Mark.PREFERRED]
    assert marks["merged: restricted"] == marks["CPUs allocated"] == [Mark.LEFT, Mark.CHOSEN]
    assert [cell.text for cell in panel.rows[0].cells] == ["2 free", "8 free"]
    assert not panel.refused


def test_the_picture_of_a_refusal_marks_the_best_that_could_be_reached() -> None:
    plan = planned(with_memory(policy("restricted")), [simple("wide", "2", "20Gi")])
    view = decision_view(told(plan), (0, 1), None, ["do something"])
    [panel] = view.panels
    assert [cell.mark for cell in panel.rows[-1].cells] == [Mark.REFUSED, Mark.REFUSED]
    assert panel.refused
    picture = decision_svg(view)
    assert "Help: do something" in picture
    assert all(SIGNS[mark] in picture for mark in (Mark.PREFERRED, Mark.WITH_OTHERS, Mark.REFUSED))


def test_a_pod_is_found_before_a_container_of_the_same_name() -> None:
    pods = [simple("web", "1"), pod("default", container("web", "1"))]
    assert find(pods, "default/web").pod.name == "web"
    assert find(pods, "default/default/web").container == "web"
    with pytest.raises(InputError, match="there is no pod 'elsewhere'; there are default/web, default/default"):
        find(pods, "elsewhere")


def test_the_first_pod_that_does_not_run_is_the_one_in_question() -> None:
    plan = planned(policy("restricted"), [simple("one", "2"), simple("large", "20"), simple("larger", "30")])
    refused = first_refused(plan)
    assert refused is not None
    assert refused.name == "large"
    assert first_refused(planned(policy("restricted"), [simple("one", "2")])) is None
    assert len(pods_of(plan)) == 3


def test_details_are_left_out_with_everything_below_them() -> None:
    tree = [line("a", line("b", line("c"), detail=True), line("d"))]
    assert without_details(tree) == [line("a", line("d"))]


def line(text: str, *below: StoryLinePart, detail: bool = False) -> StoryLinePart:
    return StoryLinePart(text, "", detail, list(below))
