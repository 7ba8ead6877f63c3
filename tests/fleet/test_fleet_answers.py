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
from dataclasses import replace
from operator import itemgetter
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

import dask
import distributed
import pytest
from rich.console import Group
from tests.fleet.clusters import ALIGNED as ALIGNED_REPORT
from tests.fleet.clusters import LOOSE, MOST_REMADE, SIX, arrival, asked, cluster, group, some_trials
from tests.render.html_page import Page
from tests.values import refusal

from mooring.command.main import run
from mooring.engine.core.config import MooringConfig
from mooring.engine.core.errors import InputError
from mooring.engine.kubelet.events import Restart
from mooring.engine.releases.catalog import release_of
from mooring.fleet.charts import heat_svg
from mooring.fleet.cluster import (
    ControllerKind,
    NodeAction,
    NodeChange,
    NodeCluster,
    NodeEvent,
    PodArrival,
    PodPhase,
    Work,
    Workload,
    work_of,
)
from mooring.fleet.nodes import NodeHistory
from mooring.fleet.page import (
    SCRIPTS,
    fleet_page_text,
)
from mooring.fleet.ranking import Goal, binding, fewest, ranked, tried_sizes, variants
from mooring.fleet.scheduler.strategy import Strategy
from mooring.fleet.simulation import MOST_SAMPLES, Simulation, answer_of, with_pods
from mooring.fleet.text import fleet_parts
from mooring.fleet.trials import Digests, Figures, FinishedTrials, FleetTrial, run_trial, run_trials
from mooring.inputs.pods.scheduling_fields import scheduling_fields
from mooring.views.console import plain
from mooring.views.html import script_text

ROOT = Path(__file__).resolve().parents[2]
TRACES = ROOT.parent / "shared" / "traces"
BENCHMARKS = Path(__file__).parents[2] / "benchmarks"
EXAMPLE = ["--cluster", str(ROOT / "examples/fleet/cluster.yaml"), "-f", str(ROOT / "examples/fleet/day.yaml")]
ALIGNED = group("a", 1, gpus=0)
"""More than one NUMA node has: the sums of a node take it, and single-numa-node does not."""


def trial_of(*arrivals: PodArrival) -> FleetTrial:
    """Return a simulation of pods on one node."""
    return FleetTrial("", cluster(ALIGNED), work_of("w", arrivals), Strategy())


def all_figures(tried: Sequence[FleetTrial], jobs: int = 1, dask: str = "") -> list[Figures]:
    """Return the figures of simulations in the order of the trials."""
    return [figures for _, figures in sorted(run_trials(tried, jobs, dask), key=itemgetter(0))]


@pytest.mark.parametrize(("owner", "runaways"), [("web", {"default/p": MOST_REMADE}), ("", {})])
def test_a_pod_that_its_controller_makes_anew_is_a_runaway_and_ends(owner: str, runaways: dict[str, int]) -> None:
    result = Simulation(cluster(ALIGNED), work_of("w", [arrival("p", SIX, owner=owner)])).run()
    assert answer_of(result).runaways == runaways
    assert answer_of(result).pods.refused == sum(runaways.values()) + 1 == len(result.records)
    assert result.records[-1].arrival.at == sum(runaways.values())


def test_the_extender_leaves_out_the_node_that_would_refuse() -> None:
    work = work_of("w", [arrival("p", SIX)])
    nodes = cluster(group("a", 3, gpus=0), group("b", 1, LOOSE, gpus=0))
    result = Simulation(nodes, work, Strategy(extender=True)).run()
    assert answer_of(result).groups[1].admitted == 1
    assert sum(result.filtered.values()) == 3


def test_a_pod_that_waits_gets_the_node_that_another_leaves() -> None:
    first, second = arrival("a", asked("4"), runs=50.0), arrival("b", asked("4"), at=10.0)
    others = [arrival(f"o{number}", asked("3")) for number in range(1)]
    result = Simulation(cluster(group("n", 1, gpus=0)), work_of("w", [first, *others, second])).run()
    waited = {record.arrival.name: record.waited for record in result.records}
    assert waited == {"default/a": 0.0, "default/o0": 0.0, "default/b": 40.0}


