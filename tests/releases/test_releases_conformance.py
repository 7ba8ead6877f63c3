"""Every recorded decision of older kubelets and of the preview, replayed under that release and compared."""

from __future__ import annotations

import gzip
from functools import lru_cache
from pathlib import Path

import pytest
from tests.planner.recordings import CORPORA, named

from mooring.answers.base.replay.file import replay_file
from mooring.engine.core.release import NEWEST
from mooring.engine.releases.catalog import TAGS

FOLDER = CORPORA / "releases"
MACHINES = (FOLDER / "machines.jsonl", FOLDER / "v1.38.0-beta.0" / "differences-machines.jsonl")
FILES = sorted(str(path.relative_to(FOLDER)) for path in FOLDER.glob("v*/*.jsonl.gz"))

PART = 320


@lru_cache(maxsize=2)
def lines(name: str) -> tuple[str, ...]:
    with gzip.open(FOLDER / name, "rt", encoding="utf-8") as file:
        return tuple(file)


PARTS = [
    pytest.param(name, start, id=f"{name.partition('.jsonl')[0]}-{start}")
    for name in FILES
    for start in range(0, len(lines(name)), PART)
]


def test_each_other_release_has_recordings_of_its_own() -> None:
    recorded = {name.partition("/")[0] for name in FILES}
    assert recorded == set(TAGS.values()) - {NEWEST.tag}


@pytest.mark.corpus
@pytest.mark.parametrize("name", FILES)
def test_each_line_names_the_release_of_its_folder(name: str) -> None:
    expected = {"merge-38": "", "differences-v1.37.2": NEWEST.tag}.get(Path(name).name.removesuffix(".jsonl.gz"))
    assert {named(line).release for line in lines(name)} == {name.partition("/")[0] if expected is None else expected}


@pytest.mark.corpus
@pytest.mark.parametrize(("name", "start"), PARTS)
def test_decisions_equal_those_of_the_release(name: str, start: int, tmp_path: Path) -> None:
    part = lines(name)[start : start + PART]
    file = tmp_path / "part.jsonl"
    file.write_text("".join(part), encoding="utf-8")
    outcomes = list(replay_file(file, MACHINES, compare=True))
    assert [outcome.id for outcome in outcomes] == [named(line).id for line in part]
    assert [outcome.id for outcome in outcomes if outcome.unsupported or not outcome.compared] == []
    assert {outcome.id: outcome.differences for outcome in outcomes if outcome.differences} == {}
