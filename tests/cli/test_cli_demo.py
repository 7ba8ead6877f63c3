"""``mooring demo``: everything that it needs is in the package, and nothing of the reader's is overwritten."""

from __future__ import annotations

from pathlib import Path

import pytest

from mooring.command.main import run


def test_the_demo_plans_explains_and_draws_in_an_empty_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert run(["demo"]) == 0
    said = capsys.readouterr().out
    node = "-f mooring-demo/pods.yaml --machine epyc-7763-2s-nps4 --config mooring-demo/kubelet.yaml"
    assert [line for line in said.splitlines() if line.startswith("$ mooring ")] == [
        f"$ mooring plan {node}",
        f"$ mooring explain ai/inference {node}",
        f"$ mooring show {node} -o svg --to mooring-demo/node.svg",
    ]
    assert "8 pods admitted, 3 rejected." in said
    assert "error[MOOR-105]: ai/inference is rejected: TopologyAffinityError" in said
    assert (tmp_path / "mooring-demo" / "node.svg").read_text(encoding="utf-8").startswith("<svg")


def test_files_that_were_changed_are_kept_and_asked(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "pods.yaml").write_text(
        "apiVersion: v1\nkind: Pod\nmetadata: {name: inference, namespace: ai}\nspec: {containers: [{name: only}]}\n",
        encoding="utf-8",
    )
    assert run(["demo", "--to", str(tmp_path)]) == 0
    assert "1 pod admitted" in capsys.readouterr().out


def test_a_folder_that_cannot_be_made_is_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "file").write_text("", encoding="utf-8")
    assert run(["demo", "--to", str(tmp_path / "file")]) == 2
    assert capsys.readouterr().err == f"mooring: {tmp_path / 'file'}: --to: File exists\n"
