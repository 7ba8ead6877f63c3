"""A node of the cluster, as ``--node NAME`` or as that of a pod: published, collected by a pod, kept, or given.

A program in the place of kubectl answers from files: what a kubectl that fails does cannot be asked of a real one.
"""

from __future__ import annotations

import ast
import io
import json
import os
import shutil
import signal
import subprocess
import sys
import tarfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from tests.cli.command import EXAMPLES, NODE, Answered, mooring
from tests.cli.made_up_node import kubelet_pods, make_root, write_pods
from tests.values import cases

from mooring.inputs.machines.archive import MOST_BYTES

KUBECTL = """#!{python} -IS
import os, sys  # no more for most questions: a test asks it often
def path(name):
    return os.path.join({folder!r}, name)
def read(name, default=""):
    return open(path(name)).read() if os.path.exists(path(name)) else default
words = [word for word in sys.argv[1:] if not word.startswith("--request-timeout")]
with open(path("asked"), "a") as file:
    print(words, file=file)
text = " ".join(words)
for line in read("forbidden").splitlines():
    if text.startswith(line):
        sys.exit(f'Error from server (Forbidden): User "jane" cannot {{line}}')
if words[0] == "create":
    with open(path("created.json"), "w") as file:
        file.write(sys.stdin.read())
elif words[0] == "wait" and read("waits"):
    import signal
    os.kill(os.getppid(), int(read("waits")))
    signal.pause()  # until the command ends it
elif words[0] == "wait" and read("never-ready"):
    sys.exit("error: timed out waiting for the condition on pods/x")
elif words[0] == "exec":
    import subprocess
    if os.path.exists(path("broken")):
        sys.exit("error: executable file not found")
    if read("packed"):
        os.execvp("sh", ["sh", "-c", read("packed")])
    script = sys.stdin.read().replace("host=/host", "host=" + path("root"))
    os.makedirs(path("tmp"), exist_ok=True)
    environment = {{**os.environ, "TMPDIR": path("tmp")}}
    sys.exit(subprocess.run([*read("shell", "sh").split(), "-s"], input=script.encode(), env=environment).returncode)
elif words[0] == "get" and any(word.startswith("jsonpath") for word in words):
    print(read("never-ready"))
elif words[0] == "get":
    named = [word for word in words[1:] if not word.startswith("-") and "/" not in word]
    name = "-".join(named) or "configz-json"
    if "--namespace=shop" in words and words[1] == "pods":
        name = "pods-of-shop-json"
    if not os.path.exists(path(name)):
        sys.exit(f"Error from server (NotFound): {{words[1]}} not found")
    print(read(name))
"""
"""Answers ``get KIND NAME -o json`` from the file KIND-NAME-json, and runs what a pod would run."""


@dataclass(frozen=True)
class FakeCluster:
    folder: Path

    def has(self, name: str, document: object) -> None:
        (self.folder / f"{name}-json").write_text(json.dumps(document))

    @property
    def asked(self) -> list[list[str]]:
        return [ast.literal_eval(line) for line in (self.folder / "asked").read_text().splitlines()]


def node_object(boot: str = "boot-1", version: str = "v1.37.2") -> dict[str, Any]:
    about = {"kubeletVersion": version, "bootID": boot}
    return {"metadata": {"name": "edge-7", "uid": "uid-of-edge-7"}, "status": {"nodeInfo": about}}


@pytest.fixture
def cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FakeCluster:
    program = tmp_path / "bin/kubectl"
    program.parent.mkdir()
    program.write_text(KUBECTL.format(python=sys.executable, folder=str(tmp_path)))
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{program.parent}:/usr/bin:/bin")
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "kubeconfig"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("MOORING_ROOT", "none")
    found = FakeCluster(tmp_path)
    found.has("node-edge-7", node_object())
    found.has("pods", {"apiVersion": "v1", "kind": "List", "items": []})
    return found


