"""The report of a simulation: what it draws and explains is what the simulation decided."""

from __future__ import annotations

import json
import re
import zlib
from base64 import b64decode
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

import pytest
from rich.console import Group
from tests.fleet.clusters import ALIGNED, LOOSE, arrival, asked, cluster, group
from tests.render.html_page import Page

from mooring.command.main import run
from mooring.engine.kubelet.events import Restart
from mooring.fleet.answer import admitted, answer_of
from mooring.fleet.cluster import NodeAction, NodeChange, NodeCluster, NodeEvent, PodArrival, PodPhase, Work, work_of
from mooring.fleet.documents import FatesPart
from mooring.fleet.nodes import NodeHistory
from mooring.fleet.page import SCRIPTS, fleet_page_text, heat_svg
from mooring.fleet.scheduler.strategy import Strategy
from mooring.fleet.simulation import Simulation
from mooring.fleet.text import fleet_parts
from mooring.views.console import plain
from mooring.views.html.document import script_text

ROOT = Path(__file__).resolve().parents[2]
EXAMPLE = ["--cluster", str(ROOT / "examples/fleet/cluster.yaml"), "-f", str(ROOT / "examples/fleet/day.yaml")]
SIX = asked("6")
"""More than one NUMA node has."""
WORK = [
    arrival("a", asked("3"), runs=50.0),
    arrival("b", asked("2", gpus=1), at=10.0, runs=20.0),
    arrival("six", SIX, at=20.0, owner="web"),
    arrival("late", asked("9"), at=30.0),
    arrival("last", asked("1"), at=100.0),
]


def report(nodes: NodeCluster, work: Work, strategy: Strategy | None = None) -> Page:
    """Return the page of a simulation."""
    history = NodeHistory()
    result = Simulation(nodes, work, strategy, history=history).run()
    return Page(fleet_page_text(answer_of(result), result, history))


def seen() -> Page:
    return report(cluster(group("n", 2), group("m", 1, gpus=0)), work_of("w", WORK))


def unpacked(text: str) -> bytes:
    return zlib.decompress(b64decode(text))


def pods_of(page: Page) -> list[list[Any]]:
    found: list[list[Any]] = json.loads(unpacked(page.data()["pods"]))
    return found


def test_periods_add_up_to_the_answer() -> None:
    answer = answer_of(Simulation(cluster(group("n", 2), group("m", 1, LOOSE)), work_of("w", WORK)).run())
    assert sum(one.admitted for one in answer.periods) == admitted(answer.pods)
    refused = [one for period in answer.periods for one in period.refused]
    assert sum(one.pods for one in refused) == answer.pods.refused
    assert {one.group for one in refused} == {one.name for one in answer.groups if one.refused}
    assert max(one.waited.most for one in answer.periods) == answer.waited.most


def test_a_pod_over_two_numa_nodes_is_not_aligned() -> None:
    loose = Simulation(cluster(group("m", 1, LOOSE, gpus=0)), work_of("w", [arrival("six", SIX)])).run()
    tight = Simulation(cluster(group("n", 1)), work_of("w", [arrival("one", asked("2", gpus=1))])).run()
    shared = Simulation(cluster(group("n", 1)), work_of("w", [arrival("s", asked("2", guaranteed=False))])).run()
    assert [dict(answer_of(one).aligned) for one in (loose, tight, shared)] == [{"2": 1}, {"1": 1}, {}]


def test_a_node_that_refuses_is_drawn_as_it_was_and_the_refusal_explained() -> None:
    page = seen()
    refusals = page.data()["refusals"]
    [story] = (one for one in refusals if one["first"] == "default/six")
    assert story["code"] == "MOOR-102"
    assert b"MOOR-102 \xc2\xb7 default/six is rejected" in unpacked(story["decision"])
    assert 0 < story["picture"] <= len(page.data()["pictures"])
    explained = Counter(pod[-1] for pod in pods_of(page) if pod[0].startswith("default/six"))
    assert [explained[number] for number in range(len(refusals))] == [one["count"] for one in refusals]
    assert explained.total() == 101


def test_letters_of_a_picture_are_those_of_the_pods_on_the_node() -> None:
    page = seen()
    data = page.data()
    pod = next(one for one in pods_of(page) if one[0] == "default/a")
    start = pod[2] * len(data["moments"]) * 2
    number = int.from_bytes(unpacked(data["states"])[start : start + 2], "little")
    assert pod[3] in data["marks"][number - 1]


def test_a_waiting_pod_is_explained_by_every_node() -> None:
    page = seen()
    assert page.data()["waits"] == [[["too little free cpu", 3]]]
    assert [pod[0] for pod in pods_of(page) if pod[1] == "waits"] == ["default/late"]


def test_pictures_beyond_the_most_are_left_out_and_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mooring.fleet.page.MOST_STATES", 1)
    page = seen()
    assert len(page.data()["pictures"]) == 1
    assert page.data()["refusals"][0]["picture"] == 1
    assert re.search(r"draws 1 of \d+ states", page.text)


def test_every_fate_has_words_on_the_page() -> None:
    history = NodeHistory()
    result = Simulation(cluster(group("n", 1)), work_of("w", WORK), history=history).run()
    answer = answer_of(result)
    answer.pods = FatesPart(*[1] * len(PodPhase))
    assert len(Page(fleet_page_text(answer, result, history)).named("dt")) > len(PodPhase)
    script = script_text(SCRIPTS)
    assert all(re.search(rf"^  {fate.value}: ", script, re.MULTILINE) for fate in PodPhase)


