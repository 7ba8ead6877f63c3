"""A real API server read as an account with the documented rights; then the plans are carried out, and come true."""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from tests.e2e.kube.accounts import NAMESPACE, define_topologies
from tests.e2e.kube.conftest import Parts
from tests.e2e.kube.nodes import Nodes, nodes_playing
from tests.e2e.kube.plane import OURS, extender, scheduler
from tests.e2e.kube.pods import pod
from tests.e2e.kubelet.apiserver import PODS, APIServer
from tests.e2e.kubelet.patience import until
from tests.e2e.kubelet.rights import give_rights, kubeconfig_of

from mooring.engine.core.config import KubeletConfig
from mooring.inputs.machines.compact import parse_compact
from mooring.inputs.node_groups import NodeGroup

READER = "mooring-reader"
RUNNING: Mapping[str, tuple[tuple[str, int], ...]] = {
    "live-0": (("web-0", 6), ("cache-0", 4)),
    "live-1": (("batch-0", 22), ("web-1", 6)),
    "live-2": (("batch-1", 12), ("batch-2", 12)),
    "live-3": (("web-2", 6), ("web-3", 6)),
}
"""Node -> pods in the order of their start, with their CPUs; each node has two NUMA nodes of 24."""
WANTED = 4
REPLICA = 20


def group(name: str) -> NodeGroup:
    """Return an empty node with two NUMA nodes."""
    config = KubeletConfig(
        cpu_manager_policy="static", topology_manager_policy="single-numa-node", reserved_system_cpus="0,24"
    )
    return NodeGroup(name, 1, parse_compact("sockets=2 cores=24 threads=2 memory=64Gi"), config)


def owned(name: str, cpus: int, node: str = "") -> dict[str, Any]:
    """Return a Guaranteed pod of a controller that this test plays."""
    made = pod(name, {"limits": {"cpu": str(cpus), "memory": "64Mi"}}, node=node)
    app = name.partition("-")[0]
    owner = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": app, "uid": f"uid-{app}", "controller": True}
    made["metadata"] |= {"labels": {"app": app}, "ownerReferences": [owner]}
    del made["spec"]["tolerations"]  # it respects cordons
    return made


class Played:
    """A cluster whose kubelets and controllers are played, and whose API server and scheduler are real."""

    def __init__(self, api: APIServer, nodes: Nodes) -> None:
        self.api, self.nodes = api, nodes
        self.sizes: dict[str, int] = {}
        self._made = 0

    def begin(self) -> None:
        """Start the pods of the beginning, one after another."""
        for node, pods in RUNNING.items():
            for name, cpus in pods:
                self.create(name, cpus, node)
                until(partial(self.runs, name), f"{name} runs")
        until(self.is_published, "states name all pods")

    def create(self, name: str, cpus: int, node: str = "") -> str:
        self.sizes[name] = cpus
        self.api.create_pod(owned(name, cpus, node))
        return name

    def is_published(self) -> bool:
        states = self.api.get(f"{OURS}/nodestates")["items"]
        named = [one for state in states for one in state["spec"].get("pods", [])]
        return len(named) == len([one for one in self.api.pods() if one["status"].get("phase") == "Running"])

    def runs(self, name: str) -> bool:
        return self.phase(name) == "Running"

    def phase(self, name: str) -> str:
        found = self.api.pod(name)
        return "" if found is None else str(found["status"].get("phase", ""))

    def node_of(self, name: str) -> str:
        found = self.api.pod(name)
        return "" if found is None else str(found["spec"].get("nodeName", ""))

    def cordon(self, names: Sequence[str], *, closed: bool) -> None:
        for name in names:
            self.api.patch(f"api/v1/nodes/{name}", {"spec": {"unschedulable": closed}})

    def replace(self, eviction: Mapping[str, Any]) -> str:
        """Evict a pod, and make it anew as its controller does; return the name of the new one."""
        name = str(eviction["metadata"]["name"])
        self.api.post(f"{PODS}/{name}/eviction", dict(eviction))
        until(lambda: self.api.pod(name) is None, f"{name} is gone")
        self._made += 1
        return self.create(f"{name}-again-{self._made}", self.sizes[name])

    def settles(self, name: str) -> bool:
        """Tell whether a pod runs, or the scheduler has found that no node takes it."""
        found = self.api.pod(name)
        conditions = (found or {}).get("status", {}).get("conditions", [])
        unschedulable = any(one.get("reason") == "Unschedulable" for one in conditions)
        return self.phase(name) == "Running" or unschedulable


@pytest.fixture
def played(api: APIServer, parts: Parts, folder: Path) -> Iterator[Played]:
    """Four nodes, an extender and the real scheduler."""
    with contextlib.ExitStack() as life:
        nodes = life.enter_context(nodes_playing(api, [group(name) for name in RUNNING]))
        until(lambda: len(api.get(f"{OURS}/nodestates")["items"]) == len(RUNNING), "all are published")
        asked = life.enter_context(extender(folder, api.kubeconfig))
        life.enter_context(scheduler(parts.scheduler, folder, api.kubeconfig, asked.url))
        found = Played(api, nodes)
        found.begin()
        yield found


@pytest.fixture
def reader(played: Played, folder: Path) -> Path:
    """The kubeconfig of an account with the rights of ``deploy/reader.yaml`` and no others."""
    api = played.api
    define_topologies(api)
    api.apply("api/v1/namespaces/mooring", {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}})
    give_rights(api, "reader.yaml")
    return kubeconfig_of(api, folder, READER, NAMESPACE, next(iter(RUNNING)))


