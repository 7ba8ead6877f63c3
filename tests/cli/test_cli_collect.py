"""An archive holds what a question about a node needs, nothing secret, and always the same bytes."""

from __future__ import annotations

import gzip
import json
import os
import shutil
import tarfile
from pathlib import Path
from typing import Any

import pytest
from tests.cli.command import EXAMPLES, Answered, mooring
from tests.cli.made_up_node import SECRET, kubelet_pods, make_root, write_pods

from mooring.engine.core.cpuset import CPUSet
from mooring.inputs.machines.isolation import read_isolation
from mooring.inputs.machines.tree import FolderTree, open_tree

NEW_PODS = """
apiVersion: v1
kind: Pod
metadata: {name: new}
spec:
  containers:
  - name: c
    resources: {limits: {cpu: 3, memory: 1Gi}}
"""


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return make_root(tmp_path / "root")


@pytest.fixture
def pods(tmp_path: Path) -> Path:
    return write_pods(tmp_path / "pods.json", kubelet_pods())


@pytest.fixture
def with_state(root: Path, pods: Path) -> Path:
    """Let the node run the pods, so that it has state files."""
    config = root / "etc/kubernetes/kubelet.yaml"
    saved = root / "var/lib/kubelet"
    answered = mooring("plan", "-f", pods, "--machine", root, "--config", config, "--save-state", saved)
    assert answered.code == 0, answered
    return root


def collected(root: Path, to: Path, *more: str | Path) -> Answered:
    answered = mooring("collect", "--root", root, "--no-kubectl", "--to", to, *more)
    assert answered.code == 0, answered
    return answered


def about(archive: Path) -> Any:
    return json.loads(content(archive)["mooring-node/mooring-node.json"])


def content(archive: Path) -> dict[str, bytes]:
    with tarfile.open(archive) as tar:
        return {member.name: tar.extractfile(member).read() for member in tar if member.isreg()}  # type: ignore[union-attr]


def parts(archive: Path) -> dict[str, Any]:
    return {part["name"]: part for part in about(archive)["parts"]}


def test_nothing_secret_gets_into_the_archive(with_state: Path, pods: Path, tmp_path: Path) -> None:
    archive = tmp_path / "node.tar.gz"
    collected(with_state, archive, "--pods", pods)
    assert SECRET.encode() not in gzip.decompress(archive.read_bytes())
    assert str(tmp_path).encode() not in gzip.decompress(archive.read_bytes())


@pytest.fixture(autouse=True)
def _at_one_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """Collect at the time of the example."""
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "1789371000")


def unnamed(document: dict[str, Any]) -> dict[str, Any]:
    """Return a document without the name of its machine, which is that of the archive's node."""
    return {**document, "name": "", "machine": ""}


def test_the_plan_from_the_archive_is_the_plan_from_the_parts(with_state: Path, pods: Path, tmp_path: Path) -> None:
    archive, new = tmp_path / "root.tar.gz", tmp_path / "new.yaml"
    new.write_text(NEW_PODS, encoding="utf-8")
    collected(with_state, archive, "--pods", pods, "--config", with_state / "etc/kubernetes/kubelet.yaml")
    asked = ("plan", "-f", new, "-o", "json")
    state, config = with_state / "var/lib/kubelet", with_state / "etc/kubernetes/kubelet.yaml"
    # The pods in the order in which they were started, which kubectl does not keep.
    ordered = write_pods(tmp_path / "ordered.json", {"kind": "List", "items": kubelet_pods()["items"][::-1]})
    whole = mooring(*asked, "--node", archive).document
    apart = mooring(*asked, "--machine", archive, "--state", state, "--config", config, "--active", ordered).document
    # A finding names the file in which the misspelt field stands.
    named = [finding["message"] for finding in whole["findings"] if finding["code"] != "MOOR-583"]
    assert [message.partition(": ")[2].replace("kubelet/config.json: ", "") for message in named] == [
        finding["message"].partition(": ")[2] for finding in apart["findings"]
    ]
    assert unnamed({**whole, "findings": []}) == unnamed({**apart, "findings": []})
    assert [pod["name"] for pod in whole["pods"]] == ["shop-2", "shop-1", "shop-0", "new"]