def test_figures_are_the_same_in_this_process_and_in_others() -> None:
    nodes = cluster(group("a", 2), group("b", 1, LOOSE))
    works = [work_of("w", [arrival(f"p{n}", asked(str(n % 5 + 1)), n, 20.0) for n in range(25)])] * 2
    trials = variants(nodes, works, [Strategy(), Strategy(extender=True)], ["topologyManagerPolicy=none,restricted"], 1)
    assert len(trials) == 8
    assert all_figures(trials, jobs=2) == [run_trial(trial) for trial in trials]


def test_the_first_of_a_ranking_admits_most() -> None:
    nodes = cluster(group("a", 2, gpus=0))
    works = [work_of("w", [arrival(f"p{n}", SIX, n, 5.0) for n in range(6)])]
    rows = ranked(all_figures(variants(nodes, works, [Strategy()], ["topologyManagerPolicy=single-numa-node,none"], 0)))
    assert rows[0].variant.startswith("topologyManagerPolicy=none")
    assert [(row.admitted[0], row.refused[0]) for row in rows] == [(6, 0), (0, 6)]


def test_one_node_fewer_than_the_size_does_not_do() -> None:
    tried = tried_sizes(trial_of(*(arrival(f"p{n}", asked("3")) for n in range(9))), "a", ("a",), Goal(), 64)
    found = [(one.trial.nodes, Goal().is_met(one)) for one in tried]
    assert found == [(1, False), (2, False), (4, False), (5, True), (6, True), (8, True)]
    assert fewest(tried, Goal()) is tried[3]
    assert "cpu" in binding(tried, Goal())


def test_a_goal_that_nothing_reaches_is_said_with_its_cause_and_an_unknown_group_is_named() -> None:
    tried = tried_sizes(trial_of(arrival("p", SIX)), "a", ("a",), Goal(), 4)
    assert fewest(tried, Goal()) is None
    assert binding(tried, Goal()).startswith("1 refused (MOOR-")
    assert "groups are a" in refusal(tried_sizes, trial_of(arrival("p", SIX)), "b", (), Goal(), 4)


@pytest.mark.parametrize(("words", "code"), [(["--extender"], 0), ([], 1)])
def test_the_verb_prints_a_document_of_every_pod(
    words: list[str], code: int, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["fleet", "simulate", *EXAMPLE, *words, "-o", "json"]) == code
    document = json.loads(capsys.readouterr().out)
    assert (document["kind"], len(document["records"]) >= 200) == ("Fleet", True)
    refused = document["pods"]["refused"]
    assert bool(refused) == bool(code)
    assert sum(one["pods"] for period in document["periods"] for one in period["refused"]) == refused
    assert set(document["aligned"]) == {"1"}


def test_the_document_says_why_pods_wait() -> None:
    work = work_of(
        "w", [arrival("p", SIX), arrival("q", SIX), arrival("huge", asked("60")), arrival("fits", asked("1"))]
    )
    result = Simulation(cluster(group("a", 2, gpus=0)), work, Strategy(extender=True)).run()
    document = with_pods(answer_of(result), result)
    assert {one.name: (one.fate, one.code) for one in document.records} == {
        "default/p": ("waits", "MOOR-102"),
        "default/q": ("waits", "MOOR-102"),
        "default/huge": ("waits", ""),
        "default/fits": ("runs", ""),
    }
    assert [(one.pods, [(why.text, why.code, why.nodes) for why in one.causes]) for one in document.waits] == [
        (["default/p", "default/q"], [("More CPUs than any NUMA node has", "MOOR-102", 2)]),
        (["default/huge"], [("too little free cpu", "", 2)]),
    ]