def published(cluster: FakeCluster) -> None:
    """Publish the example's node with two pods, as `mooring publish` does."""
    pods = {"apiVersion": "v1", "kind": "PodList", "items": [pod("one"), pod("two")]}
    cluster.has("pods", pods)
    name = ("--node-name", "edge-7")
    answered = mooring(
        "publish", "--dry-run", "-o", "json", *name, *NODE, "--active", cluster.folder / "pods-json", code=0
    )
    for document in answered.document["items"]:
        plural = {"NodeFacts": "nodefacts", "NodeState": "nodestates"}.get(document["kind"])
        if plural:
            cluster.has(f"{plural}.mooring.dev-{document['metadata']['name']}", document)


def pod(name: str, cpus: int = 4) -> dict[str, Any]:
    limits = {"cpu": str(cpus), "memory": "1Gi"}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": "shop", "uid": f"uid-{name}"},
        "spec": {"nodeName": "edge-7", "containers": [{"name": "c", "resources": {"limits": limits}}]},
        "status": {"phase": "Running"},
    }


@pytest.mark.parametrize("form", ["text", "json", "machineinfo", "resources"])
def test_the_topology_of_a_node_of_the_cluster_is_that_which_it_published(form: str, cluster: FakeCluster) -> None:
    published(cluster)
    told = mooring("topology", "--node", "edge-7", "-o", form)
    of_archive = mooring("topology", "--node", EXAMPLES / "node", "-o", form)
    assert (told.code, of_archive.code) == (0, 0), told
    figures = {"text": "CPUs online", "json": '"cpus"', "machineinfo": '"num_cores"', "resources": "cpu"}[form]
    assert figures in told.out
    assert figures in of_archive.out


@pytest.mark.usefixtures("cluster")
def test_the_topology_of_a_node_without_a_word_names_what_to_add() -> None:
    told = mooring("topology", "--node", "edge-7", code=2)
    assert "add --debug-image IMAGE to collect it in a pod" in told.complaint
    assert mooring("topology", "--node", "edge-9").code == 2


def test_a_published_node_is_drawn_as_its_publisher_sees_it(cluster: FakeCluster) -> None:
    published(cluster)
    drawn = mooring("show", "--node", "edge-7", "-o", "svg", code=0)
    assert "node edge-7 of the cluster: machine (published), configuration (published)" in drawn.err
    assert "shop/one" in drawn.out
    assert not any(words[0] in ("create", "exec") for words in cluster.asked)


def test_pods_are_planned_on_what_the_published_node_has_left(cluster: FakeCluster) -> None:
    published(cluster)
    new = cluster.folder / "new.json"
    new.write_text(json.dumps(pod("new", 8)))
    answered = mooring("plan", "--node", "edge-7", "-f", new, "-o", "json").document
    beside = mooring("plan", *NODE, "--active", cluster.folder / "pods-json", "-f", new, "-o", "json").document
    assert answered["pods"][-1]["containers"] == beside["pods"][-1]["containers"]
    assert answered["sharedPool"] == beside["sharedPool"]


@pytest.fixture
def unpublished(cluster: FakeCluster) -> FakeCluster:
    make_root(cluster.folder / "root")
    cluster.has("pods", kubelet_pods())
    return cluster


@pytest.mark.long
def test_a_node_of_which_nothing_is_published_is_collected_in_a_pod_that_is_deleted(unpublished: FakeCluster) -> None:
    asked = ("--debug-image", "example/mooring:1", "-f", EXAMPLES / "pods.yaml")
    planned = mooring("plan", "--node", "edge-7", *asked, "-o", "json")
    assert planned.code in (0, 1), planned
    assert len(planned.document["numaNodes"]) == 2
    assert {"shop-0", "shop-1", "shop-2"} <= {pod["name"] for pod in planned.document["pods"]}
    pod = json.loads((unpublished.folder / "created.json").read_text())
    assert pod["spec"]["nodeName"] == "edge-7"
    assert pod["spec"]["containers"][0]["image"] == "example/mooring:1"
    name = pod["metadata"]["name"]
    verbs = [words[0] for words in unpublished.asked if words[0] in ("create", "wait", "exec", "delete")]
    assert verbs == ["create", "wait", "exec", "delete"]
    assert ["delete", "pod", name, "--ignore-not-found", "--wait=false"] in unpublished.asked


