"""``-o html`` of plan and show: one document, the same from both, with the usual exit codes."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.cli.command import NODE, PODS, mooring


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> str:
    file = tmp_path_factory.mktemp("report") / "report.html"
    answered = mooring("show", *PODS, *NODE, "-o", "html", "--to", file)
    assert (answered.code, answered.out, answered.err) == (1, "", "")
    return file.read_text("utf-8")


def test_plan_and_show_write_the_same_report(page: str) -> None:
    assert mooring("plan", *PODS, *NODE, "-o", "html").out == page


def test_a_dash_writes_to_standard_output(page: str) -> None:
    assert mooring("show", *PODS, *NODE, "-o", "html", "--to", "-").out == page


def test_the_report_tells_what_the_plan_tells(page: str) -> None:
    document = mooring("plan", *PODS, *NODE, "-o", "json").document
    for pod in document["pods"]:
        assert f"{pod['namespace']}/{pod['name']}" in page
        assert pod["reason"] in page
    assert page.startswith("<!DOCTYPE html>\n")


def test_a_machine_alone_is_a_report_too(tmp_path: Path) -> None:
    answered = mooring("show", "--machine", "small-1s8", "-o", "html", "--to", tmp_path / "small.html")
    assert answered.code == 0
    assert 'data-cpu="7"' in (tmp_path / "small.html").read_text("utf-8")


def test_a_kubelet_that_does_not_start_is_reported_in_the_report(tmp_path: Path) -> None:
    config = tmp_path / "kubelet.yaml"
    config.write_text(
        "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\ncpuManagerPolicy: static\n", "utf-8"
    )
    answered = mooring("plan", *PODS, "--machine", "small-1s8", "--config", config, "-o", "html")
    assert answered.code == 1
    assert "The kubelet would not start. " in answered.out
    assert "not asked" in answered.out


def test_a_folder_as_destination_is_bad_input(tmp_path: Path) -> None:
    answered = mooring("show", "--machine", "small-1s8", "-o", "html", "--to", tmp_path)
    assert answered.code == 2
    assert "is a directory" in answered.complaint
