"""Recorded decisions of kubelet v1.37.1, replayed and compared."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.planner.recordings import CORPORA, MACHINES, PARTS, lines, named, needs_cpu_manager_only, recorded, share

from mooring.answers.base.agreement import replay_file

RECORDED = {
    "admission-config-errors.jsonl.gz": (800, 397),
    "admission-corners.jsonl.gz": (180, 28),
    "admission-cpu-distributed.jsonl.gz": (1200, 1200),
    "admission-cpu-packed.jsonl.gz": (1200, 1200),
    "admission-cpu-uncore.jsonl.gz": (1000, 1000),
    "admission-deltas.jsonl.gz": (513, 232),
    "admission-devices.jsonl.gz": (291, 0),
    "admission-edges.jsonl.gz": (40, 29),
    "admission-lifecycle-restart.jsonl.gz": (1199, 351),
    "admission-memory.jsonl.gz": (1300, 0),
    "admission-numa-large.jsonl.gz": (180, 153),
    "admission-podlevel.jsonl.gz": (1300, 111),
    "admission-topology.jsonl.gz": (1300, 524),
    "merge.jsonl.gz": (5000, 5000),
    "real-kubelet.jsonl.gz": (12, 0),
    "state-files.jsonl.gz": (650, 157),
}
"""File -> lines, and how many of them the CPU and topology managers decide alone."""


def test_no_recording_is_left_out() -> None:
    assert sorted(path.name for path in CORPORA.glob("*.gz")) == sorted(RECORDED)


@pytest.mark.corpus
@pytest.mark.parametrize("name", RECORDED)
def test_each_file_has_its_number_of_lines_and_each_line_an_answer(name: str) -> None:
    contents = list(recorded(name))
    alone = sum(needs_cpu_manager_only(content) for content in contents)
    assert (len(contents), alone) == RECORDED[name]
    assert all(content.get("expect") or content.get("result") for content in contents)


@pytest.mark.corpus
@pytest.mark.parametrize("part", PARTS)
@pytest.mark.parametrize("name", RECORDED)
def test_decisions_equal_the_kubelets(name: str, part: int, tmp_path: Path) -> None:
    chosen = share(name)[part :: len(PARTS)]
    file = tmp_path / "part.jsonl"
    file.write_text("".join(chosen), encoding="utf-8")
    outcomes = list(replay_file(file, MACHINES, compare=True))
    assert [outcome.id for outcome in outcomes] == [named(line).id for line in chosen]
    assert [outcome.id for outcome in outcomes if outcome.standing in ("unsupported", "unknown")] == []
    assert {outcome.id: outcome.differences for outcome in outcomes if outcome.differences} == {}


def test_one_file_of_machines_needs_no_list(tmp_path: Path) -> None:
    file = tmp_path / "one.jsonl"
    file.write_text(lines("admission-cpu-packed.jsonl.gz")[0], encoding="utf-8")
    [of_list], [of_path] = (list(replay_file(file, machines)) for machines in ([MACHINES[0]], MACHINES[0]))
    assert of_path.answer == of_list.answer


def test_a_compressed_file_finds_the_machines_beside_it() -> None:
    outcomes = list(replay_file(CORPORA / "real-kubelet.jsonl.gz", (), compare=True))
    assert len(outcomes) == RECORDED["real-kubelet.jsonl.gz"][0]
    assert not any(outcome.standing in ("differ", "unsupported") for outcome in outcomes)