def test_a_pod_that_collects_nothing_is_deleted_too(unpublished: FakeCluster) -> None:
    (unpublished.folder / "broken").touch()
    answered = mooring("show", "--node", "edge-7", "--debug-image", "example/none", code=2)
    assert answered.complaint == (
        "mooring: edge-7: --node: cannot be collected in a pod of example/none: error: executable file not found; name "
        "another image with --debug-image, or collect it with mooring collect"
    )
    assert unpublished.asked[-1][0] == "delete"


def test_no_pod_is_started_when_the_person_cannot_be_asked(unpublished: FakeCluster) -> None:
    answered = mooring("show", "--node", "edge-7", code=2)
    assert "nothing is published" in answered.complaint
    assert "--debug-image IMAGE" in answered.complaint
    assert not any(words[0] == "create" for words in unpublished.asked)


@pytest.mark.usefixtures("cluster")
def test_what_is_neither_a_file_nor_a_node_is_refused() -> None:
    answered = mooring("show", "--node", "edge-8", code=2)
    assert answered.complaint.startswith("mooring: edge-8: --node: is neither a file nor a node: ")


def test_a_missing_archive_is_not_looked_for_in_the_cluster(cluster: FakeCluster) -> None:
    mooring("show", "--node", "edge-8.tar.gz", code=2)
    assert not (cluster.folder / "asked").exists()


# A pod is named, and nothing else.

REJECTED = {
    "phase": "Failed",
    "reason": "TopologyAffinityError",
    "message": "Pod was rejected: Resources cannot be allocated with Topology locality",
}
CONFIGZ = {
    "kubeletconfig": {
        "apiVersion": "kubelet.config.k8s.io/v1beta1",
        "kind": "KubeletConfiguration",
        "cpuManagerPolicy": "static",
        "topologyManagerPolicy": "single-numa-node",
        "reservedSystemCPUs": "0",
    }
}
MACHINE = ("--machine", "sockets=2 cores=8 memory=64Gi")
FORBIDDEN = 'Error from server (Forbidden): User "jane" cannot '


@pytest.fixture
def rejected(unpublished: FakeCluster) -> FakeCluster:
    """A node of two NUMA nodes with eight CPUs, a pod that has four of them, and one of ten CPUs that was rejected."""
    trainer = pod("trainer", 10) | {"status": REJECTED}
    web = pod("web", 4)
    items = {"apiVersion": "v1", "kind": "List", "items": [web, trainer]}
    unpublished.has("pods", items)
    unpublished.has("pods-of-shop", items)
    unpublished.has("pod-trainer", trainer)
    unpublished.has("configz", CONFIGZ)
    return unpublished


def explained(*options: str | Path) -> Answered:
    return mooring("explain", "shop/trainer", *options)


def verbs(cluster: FakeCluster) -> list[str]:
    """Return what was done about the pod that collects."""
    return [words[0] for words in cluster.asked if words[0] in ("create", "wait", "exec", "delete")]


def test_a_rejected_pod_is_explained_by_what_the_cluster_tells_of_its_node(rejected: FakeCluster) -> None:
    answered = explained("--debug-image", "example/busybox", "-o", "json")
    assert (answered.code, answered.document["reason"]) == (1, "TopologyAffinityError"), answered
    assert answered.document["remarks"] == []
    assert "MOOR-585" in answered.err
    assert "configuration (/configz)" in answered.err
    assert verbs(rejected) == ["create", "wait", "exec", "delete"]


