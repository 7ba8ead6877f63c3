"""On a node the defaults are the node's: the running kubelet's configuration, state and machine."""

from __future__ import annotations

import subprocess
from collections.abc import Sequence
from pathlib import Path

import pytest
from tests.cli.command import Answered, mooring
from tests.cli.made_up_node import CONFIG, make_root
from tests.patience import until

POD = """\
apiVersion: v1
kind: Pod
metadata: {{name: {name}, uid: {name}}}
spec: {{containers: [{{name: app, resources: {{limits: {{cpu: {cpu}, memory: 1Gi}}}}}}]}}
"""
NOTE = "note[MOOR-584]: edge-7: the kubelet that runs here, process 11: "
ROOT_DIR = "var/lib/elsewhere"


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A computer whose kubelet runs with its files in unusual places, on which a pod has CPUs 1 to 3."""
    root = make_root(tmp_path / "root")
    arguments = ["kubelet", f"--config=/{CONFIG}", "--config-dir", "/etc/kubelet.d", f"--root-dir=/{ROOT_DIR}"]
    for path, text in {
        "proc/11/comm": "kubelet\n",
        "proc/11/cmdline": "\0".join((*arguments, "--topology-manager-policy=best-effort", "")),
        "etc/kubelet.d/10-more.conf": '{"reservedSystemCPUs": "0-1", "cpuManagerPolicyOptions": null}',
        "pod.yaml": POD.format(name="web", cpu=2),
    }.items():
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_text(text)
    monkeypatch.chdir(root)
    monkeypatch.setenv("MOORING_ROOT", str(root))
    return root


@pytest.fixture
def held(root: Path) -> Path:
    """The same with state files: a pod that is not known has CPUs 2 and 3."""
    (root / "running.yaml").write_text(POD.format(name="db", cpu=2))
    saved = ("--state", "none", "--active", "none", "--save-state", str(root / "saved"))
    assert mooring("plan", "-f", "running.yaml", *saved).code == 0
    (root / ROOT_DIR).parent.mkdir(parents=True)
    (root / "saved").rename(root / ROOT_DIR)
    return root


def reserved(answered: Answered) -> str:
    return next(line for line in answered.out.splitlines() if line.startswith("Shared pool")).partition("reserved: ")[2]


@pytest.mark.usefixtures("root")
def test_the_configuration_is_that_of_the_command_line() -> None:
    answered = mooring("plan", "-f", "pod.yaml")
    assert answered.code == 0
    # A drop-in wins over the file, and a flag over both.
    assert "topology manager best-effort" in answered.out
    assert reserved(answered).startswith("0-1;")
    assert f"{NOTE}configuration (/{CONFIG} and flags); --node none leaves it out" in answered.err
    assert f"warning[MOOR-581]: {Path.cwd()}: the node lacks state files, so running pods" in answered.err


@pytest.mark.usefixtures("held")
def test_the_state_is_that_of_the_root_directory() -> None:
    [pod] = mooring("plan", "-f", "pod.yaml", "-o", "json").document["pods"]
    assert pod["containers"]["app"]["cpus"] == "4-5"
    without = mooring("plan", "-f", "pod.yaml", "--state", "none", "-o", "json")
    [pod] = without.document["pods"]
    assert pod["containers"]["app"]["cpus"] == "2-3"


@pytest.mark.usefixtures("held")
def test_every_verb_about_a_node_takes_it() -> None:
    for words in (
        ("show",),
        ("capacity", "--shape", "cpu=2"),
        ("explain", "web", "-f", "pod.yaml"),
        ("whatif", "-f", "pod.yaml", "--set", "topologyManagerPolicy=none"),
        ("compare", "-f", "pod.yaml"),
        ("doctor",),
        ("resize", "web", "--cpu", "4", "-f", "pod.yaml"),
    ):
        answered = mooring(*words)
        assert answered.code in (0, 1), answered.err
        assert NOTE in answered.err, words


@pytest.mark.usefixtures("held")
def test_doctor_reads_the_root_directory_and_writes_only_where_it_is_named() -> None:
    assert str(Path.cwd() / ROOT_DIR) in mooring("doctor").out
    assert mooring("doctor", "--write").complaint.startswith("mooring: --state: is missing")


@pytest.mark.usefixtures("held")
@pytest.mark.parametrize("words", [("plan", "-f", "pod.yaml"), ("upgrade", "--kubelet-version", "1.34")])
@pytest.mark.parametrize("more", [(), ("--state", "none")])
def test_the_state_files_of_the_running_kubelet_are_never_written(words: Sequence[str], more: Sequence[str]) -> None:
    before = [file.read_bytes() for file in sorted(Path(ROOT_DIR).iterdir())]
    answered = mooring(*words, *more, "--save-state", ROOT_DIR)
    assert (answered.code, answered.out, len(before)) == (2, "", 2)
    assert answered.complaint == (
        f"mooring: {ROOT_DIR}: --save-state: is also the directory of the running kubelet, whose files are never "
        "written; name another directory"
    )
    assert [file.read_bytes() for file in sorted(Path(ROOT_DIR).iterdir())] == before


@pytest.mark.usefixtures("held")
def test_parts_are_replaced_and_left_out() -> None:
    Path("own.yaml").write_text("kind: KubeletConfiguration\napiVersion: kubelet.config.k8s.io/v1beta1\n")
    own = mooring("plan", "-f", "pod.yaml", "--config", "own.yaml", "--state", "none")
    assert "CPU manager policy none" in own.out
    assert f"{NOTE}only the machine; --node none leaves it out" in own.err
    none = mooring("plan", "-f", "pod.yaml", "--config", "none", "--state", "none")
    assert "none given: the kubelet's defaults" in none.err
    assert mooring("plan", "-f", "pod.yaml", "--state", "none", "--active", "none").code == 0


@pytest.mark.usefixtures("held")
@pytest.mark.parametrize("words", [("--node", "none"), ("--machine", "small-1s8")])
def test_another_node_is_not_mixed_with_this_one(words: tuple[str, str]) -> None:
    answered = mooring("plan", "-f", "pod.yaml", *words, *(() if words[0] == "--machine" else ("--config", "none")))
    assert NOTE not in answered.err
    assert "none given: the kubelet's defaults" in answered.err


def test_a_command_that_is_printed_keeps_what_is_left_out(root: Path) -> None:
    (root / "pod.yaml").write_text(POD.format(name="web", cpu=20))
    answered = mooring("explain", "-f", "pod.yaml", "--state", "none", "--active", "none")
    assert "--active none --state none" in answered.out.replace(" \\\n    ", " ")


def test_a_kubelet_whose_file_is_gone_is_said(root: Path) -> None:
    (root / CONFIG).unlink()
    answered = mooring("plan", "-f", "pod.yaml")
    assert f"the node has no configuration of the kubelet: /{CONFIG} is not there" in answered.err


def test_the_process_of_a_kubelet_is_read_as_the_kernel_shows_it(root: Path) -> None:
    program = root / "kubelet"
    program.write_text("#!/bin/sh\nread -r line\n")
    program.chmod(0o755)
    words = [f"--config=/{CONFIG}", "--reserved-cpus", "0-3", "--v=2"]
    with subprocess.Popen([program, *words], stdin=subprocess.PIPE) as process:
        # The kernel has the arguments a moment after the program's name.
        until(lambda: Path(f"/proc/{process.pid}/cmdline").read_bytes().endswith(b"--v=2\0"), "the program runs")
        for name in ("comm", "cmdline", "status"):
            text = Path(f"/proc/{process.pid}/{name}").read_bytes()
            (root / "proc/11" / name).write_bytes(text)
        process.communicate(b"\n")
    answered = mooring("plan", "-f", "pod.yaml")
    assert NOTE in answered.err
    assert reserved(answered).startswith("0-3;")
