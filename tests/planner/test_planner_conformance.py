"""Every recorded decision of kubelet v1.37.1 that the CPU and topology managers make alone."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from mooring.planner.replay_file import replay_file
from tests.planner.recordings import CORPORA, MACHINES, lines, needs_cpu_manager_only, recorded

SUPPORTED = {
    "admission-config-errors.jsonl.gz": 397,
    "admission-cpu-distributed.jsonl.gz": 1200,
    "admission-cpu-packed.jsonl.gz": 1200,
    "admission-cpu-uncore.jsonl.gz": 1000,
    "admission-devices.jsonl.gz": 0,
    "admission-lifecycle-restart.jsonl.gz": 351,
    "admission-memory.jsonl.gz": 0,
    "admission-numa-large.jsonl.gz": 153,
    "admission-podlevel.jsonl.gz": 111,
    "admission-topology.jsonl.gz": 524,
    "merge.jsonl.gz": 5000,
    "real-kubelet.jsonl.gz": 0,
    "state-files.jsonl.gz": 157,
}
"""File -> lines that need neither memory manager, devices nor PodLevelResourceManagers."""

CHUNK = 250
PARTS = [
    pytest.param(name, start, id=f"{name.partition('.')[0]}-{start}")
    for name, count in SUPPORTED.items()
    for start in range(0, count, CHUNK if name != "merge.jsonl.gz" else 2500)
]


def supported_lines(name: str) -> list[str]:
    return [line for line in lines(name) if needs_cpu_manager_only(json.loads(line))]


def test_no_recording_is_left_out() -> None:
    assert sorted(path.name for path in CORPORA.glob("*.gz")) == sorted(SUPPORTED)


@pytest.mark.corpus
@pytest.mark.parametrize("name", SUPPORTED)
def test_each_file_has_its_number_of_supported_lines_and_each_of_them_an_answer(name: str) -> None:
    wanted = [content for content in recorded(name) if needs_cpu_manager_only(content)]
    assert len(wanted) == SUPPORTED[name]
    assert all(content.get("expect") or content.get("result") for content in wanted)


@pytest.mark.corpus
@pytest.mark.parametrize(("name", "start"), PARTS)
def test_decisions_equal_the_kubelets(name: str, start: int, tmp_path: Path) -> None:
    size = CHUNK if name != "merge.jsonl.gz" else 2500
    part = supported_lines(name)[start : start + size]
    file = tmp_path / "part.jsonl"
    file.write_text("".join(part), encoding="utf-8")
    outcomes = list(replay_file(file, MACHINES, compare=True))
    assert [outcome.id for outcome in outcomes] == [json.loads(line)["id"] for line in part]
    assert not [outcome.id for outcome in outcomes if outcome.unsupported]
    assert {outcome.id: outcome.differences for outcome in outcomes if outcome.differences} == {}


@pytest.mark.corpus
@pytest.mark.parametrize("name", [name for name, count in SUPPORTED.items() if count])
def test_what_is_replayed_from_the_whole_file_agrees_too(name: str) -> None:
    sample = {json.loads(line)["id"] for line in supported_lines(name)[:20]}
    seen = set()
    for outcome in replay_file(CORPORA / name, (), compare=True):
        if outcome.id in sample:
            seen.add(outcome.id)
            assert not outcome.unsupported
            assert outcome.differences == ()
        if seen == sample:
            break
    assert seen == sample
