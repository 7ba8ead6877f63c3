"""A small sample of every corpus: quick enough to run against each mutant (`make mutants`)."""

from __future__ import annotations

from itertools import islice
from pathlib import Path

import pytest

from mooring.answers.base.agreement import replay_file

CORPORA = Path(__file__).resolve().parent.parent / "tests" / "corpora"
THEMES = sorted(path.name for path in CORPORA.glob("*.jsonl.gz") if path.name != "real-kubelet.jsonl.gz")
FIRST = 10
"""Scenarios of each corpus, from its beginning."""


@pytest.mark.parametrize("theme", THEMES)
def test_the_first_scenarios_agree(theme: str) -> None:
    for outcome in islice(replay_file(CORPORA / theme, [], compare=True), FIRST):
        assert not outcome.differences, outcome.id
