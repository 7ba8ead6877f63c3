"""The chart on a real cluster: installed, upgraded, rolled back and uninstalled, while a pod holds its CPU."""

from __future__ import annotations

import contextlib
import importlib
import json
import logging
import shutil
import threading
import time
from collections.abc import Iterator, Mapping
from typing import Any

import httpx2
import pytest
import yaml
from tests.e2e.chart.cluster import CHART, NODE, SCHEDULER_IMAGE, Cluster
from tests.e2e.containerd.images import BUSYBOX
from tests.e2e.kube.plane import OURS
from tests.e2e.kubelet.apiserver import PODS
from tests.e2e.kubelet.patience import until
from tests.scheduling.extender_cluster import facts_with, started, state_of_node

from mooring.published.facts_document import facts_document
from mooring.published.objects import state_document
from mooring.published.shadow_document import shadow_of

log = logging.getLogger("chart")
logging.getLogger("httpx2").setLevel(logging.WARNING)
DAEMON_SETS = "apis/apps/v1/namespaces/mooring/daemonsets"
SECRETS = "api/v1/namespaces/mooring/secrets"
ELSEWHERE, NARROW = "elsewhere", "narrow"
TAINT = "mooring/agent-not-ready"
SECOND_TAG = "second"


@contextlib.contextmanager
def step(what: str) -> Iterator[None]:
    """Log how long a step took."""
    begin = time.monotonic()
    yield
    log.info("%-64s %5.1f s", what, time.monotonic() - begin)


def values(cluster: Cluster, **changed: Any) -> str:
    """Write the values of the release; return the file."""
    node = cluster.node.folder
    content = {
        "agent": {
            "agentConfiguration": {"publish": True, **changed.get("agent", {})},
        },
        "image": {"pullPolicy": "Never", "tag": changed.get("tag", "")},
        "paths": {
            "kubelet": str(cluster.kubelet.root),
            "kubeletConfig": str(cluster.kubelet.configuration),
            "runtime": str(node),
            "run": str(node / "run-of-agent"),
        },
        "extender": {"enabled": True},
        "scheduler": {"enabled": True, "image": SCHEDULER_IMAGE},
        "shadow": {"enabled": "shadow" in changed},
        "serve": {"enabled": "serve" in changed},
    }
    file = cluster.folder / "values.yaml"
    file.write_text(yaml.safe_dump(content), encoding="utf-8")
    return str(file)


def pod_named(name: str, **spec: Any) -> Mapping[str, Any]:
    limits = {"cpu": "1", "memory": "32Mi"}
    container = {"name": "app", "image": BUSYBOX, "imagePullPolicy": "Never", "resources": {"limits": limits}}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": "default"},
        "spec": {
            "containers": [container],
            "schedulerName": "mooring",
            "automountServiceAccountToken": False,
            "terminationGracePeriodSeconds": 0,
            **spec,
        },
    }


def is_running(cluster: Cluster, name: str) -> bool:
    return bool((cluster.api.pod(name) or {}).get("status", {}).get("phase") == "Running")


def cpus_of(cluster: Cluster, name: str) -> str:
    pod = cluster.api.pod(name)
    assert pod is not None
    return cluster.cpuset_of(pod).read_text(encoding="utf-8").strip()


def agents(cluster: Cluster) -> set[str]:
    """Return the images of agents that are ready."""
    pods = cluster.api.get("api/v1/namespaces/mooring/pods", labelSelector="app.kubernetes.io/name=mooring-agent")
    return {
        pod["spec"]["containers"][0]["image"]
        for pod in pods["items"]
        if any(one["type"] == "Ready" and one["status"] == "True" for one in pod["status"].get("conditions", []))
    }


def exclusive_cpus(cluster: Cluster) -> int:
    """Return how many CPUs for exclusive use the node has, as it was published."""
    response = cluster.api.cluster.http.get(f"{OURS}/nodestates/{NODE}")
    status = response.json().get("status", {}) if response.is_success else {}
    return int(status.get("exclusiveCPUs", {}).get("allocatable", 0))


def contents(cluster: Cluster) -> dict[str, Any]:
    return {one["metadata"]["name"]: one.get("data") for one in cluster.api.get(SECRETS)["items"] if _is_ours(one)}


def _is_ours(secret: Mapping[str, Any]) -> bool:
    return str(secret["metadata"]["name"]).startswith("mooring-")


