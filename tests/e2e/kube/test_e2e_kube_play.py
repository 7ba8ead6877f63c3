"""``mooring play`` on a real API server: what real kubelets decided comes out letter for letter, and users run it."""

from __future__ import annotations

import contextlib
import gzip
import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from tests.e2e.kube.conftest import Parts
from tests.e2e.kube.nodes import Nodes, nodes_playing
from tests.e2e.kube.plane import OURS, scheduler
from tests.e2e.kube.pods import pod
from tests.e2e.kubelet.apiserver import PODS, APIServer, as_user
from tests.e2e.kubelet.claiming import CLAIMS, GROUP
from tests.e2e.kubelet.devices.driver import NUMA_NODE, claim_for, class_of, request_of
from tests.e2e.kubelet.patience import until
from tests.e2e.kubelet.rights import binding_of, token_of

from mooring.cluster.play.nodes import FAULT
from mooring.cluster.play.pods import RUNS
from mooring.cluster.play.run import LEASES, NODES
from mooring.engine.core.bits import list_text, mask_of
from mooring.engine.core.cpuset import CPUSet
from mooring.engine.core.machine import Machine
from mooring.engine.core.topology import discover_topology
from mooring.engine.kubelet.events import Admit, Restart
from mooring.inputs.machines.loader import load_machine
from mooring.inputs.machines.machineinfo_json import parse_machine_info
from mooring.inputs.node_groups import NodeGroup
from mooring.inputs.pods.scenario import Scenario, load_scenarios
from mooring.service import messages
from mooring.service.apiserver import cluster_of, configuration_of
from mooring.service.grpc_client import UnaryClient

PAGE = Path(__file__).parents[3] / "docs" / "how-to" / "test-a-scheduler.md"
RBAC = "rbac.authorization.k8s.io/v1"
CORPORA = Path(__file__).parents[2] / "corpora"
RECORDED = CORPORA / "real-kubelet.jsonl.gz"
SHARE = None if os.environ.get("MOORING_E2E_KUBE") == "full" else 4
"""Scenarios that are played; None for all."""
CLUSTER = """
apiVersion: mooring/v1alpha1
kind: Cluster
metadata: {name: lab}
groups:
  - name: numa
    count: 2
    machine: xeon-6230-2s-snc2
    kubelet: {cpuManagerPolicy: static, topologyManagerPolicy: single-numa-node, reservedSystemCPUs: "0,40"}
    labels: {pool: numa}
    taints: [{key: team, value: a, effect: NoSchedule}]
  - {name: late, machine: i7-1370p}
events:
  - {at: 2, do: add, nodes: [late]}
  - {at: 2, do: cordon, nodes: [numa-1]}
"""


def scenarios() -> Iterator[tuple[Scenario, dict[str, Any]]]:
    """Yield recorded scenarios of real kubelets with their lines."""
    with gzip.open(RECORDED, "rt", encoding="utf-8") as lines:
        documents = [json.loads(line) for line in lines]
    for found, content in zip(load_scenarios(RECORDED), documents, strict=True):
        assert isinstance(found, Scenario)
        yield found, content


@pytest.fixture(scope="module")
def machines() -> dict[str, Any]:
    lines = (CORPORA / "real-kubelet-machines.jsonl").read_text(encoding="utf-8").splitlines()
    return {one["name"]: json.dumps(one["info"]).encode() for one in map(json.loads, lines)}


@pytest.mark.parametrize("number", range(SHARE or 12))
def test_what_real_kubelets_said_comes_out_of_the_api_server(
    api: APIServer, machines: dict[str, Any], folder: Path, number: int
) -> None:
    found, content = list(scenarios())[number]
    machine = Machine(found.machine, parse_machine_info(machines[found.machine], "recorded").info)
    group = NodeGroup("recorded", 1, machine, found.kubelet, found.mooring)
    uids, socket = dict[str, str](), str(folder / "recorded.sock")
    with nodes_playing(api, [group], sockets=folder) as nodes, closing(UnaryClient(socket, 2**20)) as client:
        for step, recorded, expected in zip(found.steps, content["steps"], content["expect"]["steps"], strict=True):
            match step:
                case Admit(asked):
                    uids[asked.uid] = created(api, recorded["admit"])
                    compare(api, asked.name, uids[asked.uid], expected)
                    if expected["admitted"] and not asked.is_pod_level:
                        inits = {one["name"] for one in recorded["admit"]["spec"].get("initContainers", ())}
                        kept = {name: held for name, held in expected["containers"].items() if name not in inits}
                        told = resources(client, asked.name)
                        assert {one: told[one] for one in kept} == kept
                case Restart():
                    api.patch(f"{NODES}/recorded", {"metadata": {"annotations": {FAULT: "restart"}}})
                    until(lambda: FAULT not in annotated(api), "the kubelet has restarted")
                case _:
                    remove(api, nodes, uids[recorded["remove"]])
            if "cpuManagerState" in expected:
                assert cpus(nodes) == cpus_recorded(expected["cpuManagerState"], uids), step


