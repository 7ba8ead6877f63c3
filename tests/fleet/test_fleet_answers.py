"""Answers: runaways, sizes, comparisons; the same figures wherever they are computed."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from operator import itemgetter
from pathlib import Path
from typing import Any

import dask
import distributed
import pytest
from tests.fleet.clusters import LOOSE, SIX, arrival, asked, cluster, group, some_trials

from mooring.command.main import run
from mooring.engine.core.errors import InputError
from mooring.fleet import commands, trials
from mooring.fleet.answer import answer_of, with_pods
from mooring.fleet.cluster import NodeAction, NodeEvent, work_of
from mooring.fleet.controllers import MOST_REMADE
from mooring.fleet.nodes import NodeHistory
from mooring.fleet.ranking import Goal, ranked, size_of, variants
from mooring.fleet.scheduler.strategy import Strategy
from mooring.fleet.simulation import MOST_SAMPLES, Simulation
from mooring.fleet.trials import Digests, Figures, FinishedTrials, FleetTrial, run_trial, run_trials

ROOT = Path(__file__).resolve().parents[2]
TRACES = ROOT.parent / "shared" / "traces"
BENCHMARKS = Path(__file__).parents[2] / "benchmarks"
EXAMPLE = ["--cluster", str(ROOT / "examples/fleet/cluster.yaml"), "-f", str(ROOT / "examples/fleet/day.yaml")]
ALIGNED = group("a", 1, gpus=0)
"""More than one NUMA node has: the sums of a node take it, and single-numa-node does not."""


def all_figures(tried: Sequence[FleetTrial], jobs: int = 1, dask: str = "") -> list[Figures]:
    """Return the figures of simulations in the order of the trials."""
    return [figures for _, figures in sorted(run_trials(tried, jobs, dask), key=itemgetter(0))]


def test_a_pod_that_its_controller_makes_anew_is_a_runaway_and_ends() -> None:
    result = Simulation(cluster(ALIGNED), work_of("w", [arrival("p", SIX, owner="web")])).run()
    assert answer_of(result).runaways == {"default/p": MOST_REMADE}
    assert answer_of(result).pods.refused == MOST_REMADE + 1
    assert result.records[-1].arrival.at == MOST_REMADE


def test_a_pod_of_its_own_is_not_made_anew() -> None:
    result = Simulation(cluster(ALIGNED), work_of("w", [arrival("p", SIX)])).run()
    assert len(result.records) == 1
    assert not answer_of(result).runaways


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
    assert rows[0].admitted.mean == 6
    assert rows[1].refused.mean == 6


def test_one_node_fewer_than_the_size_does_not_do() -> None:
    trial = FleetTrial(
        "", cluster(group("a", 1, gpus=0)), work_of("w", [arrival(f"p{n}", asked("3")) for n in range(9)]), Strategy()
    )
    size = size_of(trial, "a", ("a",), Goal(), 64)
    assert size.fewest is not None
    assert size.fewest.trial.nodes == 5
    assert [(one.trial.nodes, Goal().is_met(one)) for one in size.tried] == [
        (1, False),
        (2, False),
        (4, False),
        (5, True),
        (6, True),
        (8, True),
    ]
    assert "cpu" in size.binding


def test_a_goal_that_nothing_reaches_is_said_with_its_cause() -> None:
    trial = FleetTrial("", cluster(group("a", 1, gpus=0)), work_of("w", [arrival("p", SIX)]), Strategy())
    size = size_of(trial, "a", ("a",), Goal(), 4)
    assert size.fewest is None
    assert size.binding == "1 refused (MOOR-101)" or size.binding.startswith("1 refused (MOOR-")


def test_an_unknown_group_is_named() -> None:
    trial = FleetTrial("", cluster(group("a", 1)), work_of("w", [arrival("p", SIX)]), Strategy())
    with pytest.raises(InputError, match="groups are a"):
        size_of(trial, "b", (), Goal(), 4)


def test_the_verb_prints_a_document_of_every_pod(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["fleet", "simulate", *EXAMPLE, "--extender", "-o", "json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["kind"] == "Fleet"
    assert document["pods"]["refused"] == 0
    assert len(document["records"]) == 200


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


def test_a_work_that_is_missing_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["fleet", "simulate", "--cluster", EXAMPLE[1], "-f", "nowhere.yaml"]) == 2
    assert capsys.readouterr().err.count("\n") == 1


@pytest.mark.long
@pytest.mark.skipif(not TRACES.exists(), reason="traces are beside the repository only: ../shared/traces")
def test_the_trace_of_a_production_cluster_is_written_and_run(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
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
    trials = [
        FleetTrial(
            "", cluster(group("a", 2)), work_of("w", [arrival(f"p{n}", SIX, n) for n in range(count)]), Strategy()
        )
        for count in (3, 4)
    ]
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
    monkeypatch.setattr(trials, "run_trial", killed_once)
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
    assert moments == [seen.at for seen in history.moments]
    assert moments[-1] == 1000.0
    assert moments[:-1] == pytest.approx([moments[1] * number for number in range(len(moments) - 1)])


def test_a_second_interrupt_ends_a_simulation_without_an_answer(capsys: pytest.CaptureFixture[str]) -> None:
    work = work_of("w", [arrival("p", asked("1"))])
    simulated = Simulation(cluster(group("a", 1, gpus=0)), work)

    def interrupted() -> None:
        signal.raise_signal(signal.SIGINT)
        signal.raise_signal(signal.SIGINT)

    simulated.at(0.0, interrupted)
    with pytest.raises(KeyboardInterrupt):
        commands._run(simulated)  # noqa: SLF001 - the interrupt is the verb's
    assert "cut short" in capsys.readouterr().err
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


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
def test_a_release_to_upgrade_to_that_is_none_is_named(
    release: str, words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    live = str(ROOT / "examples/fleet/live.yaml")
    assert run(["fleet", "upgrade", release, "--cluster", live]) == 2
    assert capsys.readouterr().err.startswith(f"mooring: {words}")