@pytest.fixture
def replicas(folder: Path) -> Path:
    file = folder / "train.json"
    template = {"metadata": {"labels": {"app": "train"}}, "spec": owned("train", REPLICA)["spec"]}
    selector = {"matchLabels": {"app": "train"}}
    content = {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": "train"},
        "spec": {"replicas": WANTED, "selector": selector, "template": template},
    }
    file.write_text(json.dumps(content), encoding="utf-8")
    return file


def mooring(*words: str | Path, codes: Sequence[int] = (0, 1)) -> Any:
    """Run a verb and return its document."""
    command = [sys.executable, "-m", "mooring", *map(str, words)]
    ran = subprocess.run(command, capture_output=True, check=False, timeout=120)
    assert ran.returncode in codes, ran.stderr.decode()
    return json.loads(ran.stdout)


def test_a_plan_of_moves_comes_true(played: Played, reader: Path, replicas: Path, folder: Path) -> None:
    archive = folder / "cluster.tar.gz"
    about = mooring("collect", "--cluster", "--kubeconfig", reader, "--to", archive, "-o", "json", codes=(0,))
    assert about["unread"] == []
    assert {one["name"]: one["objects"] for one in about["parts"] if one["objects"]} == {
        "Node": len(RUNNING),
        "Pod": sum(map(len, RUNNING.values())),
        "NodeFacts": 1,
        "NodeState": len(RUNNING),
    }
    asked = ("fleet", "fit", "-f", replicas)
    promised = mooring(*asked, "--live", "--kubeconfig", reader, "-o", "json")
    collected = mooring(*asked, "--cluster", archive, "-o", "json")
    assert {**collected, "cluster": ""} == {**promised, "cluster": ""}
    assert (promised["assumed"], promised["plan"]["isExact"]) == ([], True)
    assert promised["fitsNow"] < promised["fitsAfter"] == WANTED
    evictions = mooring(*asked, "--cluster", archive, "-o", "evictions")["items"]
    assert evictions

    targets = [carried_out(played, one) for one in evictions]
    for target, one in zip(targets, promised["plan"]["moves"], strict=True):
        assert target not in one["cordon"]
    names = [played.create(f"train-{number}", REPLICA) for number in range(WANTED)]
    until(lambda: all(played.phase(name) == "Running" for name in names), "all replicas run")
    assert Counter(map(played.node_of, names)) == promised["after"]
    assert played.nodes.refusals == []
    print(f"\n{len(evictions)} moves made room for {WANTED - promised['fitsNow']} more: {targets}")


def carried_out(played: Played, eviction: Mapping[str, Any]) -> str:
    """Carry out a move as its annotations say; return the node on which the replacement runs."""
    cordon = [name for name in eviction["metadata"]["annotations"]["mooring.dev/cordon"].split(",") if name]
    played.cordon(cordon, closed=True)
    name = played.replace(eviction)
    until(lambda: played.phase(name) == "Running", f"{name} runs")
    played.cordon(cordon, closed=False)
    return played.node_of(name)


def test_without_the_moves_only_what_was_promised_fits(played: Played, reader: Path, replicas: Path) -> None:
    promised = mooring("fleet", "fit", "-f", replicas, "--live", "--kubeconfig", reader, "-o", "json")
    names = [played.create(f"train-{number}", REPLICA) for number in range(WANTED)]
    until(lambda: all(played.settles(name) for name in names), "all replicas settle")
    until(lambda: sum(played.phase(name) == "Running" for name in names) == promised["fitsNow"], "as many run")
    assert Counter(node for name in names if (node := played.node_of(name))) == promised["now"]
    assert played.nodes.refusals == []


@pytest.mark.parametrize("drained", [("live-1",), ("live-0", "live-1", "live-3")], ids=["one", "three"])
def test_a_drain_comes_true(played: Played, reader: Path, drained: Sequence[str]) -> None:
    words: tuple[str | Path, ...] = (
        "fleet",
        "drain",
        *drained,
        "--extender",
        "--live",
        "--kubeconfig",
        reader,
        "-o",
        "json",
    )
    promised = mooring(*words)
    played.cordon(drained, closed=True)
    replaced = {}
    # The scheduler takes pods of one priority by age: one after another, as the answer has them.
    for one in promised["pods"]:
        name = one["pod"].partition("/")[2]
        eviction = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": name, "namespace": "default"}}
        replaced[one["pod"]] = played.replace(eviction)
        until(partial(played.settles, replaced[one["pod"]]), "its replacement settles")
    outcomes = {name: "moves" if played.phase(new) == "Running" else "waits" for name, new in replaced.items()}
    assert outcomes == {one["pod"]: one["outcome"] for one in promised["pods"]}
    assert (len(drained) == 1) == (set(outcomes.values()) == {"moves"})
    assert played.nodes.refusals == []


def test_an_account_without_the_role_is_one_line_that_names_the_right(played: Played, folder: Path) -> None:
    account = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "bare", "namespace": "default"}}
    played.api.apply("api/v1/namespaces/default/serviceaccounts/bare", account)
    file = kubeconfig_of(played.api, folder, "bare", "default", next(iter(RUNNING)))
    command = [sys.executable, "-m", "mooring", "fleet", "drain", "live-0", "--live", "--kubeconfig", str(file)]
    ran = subprocess.run(command, capture_output=True, check=False, timeout=60)
    said = ran.stderr.decode()
    assert (ran.returncode, said.count("\n")) == (2, 1)
    assert "nodes is forbidden" in said