def test_the_machine_is_the_same_one(root: Path, tmp_path: Path) -> None:
    archive = tmp_path / "root.tar.gz"
    collected(root, archive)
    packed = mooring("topology", "--node", archive, "-o", "json").document
    assert unnamed(packed) == unnamed(mooring("topology", "--machine", root, "-o", "json").document)
    assert mooring("topology", "--node", archive, "-o", "machineinfo").code == 0


def test_who_else_may_run_is_told_the_same(root: Path, tmp_path: Path) -> None:
    archive, online = tmp_path / "node.tar.gz", CPUSet.parse("0-15")
    collected(root, archive)
    facts = read_isolation(open_tree(archive), online)
    assert facts == read_isolation(FolderTree(str(root)), online)
    assert facts.balance is not None
    assert facts.balance.running


def test_the_same_node_gives_the_same_bytes(with_state: Path, pods: Path, tmp_path: Path) -> None:
    first, second = tmp_path / "first.tar.gz", tmp_path / "second.tar.gz"
    collected(with_state, first, "--pods", pods)
    for path in with_state.rglob("*"):
        if not path.is_symlink():
            os.utime(path, (1, 1))
    collected(with_state, second, "--pods", pods)
    assert first.read_bytes() == second.read_bytes()
    with tarfile.open(first) as tar:
        members = tar.getmembers()
    assert {(member.mtime, member.uid, member.gid, member.uname, member.gname) for member in members} == {
        (0, 0, 0, "", "")
    }
    assert [member.name for member in members] == sorted(member.name for member in members)


def test_flags_of_the_running_kubelet_win_over_its_file(root: Path, tmp_path: Path) -> None:
    archive = tmp_path / "node.tar.gz"
    collected(root, archive)
    config = json.loads(content(archive)["mooring-node/kubelet/config.json"])
    assert (config["maxPods"], config["cpuManagerPolicy"]) == (250, "static")
    assert parts(archive)["configuration"]["origin"] == "/etc/kubernetes/kubelet.yaml and flags"


def test_a_misspelt_field_keeps_its_name_and_loses_its_value(root: Path, tmp_path: Path) -> None:
    archive = tmp_path / "node.tar.gz"
    with (root / "etc/kubernetes/kubelet.yaml").open("a", encoding="utf-8") as config:
        config.write('cpuManagerPolcyOptions: {full-pcpus-only: "true"}\n')
    collected(root, archive)
    assert json.loads(content(archive)["mooring-node/kubelet/config.json"])["cpuManagerPolcyOptions"] is None
    assert "cpuManagerPolicyOptions" in mooring("plan", "-f", EXAMPLES / "pods.yaml", "--node", archive).err


def test_anonymous_archives_name_no_pod_no_namespace_no_node_no_service(
    with_state: Path, pods: Path, tmp_path: Path
) -> None:
    archive = tmp_path / "node.tar.gz"
    collected(with_state, archive, "--pods", pods, "--anonymous")
    unpacked = gzip.decompress(archive.read_bytes()).lower()
    for name in (b"shop", b"customer", b"edge-7", b"billing"):
        assert name not in unpacked
    items = json.loads(content(archive)["mooring-node/pods.json"])["items"]
    assert [pod["metadata"]["name"] for pod in items] == ["pod-3", "pod-2", "pod-1"]
    assert mooring("plan", "-f", EXAMPLES / "pods.yaml", "--node", archive).code in (0, 1)


def test_a_dry_run_writes_nothing(root: Path, tmp_path: Path) -> None:
    before = sorted(tmp_path.rglob("*"))
    answered = mooring("collect", "--root", root, "--no-kubectl", "--dry-run")
    assert (answered.code, sorted(tmp_path.rglob("*"))) == (0, before)
    assert "machine" in answered.out
    document = mooring("collect", "--root", root, "--no-kubectl", "--dry-run", "-o", "json").document
    assert (document["kind"], document["node"]) == ("NodeArchive", "edge-7")