def taints(cluster: Cluster) -> list[str]:
    return [one["key"] for one in cluster.api.get(f"api/v1/nodes/{NODE}")["spec"].get("taints", [])]


@contextlib.contextmanager
def watching(cluster: Cluster, name: str) -> Iterator[set[str]]:
    """Give every CPU set that a pod's container has during the block."""
    pod = cluster.api.pod(name)
    assert pod is not None
    file = cluster.cpuset_of(pod)
    seen, stop = {file.read_text(encoding="utf-8").strip()}, threading.Event()

    def watch() -> None:
        while not stop.wait(0.005):
            seen.add(file.read_text(encoding="utf-8").strip())

    thread = threading.Thread(target=watch, daemon=True)
    thread.start()
    try:
        yield seen
    finally:
        stop.set()
        thread.join()


def describe_node(cluster: Cluster, name: str, nodes: int) -> None:
    """Make a node without a kubelet, with eight CPUs on some NUMA nodes, that has published its state."""
    machine = f"sockets=1 numa={nodes} cores=8 threads=1 memory=16Gi"
    facts = facts_with(machine, topology_manager_policy="single-numa-node")
    amounts = {"cpu": "7", "memory": "16Gi", "pods": "110"}
    ready = {"type": "Ready", "status": "True", "reason": "Test", "message": ""}
    status = {"capacity": amounts, "allocatable": amounts, "conditions": [ready]}
    content = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}, "status": status}
    # The node last: at its arrival the scheduler tries pods that wait.
    cluster.api.post(f"{OURS}/nodefacts", facts_document(facts))
    cluster.api.post(f"{OURS}/nodestates", state_document(state_of_node(facts, started(facts), node=name)))
    cluster.api.post("api/v1/nodes", content)
    cluster.api.patch(f"api/v1/nodes/{name}", {"spec": {"taints": None}})


def groups(cluster: Cluster) -> list[str]:
    return [one["name"] for one in cluster.api.get("apis")["groups"]]


def left_over(cluster: Cluster) -> list[str]:
    """Return all objects that the chart has labelled, in every resource that the API server has."""
    http, found = cluster.api.cluster.http, []
    versions = [version["groupVersion"] for one in cluster.api.get("apis")["groups"] for version in one["versions"]]
    for base in ("api/v1", *(f"apis/{one}" for one in versions)):
        served = http.get(base)
        for resource in served.json()["resources"] if served.is_success else ():
            if "list" in resource["verbs"] and "/" not in resource["name"]:
                query = {"labelSelector": "app.kubernetes.io/part-of=mooring"}
                listed = http.get(f"{base}/{resource['name']}", params=query)
                items = listed.json()["items"] if listed.is_success else []
                found += [f"{resource['name']}/{one['metadata']['name']}" for one in items]
    return found


@pytest.fixture(scope="module")
def installed(cluster: Cluster) -> Cluster:
    """The chart, with an agent on the node, and a pod that holds its only CPU for exclusive use."""
    second = f"localhost/mooring:{SECOND_TAG}"
    node = cluster.node
    words = [str(node.parts.ctr), "-a", str(node.cri_socket), "-n", "k8s.io", "images", "tag"]
    node.run([*words, f"localhost/mooring:{version()}", second])
    labels = {"pod-security.kubernetes.io/enforce": "privileged"}
    namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "mooring", "labels": labels}}
    begin = time.monotonic()
    cluster.api.post("api/v1/namespaces", namespace)
    with step("helm install --wait"):
        cluster.helm("install", "mooring", str(CHART), "-f", values(cluster), "--wait", "--timeout", "180s")
    with step("the agent is ready, since the node has its label"):
        label(cluster, "true")
        until(lambda: agents(cluster), "the agent is ready")
    with step("the agent has published the node"):
        until(lambda: exclusive_cpus(cluster) == 1, "the agent has published one CPU for exclusive use")
    with step("helm test"):
        said = cluster.helm("test", "mooring", "--timeout", "120s")
    assert "Succeeded" in said
    log.info("%-64s %5.1f s", "from nothing to a pinned pod", time.monotonic() - begin)
    cluster.api.create_pod(dict(pod_named("holder")))
    until(lambda: is_running(cluster, "holder"), "the pod runs")
    return cluster