def created(api: APIServer, recorded: dict[str, Any]) -> str:
    """Create a recorded pod on the node, and return its uid."""
    name = recorded["metadata"]["name"]
    spec = {
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        **recorded["spec"],
        "nodeName": "recorded",
    }
    for one in (*spec["containers"], *spec.get("initContainers", ())):
        one["image"] = "none"
    return str(api.create_pod({"metadata": {"name": name}, "spec": spec})["metadata"]["uid"])


def compare(api: APIServer, name: str, uid: str, expected: dict[str, Any]) -> None:
    until(lambda: phase(api, name) in ("Running", "Failed"), f"{name} is decided")
    status = (api.pod(name) or {})["status"]
    said = status["phase"], status.get("reason", ""), status.get("message", "")
    if expected["admitted"]:
        assert said == ("Running", "", "")
        return
    assert said == ("Failed", expected["reason"], f"Pod was rejected: {expected['message']}")
    until(lambda: api.events(uid), "the event is there")
    [event] = api.events(uid)
    assert (event["reason"], event["note"]) == (expected["reason"], expected["message"])
    assert (event["type"], event["deprecatedSource"]) == ("Warning", {"component": "kubelet", "host": "recorded"})


def resources(client: UnaryClient, name: str) -> dict[str, dict[str, str]]:
    """Return what the played kubelet's PodResources API says of a pod, as recordings have it."""
    request = messages.GetPodResourcesRequestMessage(pod_name=name, pod_namespace="default")
    answer = client.ask(f"{messages.PODRESOURCES_SERVICE}/Get", request.SerializeToString(), 20.0)
    found = messages.GetPodResourcesResponseMessage.FromString(answer).pod_resources
    return {
        one.name: {
            "cpus": list_text(mask_of(one.cpu_ids)),
            "mems": ",".join(map(str, sorted({node.ID for block in one.memory for node in block.topology.nodes}))),
        }
        for one in found.containers
    }


def remove(api: APIServer, nodes: Nodes, uid: str) -> None:
    [name] = [one["metadata"]["name"] for one in api.pods() if one["metadata"]["uid"] == uid]
    api.delete(f"{PODS}/{name}")
    until(lambda: uid not in nodes.played["recorded"].kubelet.node.active, f"{name} has ended")


def cpus(nodes: Nodes) -> tuple[str, dict[str, dict[str, str]]]:
    """Return the shared pool, and uid -> container -> CPUs."""
    cpu = nodes.played["recorded"].kubelet.node.cpu
    held = {uid: {name: list_text(mask) for name, mask in found.items()} for uid, found in cpu.assignments.items()}
    return list_text(cpu.default), held


def cpus_recorded(text: str, uids: dict[str, str]) -> tuple[str, dict[str, dict[str, str]]]:
    state = json.loads(text)
    return state["defaultCpuSet"], {uids[uid]: found for uid, found in (state.get("entries") or {}).items()}


def annotated(api: APIServer, node: str = "recorded") -> dict[str, str]:
    found: dict[str, str] = api.get(f"{NODES}/{node}")["metadata"].get("annotations", {})
    return found


def phase(api: APIServer, name: str) -> str:
    return str((api.pod(name) or {}).get("status", {}).get("phase", ""))


def verb(api: APIServer, folder: Path) -> list[str]:
    (folder / "cluster.yaml").write_text(CLUSTER, encoding="utf-8")
    where = ["-f", str(folder / "cluster.yaml"), "--kubeconfig", str(api.kubeconfig)]
    return [sys.executable, "-m", "mooring", "play", *where]


@contextlib.contextmanager
def playing(api: APIServer, folder: Path, *words: str) -> Iterator[list[str]]:
    """Run the verb until the end of the block, and give what it prints; afterwards it has ended well."""
    said: list[str] = []
    command = [*verb(api, folder), *words]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as running:
        assert running.stdout is not None
        try:
            said.append(running.stdout.readline())
            yield said
        finally:
            running.send_signal(signal.SIGINT)
            said.extend(running.stdout.readlines())
    assert running.returncode == 0, said


