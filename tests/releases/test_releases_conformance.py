"""Recorded decisions of kubelets v1.31.14 to v1.36.3, replayed under that release and compared."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.planner.recordings import CORPORA, PARTS, lines, named, share

from mooring.answers.base.replay.file import replay_file
from mooring.engine.releases.catalog import RELEASES, TAGS

FOLDER = CORPORA / "releases"
MACHINES = (FOLDER / "machines.jsonl",)
FILES = sorted(str(path.relative_to(CORPORA)) for path in FOLDER.glob("v*/*.jsonl.gz"))


def test_each_older_release_has_recordings_of_its_own() -> None:
    recorded = {name.split("/")[1] for name in FILES}
    assert recorded == {TAGS[name] for name in list(RELEASES)[:-1]}


@pytest.mark.corpus
@pytest.mark.parametrize("name", FILES)
def test_each_line_names_the_release_of_its_folder(name: str) -> None:
    assert {named(line).release for line in lines(name)} == {name.split("/")[1]}


@pytest.mark.corpus
@pytest.mark.parametrize("part", PARTS)
@pytest.mark.parametrize("name", FILES)
def test_decisions_equal_those_of_the_release(name: str, part: int, tmp_path: Path) -> None:
    chosen = share(name)[part :: len(PARTS)]
    file = tmp_path / "part.jsonl"
    file.write_text("".join(chosen), encoding="utf-8")
    outcomes = list(replay_file(file, MACHINES, compare=True))
    assert [outcome.id for outcome in outcomes] == [named(line).id for line in chosen]
    assert [outcome.id for outcome in outcomes if outcome.unsupported or not outcome.compared] == []
    assert {outcome.id: outcome.differences for outcome in outcomes if outcome.differences} == {}