def test_an_archive_can_go_to_standard_output_with_the_summary_aside(root: Path) -> None:
    answered = mooring("collect", "--root", root, "--no-kubectl", "--to", "-", encoding="latin-1")
    assert answered.out.encode("latin-1").startswith(b"\x1f\x8b")
    assert "machine" in answered.err


def test_what_is_missing_is_reported_with_its_reason(root: Path, tmp_path: Path) -> None:
    archive = tmp_path / "node.tar.gz"
    collected(root, archive)
    found = parts(archive)
    assert found["pods"]["missing"] == "the cluster was not asked"
    assert found["state files"]["missing"] == "none could be read in /var/lib/kubelet"
    answered = mooring("plan", "-f", EXAMPLES / "pods.yaml", "--node", archive, "-o", "json")
    assert answered.document["pods"]


@pytest.mark.skipif(os.geteuid() == 0, reason="root reads everything")
def test_a_file_that_may_not_be_read_is_a_warning_and_the_rest_is_packed(root: Path, tmp_path: Path) -> None:
    (root / "proc/meminfo").chmod(0)
    answered = collected(root, tmp_path / "node.tar.gz")
    assert "/proc/meminfo: is not packed: permission denied" in answered.err


def test_a_file_that_is_too_large_is_a_warning_and_the_rest_is_packed(with_state: Path, tmp_path: Path) -> None:
    archive, state = tmp_path / "node.tar.gz", with_state / "var/lib/kubelet/cpu_manager_state"
    with state.open("r+b") as file:
        file.truncate(9 * 2**20)
    answered = collected(with_state, archive)
    assert "var/lib/kubelet/cpu_manager_state: is not packed: larger than" in answered.err
    assert "mooring-node/kubelet/memory_manager_state" in content(archive)
    assert parts(archive)["state files"]["missing"] == "no cpu_manager_state"


def test_damaged_state_files_are_packed_byte_for_byte(root: Path, tmp_path: Path) -> None:
    archive, damaged = tmp_path / "node.tar.gz", b'{"policyName":"static\xff\xfe'
    (root / "var/lib/kubelet").mkdir(parents=True)
    (root / "var/lib/kubelet/cpu_manager_state").write_bytes(damaged)
    collected(root, archive)
    assert content(archive)["mooring-node/kubelet/cpu_manager_state"] == damaged
    new = ("plan", "-f", EXAMPLES / "pods.yaml", "--config", root / "etc/kubernetes/kubelet.yaml", "-o", "json")
    apart = mooring(*new, "--machine", root, "--state", root / "var/lib/kubelet").document
    assert mooring(*new, "--node", archive).document["startError"] == apart["startError"]


def test_absolute_links_below_another_root_are_meant_below_it(root: Path, tmp_path: Path) -> None:
    archive = tmp_path / "node.tar.gz"
    (root / "mnt/disk").mkdir(parents=True)
    (root / "mnt/disk/cpu_manager_state").write_text("{}", encoding="utf-8")
    (root / "var/lib").mkdir(parents=True)
    (root / "var/lib/kubelet").symlink_to("/mnt/disk")
    (root / "mnt/disk/memory_manager_state").symlink_to(tmp_path / "outside")
    (tmp_path / "outside").write_text(SECRET, encoding="utf-8")
    collected(root, archive)
    assert content(archive)["mooring-node/kubelet/cpu_manager_state"] == b"{}"
    assert SECRET.encode() not in gzip.decompress(archive.read_bytes())


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        ((), "--to: is missing"),
        (("--to", "no-such-folder/node.tar.gz"), "no such directory"),
        (("--to", "{tmp}/node.tar.gz", "--root", "{tmp}/nothing"), "cannot be opened"),
        (("--to", "{tmp}/node.tar.gz", "--root", "{tmp}"), "--root: has no sys/devices/system/cpu"),
        (("--to", "{tmp}/node.tar.gz", "--pods", "{tmp}/no-pods.json"), "cannot be read"),
        (("--to", "{tmp}/node.tar.gz", "--config", "-", "--pods", "-"), "can be read only once"),
    ],
)
def test_bad_input_is_one_line_and_no_archive(tmp_path: Path, arguments: tuple[str, ...], complaint: str) -> None:
    answered = mooring("collect", "--no-kubectl", *(argument.replace("{tmp}", str(tmp_path)) for argument in arguments))
    assert answered.code == 2
    assert complaint in answered.complaint
    assert list(tmp_path.iterdir()) == []