def names(api: APIServer, path: str) -> set[str]:
    return {one["metadata"]["name"] for one in api.get(path)["items"]}


def test_nodes_come_with_the_file_and_go_with_the_program(api: APIServer, folder: Path, player: Path) -> None:
    foreign = {"metadata": {"name": "foreign", "labels": {"pool": "numa"}}}
    api.post(NODES, foreign)
    with playing(api, folder, "--publish", "--kubeconfig", str(player)) as said:
        assert said == ["2 nodes of lab are ready; Ctrl-C ends them.\n"]
        until(lambda: names(api, NODES) == {"foreign", "late", "numa-0", "numa-1"}, "late has joined")
        until(lambda: api.get(f"{NODES}/numa-1")["spec"].get("unschedulable"), "numa-1 is cordoned")
        assert api.get(f"{NODES}/numa-0")["spec"]["taints"] == [{"key": "team", "value": "a", "effect": "NoSchedule"}]
        until(lambda: names(api, LEASES) == {"late", "numa-0", "numa-1"}, "their leases are there")
        until(lambda: len(names(api, f"{OURS}/nodestates")) == 3, "their states are published")
        api.create_pod(pod("small", {"limits": {"cpu": "4", "memory": "1Gi"}}, node="numa-0"))
        api.create_pod(pod("large", {"limits": {"cpu": "30", "memory": "1Gi"}}, node="numa-0"))
        job = pod("job", {"limits": {"cpu": "2", "memory": "1Gi"}}, node="numa-1")
        job["metadata"]["annotations"] = {RUNS: "1s"}
        job["spec"]["restartPolicy"] = "Never"
        api.create_pod(job)
        until(lambda: phase(api, "job") == "Succeeded", "the job is done")
        until(lambda: (phase(api, "small"), phase(api, "large")) == ("Running", "Failed"), "both are decided")
        api.delete(f"{PODS}/small")
        until(lambda: api.pod("small") is None, "the pod is gone")
    assert [one for one in said if "not written" in one] == []
    assert "Pods admitted: 2; rejected: 1, TopologyAffinityError 1.\n" in said
    assert (names(api, NODES), names(api, LEASES), api.pods()) == ({"foreign"}, set(), [])
    assert [names(api, f"{OURS}/{kind}") for kind in ("nodestates", "nodefacts")] == [set(), set()]


@pytest.mark.parametrize("state", [True, False], ids=["state", "admitted again"])
def test_a_second_play_goes_on_with_the_pods_of_the_first(api: APIServer, folder: Path, *, state: bool) -> None:
    words = ["--keep", *(["--state", str(folder / "states")] if state else [])]

    def published() -> dict[str, Any]:
        states = [one for one in api.get(f"{OURS}/nodestates")["items"] if one["metadata"]["name"] == "numa-0"]
        entries = [json.loads(one["spec"]["files"]["cpu"]).get("entries") for one in states]
        return {uid: held for found in entries for uid, held in (found or {}).items()}

    def is_published() -> bool:
        return published().keys() == {one["metadata"]["uid"] for one in api.pods()}

    with playing(api, folder, "--publish", *words):
        for number, asked in enumerate(("5", "4", "3")):
            api.create_pod(pod(f"pod-{number}", {"limits": {"cpu": asked, "memory": "1Gi"}}, node="numa-0"))
            until(partial(running, api, f"pod-{number}"), "it runs")
        api.delete(f"{PODS}/pod-0")
        until(lambda: api.pod("pod-0") is None and is_published(), "the state without it is published")
        before = published()
    api.create_pod(pod("meanwhile", {"limits": {"cpu": "2", "memory": "1Gi"}}, node="numa-0"))
    with playing(api, folder, "--publish", *words[1:]):
        until(partial(running, api, "meanwhile"), "the pod that was bound meanwhile runs")
        until(is_published, "the state is published")
        after = published()
    assert all(after[uid] == held for uid, held in before.items()) == state
    assert names(api, NODES) == set()


DRIVEN = """
apiVersion: mooring/v1alpha1
kind: Cluster
metadata: {name: driven}
groups:
  - name: only
    machine: xeon-6230-2s-snc2
    kubelet: {cpuManagerPolicy: static, reservedSystemCPUs: "0,40"}
    dra:
      cpu.mooring.dev: numa
      gpu.example.com: [{name: gpu-0, attributes: {resource.kubernetes.io/numaNode: {int: 3}}}]
"""