@pytest.mark.parametrize(
    ("spec", "feature"),
    [
        ({"hostNetwork": True, "hostUsers": False}, "UserNamespacesHostNetworkSupport"),
        ({"restartPolicyRules": [{"action": "RestartAllContainers"}]}, "RestartAllContainersOnContainerExits"),
        ({"volumeMounts": [{"name": "v", "bindMountOptions": ["noexec"]}]}, "VolumeBindMountOptions"),
    ],
)
def test_a_pod_waits_for_a_node_that_declares_what_it_needs(spec: dict[str, Any], feature: str) -> None:
    of_pod = {name: spec[name] for name in spec if name.startswith("host")}
    fields = scheduling_fields({"containers": [{"name": "main", **spec}], **of_pod})
    assert fields.features == {feature}
    asks = replace(asked("1"), fields=fields)
    old, new = group("old", 1, gpus=0), group("new", 1, replace(ALIGNED.config, feature_gates={feature: True}), gpus=0)
    old = replace(old, mooring=MooringConfig(release=release_of("1.34")))
    result = Simulation(cluster(old, new), work_of("w", [arrival("p", asks)])).run()
    assert [one.admitted for one in answer_of(result).groups] == [0, 1]
    result = Simulation(cluster(old), work_of("w", [arrival("p", asks)])).run()
    [waits] = with_pods(answer_of(result), result).waits
    assert [one.text for one in waits.causes] == [f"does not declare {feature}"]
    # What a live node declares counts, not what its release can.
    shown = replace(new, features=frozenset())
    assert not answer_of(Simulation(cluster(shown), work_of("w", [arrival("p", asks)])).run()).pods.runs


def test_a_work_that_is_missing_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["fleet", "simulate", "--cluster", EXAMPLE[1], "-f", "nowhere.yaml"]) == 2
    assert capsys.readouterr().err.count("\n") == 1


