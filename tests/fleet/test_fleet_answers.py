"""Answers: runaways, sizes, comparisons; the same figures wherever they are computed."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import zlib
from base64 import b64decode
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from pkgutil import resolve_name
from typing import Any
from xml.etree import ElementTree as ET

import dask
import distributed
import pytest
from tests.cli.command import Answered, mooring
from tests.fleet import clusters
from tests.fleet.described import SIX, arrival, asked, fates, group, simulated, workload
from tests.render.html_page import Page

from mooring.fleet.cluster import PodPhase, work_of
from mooring.fleet.nodes import NodeHistory
from mooring.fleet.simulation import MOST_SAMPLES, Simulation, answer_of

ROOT = Path(__file__).resolve().parents[2]
TRACES = ROOT.parent / "shared" / "traces"
BENCHMARKS = ROOT / "benchmarks"
EXAMPLE = ("--cluster", ROOT / "examples/fleet/cluster.yaml", "-f", ROOT / "examples/fleet/day.yaml")
MOST_REMADE = 100
"""Pods that a controller makes anew for one that is refused each time."""
TWO_NODES = [group("a", 2, gpus=2), group("b", policy="best-effort")]
DAY = [arrival(f"p{n}", str(n % 5 + 1), n, 20) for n in range(25)]


@pytest.mark.parametrize(("owner", "runaways"), [("web", {"default/p": MOST_REMADE}), ("", {})])
def test_a_pod_that_its_controller_makes_anew_is_a_runaway_and_ends(
    tmp_path: Path, owner: str, runaways: dict[str, int]
) -> None:
    found = simulated(tmp_path, [group("a")], [arrival("p", SIX, owner=owner)])
    assert found["runaways"] == runaways
    assert found["pods"]["refused"] == sum(runaways.values()) + 1 == len(found["records"])
    assert found["records"][-1]["created"] == sum(runaways.values())


def test_the_extender_leaves_out_the_node_that_would_refuse(tmp_path: Path) -> None:
    groups = [group("a", 3), group("b", policy="best-effort")]
    found = simulated(tmp_path, groups, [arrival("p", SIX)], "--extender")
    assert found["groups"][1]["admitted"] == 1
    assert sum(found["filtered"].values()) == 3


def test_a_pod_that_waits_gets_the_node_that_another_leaves(tmp_path: Path) -> None:
    found = simulated(tmp_path, [group("g")], [arrival("a", "4", runs=50), arrival("o", "3"), arrival("b", "4", 10)])
    waited = {one["name"]: one["admitted"] - one["created"] for one in found["records"]}
    assert waited == {"default/a": 0.0, "default/o": 0.0, "default/b": 40.0}


def test_figures_are_the_same_in_this_process_and_in_others(tmp_path: Path) -> None:
    words = ("--strategy", "LeastAllocated", "--strategy", "LeastAllocated+extender", "--seeds", "2", "-o", "json")
    settings = ("--set", "topologyManagerPolicy=none,restricted")
    alone, many = (asked("compare", tmp_path, TWO_NODES, DAY, *words, *settings, "--jobs", jobs).out for jobs in "12")
    assert len(json.loads(alone)["trials"]) == 8
    assert alone == many


def test_the_first_of_a_ranking_admits_most(tmp_path: Path) -> None:
    lines = [arrival(f"p{n}", SIX, n, 5) for n in range(6)]
    words = ("--set", "topologyManagerPolicy=single-numa-node,none")
    found = asked("compare", tmp_path, [group("a", 2)], lines, *words, "-o", "json").document
    assert found["best"].startswith("topologyManagerPolicy=none")
    assert [(one["pods"]["runs"] + one["pods"]["ran"], one["pods"]["refused"]) for one in found["trials"]] == [
        (0, 6), (6, 0)
    ]  # fmt: skip
    rows = asked("compare", tmp_path, [group("a", 2)], lines, *words).out
    assert re.search(r"1 +6 +0 .*2 +0 +6 .*1  topologyManagerPolicy=none,", rows, re.DOTALL)


def test_one_node_fewer_than_the_size_does_not_do(tmp_path: Path) -> None:
    lines = [arrival(f"p{n}", "3") for n in range(9)]
    found = asked("size", tmp_path, [group("a")], lines, "--group", "a", "-o", "json")
    assert (found.code, found.document["best"]) == (0, "5 of a")
    assert [(one["nodes"], one["pods"]["waits"]) for one in found.document["trials"]] == [
        (1, 7), (2, 5), (4, 1), (5, 0), (6, 0), (8, 0)
    ]  # fmt: skip
    said = " ".join(asked("size", tmp_path, [group("a")], lines, "--group", "a").out.split())
    assert "a: 5 nodes will do; one fewer does not: 1 pods without a node, cpu used to" in said


def test_a_goal_that_nothing_reaches_is_said_with_its_cause_and_an_unknown_group_is_named(tmp_path: Path) -> None:
    said = asked("size", tmp_path, [group("a")], [arrival("p", SIX)], "--group", "a", "--most", "4")
    assert (said.code, "a: no number up to 4 does: 1 refused (MOOR-" in said.out) == (1, True)
    said = asked("size", tmp_path, [group("a")], [arrival("p", SIX)], "--group", "b")
    assert (said.code, "--group b: is not a group of the cluster; groups are a" in said.complaint) == (2, True)


@pytest.mark.parametrize(("words", "code"), [(["--extender"], 0), ([], 1)])
def test_the_verb_prints_a_document_of_every_pod(words: list[str], code: int) -> None:
    document = mooring("fleet", "simulate", *EXAMPLE, *words, "-o", "json", code=code).document
    assert (document["kind"], len(document["records"]) >= 200) == ("Fleet", True)
    refused = document["pods"]["refused"]
    assert bool(refused) == bool(code)
    assert sum(one["pods"] for period in document["periods"] for one in period["refused"]) == refused
    assert set(document["aligned"]) == {"1"}


def test_the_document_says_why_pods_wait(tmp_path: Path) -> None:
    lines = [arrival("p", SIX), arrival("q", SIX), arrival("huge", "60"), arrival("fits", "1")]
    document = simulated(tmp_path, [group("a", 2)], lines, "--extender")
    assert {one["name"]: (one["fate"], one["code"]) for one in document["records"]} == {
        "default/p": ("waits", "MOOR-102"),
        "default/q": ("waits", "MOOR-102"),
        "default/huge": ("waits", ""),
        "default/fits": ("runs", ""),
    }
    aligned = {"text": "More CPUs than any NUMA node has", "code": "MOOR-102", "nodes": 2}
    assert document["waits"] == [
        {"pods": ["default/p", "default/q"], "causes": [aligned]},
        {"pods": ["default/huge"], "causes": [{"text": "too little free cpu", "code": "", "nodes": 2}]},
    ]


@pytest.mark.parametrize(
    ("pod", "feature"),
    [
        ({"hostNetwork": True, "hostUsers": False}, "UserNamespacesHostNetworkSupport"),
        (
            {"container": {"restartPolicyRules": [{"action": "RestartAllContainers"}]}},
            "RestartAllContainersOnContainerExits",
        ),
        ({"container": {"volumeMounts": [{"name": "v", "bindMountOptions": ["noexec"]}]}}, "VolumeBindMountOptions"),
    ],
)
def test_a_pod_waits_for_a_node_that_declares_what_it_needs(tmp_path: Path, pod: dict[str, Any], feature: str) -> None:
    old, new = group("old", release="1.34"), group("new", kubelet={"featureGates": {feature: True}})
    found = simulated(tmp_path, [old, new], [arrival("p", "1", **pod)])
    assert [one["admitted"] for one in found["groups"]] == [0, 1]
    [waits] = simulated(tmp_path, [old], [arrival("p", "1", **pod)])["waits"]
    assert [one["text"] for one in waits["causes"]] == [f"does not declare {feature}"]


def test_a_work_that_is_missing_is_one_line() -> None:
    assert mooring("fleet", "simulate", *EXAMPLE[:2], "-f", "nowhere.yaml", code=2).complaint


@pytest.mark.long
@pytest.mark.skipif(not TRACES.exists(), reason="traces are beside the repository only: ../shared/traces")
def test_the_trace_of_a_real_cluster_is_written_and_run(tmp_path: Path) -> None:
    names = (TRACES / "openb_node_list_all_node.csv", TRACES / "openb_pod_list_default.csv")
    subprocess.run([sys.executable, BENCHMARKS / "alibaba.py", *names, tmp_path], check=True)
    files = ("--cluster", tmp_path / "cluster.json", "-f", tmp_path / "work.jsonl")
    document = mooring("fleet", "simulate", *files, "-o", "json", code=0).document
    assert document["nodes"] == 1523
    assert sum(document["pods"].values()) == 8152
    assert {one["resource"]: one["offered"] for one in document["uses"]}["nvidia.com/gpu"] == 6212


@pytest.mark.long
def test_figures_are_the_same_on_the_workers_of_a_dask_scheduler(tmp_path: Path) -> None:
    local = {"n_workers": 1, "threads_per_worker": 1, "host": "127.0.0.1", "dashboard_address": None}
    make: Callable[..., AbstractContextManager[Any]] = distributed.LocalCluster
    with dask.config.set({"temporary-directory": str(tmp_path)}), make(processes=True, **local) as made:
        found = compared(tmp_path, "--dask", made.scheduler_address)
    assert found.out == compared(tmp_path).out


# Trials that have finished are kept, and found again by all that decides about them.


EVENTS = [
    {"at": 4, "do": "drain", "nodes": ["a-0"]},
    {"at": 9, "do": "restart", "nodes": ["b"], "set": ["topologyManagerPolicy=single-numa-node"]},
]
LINES = [
    *(arrival(f"p{n}", str(n % 5 + 1), n, 20, owner="web") for n in range(8)),
    workload("Job", "j", SIX, runs=9, completions=2),
]
RUN_TRIAL = "mooring.fleet.trials.run_trial"
BOTH = ("--strategy", "LeastAllocated", "--strategy", "LeastAllocated+extender")


def compared(
    folder: Path, *words: str, strategies: Sequence[str] = BOTH, lines: Sequence[object] = LINES, nodes: int = 2,
    events: Sequence[object] = EVENTS,
) -> Answered:  # fmt: skip
    """Compare two strategies for two seeds, as JSON."""
    groups = [group("a", nodes, gpus=2), group("b", policy="best-effort")]
    given = ("--seeds", "2", "-o", "json", *strategies, *words)
    return asked("compare", folder, groups, lines, *given, events=events)


def test_a_run_goes_on_with_the_trials_that_have_finished(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    usual, ran = resolve_name(RUN_TRIAL), list[str]()
    whole, kept = compared(tmp_path), tmp_path / "kept"

    def noted(trial: Any) -> Any:
        if len(ran) == most:
            raise KeyboardInterrupt
        ran.append(f"{trial.variant} {trial.seed}")
        return usual(trial)

    most = 2
    monkeypatch.setattr(RUN_TRIAL, noted)
    cut = compared(tmp_path, "--resume", str(kept))
    assert ("cut short after 2 of 4 simulations" in cut.err, len(list(kept.iterdir()))) == (True, 2)
    most = 4
    for _ in range(2):
        assert compared(tmp_path, "--resume", str(kept)).out == whole.out
    assert ran == [f"LeastAllocated{more} {seed}" for more in ("", "+extender") for seed in (0, 1)]


def test_another_seed_work_cluster_or_strategy_is_another_trial_and_a_torn_file_is_none(tmp_path: Path) -> None:
    kept, resume = tmp_path / "kept", ("--resume", str(tmp_path / "kept"))
    first = compared(tmp_path, *resume).out
    others: list[dict[str, Any]] = [
        {},
        {"lines": LINES[1:]},
        {"nodes": 3},
        {"strategies": ("--strategy", "MostAllocated", "--strategy", "MostAllocated+extender")},
        {"events": EVENTS[:1]},
    ]
    counts = [len(list(kept.iterdir())) for other in others if not compared(tmp_path, *resume, **other).code]
    assert counts == [4, 8, 12, 16, 20]
    compared(tmp_path, *resume, "--seed", "9")
    assert len(list(kept.iterdir())) == 24
    for one in kept.iterdir():
        one.write_text("{", encoding="utf-8")
    assert compared(tmp_path, *resume).out == first


def test_the_digest_of_a_trial_is_the_same_in_every_process(tmp_path: Path) -> None:
    compared(tmp_path, "--resume", str(tmp_path / "kept"))
    known = {one.name for one in (tmp_path / "kept").iterdir()}
    files = ("--cluster", tmp_path / "cluster.yaml", "-f", tmp_path / "work.jsonl", "--seeds", "2", *BOTH)
    command: list[str | Path] = [
        sys.executable,
        "-m",
        "mooring",
        "fleet",
        "compare",
        *files,
        "--resume",
        tmp_path / "other",
    ]
    subprocess.run(command, env={**os.environ, "PYTHONHASHSEED": "7"}, cwd=ROOT, capture_output=True, check=True)
    assert {one.name for one in (tmp_path / "other").iterdir()} == known


def test_a_worker_that_is_killed_loses_nothing(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    whole, mark = compared(tmp_path).out, tmp_path / "killed"
    monkeypatch.setenv("MOORING_TEST_MARK", str(mark))
    monkeypatch.setattr(RUN_TRIAL, killed_once)
    assert compared(tmp_path, "--jobs", "2").out == whole
    assert mark.exists()


USUAL_TRIAL = resolve_name(RUN_TRIAL)


def killed_once(trial: object) -> object:
    """Kill the process that runs the first trial, once."""
    mark = Path(os.environ["MOORING_TEST_MARK"])
    if not mark.exists():
        mark.touch()
        os.kill(os.getpid(), signal.SIGKILL)
    return USUAL_TRIAL(trial)


def test_a_simulation_that_is_stopped_answers_for_the_time_until_then() -> None:
    work = work_of("w", [clusters.arrival(f"p{n}", clusters.asked("1"), n * 10.0) for n in range(5)])
    simulation = Simulation(clusters.cluster(clusters.group("a", 1, gpus=0)), work)
    simulation.at(20.0, simulation.stop)
    result = simulation.run()
    assert result.cut_short
    assert [record.arrival.at for record in result.records] == [0.0, 10.0, 20.0]


def test_pods_that_run_much_longer_than_others_arrive_are_sampled_a_bounded_number_of_times() -> None:
    one = clusters.asked("1")
    work = work_of("w", [clusters.arrival("p0", one, runs=1000.0), clusters.arrival("p1", one, 10.0)])
    history = NodeHistory()
    result = Simulation(clusters.cluster(clusters.group("a", 1, gpus=0)), work, history=history).run()
    moments = [sample.at for sample in result.samples]
    assert MOST_SAMPLES < len(moments) <= 10 * MOST_SAMPLES
    assert moments == [at for at, *_ in history.moments]
    assert moments[-1] == 1000.0
    assert moments[:-1] == pytest.approx([moments[1] * number for number in range(len(moments) - 1)])


def test_a_second_interrupt_ends_a_simulation_without_an_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(_simulation: Simulation) -> None:
        signal.raise_signal(signal.SIGINT)
        signal.raise_signal(signal.SIGINT)

    monkeypatch.setattr(Simulation, "run", interrupted)
    said = mooring("fleet", "simulate", *EXAMPLE, code=130)
    assert ("cut short" in said.err, said.out) == (True, "")
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_a_group_is_sized_without_a_node_that_an_event_names() -> None:
    train = (*EXAMPLE[:2], "-f", ROOT / "examples/fleet/train.yaml", *UPGRADE_DAY)
    said = mooring("fleet", "size", *train, "--group", "two-sockets", "--most=1", code=1)
    assert "two-sockets: no number up to " in said.out


LIVE = ("--cluster", ROOT / "examples/fleet/live.yaml")
ONE_SOCKET = ("size", *EXAMPLE, "--group", "one-socket", "--most=1")
WITHIN = " fleet size: invalid value for '--within': "
NO_VERSION = "'banana' is not a kubelet version; write"


@pytest.mark.parametrize(
    ("words", "line"),
    [
        *(((*ONE_SOCKET, f"--within={within}"), WITHIN) for within in ("nan", "inf", "-1", "1e308")),
        (("compare", *EXAMPLE, "--kubelet-version=banana"), f": --kubelet-version: {NO_VERSION}"),
        (("compare", *EXAMPLE, "--set", "maxPods=1"), ": --set: 'maxPods' cannot be set"),
        (("upgrade", "banana", *LIVE), f": VERSION: {NO_VERSION}"),
        (("upgrade", "", *LIVE), ": the argument: is empty"),
    ],
)
def test_a_mistake_in_an_option_is_one_line(words: tuple[str | Path, ...], line: str) -> None:
    assert mooring("fleet", *words, code=2).complaint.startswith(f"mooring{line}")


# The report of a simulation: what it draws and explains is what the simulation decided.


WORK = [
    arrival("a", "3", runs=50),
    arrival("b", "2", 10, 20, gpus=1),
    arrival("six", SIX, 20, owner="web"),
    arrival("late", "9", 30),
    arrival("last", "1", 100),
]
GROUPS = [group("g", 2, gpus=2), group("m")]


def report(
    folder: Path, groups: Sequence[Any] = GROUPS, lines: Sequence[Any] = WORK, *words: str, events: Sequence[Any] = ()
) -> Page:
    """Return the page of a simulation."""
    return Page(asked("simulate", folder, groups, lines, "-o", "html", *words, events=events).out)


def unpacked(text: str) -> bytes:
    return zlib.decompress(b64decode(text))


def pods_of(page: Page) -> list[list[Any]]:
    found: list[list[Any]] = json.loads(unpacked(page.data()["pods"]))
    return found


def test_periods_add_up_to_the_answer(tmp_path: Path) -> None:
    found = simulated(tmp_path, [group("g", 2, gpus=2), group("m", policy="best-effort", gpus=2)], WORK)
    admitted = sum(found["pods"][fate] for fate in ("ran", "runs", "evicted"))
    assert sum(one["admitted"] for one in found["periods"]) == admitted
    refused = [one for period in found["periods"] for one in period["refused"]]
    assert sum(one["pods"] for one in refused) == found["pods"]["refused"]
    assert {one["group"] for one in refused} == {one["name"] for one in found["groups"] if one["refused"]}
    assert max(one["waited"]["most"] for one in found["periods"]) == found["waited"]["most"]


@pytest.mark.parametrize(
    ("policy", "pod", "aligned"),
    [
        ("best-effort", arrival("six", SIX), {"2": 1}),
        ("single-numa-node", arrival("one", "2", gpus=1), {"1": 1}),
        ("single-numa-node", arrival("shared", "2", guaranteed=False), {}),
    ],
)
def test_a_pod_over_two_numa_nodes_is_not_aligned(
    tmp_path: Path, policy: str, pod: object, aligned: dict[str, int]
) -> None:
    assert simulated(tmp_path, [group("g", policy=policy, gpus=2)], [pod])["aligned"] == aligned


def test_a_node_that_refuses_is_drawn_as_it_was_and_the_refusal_explained(tmp_path: Path) -> None:
    page = report(tmp_path)
    refusals = page.data()["refusals"]
    [story] = (one for one in refusals if one["first"] == "default/six")
    assert story["code"] == "MOOR-102"
    assert b"MOOR-102 \xc2\xb7 default/six is rejected" in unpacked(story["decision"])
    assert 0 < story["picture"] <= len(page.data()["pictures"])
    explained = Counter(pod[-1] for pod in pods_of(page) if pod[0].startswith("default/six"))
    assert [explained[number] for number in range(len(refusals))] == [one["count"] for one in refusals]
    assert explained.total() == 101


def test_the_page_is_well_formed_with_pictures_of_the_pods_on_nodes_and_waiting_pods_explained(tmp_path: Path) -> None:
    page = report(tmp_path)
    data = page.data()
    pod = next(one for one in pods_of(page) if one[0] == "default/a")
    start = pod[2] * len(data["moments"]) * 2
    assert pod[3] in data["marks"][int.from_bytes(unpacked(data["states"])[start : start + 2], "little") - 1]
    assert data["waits"] == [[["too little free cpu", 3]]]
    assert [pod[0] for pod in pods_of(page) if pod[1] == "waits"] == ["default/late"]
    root = ET.fromstring(unpacked(data["pictures"][0]))  # noqa: S314 - our own text
    assert root.tag.endswith("svg")
    assert not [one for one in root.iter() if one.tag.endswith(("style", "script"))]
    assert not [attributes for _, attributes in page.elements if "style" in attributes or "onclick" in attributes]


def test_pictures_beyond_the_most_are_left_out_and_counted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mooring.fleet.page.MOST_STATES", 1)
    page = report(tmp_path)
    assert len(page.data()["pictures"]) == 1
    assert page.data()["refusals"][0]["picture"] == 1
    assert re.search(r"draws 1 of \d+ states", page.text)


def test_every_fate_has_words_on_the_page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def with_every_fate(result: Simulation) -> object:
        answer = answer_of(result)
        answer.pods = type(answer.pods)(*[1] * len(PodPhase))
        return answer

    monkeypatch.setattr("mooring.fleet.simulation.answer_of", with_every_fate)
    page = report(tmp_path)
    assert len(page.named("dt")) > len(PodPhase)
    assert all(re.search(rf"^  {fate.value}: ", page.text, re.MULTILINE) for fate in PodPhase)


def test_hostile_names_are_texts(tmp_path: Path) -> None:
    hostile = "</script><script>window.hacked=1</script>"
    text = report(tmp_path, [group(hostile)], [arrival("p", SIX)]).text
    assert text.count("<script") == 2
    assert "window.hacked" in text


def test_the_heat_map_of_many_nodes_has_bounded_rows(tmp_path: Path) -> None:
    root = ET.fromstring(asked("simulate", tmp_path, [group("g", 700)], WORK, "-o", "svg").out)  # noqa: S314 - our own
    assert len(root.attrib["data-tops"].split()) == 240
    assert "g: 700 nodes, about 3 in a row" in [one.text for one in root.iter()]


UPGRADE_DAY = ("--events", ROOT / "examples/fleet/upgrade-day.yaml")


@pytest.mark.parametrize(
    ("words", "form", "codes", "drawn"),
    [
        (["simulate", "--extender"], "html", {0}, "<svg"),
        (["simulate", "--extender", *UPGRADE_DAY], "html", {0, 1}, "evicted: drained"),
        (["compare", "--strategy", "LeastAllocated+extender"], "html", {0}, "<svg"),
        (["size", "--group", "one-socket", "--within", "9999"], "svg", {0}, "<svg"),
    ],
    ids=["simulate", "events", "compare", "size"],
)
def test_each_question_is_drawn(words: list[str], form: str, codes: set[int], drawn: str, tmp_path: Path) -> None:
    said = mooring("fleet", words[0], *EXAMPLE, *words[1:], "-o", form, "--to", tmp_path / "drawn")
    assert said.code in codes
    text = (tmp_path / "drawn").read_text(encoding="utf-8")
    assert ("<!DOCTYPE html>" in text) == (form == "html")
    assert drawn in text


def test_the_report_has_evicted_and_held_pods_and_nodes_of_another_configuration(tmp_path: Path) -> None:
    events = [{"at": at, "do": do, "nodes": ["g"]} for at, do in ((5, "drain"), (6, "uncordon"), (40, "restart"))]
    events[-1]["set"] = ["topologyManagerPolicy=single-numa-node"]
    lines = [arrival("a", "3"), arrival("six", SIX, 20), arrival("last", "1", 60)]
    page = report(tmp_path, [group("g", gpus=2)], lines, "--strategy", "LeastAllocated+agent", events=events)
    assert [pod[1] for pod in pods_of(page)] == ["evicted", "held", "runs"]
    assert "<dt>evicted: drained, removed or preempted</dt><dd>1</dd>" in page.text
    assert "<dt>held on a node by its agent</dt><dd>1</dd>" in page.text


LITTLE_CPU = "too little free cpu"
CPUS_AND_GPUS = r"\(MOOR-\d+\): 2 nodes; too little free example.com/gpu: 1 node"


@pytest.mark.parametrize(
    ("pods", "words"),
    [
        (
            [arrival("large", "9"), arrival("six", SIX, 1, gpus=1)],
            f"default/large 0 s waits {LITTLE_CPU} default/six 1 s waits .*{CPUS_AND_GPUS}",
        ),
        ([arrival("a", "1")], "The only pod found a node that admitted it. pods 1 running at the end"),
        ([arrival(name, "1") for name in "ab"], "All 2 pods found a node that admitted them. pods 2 running"),
        (
            [arrival("six", SIX, owner="")],
            "0 of 1 pod was admitted; 1 refused by kubelets. pods 1 refused by a kubelet",
        ),
        (
            [arrival("large", "9", leaves=5)],
            "No pod found a node before it was deleted. pods 1 deleted while waiting for a node",
        ),
    ],
)
def test_the_text_counts_pods_in_plain_english_and_says_why_they_wait(
    tmp_path: Path, pods: list[object], words: str
) -> None:
    strategy = ["--extender"] if len(pods) > 1 else []
    said = asked("simulate", tmp_path, GROUPS, pods, *strategy).out
    assert re.search(words, " ".join(said.split()))


# Controllers: what they create, when they create another pod, and when they give up.


def created(document: Any) -> list[tuple[str, float]]:
    return [(one["name"], one["created"]) for one in document["records"]]


def test_a_deployment_replaces_refused_pods_without_back_off_until_they_count_as_runaways(tmp_path: Path) -> None:
    found = simulated(tmp_path, [group("a")], [workload("Deployment", "web", SIX, replicas=2)])
    assert created(found)[:4] == [
        (f"default/web-{pod}", at) for pod, at in (("0", 0), ("1", 0), ("0~1", 1), ("1~1", 1))
    ]
    assert found["runaways"] == {"default/web-0": MOST_REMADE, "default/web-1": MOST_REMADE}
    assert found["pods"]["refused"] == 2 * (MOST_REMADE + 1)


def test_a_stateful_set_creates_a_pod_when_those_before_it_run(tmp_path: Path) -> None:
    ordered: Any = {"replicas": 3, "ordinals": {"start": 5}}
    found = simulated(tmp_path, [group("a")], [workload("StatefulSet", "db", "3", **ordered)])
    assert created(found) == [("default/db-5", 0.0), ("default/db-6", 0.0), ("default/db-7", 0.0)]
    assert [*fates(found).values()] == ["runs", "runs", "waits"]
    refused = simulated(tmp_path, [group("a")], [workload("StatefulSet", "db", SIX, **ordered)])
    assert {name.partition("~")[0] for name, _ in created(refused)} == {"default/db-5"}


def test_a_job_runs_so_many_pods_side_by_side_until_all_have_ended(tmp_path: Path) -> None:
    job = workload("Job", "j", "1", runs=10, completions=5, parallelism=2)
    found = simulated(tmp_path, [group("a")], [job])
    assert [at for _, at in created(found)] == [0.0, 0.0, 10.0, 10.0, 20.0]
    assert (found["pods"]["ran"], found["failedJobs"]) == (5, [])


def test_a_job_waits_longer_after_each_failure_and_gives_up(tmp_path: Path) -> None:
    found = simulated(tmp_path, [group("a")], [workload("Job", "j", SIX, backoffLimit=3)])
    assert created(found) == [
        ("default/j-0", 0.0), ("default/j-0~1", 10.0), ("default/j-0~2", 30.0), ("default/j-0~3", 70.0)
    ]  # fmt: skip
    assert (found["failedJobs"], found["runaways"]) == (["default/j"], {})


def test_a_job_that_gives_up_deletes_the_pods_that_run(tmp_path: Path) -> None:
    job = workload("Job", "j", SIX, runs=1000, completions=3, parallelism=3, backoffLimit=0)
    found = simulated(tmp_path, [group("a"), group("b", policy="best-effort")], [job])
    assert (found["pods"]["runs"], found["failedJobs"]) == (0, ["default/j"])


def test_evicted_pods_of_a_deployment_come_back_elsewhere(tmp_path: Path) -> None:
    drained = {"at": 50, "do": "drain", "nodes": ["a-0"]}
    web = workload("Deployment", "web", "2", replicas=2)
    found = simulated(tmp_path, [group("a", 2)], [web], events=[drained])
    assert sorted((one["fate"], one["node"]) for one in found["records"]) == [
        ("evicted", "a-0"), ("runs", "a-1"), ("runs", "a-1")
    ]  # fmt: skip


def test_a_deployment_that_is_deleted_takes_its_pods_with_it(tmp_path: Path) -> None:
    found = simulated(tmp_path, [group("a")], [workload("Deployment", "web", "3", leaves=30, replicas=3)])
    assert [(one["fate"], one["ended"]) for one in found["records"]] == [("ran", 30.0), ("ran", 30.0), ("left", 30.0)]