def test_cpus_and_devices_are_claimed_through_the_scheduler(
    api: APIServer, parts: Parts, folder: Path, player: Path
) -> None:
    for name, driver in (("cpu", "cpu.mooring.dev"), ("gpu", "gpu.example.com")):
        api.apply(f"{GROUP}/deviceclasses/{name}", class_of(name, driver))
    requests = request_of("cpus", "cpu", cpus=4), request_of("gpu", "gpu")
    both = {"requests": ["cpus", "gpu"], "matchAttribute": NUMA_NODE}
    claim = claim_for("both", *requests)
    claim["spec"]["devices"]["constraints"] = [both]
    asked = pod("asks", {"limits": {"cpu": "2", "memory": "1Gi"}})
    asked["spec"]["resourceClaims"] = [{"name": "it", "resourceClaimName": "both"}]
    asked["spec"]["containers"][0]["resources"]["claims"] = [{"name": "it"}]
    slices = f"{GROUP}/resourceslices"

    def held() -> dict[str, Any]:
        found = api.get(f"{OURS}/nodestates")["items"]
        entries: dict[str, Any] = json.loads(found[0]["spec"]["files"]["cpu"]).get("entries") or {} if found else {}
        return {owner.partition(":")[0]: sets for owner, sets in entries.items()}

    (folder / "driven.yaml").write_text(DRIVEN, encoding="utf-8")
    words = ["--publish", "--kubeconfig", str(player), "-f", str(folder / "driven.yaml")]
    with playing(api, folder, *words) as said, scheduler(parts.scheduler, folder, api.kubeconfig):
        until(lambda: len(names(api, slices)) == 2, "the devices are published")
        api.post(CLAIMS, claim)
        api.create_pod(asked)
        until(partial(running, api, "asks"), "the pod runs")
        until(lambda: "claim" in held(), "the state is published")
        [cpus] = held()["claim"].values()
        topology = discover_topology(load_machine("xeon-6230-2s-snc2").info)
        assert CPUSet.parse(cpus).mask.bit_count() == 4
        assert CPUSet.parse(cpus).mask & ~topology.numa[3] == 0
        api.delete(f"{PODS}/asks")
        until(lambda: "claim" not in held(), "the claim's CPUs are free")
    assert [one for one in said if "not written" in one] == []
    assert names(api, slices) == set()


def running(api: APIServer, name: str) -> bool:
    return phase(api, name) == "Running"


def rights_of_page() -> list[dict[str, Any]]:
    """Return the rules that the how-to names, and those of ``--publish``."""
    text = PAGE.read_text(encoding="utf-8").partition("## Rights")[2]
    rows = re.findall(r"[*;] ([a-z/]+): ([a-z, ]+)", text)
    dra = "resource.k8s.io"
    groups = {"leases": "coordination.k8s.io", "resourceslices": dra, "resourceclaims": dra}
    rules = [(groups.get(kind, ""), kind, verbs) for kind, verbs in rows]
    published = "create, patch, delete, deletecollection"
    rules += [("mooring.dev", kind, published) for kind in ("nodestates", "nodefacts")]
    rules.append(("topology.node.k8s.io", "noderesourcetopologies", published))
    return [{"apiGroups": [group], "resources": [kind], "verbs": verbs.split(", ")} for group, kind, verbs in rules]


@pytest.fixture
def player(api: APIServer, folder: Path) -> Path:
    """The kubeconfig of an account with the rights of the page and no others."""
    account = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "player", "namespace": "default"}}
    api.apply("api/v1/namespaces/default/serviceaccounts/player", account)
    role = {"apiVersion": RBAC, "kind": "ClusterRole", "metadata": {"name": "player"}, "rules": rights_of_page()}
    api.apply(f"apis/{RBAC}/clusterroles/player", role)
    api.apply(f"apis/{RBAC}/clusterrolebindings/player", binding_of("player", "player", "default"))
    file = as_user(api, folder / "player.kubeconfig", {"token": token_of(api, "player", "default", None)})
    with cluster_of(configuration_of(str(file))) as cluster:
        until(lambda: cluster.http.get(NODES).is_success, "the role is in force")
    return file


def test_an_account_without_rights_is_one_line(api: APIServer, folder: Path) -> None:
    bare = as_user(api, folder / "bare.kubeconfig", {"token": "nobody"})
    command = [*verb(api, folder), "--kubeconfig", str(bare)]
    refused = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)
    assert (refused.returncode, refused.stderr.count("\n"), refused.stdout) == (2, 1, "")
    assert "status 401" in refused.stderr