@pytest.mark.long
@pytest.mark.skipif(not TRACES.exists(), reason="traces are beside the repository only: ../shared/traces")
def test_the_trace_of_a_real_cluster_is_written_and_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    names = (TRACES / "openb_node_list_all_node.csv", TRACES / "openb_pod_list_default.csv")
    subprocess.run([sys.executable, BENCHMARKS / "alibaba.py", *names, tmp_path], check=True)
    files = ["--cluster", str(tmp_path / "cluster.json"), "-f", str(tmp_path / "work.jsonl")]
    assert run(["fleet", "simulate", *files, "-o", "json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["nodes"] == 1523
    assert sum(document["pods"].values()) == 8152
    assert {one["resource"]: one["offered"] for one in document["uses"]}["nvidia.com/gpu"] == 6212


@pytest.mark.long
def test_figures_are_the_same_on_the_workers_of_a_dask_scheduler(tmp_path: Path) -> None:
    trials = [trial_of(*(arrival(f"p{n}", SIX, n) for n in range(count))) for count in (3, 4)]
    local = {"n_workers": 1, "threads_per_worker": 1, "host": "127.0.0.1", "dashboard_address": None}
    make: Callable[..., AbstractContextManager[Any]] = distributed.LocalCluster
    with dask.config.set({"temporary-directory": str(tmp_path)}), make(processes=True, **local) as made:
        found = all_figures(trials, dask=made.scheduler_address)
    assert found == [run_trial(trial) for trial in trials]


def test_a_run_goes_on_with_the_trials_that_have_finished(tmp_path: Path) -> None:
    trials = some_trials()
    first = run_trials(trials, store=FinishedTrials(str(tmp_path)))
    kept = [next(first) for _ in range(2)]
    first.close()  # type: ignore[attr-defined]
    assert len(list(tmp_path.iterdir())) == 2
    ran: list[FleetTrial] = []
    store = Noting(tmp_path, ran)
    assert sorted(run_trials(trials, store=store), key=itemgetter(0))[:2] == kept
    assert ran == trials[2:]
    assert [figures for _, figures in sorted(run_trials(trials, store=store), key=itemgetter(0))] == all_figures(trials)
    assert ran == trials[2:]


class Noting(FinishedTrials):
    """Notes the trials that ran."""

    def __init__(self, folder: Path, ran: list[FleetTrial]) -> None:
        super().__init__(str(folder))
        self.ran = ran

    def keep(self, trial: FleetTrial, figures: Figures) -> None:
        self.ran.append(trial)
        super().keep(trial, figures)


def test_another_seed_work_cluster_or_strategy_is_another_trial_and_a_torn_file_is_none(tmp_path: Path) -> None:
    trial, store = some_trials()[0], FinishedTrials(str(tmp_path))
    store.keep(trial, run_trial(trial))
    groups = (replace(trial.cluster.groups[0], count=3), *trial.cluster.groups[1:])
    work = replace(trial.work, arrivals=trial.work.arrivals[1:])
    others = [
        replace(trial, seed=9),
        replace(trial, work=work),
        replace(trial, cluster=replace(trial.cluster, groups=groups)),
        replace(trial, strategy=Strategy(extender=True)),
        replace(trial, cluster=replace(trial.cluster, events=(NodeEvent(1.0, "a-0", NodeAction.CORDON),))),
    ]
    assert [store.find(other) for other in others] == [None] * len(others)
    assert store.find(replace(trial, variant="called otherwise")) is not None
    next(tmp_path.iterdir()).write_text("{", encoding="utf-8")
    assert store.find(trial) is None


def test_the_digest_of_a_trial_is_the_same_in_every_process() -> None:
    trial = some_trials()[0]
    script = (
        "from tests.fleet.clusters import some_trials\n"
        "from mooring.fleet.trials import Digests\n"
        "print(Digests().of((some_trials()[0].cluster, some_trials()[0].work)))"
    )
    environment = {**os.environ, "PYTHONHASHSEED": "7", "PYTHONPATH": str(ROOT)}
    ran = subprocess.run(
        [sys.executable, "-c", script], env=environment, cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert ran.stdout.strip() == Digests().of((trial.cluster, trial.work))


def test_a_worker_that_is_killed_loses_nothing(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("MOORING_TEST_MARK", str(tmp_path / "killed"))
    monkeypatch.setattr("mooring.fleet.trials.run_trial", killed_once)
    assert all_figures(some_trials(), jobs=2) == [run_trial(trial) for trial in some_trials()]
    assert (tmp_path / "killed").exists()


def killed_once(trial: FleetTrial) -> Figures:
    """Kill the process that runs the first trial, once."""
    mark = Path(os.environ["MOORING_TEST_MARK"])
    if not mark.exists():
        mark.touch()
        os.kill(os.getpid(), signal.SIGKILL)
    return run_trial(trial)


def test_a_simulation_that_is_stopped_answers_for_the_time_until_then() -> None:
    work = work_of("w", [arrival(f"p{n}", asked("1"), n * 10.0) for n in range(5)])
    simulated = Simulation(cluster(group("a", 1, gpus=0)), work)
    simulated.at(20.0, simulated.stop)
    result = simulated.run()
    assert result.cut_short
    assert [record.arrival.at for record in result.records] == [0.0, 10.0, 20.0]


def test_pods_that_run_much_longer_than_others_arrive_are_sampled_a_bounded_number_of_times() -> None:
    work = work_of("w", [arrival("p0", asked("1"), runs=1000.0), arrival("p1", asked("1"), 10.0)])
    history = NodeHistory()
    result = Simulation(cluster(group("a", 1, gpus=0)), work, history=history).run()
    moments = [sample.at for sample in result.samples]
    assert MOST_SAMPLES < len(moments) <= 10 * MOST_SAMPLES
    assert moments == [at for at, *_ in history.moments]
    assert moments[-1] == 1000.0
    assert moments[:-1] == pytest.approx([moments[1] * number for number in range(len(moments) - 1)])


def test_a_second_interrupt_ends_a_simulation_without_an_answer(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(_simulation: Simulation) -> None:
        signal.raise_signal(signal.SIGINT)
        signal.raise_signal(signal.SIGINT)

    monkeypatch.setattr(Simulation, "run", interrupted)
    assert run(["fleet", "simulate", *EXAMPLE]) == 130
    printed = capsys.readouterr()
    assert ("cut short" in printed.err, printed.out) == (True, "")
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_a_group_is_sized_without_a_node_that_an_event_names(capsys: pytest.CaptureFixture[str]) -> None:
    train = ["--cluster", EXAMPLE[1], "-f", str(ROOT / "examples/fleet/train.yaml")]
    assert run(["fleet", "size", *train, *UPGRADE_DAY, "--group", "two-sockets", "--most=1"]) == 1
    assert "two-sockets: no number up to " in capsys.readouterr().out


@pytest.mark.parametrize("within", ["nan", "inf", "-1", "1e308"])
def test_a_time_to_wait_that_is_none_is_one_line(within: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["fleet", "size", *EXAMPLE, "--group", "one-socket", "--most=1", f"--within={within}"]) == 2
    [line] = capsys.readouterr().err.splitlines()
    assert line.startswith("mooring fleet size: invalid value for '--within': ")


@pytest.mark.parametrize(
    ("setting", "words"),
    [
        ("kubelet-version=banana", "--kubelet-version: 'banana' is not a kubelet version; write"),
        ("maxPods=1", "--set: 'maxPods' cannot be set"),
    ],
)
def test_a_setting_that_is_none_is_named(setting: str, words: str) -> None:
    work = work_of("w", [arrival("p", asked("1"))])
    with pytest.raises(InputError) as raised:
        variants(cluster(ALIGNED), [work], [Strategy()], [setting], 0)
    assert words in str(raised.value)


@pytest.mark.parametrize(
    ("release", "words"),
    [("banana", "VERSION: 'banana' is not a kubelet version; write"), ("", "the argument: is empty")],
)
def test_an_unknown_release_to_upgrade_to_is_named(
    release: str, words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["fleet", "upgrade", release, "--cluster", str(ROOT / "examples/fleet/live.yaml")]) == 2
    assert capsys.readouterr().err.startswith(f"mooring: {words}")


# The report of a simulation: what it draws and explains is what the simulation decided.


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
    assert sum(one.admitted for one in answer.periods) == answer.pods.admitted
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


def test_the_page_is_well_formed_with_pictures_of_the_pods_on_nodes_and_waiting_pods_explained() -> None:
    page = seen()
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
    answer.pods = type(answer.pods)(*[1] * len(PodPhase))
    assert len(Page(fleet_page_text(answer, result, history)).named("dt")) > len(PodPhase)
    script = script_text(SCRIPTS)
    assert all(re.search(rf"^  {fate.value}: ", script, re.MULTILINE) for fate in PodPhase)


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


UPGRADE_DAY = ["--events", str(ROOT / "examples/fleet/upgrade-day.yaml")]


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
    to = tmp_path / "drawn"
    assert run(["fleet", words[0], *EXAMPLE, *words[1:], "-o", form, "--to", str(to)]) in codes
    text = to.read_text(encoding="utf-8")
    assert ("<!DOCTYPE html>" in text) == (form == "html")
    assert drawn in text


def test_the_report_has_evicted_and_held_pods_and_nodes_of_another_configuration() -> None:
    changes: dict[float, NodeChange] = {5.0: NodeAction.DRAIN, 6.0: NodeAction.UNCORDON, 40.0: Restart(ALIGNED_REPORT)}
    nodes = replace(cluster(group("n", 1)), events=tuple(NodeEvent(at, "n", one) for at, one in changes.items()))
    work = work_of("w", [arrival("a", asked("3")), arrival("six", SIX, at=20.0), arrival("last", asked("1"), at=60.0)])
    page = report(nodes, work, Strategy(agent=True))
    assert [pod[1] for pod in pods_of(page)] == ["evicted", "held", "runs"]
    assert "<dt>evicted: drained, removed or preempted</dt><dd>1</dd>" in page.text
    assert "<dt>held on a node by its agent</dt><dd>1</dd>" in page.text


def text_of(result: Simulation) -> str:
    return " ".join(plain(Group(*fleet_parts(answer_of(result), result, wide=False)), 100).split())


def test_the_text_says_why_pods_wait_and_on_how_many_nodes_where_causes_differ() -> None:
    work = work_of("w", [arrival("large", asked("9")), arrival("six", asked("6", gpus=1), at=1.0)])
    text = text_of(Simulation(cluster(group("n", 2), group("m", 1, gpus=0)), work, Strategy(extender=True)).run())
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
    assert words in text_of(Simulation(cluster(group("n", 2, gpus=0)), work_of("w", pods)).run())


# Controllers: what they create, when they create another pod, and when they give up.


ONE = cluster(group("a", 1, gpus=0))


def run_controllers(workload: Workload, nodes: NodeCluster = ONE) -> Simulation:
    return Simulation(nodes, work_of("w", [], (), [workload])).run()


def created(result: Simulation) -> list[tuple[str, float]]:
    return [(record.arrival.name, record.arrival.at) for record in result.records]


def test_a_deployment_replaces_refused_pods_without_back_off_until_they_count_as_runaways() -> None:
    result = run_controllers(Workload("default/web", ControllerKind.DEPLOYMENT, SIX, pods=2))
    assert created(result)[:4] == [
        (f"default/web-{pod}", at) for pod, at in (("0", 0), ("1", 0), ("0~1", 1), ("1~1", 1))
    ]
    assert answer_of(result).runaways == {"default/web-0": MOST_REMADE, "default/web-1": MOST_REMADE}
    assert answer_of(result).pods.refused == 2 * (MOST_REMADE + 1)


def test_a_stateful_set_creates_a_pod_when_those_before_it_run() -> None:
    ordered = Workload("default/db", ControllerKind.STATEFUL_SET, asked("3"), pods=3, ordered=True, first=5)
    result = run_controllers(ordered)
    assert created(result) == [("default/db-5", 0.0), ("default/db-6", 0.0), ("default/db-7", 0.0)]
    assert [record.fate for record in result.records] == [PodPhase.RUNS, PodPhase.RUNS, PodPhase.WAITS]
    refused = run_controllers(replace(ordered, asked=SIX))
    assert {name.partition("~")[0] for name, _ in created(refused)} == {"default/db-5"}


def test_a_job_runs_so_many_pods_side_by_side_until_all_have_ended() -> None:
    result = run_controllers(Workload("default/j", ControllerKind.JOB, asked("1"), 0.0, 5, 2, runs=10.0))
    assert [at for _, at in created(result)] == [0.0, 0.0, 10.0, 10.0, 20.0]
    assert answer_of(result).pods.ran == 5
    assert not answer_of(result).failed_jobs


def test_a_job_waits_longer_after_each_failure_and_gives_up() -> None:
    result = run_controllers(Workload("default/j", ControllerKind.JOB, SIX, 0.0, 1, backoff_limit=3))
    assert created(result) == [
        ("default/j-0", 0.0), ("default/j-0~1", 10.0), ("default/j-0~2", 30.0), ("default/j-0~3", 70.0)
    ]  # fmt: skip
    assert answer_of(result).failed_jobs == ["default/j"]
    assert not answer_of(result).runaways


def test_a_job_that_gives_up_deletes_the_pods_that_run() -> None:
    nodes = cluster(group("a", 1, gpus=0), group("b", 1, LOOSE, gpus=0))
    result = run_controllers(
        Workload("default/j", ControllerKind.JOB, SIX, 0.0, 3, backoff_limit=0, runs=1000.0), nodes
    )
    assert PodPhase.RUNS not in {record.fate for record in result.records}
    assert answer_of(result).failed_jobs == ["default/j"]


def test_evicted_pods_of_a_deployment_come_back_elsewhere() -> None:
    nodes = replace(cluster(group("a", 2, gpus=0)), events=(NodeEvent(50.0, "a-0", NodeAction.DRAIN),))
    workload = Workload("default/web", ControllerKind.DEPLOYMENT, asked("2"), pods=2)
    result = run_controllers(workload, nodes)
    assert sorted(record.fate.value for record in result.records) == ["evicted", "runs", "runs"]
    assert [len(pods) for pods in result.nodes.pods] == [0, 2]


def test_a_deployment_that_is_deleted_takes_its_pods_with_it() -> None:
    result = run_controllers(Workload("default/web", ControllerKind.DEPLOYMENT, asked("3"), pods=3, leaves=30.0))
    assert [(record.fate, record.ended) for record in result.records] == [
        (PodPhase.RAN, 30.0), (PodPhase.RAN, 30.0), (PodPhase.LEFT, 30.0)
    ]  # fmt: skip