def test_documents_of_mooring_are_kept_whole(root: Path, tmp_path: Path) -> None:
    archive, extra = tmp_path / "node.tar.gz", tmp_path / "devices.yaml"
    devices = {"kind": "NodeDevices", "devices": {"nvidia.com/gpu": {"pci": {"class": "0302", "vendor": "10de"}}}}
    extra.write_text(json.dumps(devices), encoding="utf-8")
    config = root / "etc/kubernetes/kubelet.yaml"
    collected(root, archive, "--config", config, "--config", extra)
    assert json.loads(content(archive)["mooring-node/mooring/devices.json"]) == devices
    new = tmp_path / "new.json"
    pod = {"kind": "Pod", "metadata": {"name": "g"}, "spec": {"containers": [{"name": "c"}]}}
    pod["spec"]["containers"][0]["resources"] = {"limits": {"nvidia.com/gpu": 1}}  # type: ignore[index]
    new.write_text(json.dumps(pod), encoding="utf-8")
    answered = mooring("plan", "-f", new, "--node", archive, "-o", "json")
    assert answered.document["pods"][0]["devices"], answered


@pytest.mark.skipif(not Path("/sys/devices/system/cpu/online").exists(), reason="this computer has no sysfs to collect")
def test_this_computer_can_be_collected(tmp_path: Path) -> None:
    archive = tmp_path / "live.tar.gz"
    collected(Path("/"), archive)

    def without_memory(document: Any) -> Any:
        # A virtual machine's memory may change at any moment.
        nodes = [{**node, "memoryBytes": 0, "hugepages": []} for node in document["numaNodes"]]
        return unnamed({**document, "numaNodes": nodes})

    packed = mooring("topology", "--node", archive, "-o", "json").document
    live = mooring("topology", "-o", "json").document
    assert without_memory(packed) == without_memory(live)


@pytest.mark.parametrize("version", ["banana", "2.0", "1.x"])
def test_what_is_no_version_is_not_packed(root: Path, tmp_path: Path, version: str) -> None:
    to = tmp_path / "node.tar.gz"
    answered = mooring("collect", "--root", root, "--no-kubectl", "--to", to, "--kubelet-version", version)
    assert (answered.code, answered.out, to.exists()) == (2, "", False)
    problem = f"--kubelet-version: '{version}' is not a kubelet version"
    assert answered.complaint == f"mooring: {problem}; write v1.34.4 or 1.34; known are 1.31 to 1.38"


def test_the_example_is_the_made_up_node(with_state: Path, pods: Path, tmp_path: Path) -> None:
    """Write it anew with MOORING_GOLDEN=write, and look at what changed."""
    archive, example = tmp_path / "node.tar.gz", EXAMPLES / "node"
    collected(with_state, archive, "--pods", pods, "--kubelet-version", "v1.37.1")
    with tarfile.open(archive) as packed:
        packed.extractall(tmp_path, filter="data")
    if os.environ.get("MOORING_GOLDEN") == "write":
        shutil.rmtree(example)
        shutil.copytree(tmp_path / "mooring-node", example, symlinks=True)
    here, there = unpacked(tmp_path / "mooring-node"), unpacked(example)
    for files in (here, there):
        files["mooring-node.json"] = json.dumps({**json.loads(files["mooring-node.json"]), "mooring": ""})
    assert here == there


def unpacked(folder: Path) -> dict[str, str]:
    """Return the files of a folder and the targets of its links, by path."""
    return {
        str(path.relative_to(folder)): f"-> {path.readlink()}" if path.is_symlink() else path.read_text("utf-8")
        for path in folder.rglob("*")
        if path.is_symlink() or path.is_file()
    }
