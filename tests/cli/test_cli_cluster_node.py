"""``--node NAME``: a node of the cluster, as it is published or as a pod collects it. A program in the place of kubectl
answers from files: what a kubectl that fails does cannot be asked of a real one."""

from __future__ import annotations

import json
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest
from tests.cli.command import EXAMPLES, NODE, mooring
from tests.cli.made_up_node import kubelet_pods, make_root

KUBECTL = """#!{python}
import json, pathlib, subprocess, sys
folder = pathlib.Path({folder!r})
words = [word for word in sys.argv[1:] if not word.startswith("--request-timeout")]
with (folder / "asked").open("a") as file:
    print(json.dumps(words), file=file)
if words[0] == "create":
    (folder / "created.json").write_text(sys.stdin.read())
elif words[0] == "exec":
    if (folder / "broken").exists():
        sys.exit("error: executable file not found")
    command = words[words.index("--") + 1:]
    command[command.index("/host")] = str(folder / "root")
    sys.exit(subprocess.run([{python!r}, "-m", *command]).returncode)
elif words[0] == "get":
    path = folder / ("-".join(word for word in words[1:] if not word.startswith("-") and "/" not in word) or "configz")
    if not path.exists():
        sys.exit(f"Error from server (NotFound): {{words[1]}} not found")
    print(path.read_text())
"""
"""Answers ``get KIND NAME -o json`` from the file KIND-NAME-json, and runs what a pod would run."""


@dataclass(frozen=True)
class FakeCluster:
    folder: Path

    def has(self, name: str, document: object) -> None:
        (self.folder / f"{name}-json").write_text(json.dumps(document))

    @property
    def asked(self) -> list[list[str]]:
        return [json.loads(line) for line in (self.folder / "asked").read_text().splitlines()]


@pytest.fixture
def cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FakeCluster:
    program = tmp_path / "bin/kubectl"
    program.parent.mkdir()
    program.write_text(KUBECTL.format(python=sys.executable, folder=str(tmp_path)))
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{program.parent}:/usr/bin:/bin")
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "kubeconfig"))
    found = FakeCluster(tmp_path)
    found.has("node-edge-7", {"status": {"nodeInfo": {"kubeletVersion": "v1.37.2"}}})
    found.has("pods", {"apiVersion": "v1", "kind": "List", "items": []})
    return found


def published(cluster: FakeCluster) -> None:
    """Publish the example's node with two pods, as `mooring publish` does."""
    pods = {"apiVersion": "v1", "kind": "PodList", "items": [pod("one"), pod("two")]}
    cluster.has("pods", pods)
    name = ("--node-name", "edge-7")
    answered = mooring("publish", "--dry-run", "-o", "json", *name, *NODE, "--active", cluster.folder / "pods-json")
    assert answered.code == 0, answered
    for document in answered.document["items"]:
        plural = {"NodeFacts": "nodefacts", "NodeState": "nodestates"}.get(document["kind"])
        if plural:
            cluster.has(f"{plural}.mooring.dev-{document['metadata']['name']}", document)


def pod(name: str, cpus: int = 4) -> dict[str, object]:
    limits = {"cpu": str(cpus), "memory": "1Gi"}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": "shop", "uid": f"uid-{name}"},
        "spec": {"nodeName": "edge-7", "containers": [{"name": "c", "resources": {"limits": limits}}]},
        "status": {"phase": "Running"},
    }


def test_a_published_node_is_drawn_as_its_publisher_sees_it(cluster: FakeCluster) -> None:
    published(cluster)
    drawn = mooring("show", "--node", "edge-7", "-o", "svg")
    assert drawn.code == 0, drawn
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
    answered = mooring("show", "--node", "edge-7", "--debug-image", "example/none")
    assert answered.code == 2
    assert answered.complaint == (
        "mooring: edge-7: --node: cannot be collected in a pod of example/none: error: executable file not found; name "
        "another image with --debug-image, or collect it with mooring collect"
    )
    assert unpublished.asked[-1][0] == "delete"


def test_no_pod_is_started_when_the_person_cannot_be_asked(unpublished: FakeCluster) -> None:
    answered = mooring("show", "--node", "edge-7")
    assert answered.code == 2
    assert "nothing is published" in answered.complaint
    assert "--debug-image IMAGE" in answered.complaint
    assert not any(words[0] == "create" for words in unpublished.asked)


@pytest.mark.usefixtures("cluster")
def test_what_is_neither_a_file_nor_a_node_is_refused() -> None:
    answered = mooring("show", "--node", "edge-8")
    assert answered.code == 2
    assert answered.complaint.startswith("mooring: edge-8: --node: is neither a file nor a node: ")


def test_a_missing_archive_is_not_looked_for_in_the_cluster(cluster: FakeCluster) -> None:
    answered = mooring("show", "--node", "edge-8.tar.gz")
    assert answered.code == 2
    assert not (cluster.folder / "asked").exists()
