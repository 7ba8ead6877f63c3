"""``mooring status --shadow``: what a shadow has counted, from its folder."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.cli.command import mooring

from mooring.monitoring.shadow.judgement import Agreement, DifferenceCause, Judgement, KubeletEvent
from mooring.monitoring.shadow.tally import add, new_tally, write_counts

AGREED = Judgement(Agreement.AGREED, KubeletEvent.ADMITTED, "1", "default/web")
DIFFERS = Judgement(Agreement.DIFFERS, KubeletEvent.ADMITTED, "2", "default/db", DifferenceCause.CPUS, "2-3", "4-5")


def counted(folder: Path, *judgements: Judgement) -> Path:
    tally = new_tally("node-1", "v1.37.1", "2026-01-01T00:00:00Z")
    add(tally, judgements, "2026-01-01T00:00:01Z")
    write_counts(folder, tally)
    return folder


@pytest.mark.parametrize(("judgements", "code"), [([AGREED], 0), ([AGREED, DIFFERS], 1)])
def test_counts_of_a_folder_are_shown(judgements: list[Judgement], code: int, tmp_path: Path) -> None:
    answered = mooring("status", "--shadow", counted(tmp_path, *judgements), code=code)
    assert f"agreed 1, differs {code}, cannot tell 0" in answered.out
    assert ("default/db admitted: cpus: the kubelet has 2-3, the engine 4-5" in answered.out) == bool(code)


def test_the_document_is_that_of_the_shadow(tmp_path: Path) -> None:
    found = mooring("status", "--shadow", counted(tmp_path, AGREED), "-o", "json").document
    assert (found["kind"], found["node"], found["agreed"]) == ("Shadow", "node-1", 1)


def test_a_folder_without_counts_is_an_error_in_one_line(tmp_path: Path) -> None:
    answered = mooring("status", "--shadow", tmp_path, code=2)
    assert answered.complaint == (
        f"mooring: {tmp_path}: there is no counts.json; name the folder that mooring shadow --folder writes"
    )
