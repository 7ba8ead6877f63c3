"""The kubelet's release decides, wherever it comes from, and the answer names it."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Sequence
from pathlib import Path

import pytest
from tests.cli.command import EXAMPLES, Answered, mooring
from tests.cli.given import STATIC, given, pod
from tests.cli.made_up_node import CONFIG as CONFIG_KUBELET
from tests.cli.made_up_node import make_root
from tests.patience import until

CONFIG = STATIC | {
    "cpuManagerPolicyOptions": {"strict-cpu-reservation": "true"},
    "featureGates": {"CPUManagerPolicyAlphaOptions": True},
}
POD = pod("small", 2, "64Mi")
MACHINE = "sockets=1 numa=1 cores=4 threads=2 memory=16Gi"


@pytest.fixture
def asked(tmp_path: Path) -> tuple[str | Path, ...]:
    """Arguments that describe a node whose option kubelet 1.31 does not know."""
    return given(tmp_path, POD, machine=MACHINE, kubelet=CONFIG)


@pytest.mark.parametrize(
    ("verb", "more"), [("plan", ()), ("explain", ("small",)), ("whatif", ()), ("capacity", ("small",))]
)
def test_an_older_release_decides_and_is_named(verb: str, more: tuple[str, ...], asked: tuple[str | Path, ...]) -> None:
    for version, tag in (("1.32", "v1.32.13"), ("v1.31.9-eks-1-31-23", "v1.31.14")):
        assert f"ubelet {tag}" in mooring(verb, *more, *asked, "--kubelet-version", version).out
        document = mooring(verb, *more, *asked, "--kubelet-version", version, "-o", "json").document
        assert document["kubelet"] == tag
    assert mooring("plan", *asked, "--kubelet-version", "1.31").code == 1
    assert mooring("plan", *asked, "--kubelet-version", "1.32").code == 0


def test_the_newest_release_is_named_in_documents_only(asked: tuple[str | Path, ...]) -> None:
    assert "1.37" not in mooring("plan", *asked).out
    assert mooring("plan", *asked, "-o", "json").document["kubelet"] == "v1.37.2"


@pytest.mark.parametrize("form", ["terminal", "svg", "html"])
def test_pictures_name_the_release(form: str, asked: tuple[str | Path, ...]) -> None:
    assert "kubelet v1.34.4" in mooring("show", *asked, "--kubelet-version", "1.34", "-o", form).out
    assert "kubelet v1.31.14 would not start" in mooring("show", *asked, "--kubelet-version", "1.31").out


def test_the_archive_names_the_release_and_the_option_wins(tmp_path: Path) -> None:
    root, archive = make_root(tmp_path / "root"), tmp_path / "old.tar.gz"
    mooring("collect", "--root", root, "--no-kubectl", "--kubelet-version", "v1.36.3-eks-1", "--to", archive)
    asked = ("show", "--node", archive)
    assert "kubelet v1.36.3" in mooring(*asked).out
    assert "MOOR-580" not in mooring(*asked).err
    assert "kubelet v1.35.4" in mooring(*asked, "--kubelet-version", "1.35").out


def nodes(**versions: str) -> list[object]:
    return [
        {"kind": "Node", "metadata": {"name": name}, "status": {"nodeInfo": {"kubeletVersion": version}}}
        for name, version in versions.items()
    ]


def test_nodes_among_the_running_pods_name_the_release(asked: tuple[str | Path, ...], tmp_path: Path) -> None:
    listed = tmp_path / "cluster.yaml"
    running = {**POD, "metadata": {"name": "runs", "uid": "u"}, "spec": {**POD["spec"], "nodeName": "n1"}}
    first, second = nodes(n1="v1.34.2+k3s1", n2="v1.36.1")
    listed.write_text(json.dumps({"kind": "List", "items": [first, second, running]}), encoding="utf-8")
    plan = ("plan", *asked, "-o", "json", "--active", listed)
    assert mooring(*plan).document["kubelet"] == "v1.34.4"
    listed.write_text(f"{json.dumps(first)}\n---\n{json.dumps(second)}", encoding="utf-8")
    assert "2 nodes have kubelets of different versions" in mooring(*plan).err
    assert mooring(*plan, "--node-name", "n2").document["kubelet"] == "v1.36.3"


@pytest.mark.parametrize("more", [(), ("--kubelet-version", "1.34")])
def test_a_node_that_a_list_lacks_is_refused(
    more: tuple[str, ...], asked: tuple[str | Path, ...], tmp_path: Path
) -> None:
    listed = tmp_path / "cluster.json"
    spec = {"nodeName": "gpu-7", "containers": [{"name": "c"}]}
    running = {"kind": "Pod", "metadata": {"name": "runs", "uid": "u"}, "spec": spec}
    service = {"kind": "Service", "metadata": {"name": "web"}}
    listed.write_text(
        json.dumps({"kind": "List", "items": [*nodes(worker1="v1.34.2", worker2="v1.36.1"), running, service]}),
        encoding="utf-8",
    )
    plan = ("plan", *asked, *more, "--active", listed, "--node-name")
    missing = mooring(*plan, "workr2", code=2)
    assert missing.complaint.endswith(
        "cluster.json: --node-name: 'workr2' is not among the nodes given; did you mean worker2?"
    )
    assert mooring(*plan, "n3").complaint.endswith("; known are gpu-7, worker1, worker2")
    assert mooring(*plan, "gpu-7").code == 0


def test_the_kubelet_of_this_computer_decides_where_none_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = tmp_path / "kubelet"
    program.write_text("#!/bin/sh\necho Kubernetes v1.35.2\n", encoding="utf-8")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/bin:/usr/bin")
    asked = ("plan", "-f", EXAMPLES / "pods.yaml", "-o", "json")
    assert mooring(*asked).document["kubelet"] == "v1.35.4"
    assert mooring(*asked, "--machine", MACHINE).document["kubelet"] == "v1.37.2"


TALOS = """\
version: v1alpha1
machine:
  kubelet:
    image: ghcr.io/siderolabs/kubelet:%s
    extraConfig: {cpuManagerPolicy: static, systemReserved: {cpu: 500m}}