def test_a_machine_beside_the_name_makes_the_pod_on_the_node_unnecessary(rejected: FakeCluster) -> None:
    answered = explained(*MACHINE)
    assert (answered.code, "shop/trainer is rejected: TopologyAffinityError" in answered.out) == (1, True), answered
    assert verbs(rejected) == []
    assert "lacks state files, so running pods are placed again: only a pod on the node reads them" in answered.err


def test_a_configuration_beside_the_name_replaces_what_the_kubelet_says(rejected: FakeCluster) -> None:
    answered = explained(*MACHINE, "--config", EXAMPLES / "kubelet.yaml", "-o", "json")
    assert answered.code in (0, 1), answered
    assert ["get", "--raw", "/api/v1/nodes/edge-7/proxy/configz"] not in rejected.asked
    assert "/configz" not in answered.err


@pytest.mark.parametrize(
    ("status", "spec", "named", "name"), cases(__file__, "waiting-pods.yaml", "status", "spec", "named", "name")
)
def test_a_waiting_pod_is_asked_about_on_its_node(
    rejected: FakeCluster, status: dict[str, Any], spec: dict[str, Any], named: bool, name: str
) -> None:
    waiting = pod("waiting", 10) | {"status": status}
    del waiting["spec"]["nodeName"]
    waiting["spec"] |= spec
    rejected.has("pod-waiting", waiting)
    answered = mooring("explain", "shop/waiting", *MACHINE)
    if named:
        assert (answered.code, "shop/waiting is rejected" in answered.out) == (1, True), (name, answered)
    else:
        problem = "waits and names no node; name the node to ask about with --node"
        assert answered.complaint == f"mooring: shop/waiting: {problem}"
        answered = mooring("explain", "shop/waiting", "--node", "edge-7", *MACHINE)
        assert (answered.code, "shop/waiting is rejected" in answered.out) == (1, True), answered


@pytest.mark.usefixtures("rejected")
@pytest.mark.parametrize(
    ("nodes", "named", "events"), cases(__file__, "events-of-waiting-pods.yaml", "nodes", "named", "events")
)
def test_a_node_that_the_events_of_a_waiting_pod_name_is_asked_about(
    rejected: FakeCluster, events: list[str], nodes: list[str] | None, named: bool
) -> None:
    waiting = pod("waiting", 10) | {"status": {"phase": "Pending"}}
    del waiting["spec"]["nodeName"]
    rejected.has("pod-waiting", waiting)
    times = [f"2026-11-29T10:00:{59 - number}Z" for number in range(len(events))]
    listed = [{"message": text, "lastTimestamp": at} for text, at in zip(events, times, strict=True)]
    rejected.has("events", {"kind": "List", "items": listed[::-1]})
    if nodes is not None:
        rejected.has("nodes", {"kind": "List", "items": [{"metadata": {"name": name}} for name in nodes]})
    answered = mooring("explain", "shop/waiting", *MACHINE)
    if named:
        assert (answered.code, "shop/waiting is rejected" in answered.out) == (1, True), answered
    else:
        assert f"waits and names no node: {events[0]}" in answered.complaint
        assert answered.code == 2


@pytest.mark.parametrize("name", ["shop/none", "shop/--all", "a/../b"])
def test_a_pod_that_the_cluster_does_not_have_is_named(name: str) -> None:
    answered = mooring("explain", name, code=2)
    assert answered.complaint.startswith(f"mooring: {name}: cannot be read from the cluster: ")
    assert "write NAMESPACE/POD as kubectl get pods -A lists it" in answered.complaint


@pytest.mark.parametrize(("line", "right"), cases(__file__, "missing-rights.yaml", "says", "right"))
def test_a_right_that_lacks_is_one_line_with_what_is_assumed(rejected: FakeCluster, right: str, line: str) -> None:
    (rejected.folder / "forbidden").write_text(right)
    answered = explained(*MACHINE)
    assert answered.code == 1, answered
    told = [one for one in answered.err.splitlines() if FORBIDDEN in one]
    expected = f"warning[MOOR-581]: node edge-7: the node {line}{FORBIDDEN}{right}"
    assert told == ([expected.rstrip()] if line else []), answered.err