def version() -> str:
    return str(yaml.safe_load((CHART / "Chart.yaml").read_text(encoding="utf-8"))["appVersion"])


def test_a_pod_has_a_cpu_of_its_own_and_the_others_share_the_rest(installed: Cluster) -> None:
    shared = pod_named("shared", containers=[{"name": "app", "image": BUSYBOX, "imagePullPolicy": "Never"}])
    installed.api.create_pod(dict(shared))
    until(lambda: is_running(installed, "shared"), "the shared pod runs")
    assert (cpus_of(installed, "holder"), cpus_of(installed, "shared")) == ("1", "0")


def test_a_pod_that_the_node_would_refuse_waits_and_then_goes_elsewhere(installed: Cluster) -> None:
    """Five CPUs fit into the sum of a node with two NUMA nodes, and on none of them."""
    begin = time.monotonic()
    describe_node(installed, NARROW, 2)
    limits = {"limits": {"cpu": "5", "memory": "32Mi"}}
    containers = [{"name": "app", "image": BUSYBOX, "imagePullPolicy": "Never", "resources": limits}]
    installed.api.create_pod(dict(pod_named("more", containers=containers)))

    def condition() -> str:
        conditions = (installed.api.pod("more") or {}).get("status", {}).get("conditions", [])
        return next((str(one.get("message", "")) for one in conditions if one["type"] == "PodScheduled"), "")

    until(lambda: "mooring:" in condition(), "the scheduler says why the pod waits")
    assert "MOOR-102" in condition()
    log.info("%s", condition())
    describe_node(installed, ELSEWHERE, 1)
    until(lambda: (installed.api.pod("more") or {})["spec"].get("nodeName"), "the pod is bound")
    pod = installed.api.pod("more")
    assert pod is not None
    assert pod["spec"]["nodeName"] == ELSEWHERE
    log.info("%-64s %5.1f s", "a pod that was refused is bound to another node", time.monotonic() - begin)
    installed.api.delete(f"{PODS}/more", now=True)
    for name in (NARROW, ELSEWHERE):
        installed.api.delete(f"api/v1/nodes/{name}")


def test_an_upgrade_and_a_rollback_keep_state_and_cpus(installed: Cluster) -> None:
    before = contents(installed)
    assert all(before.values())
    with watching(installed, "holder") as seen, step("helm upgrade --wait: another image, failClosed, evictions"):
        changed = values(installed, tag=SECOND_TAG, agent={"onRejection": "evict", "failClosed": True})
        installed.helm("upgrade", "mooring", str(CHART), "-f", changed, "--wait", "--timeout", "180s")
        until(lambda: agents(installed) == {f"localhost/mooring:{SECOND_TAG}"}, "the new agent is ready")
        until(lambda: TAINT not in taints(installed), "the node has no taint")
    assert seen == {"1"}
    accounts = {one["metadata"]["name"] for one in installed.api.get(DAEMON_SETS)["items"]}
    assert {"mooring-agent-evict", "mooring-agent-taint"} <= accounts
    with watching(installed, "holder") as seen, step("helm rollback --wait"):
        installed.helm("rollback", "mooring", "1", "--wait", "--timeout", "180s")
        until(lambda: agents(installed) == {f"localhost/mooring:{version()}"}, "the old agent is ready")
    assert seen == {"1"}
    accounts = {one["metadata"]["name"] for one in installed.api.get(DAEMON_SETS)["items"]}
    assert accounts.isdisjoint({"mooring-agent-evict", "mooring-agent-taint"})
    assert contents(installed) == before, "certificates stay"
    # An agent with failClosed sets it when it stops, if it still may; one without leaves it alone, as the page says.
    assert set(taints(installed)) <= {TAINT}
    installed.api.patch(f"api/v1/nodes/{NODE}", {"spec": {"taints": None}})