def test_the_page_is_well_formed_and_holds_its_pictures() -> None:
    page = seen()
    root = ET.fromstring(unpacked(page.data()["pictures"][0]))  # noqa: S314 - our own text
    assert root.tag.endswith("svg")
    assert not [one for one in root.iter() if one.tag.endswith(("style", "script"))]
    assert not [attributes for _, attributes in page.elements if "style" in attributes or "onclick" in attributes]


def test_hostile_names_are_texts() -> None:
    hostile = "</script><script>window.hacked=1</script>"
    text = report(cluster(group("n", 1)), work_of(hostile, [arrival(hostile, SIX)])).text
    assert text.count("<script") == 2
    assert "window.hacked" in text


def test_the_heat_map_of_many_nodes_has_bounded_rows() -> None:
    history = NodeHistory()
    result = Simulation(cluster(group("n", 700, gpus=0)), work_of("w", WORK), history=history).run()
    root = ET.fromstring(heat_svg(result, history))  # noqa: S314 - our own text
    assert len(root.attrib["data-tops"].split()) == 240
    assert "n: 700 nodes, about 3 in a row" in [one.text for one in root.iter()]


@pytest.mark.parametrize(
    ("words", "form"),
    [
        (["simulate", "--extender"], "html"),
        (["compare", "--strategy", "LeastAllocated+extender"], "html"),
        (["size", "--group", "one-socket", "--within", "9999"], "svg"),
    ],
    ids=str,
)
def test_each_question_is_drawn(words: list[str], form: str, tmp_path: Path) -> None:
    to = tmp_path / "drawn"
    assert run(["fleet", words[0], *EXAMPLE, *words[1:], "-o", form, "--to", str(to)]) == 0
    text = to.read_text(encoding="utf-8")
    assert ("<!DOCTYPE html>" in text) == (form == "html")
    assert "<svg" in text


def test_the_document_has_periods(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["fleet", "simulate", *EXAMPLE, "-o", "json"]) == 1
    document = json.loads(capsys.readouterr().out)
    assert (
        sum(one["pods"] for period in document["periods"] for one in period["refused"]) == document["pods"]["refused"]
    )
    assert set(document["aligned"]) == {"1"}


def test_nodes_that_are_drained_and_get_another_configuration_are_drawn(tmp_path: Path) -> None:
    events, to = str(ROOT / "examples/fleet/upgrade-day.yaml"), tmp_path / "drawn.html"
    assert run(["fleet", "simulate", *EXAMPLE, "--events", events, "--extender", "-o", "html", "--to", str(to)]) in (
        0,
        1,
    )
    assert "evicted: drained" in to.read_text(encoding="utf-8")


def test_the_report_has_evicted_and_held_pods_and_nodes_of_another_configuration() -> None:
    changes: dict[float, NodeChange] = {5.0: NodeAction.DRAIN, 6.0: NodeAction.UNCORDON, 40.0: Restart(ALIGNED)}
    nodes = replace(cluster(group("n", 1)), events=tuple(NodeEvent(at, "n", one) for at, one in changes.items()))
    work = work_of("w", [arrival("a", asked("3")), arrival("six", SIX, at=20.0), arrival("last", asked("1"), at=60.0)])
    page = report(nodes, work, Strategy(agent=True))
    assert [pod[1] for pod in pods_of(page)] == ["evicted", "held", "runs"]
    assert "<dt>evicted: drained, removed or preempted</dt><dd>1</dd>" in page.text
    assert "<dt>held on a node by its agent</dt><dd>1</dd>" in page.text


def test_the_text_says_why_pods_wait_and_on_how_many_nodes_where_causes_differ() -> None:
    work = work_of("w", [arrival("large", asked("9")), arrival("six", asked("6", gpus=1), at=1.0)])
    result = Simulation(cluster(group("n", 2), group("m", 1, gpus=0)), work, Strategy(extender=True)).run()
    text = " ".join(plain(Group(*fleet_parts(answer_of(result), result, wide=False)), 100).split())
    assert "default/large 0 s waits too little free cpu default/six" in text
    assert re.search(r"default/six 1 s waits .*\(MOOR-\d+\): 2 nodes; too little free example.com/gpu: 1 node", text)


@pytest.mark.parametrize(
    ("pods", "words"),
    [
        ([arrival("a", asked("1"))], "The only pod found a node that admitted it. pods 1 running at the end"),
        ([arrival(name, asked("1")) for name in "ab"], "All 2 pods found a node that admitted them. pods 2 running"),
        ([arrival("six", SIX)], "0 of 1 pod was admitted; 1 refused by kubelets. pods 1 refused by a kubelet"),
        (
            [replace(arrival("large", asked("9")), leaves=5.0)],
            "No pod found a node before it was deleted. pods 1 deleted while waiting for a node",
        ),
    ],
)
def test_the_text_counts_pods_in_plain_english(pods: list[PodArrival], words: str) -> None:
    result = Simulation(cluster(group("n", 2, gpus=0)), work_of("w", pods)).run()
    assert words in " ".join(plain(Group(*fleet_parts(answer_of(result), result, wide=False)), 100).split())