def test_without_configz_the_configuration_is_what_the_pod_on_the_node_finds(rejected: FakeCluster) -> None:
    (rejected.folder / "forbidden").write_text("get --raw")
    answered = explained("--debug-image", "busybox")
    assert answered.code == 1, answered
    assert "configuration (/etc/kubernetes/kubelet.yaml and flags)" in answered.err
    assert FORBIDDEN not in answered.err


@pytest.mark.parametrize("right", ["get pod ", "create", "exec"])
def test_a_right_without_which_there_is_no_answer_is_named(rejected: FakeCluster, right: str) -> None:
    (rejected.folder / "forbidden").write_text(right)
    answered = explained("--debug-image", "busybox")
    assert (answered.code, f"{FORBIDDEN}{right}".rstrip() in answered.complaint) == (2, True), answered


# What the pod on the node packs.


def test_a_node_that_was_collected_is_kept_until_it_starts_again_or_is_collected_again(rejected: FakeCluster) -> None:
    first = explained("--debug-image", "busybox", "-o", "json")
    [kept] = (rejected.folder / "cache/mooring/nodes").iterdir()
    assert verbs(rejected) == ["create", "wait", "exec", "delete"]

    again = explained("-o", "json")
    assert again.document == first.document
    assert "collected earlier (--debug-image IMAGE collects it again)" in again.err
    assert len(verbs(rejected)) == 4

    assert explained("--debug-image", "busybox").code == 1
    assert len(verbs(rejected)) == 8
    for change in (node_object(boot="boot-2"), node_object(version="v1.37.1")):
        rejected.has("node-edge-7", change)
        assert "nothing is published" in explained().complaint
    assert explained("--debug-image", "busybox").code == 1
    [other] = kept.parent.iterdir()
    assert other != kept


def test_what_was_kept_and_is_damaged_is_collected_again(rejected: FakeCluster) -> None:
    explained("--debug-image", "busybox")
    [kept] = (rejected.folder / "cache/mooring/nodes").iterdir()
    kept.write_bytes(kept.read_bytes()[:-20])
    assert "nothing is published" in explained().complaint


def test_pods_and_secrets_of_the_node_are_not_kept(rejected: FakeCluster) -> None:
    explained("--debug-image", "busybox")
    [kept] = (rejected.folder / "cache/mooring/nodes").iterdir()
    with tarfile.open(kept) as archive:
        names = [name.removeprefix("mooring-node/") for name in archive.getnames()]
        command_line = archive.extractfile("mooring-node/proc/cmdline")
        assert command_line is not None
        assert command_line.read() == b"isolcpus=6-7\n"
    assert "pods.json" not in names
    assert "etc/shadow" not in names


def shells() -> list[list[str]]:
    found = [
        shutil.which("busybox"),
        *map(str, Path.home().glob(".cache/mooring-e2e/debian/*/busybox-static/bin/busybox")),
    ]
    return [["sh"], *([one, "sh"] for one in found[-1:] if one)]