def test_the_shadow_judges_a_pod_and_the_page_shows_the_node(installed: Cluster) -> None:
    # Where the agent decides there is nothing to compare.
    label(installed, None)
    with step("helm upgrade --wait: shadow and page"):
        changed = values(installed, shadow=True, serve=True)
        installed.helm("upgrade", "mooring", str(CHART), "-f", changed, "--wait", "--timeout", "180s")
    service = installed.api.get("api/v1/namespaces/mooring/services/mooring-serve")["spec"]
    token = json.loads(installed.api.kubeconfig.read_text(encoding="utf-8"))["users"][0]["user"]["token"]
    check_page(f"http://{service['clusterIP']}", token)
    kubectl = shutil.which("kubectl")
    if kubectl is None:
        log.info("SKIPPED kubectl port-forward: kubectl is not installed")
    else:
        with (
            step("kubectl port-forward"),
            installed.forwarded(kubectl, "mooring-serve", service["ports"][0]["port"]) as port,
        ):
            check_page(f"http://127.0.0.1:{port}", token)
    selector = "app.kubernetes.io/name=mooring-shadow"
    [shadow] = installed.api.get("api/v1/namespaces/mooring/pods", labelSelector=selector)["items"]
    name = shadow["metadata"]["name"]
    containers = [{"name": "app", "image": BUSYBOX, "imagePullPolicy": "Never"}]
    try:
        until(lambda: judged(installed) is not None, "the shadow has published its counts")
        before = judged(installed)
        installed.api.create_pod(dict(pod_named("watched", containers=containers)))
        # The counts are written once a minute at most.
        until(lambda: judged(installed) != before, "the shadow has judged the pod")
    except AssertionError as error:
        error.add_note(f"{installed.troubles()}\n{name} said:\n{installed.log_of(name)}")
        raise
    agreed, differs = judged(installed) or (0, 0)
    assert agreed > 0
    assert differs == 0
    installed.api.delete(f"{PODS}/watched", now=True)
    installed.helm("rollback", "mooring", "1", "--wait", "--timeout", "180s")
    label(installed, "true")
    until(lambda: agents(installed), "the agent is ready again")


def check_page(address: str, token: str) -> None:
    """Ask for the page of the cluster without and with a token."""
    with httpx2.Client(base_url=address, timeout=10) as people:
        assert people.get("/").status_code == 401
        page = people.get("/", headers={"Authorization": f"Bearer {token}"})
        assert page.status_code == 200
        assert NODE in page.text


def label(cluster: Cluster, value: str | None) -> None:
    """Set the label of the node on which the agent runs."""
    cluster.api.patch(f"api/v1/nodes/{NODE}", {"metadata": {"labels": {"mooring.dev/agent": value}}})


def judged(cluster: Cluster) -> tuple[int, int] | None:
    """Return how many admissions of the node the shadow has agreed with, and in how many decisions it differs."""
    response = cluster.api.cluster.http.get(f"{OURS}/nodeshadows/{NODE}")
    if not response.is_success:
        return None
    _, counts = shadow_of(response.json())
    return counts.agreed, counts.differs


def test_a_misspelt_value_is_refused_with_its_name(installed: Cluster) -> None:
    said = installed.helm("upgrade", "mooring", str(CHART), "--set", "extender.replcas=3", fails=True)
    assert "replcas" in said


def test_the_manifests_of_deploy_are_those_of_the_chart(cluster: Cluster) -> None:
    script = importlib.import_module("deploy_manifests")
    made = script.manifests(cluster.helm_program)
    assert {name: (script.DEPLOY / name).read_text(encoding="utf-8") for name in made} == made


def test_an_uninstall_gives_everything_back(installed: Cluster) -> None:
    changed = values(installed, agent={"failClosed": True})
    installed.helm("upgrade", "mooring", str(CHART), "-f", changed, "--wait", "--timeout", "180s")
    with step("helm uninstall --wait"):
        installed.helm("uninstall", "mooring", "--wait", "--timeout", "180s")
    assert (cpus_of(installed, "holder"), cpus_of(installed, "shared")) == ("0-1", "0-1")
    assert TAINT not in taints(installed)
    with contextlib.suppress(AssertionError):
        until(lambda: not left_over(installed), "nothing of the chart is left")
    assert left_over(installed) == []
    until(lambda: "mooring.dev" not in groups(installed), "nothing of it is served")
    for one in ("clusterroles", "clusterrolebindings"):
        listed = installed.api.get(f"apis/rbac.authorization.k8s.io/v1/{one}")["items"]
        assert not [name for item in listed if (name := item["metadata"]["name"]).startswith("mooring")]
    installed.api.delete("api/v1/namespaces/mooring")
    gone = "api/v1/namespaces/mooring"
    until(lambda: installed.api.cluster.http.get(gone).status_code == 404, "the namespace is gone")