"""


def test_the_file_of_a_vendor_names_the_release_unless_an_option_or_a_node_does(tmp_path: Path) -> None:
    config, pod, node = tmp_path / "talos.yaml", tmp_path / "pod.json", tmp_path / "node.json"
    pod.write_text(json.dumps(POD), encoding="utf-8")
    found = {"kind": "Node", "metadata": {"name": "n1"}, "status": {"nodeInfo": {"kubeletVersion": "v1.34.4"}}}
    node.write_text(json.dumps({"apiVersion": "v1", **found}), encoding="utf-8")
    asked = ("plan", "-f", pod, "--config", config, "--machine", MACHINE, "-o", "json")

    def decided(version: str, *more: str | Path) -> tuple[str, bool]:
        config.write_text(TALOS % version, encoding="utf-8")
        answered = mooring(*asked, *more)
        return answered.document["kubelet"], "MOOR-580" in json.dumps(answered.document)

    assert decided("v1.36.0") == ("v1.36.3", False)
    assert decided("v1.36.0", "--active", node) == ("v1.34.4", False)
    assert decided("v1.30.0", "--kubelet-version", "1.35") == ("v1.35.4", False)
    assert decided("v1.99.0") == decided("mine") == ("v1.37.2", True)
    assert decided("v1.30.0", "--nearest-release") == ("v1.31.14", True)
    assert "talos.yaml:4:5: kubelet v1.30.0 is older than all known releases" in mooring(*asked, code=2).err


# On a node the defaults are the node's: the running kubelet's configuration, state and machine.


POD_KUBELET = """\
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
    arguments = ["kubelet", f"--config=/{CONFIG_KUBELET}", "--config-dir", "/etc/kubelet.d", f"--root-dir=/{ROOT_DIR}"]
    for path, text in {
        "proc/11/comm": "kubelet\n",
        "proc/11/cmdline": "\0".join((*arguments, "--topology-manager-policy=best-effort", "")),
        "etc/kubelet.d/10-more.conf": '{"reservedSystemCPUs": "0-1", "cpuManagerPolicyOptions": null}',
        "pod.yaml": POD_KUBELET.format(name="web", cpu=2),
    }.items():
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_text(text)
    monkeypatch.chdir(root)
    monkeypatch.setenv("MOORING_ROOT", str(root))
    return root


@pytest.fixture
def held(root: Path) -> Path:
    """The same with state files: a pod that is not known has CPUs 2 and 3."""
    (root / "running.yaml").write_text(POD_KUBELET.format(name="db", cpu=2))
    saved = ("--state", "none", "--active", "none", "--save-state", str(root / "saved"))
    assert mooring("plan", "-f", "running.yaml", *saved).code == 0
    (root / ROOT_DIR).parent.mkdir(parents=True)
    (root / "saved").rename(root / ROOT_DIR)
    return root


def reserved(answered: Answered) -> str:
    return next(line for line in answered.out.splitlines() if line.startswith("Shared pool")).partition("reserved: ")[2]


@pytest.mark.usefixtures("root")
def test_the_configuration_is_that_of_the_command_line() -> None:
    answered = mooring("plan", "-f", "pod.yaml", code=0)
    # A drop-in wins over the file, and a flag over both.
    assert "topology manager best-effort" in answered.out
    assert reserved(answered).startswith("0-1;")
    assert f"{NOTE}configuration (/{CONFIG_KUBELET} and flags); --node none leaves it out" in answered.err
    assert f"warning[MOOR-581]: {Path.cwd()}: the node lacks state files, so running pods" in answered.err


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


def test_a_command_that_is_printed_keeps_what_is_left_out(root: Path) -> None:
    (root / "pod.yaml").write_text(POD_KUBELET.format(name="web", cpu=20))
    answered = mooring("explain", "-f", "pod.yaml", "--state", "none", "--active", "none")
    assert "--active none --state none" in answered.out.replace(" \\\n    ", " ")


def test_a_kubelet_whose_file_is_gone_is_said(root: Path) -> None:
    (root / CONFIG_KUBELET).unlink()
    answered = mooring("plan", "-f", "pod.yaml")
    assert f"the node has no configuration of the kubelet: /{CONFIG_KUBELET} is not there" in answered.err


def test_the_process_of_a_kubelet_is_read_as_the_kernel_shows_it(root: Path) -> None:
    program = root / "kubelet"
    program.write_text("#!/bin/sh\nread -r line\n")
    program.chmod(0o755)
    words = [f"--config=/{CONFIG_KUBELET}", "--reserved-cpus", "0-3", "--v=2"]
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