@pytest.mark.parametrize("shell", shells(), ids=lambda words: Path(words[0]).name)
def test_a_pod_with_a_shell_packs_the_machine_that_collect_finds(rejected: FakeCluster, shell: list[str]) -> None:
    (rejected.folder / "shell").write_text(" ".join(shell))
    own = rejected.folder / "own.tar.gz"
    root = str(rejected.folder / "root")
    for name in ("cpu", "memory"):
        state = rejected.folder / f"root/var/lib/kubelet/{name}_manager_state"
        state.parent.mkdir(parents=True, exist_ok=True)
        state.write_text('{"policyName":"none","checksum":1}')
    assert mooring("collect", "--root", root, "--no-kubectl", "--to", own).code == 0
    explained("--debug-image", "busybox")
    [kept] = (rejected.folder / "cache/mooring/nodes").iterdir()
    packed = []
    for archive in (own, kept):
        with tarfile.open(archive) as opened:
            members = {one.name: one for one in opened.getmembers()}
            contents = {
                name: one.linkname if one.issym() else (file.read() if (file := opened.extractfile(one)) else b"")
                for name, one in members.items()
                if not name.endswith(("mooring-node.json", "pods.json", "hwloc-nofile-info", "proc/self/cgroup"))
                and not name.endswith("proc/self")
            }
        packed.append(contents)
    assert packed[0] == packed[1]


@pytest.mark.parametrize(
    ("packs", "problem"),
    [
        ("printf 'no archive'", "no readable tar archive"),
        ("true", "no readable tar archive"),
        ("head -c 200000000 /dev/zero | gzip -c | head -c 1000", "no readable tar archive"),
        ("head -c 70000000 /dev/urandom", "larger than 67108864 bytes"),
        (f"yes | head -c {MOST_BYTES + 1}", f"answers more than {MOST_BYTES} bytes"),
        pytest.param(
            "head -c 600000000 /dev/zero | gzip -1", "unpacks to more than 536870912 bytes", marks=pytest.mark.long
        ),
        ("tar -cz -C /dev null", "has no sys/devices/system/cpu"),
    ],
)
def test_what_is_no_archive_is_refused_and_the_pod_deleted(rejected: FakeCluster, packs: str, problem: str) -> None:
    (rejected.folder / "packed").write_text(packs)
    answered = explained("--debug-image", "busybox")
    assert (answered.code, problem in answered.complaint) == (2, True), answered
    assert verbs(rejected)[-1] == "delete"
    assert not (rejected.folder / "cache").exists()


def test_paths_of_an_archive_that_lead_out_of_it_are_not_followed(rejected: FakeCluster) -> None:
    file = io.BytesIO()
    with tarfile.open(fileobj=file, mode="w:gz") as archive:
        archive.add(rejected.folder / "root", ".")
        for name in ("../../evil", "/evil", "sys/../../evil"):
            entry = tarfile.TarInfo(name)
            entry.size = 4
            archive.addfile(entry, io.BytesIO(b"evil"))
        link = tarfile.TarInfo("var/lib/kubelet/cpu_manager_state")
        link.type, link.linkname = tarfile.SYMTYPE, "../../../../../../../etc/passwd"
        archive.addfile(link)
    (rejected.folder / "packed.tar.gz").write_bytes(file.getvalue())
    (rejected.folder / "packed").write_text(f"cat {rejected.folder}/packed.tar.gz")
    assert explained("--debug-image", "busybox").code == 1
    [kept] = (rejected.folder / "cache/mooring/nodes").iterdir()
    with tarfile.open(kept) as archive:
        assert not [name for name in archive.getnames() if "evil" in name or name.endswith("cpu_manager_state")]


def test_an_image_with_mooring_collects_by_itself(rejected: FakeCluster) -> None:
    program = rejected.folder / "bin/mooring"
    program.write_text(f'#!/bin/sh\nexec {sys.executable} -m mooring "$@"\n')
    program.chmod(0o755)
    assert explained("--debug-image", "mooring:1").code == 1
    [kept] = (rejected.folder / "cache/mooring/nodes").iterdir()
    with tarfile.open(kept) as archive:
        assert "mooring-node/mooring-node.json" in archive.getnames()


def test_a_pod_that_does_not_start_is_deleted_and_its_reason_told(rejected: FakeCluster) -> None:
    (rejected.folder / "never-ready").write_text('{"reason":"ImagePullBackOff"}')
    answered = explained("--debug-image", "example/none")
    assert "cannot be collected in a pod of example/none: error: timed out waiting" in answered.complaint
    assert '{"reason":"ImagePullBackOff"}' in answered.complaint
    assert verbs(rejected) == ["create", "wait", "delete"]


