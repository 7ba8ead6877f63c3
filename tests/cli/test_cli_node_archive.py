"""``--node`` stands for machine, configuration, state and running pods; what is given besides replaces its part."""

from __future__ import annotations

import tarfile
from pathlib import Path

import pytest
from tests.cli.command import EXAMPLES, mooring
from tests.cli.made_up_node import kubelet_pods, make_root, write_pods


@pytest.fixture
def node(tmp_path: Path) -> Path:
    root, pods = make_root(tmp_path / "root"), write_pods(tmp_path / "pods.json", kubelet_pods())
    archive = tmp_path / "node.tar.gz"
    answered = mooring(
        "collect", "--root", root, "--no-kubectl", "--pods", pods, "--kubelet-version", "v1.37.1", "--to", archive
    )
    assert answered.code == 0, answered
    return archive


@pytest.fixture
def small(tmp_path: Path) -> Path:
    file = tmp_path / "small.yaml"
    file.write_text(
        "kind: Pod\nmetadata: {name: small}\nspec: {containers: [{name: c, "
        "resources: {limits: {cpu: 2, memory: 64Mi}}}]}\n",
        encoding="utf-8",
    )
    return file


def names(*arguments: str | Path) -> list[tuple[str, bool]]:
    document = mooring("plan", *arguments, "-o", "json").document
    return [(pod["name"], pod.get("running", False)) for pod in document["pods"]]


def test_the_pods_of_the_archive_run_already(node: Path, small: Path) -> None:
    assert names("-f", small, "--node", node) == [
        ("shop-2", True),
        ("shop-1", True),
        ("shop-0", True),
        ("small", False),
    ]


def test_active_replaces_the_pods_of_the_archive(node: Path, small: Path, tmp_path: Path) -> None:
    running = write_pods(tmp_path / "running.json", kubelet_pods(1))
    assert names("-f", small, "--node", node, "--active", running) == [("shop-0", True), ("small", False)]


def test_a_machine_replaces_that_of_the_archive(node: Path, small: Path) -> None:
    asked = ("plan", "-f", small, "--node", node, "-o", "json")
    assert mooring(*asked).document["machine"].startswith("edge-7, captured 20")
    assert mooring(*asked, "--machine", "small-1s8").document["machine"] == "small-1s8"
    assert mooring("topology", "--node", node, "--machine", "small-1s8", "-o", "json").document["name"] == "small-1s8"


def test_a_configuration_replaces_that_of_the_archive(node: Path, small: Path, tmp_path: Path) -> None:
    none = tmp_path / "none.yaml"
    none.write_text("kind: KubeletConfiguration\ncpuManagerPolicy: none\n", encoding="utf-8")
    asked = ("plan", "-f", small, "--node", node)
    assert "exclusive" in mooring(*asked).out
    assert "exclusive" not in mooring(*asked, "--config", none).out


def test_state_files_replace_those_of_the_archive(node: Path, small: Path, tmp_path: Path) -> None:
    state = tmp_path / "state"
    state.mkdir()
    (state / "cpu_manager_state").write_text("torn", encoding="utf-8")
    asked = ("plan", "-f", small, "--node", node, "-o", "json")
    assert "startError" not in mooring(*asked).document
    assert "startError" in mooring(*asked, "--state", state).document


def test_a_pod_of_the_archive_cannot_be_admitted_once_more(node: Path, tmp_path: Path) -> None:
    again = write_pods(tmp_path / "again.json", kubelet_pods(1))
    answered = mooring("plan", "-f", again, "--node", node)
    assert answered.code == 2
    assert "is also in the node archive" in answered.err


def test_a_node_can_be_shown_with_its_pods_and_nothing_else(node: Path) -> None:
    answered = mooring("show", "--node", node)
    assert answered.code == 0
    assert "customer/shop-0" in answered.out


@pytest.mark.parametrize("verb", [("plan", "-f", str(EXAMPLES / "pods.yaml")), ("show",), ("topology",)])
def test_what_is_no_node_archive_is_one_line(verb: tuple[str, ...], tmp_path: Path) -> None:
    for file in (EXAMPLES / "pods.yaml", tmp_path / "missing.tar.gz", tmp_path):
        answered = mooring(*verb, "--node", file)
        assert (answered.code, len(answered.err.splitlines())) == (2, 1), answered


@pytest.mark.parametrize("verb", ["plan", "upgrade"])
@pytest.mark.parametrize("below", ["", "kubelet", "link"])
def test_an_unpacked_archive_is_never_written(node: Path, small: Path, tmp_path: Path, verb: str, below: str) -> None:
    with tarfile.open(node) as archive:
        archive.extractall(tmp_path, filter="data")
    folder = tmp_path / "mooring-node"
    (folder / "link").symlink_to(folder / "kubelet")
    before = {file: file.read_bytes() for file in folder.rglob("*") if file.is_file()}
    assert (folder / "kubelet").is_dir()
    answered = mooring(verb, "-f", small, "--node", folder, "--save-state", folder / below)
    assert (answered.code, answered.out) == (2, "")
    assert answered.complaint == (
        f"mooring: {folder / below}: --save-state: is also the directory of --node, whose files are never written; "
        "name another directory"
    )
    assert {file: file.read_bytes() for file in folder.rglob("*") if file.is_file()} == before
