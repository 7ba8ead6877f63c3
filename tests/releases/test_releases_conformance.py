"""Recorded decisions of older kubelets and of the preview, replayed under that release and compared."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.planner.recordings import CORPORA, PARTS, lines, named, share

from mooring.answers.base.agreement import replay_file
from mooring.engine.core.release import NEWEST
from mooring.engine.releases.catalog import TAGS

FOLDER = CORPORA / "releases"
MACHINES = (FOLDER / "machines.jsonl", FOLDER / "v1.38.0-beta.0" / "differences-machines.jsonl")
FILES = sorted(str(path.relative_to(CORPORA)) for path in FOLDER.glob("v*/*.jsonl.gz"))


def test_each_other_release_has_recordings_of_its_own() -> None:
    recorded = {name.split("/")[1] for name in FILES}
    assert recorded == set(TAGS.values()) - {NEWEST.tag}


@pytest.mark.corpus
@pytest.mark.parametrize("name", FILES)
def test_each_line_names_the_release_of_its_folder(name: str) -> None:
    expected = {"merge-38": "", "differences-v1.37.2": NEWEST.tag}.get(Path(name).name.removesuffix(".jsonl.gz"))
    assert {named(line).release for line in lines(name)} == {name.split("/")[1] if expected is None else expected}


@pytest.mark.corpus
@pytest.mark.parametrize("part", PARTS)
@pytest.mark.parametrize("name", FILES)
def test_decisions_equal_those_of_the_release(name: str, part: int, tmp_path: Path) -> None:
    chosen = share(name)[part :: len(PARTS)]
    file = tmp_path / "part.jsonl"
    file.write_text("".join(chosen), encoding="utf-8")
    outcomes = list(replay_file(file, MACHINES, compare=True))
    assert [outcome.id for outcome in outcomes] == [named(line).id for line in chosen]
    assert [outcome.id for outcome in outcomes if outcome.standing in ("unsupported", "unknown")] == []
    assert {outcome.id: outcome.differences for outcome in outcomes if outcome.differences} == {}