def test_a_pod_that_cannot_be_deleted_is_named_and_the_answer_given(rejected: FakeCluster) -> None:
    (rejected.folder / "forbidden").write_text("delete")
    answered = explained("--debug-image", "busybox")
    assert answered.code == 1, answered
    [told] = [line for line in answered.err.splitlines() if "is not deleted, and ends by itself" in line]
    assert told.startswith("warning[MOOR-585]: pod mooring-collect-")


@pytest.mark.parametrize(("typed", "collects"), [("y", True), ("n", False)])
def test_on_a_terminal_the_person_is_asked_first(rejected: FakeCluster, typed: str, *, collects: bool) -> None:
    terminal, end = os.openpty()
    os.write(terminal, f"{typed}\n".encode())
    words = [sys.executable, "-m", "mooring", "explain", "shop/trainer"]
    ended = subprocess.run(words, stdin=end, capture_output=True, text=True, check=False, timeout=60)
    os.close(terminal)
    os.close(end)
    assert "Nothing is published about edge-7. Read its files in a pod of busybox:stable there" in ended.stderr
    assert ended.returncode == (1 if collects else 2), ended
    assert verbs(rejected) == (["create", "wait", "exec", "delete"] if collects else [])


@pytest.mark.long
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_that_ends_the_program_deletes_the_pod(rejected: FakeCluster, number: signal.Signals) -> None:
    (rejected.folder / "waits").write_text(str(int(number)))
    words = [sys.executable, "-m", "mooring", "explain", "shop/trainer", "--debug-image", "busybox"]
    ended = subprocess.run(words, capture_output=True, check=False, timeout=60)
    assert ended.returncode == 128 + number, ended
    assert verbs(rejected) == ["create", "wait", "delete"]


# A NodeResourceTopology.


def test_a_node_resource_topology_is_the_machine_where_nothing_else_is(rejected: FakeCluster) -> None:
    zones = [
        {
            "name": f"node-{node}",
            "type": "Node",
            "resources": [
                {"name": "cpu", "capacity": "8", "allocatable": "8", "available": "8"},
                {"name": "memory", "capacity": "32Gi", "allocatable": "32Gi", "available": "32Gi"},
            ],
        }
        for node in range(2)
    ]
    topology = {"apiVersion": "topology.node.k8s.io/v1alpha2", "kind": "NodeResourceTopology", "zones": zones}
    rejected.has("noderesourcetopologies.topology.node.k8s.io-edge-7", topology | {"metadata": {"name": "edge-7"}})
    answered = explained()
    assert (answered.code, "shop/trainer is rejected: TopologyAffinityError" in answered.out) == (1, True), answered
    assert "machine (NodeResourceTopology)" in answered.err
    assert verbs(rejected) == []
    assert explained("--debug-image", "busybox").code == 1
    assert verbs(rejected) == ["create", "wait", "exec", "delete"]


# ``kubectl mooring`` is mooring: kubectl finds it, completes it, and usage lines say its name.


SCRIPTS = Path(sys.executable).parent
KUBECTL_PLUGIN = shutil.which("kubectl")
needs_kubectl = pytest.mark.skipif(KUBECTL_PLUGIN is None, reason="kubectl is not installed")
needs_plugin = pytest.mark.skipif(
    not (SCRIPTS / "kubectl-mooring").exists(), reason="mooring was installed before it was a plugin: install it again"
)


