"""Recordings as traces: put together again, compared over, and given to a cluster."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.cli.command import mooring
from tests.shadow.observing import STATIC, node
from tests.shadow.test_shadow_published import Publishing

from mooring.answers.base.scenario import replay_scenario
from mooring.answers.base.trace import load_machines
from mooring.engine.core.errors import InputError
from mooring.engine.kubelet.events import Restart
from mooring.inputs.pods.recordings import node_histories

stories = st.lists(st.sampled_from(["1", "3", "6", "40", "1500m", "end", "restart", "away"]), min_size=1, max_size=10)
EVENTS = ["1", "3", "40", "end", "6", "away", "2", "restart", "10"]


def recorded(folder: Path, story: Sequence[str], name: str = "node") -> Publishing:
    """Record a node while pods come and go; ``away`` ends one while nothing is recorded."""
    watched = node(replace(STATIC, topology_manager_policy="best-effort"))
    found = Publishing(watched, folder / name)
    for number, event in enumerate(story):
        running = [uid for uid in watched.kubelet.node.active if watched.objects[uid]["status"]["phase"] == "Running"]
        if event in {"end", "away"}:
            if running:
                watched.end(running[0])
        elif event == "restart":
            watched.restart(replace(STATIC, topology_manager_policy="restricted"))
        else:
            watched.admit(f"{name}-pod-{number}", event)
        if event == "away":
            found.watch_anew()
        else:
            found.wait()
    return found


@settings(max_examples=12)
@given(stories)
def test_scenarios_put_together_end_where_the_last_one_ended(
    tmp_path_factory: pytest.TempPathFactory, story: list[str]
) -> None:
    folder = tmp_path_factory.mktemp("recorded")
    recorded(folder, [*story, "1"])
    [history] = node_histories(folder)
    last = json.loads(max(folder.glob("node/recording-*")).read_text().splitlines()[-1])
    answer = replay_scenario(history.scenario, load_machines([str(folder / "node" / "machines.jsonl")]))
    assert states(answer["expect"]["steps"][-1]) == states(last["expect"]["steps"][-1])
    assert [one.at for one in history.steps] == sorted(one.at for one in history.steps)


def states(step: dict[str, Any]) -> list[Any]:
    return [step["cpuManagerState"], step["memoryManagerState"]]


def test_a_restart_names_what_it_changed_alone(tmp_path: Path) -> None:
    recorded(tmp_path, ["1", "restart", "restart", "2"])
    [history] = node_histories(tmp_path)
    restarts = [one.step for one in history.steps if isinstance(one.step, Restart)]
    assert [one.kubelet.topology_manager_policy for one in restarts if one.kubelet is not None] == ["restricted"]


def test_a_fleet_does_the_recorded_work_on_the_recorded_nodes(tmp_path: Path) -> None:
    for name in ("node-1", "node-2"):
        recorded(tmp_path, EVENTS[:6], name)
    said = mooring("fleet", "simulate", "--trace", tmp_path, "-o", "json")
    assert said.err == ""
    document = json.loads(said.out)
    assert [(one["name"], one["nodes"]) for one in document["groups"]] == [("recorded-1", 2)]
    assert document["pods"]["ran"] + document["pods"]["runs"] == 6
    assert document["assumed"] == ["2 pods that a kubelet refused are left out"]
    assert mooring("fleet", "simulate").code == 2


def test_policies_are_compared_over_a_whole_recording(tmp_path: Path) -> None:
    recorded(tmp_path, EVENTS)
    said = mooring("compare", "--trace", tmp_path, "-o", "json")
    document = json.loads(said.out)
    as_given = next(one for one in document["variants"] if one["asGiven"])
    assert (as_given["name"], as_given["admitted"], sum(as_given["rejected"].values())) == ("node", 4, 2)
    recorded(tmp_path, EVENTS, "other")
    several = mooring("compare", "--trace", tmp_path)
    assert (several.code, "has recordings of several nodes: node, other" in several.err) == (2, True)
    assert mooring("compare", "--trace", tmp_path / "other").code == 1


def test_a_file_without_times_is_no_recording(tmp_path: Path) -> None:
    (tmp_path / "recording-000001.jsonl").write_text('{"id": "it", "machine": "cores=2", "steps": []}\n')
    with pytest.raises(InputError, match="does not tell when it was observed"):
        node_histories(tmp_path)
    said = mooring("fleet", "simulate", "--trace", tmp_path)
    assert (said.code, said.err.count("\n")) == (2, 1)