def kubectl(*arguments: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PATH": f"{SCRIPTS}{os.pathsep}{os.environ['PATH']}", "NO_COLOR": "1"}
    return subprocess.run(
        [str(KUBECTL_PLUGIN), *arguments], capture_output=True, text=True, check=False, env=environment, timeout=60
    )


@needs_kubectl
@needs_plugin
def test_kubectl_runs_the_verbs_and_returns_their_exit_codes() -> None:
    shown = kubectl("mooring", "topology", "--machine", "small-1s8")
    assert (shown.returncode, shown.stderr) == (0, "")
    assert shown.stdout == mooring("topology", "--machine", "small-1s8", columns=80).out
    assert kubectl("mooring", "topology", "--machine", "no-such-machine").returncode == 2


@needs_kubectl
@needs_plugin
def test_usage_lines_say_how_it_was_called() -> None:
    assert kubectl("mooring", "plan", "--help").stdout.startswith("Usage: kubectl mooring plan [OPTIONS]")
    assert "see kubectl mooring plan --help" in kubectl("mooring", "plan").stderr
    assert kubectl("mooring", "--version").stdout.startswith("kubectl mooring ")


@needs_kubectl
@needs_plugin
def test_kubectl_completes_the_plugin() -> None:
    told = kubectl("__complete", "mooring", "topology", "--machine", "grace-1").stdout.splitlines()
    assert told[0].startswith("grace-1s\t")
    assert told[1] == ":4"


# What ``mooring collect`` asks the cluster about its own node.


def collected(cluster: FakeCluster, *more: str | Path) -> tuple[Answered, dict[str, dict[str, Any]]]:
    """Collect the node; return the answer and the archive's parts by name."""
    answered = mooring("collect", "--root", cluster.folder / "root", "--dry-run", "-o", "json", *more, code=0)
    return answered, {part["name"]: part for part in answered.document["parts"]}


def test_a_cluster_tells_pods_configuration_and_version(unpublished: FakeCluster) -> None:
    unpublished.has("node-edge-7", node_object(version="v1.36.3"))
    unpublished.has("configz", CONFIGZ)
    answered, parts = collected(unpublished)
    assert (answered.document["node"], answered.document["kubelet"], answered.err) == ("edge-7", "v1.36.3", "")
    assert (parts["pods"]["origin"], parts["configuration"]["origin"]) == ("kubectl", "/configz")
    given = write_pods(unpublished.folder / "given.json", kubelet_pods())
    answered, parts = collected(unpublished, "--pods", given)
    assert (answered.document["kubelet"], answered.err, parts["pods"]["origin"]) == ("v1.36.3", "", "--pods")


def test_a_cluster_that_is_silent_is_a_warning_whose_words_stay_here(unpublished: FakeCluster) -> None:
    (unpublished.folder / "forbidden").write_text("get")
    answered, parts = collected(unpublished)
    assert f"warning: kubectl: {FORBIDDEN}get" in answered.err
    assert FORBIDDEN not in answered.out
    assert parts["pods"]["missing"] == "kubectl did not answer"


def test_an_answer_that_is_not_json_is_none(unpublished: FakeCluster) -> None:
    (unpublished.folder / "pods-json").write_text("nonsense")
    assert "warning: kubectl: the answer is not JSON" in collected(unpublished)[0].err


@pytest.mark.parametrize("name", ["--kubeconfig=/x", "a b", "A" * 300])
def test_what_is_no_name_of_a_node_is_not_asked_about(unpublished: FakeCluster, name: str) -> None:
    (unpublished.folder / "root/etc/hostname").write_text(name)
    _, parts = collected(unpublished)
    assert parts["pods"]["missing"].startswith("the node's name is unknown")


def test_the_kubelets_access_is_the_last_one(unpublished: FakeCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    access = unpublished.folder / "kubelet.conf"
    access.touch()
    monkeypatch.setattr("mooring.answers.base.inputs.cluster_node.KUBELET_KUBECONFIG", access)
    monkeypatch.setenv("HOME", str(unpublished.folder))
    for own in ("/own", ""):
        monkeypatch.setenv("KUBECONFIG", own)
        (unpublished.folder / "asked").unlink(missing_ok=True)
        collected(unpublished)
        assert {f"--kubeconfig={access}" in words for words in unpublished.asked} == {not own}
