"""Pod source, events, evictions and taint on a real API server.

Needs the kubeconfig of one that may be written to, in ``MOORING_E2E_KUBECONFIG``; no kubelet, scheduler or controller
manager is needed.
"""

from __future__ import annotations

import json
import os
import threading
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from typing import Any
from uuid import uuid4

import pytest
from lightkube import Client
from lightkube.core.exceptions import ApiError
from lightkube.resources.core_v1 import Node, Pod
from lightkube.resources.events_v1 import Event
from lightkube.resources.policy_v1 import PodDisruptionBudget

from mooring.agent.effects import ClusterEvent, EventSubject
from mooring.agent.nri.types import PodSandbox
from mooring.agent.pods.api import APIPods
from mooring.agent.pods.eviction import TAINT, EventWrite, evict_pod, set_taint, write_event
from mooring.agent.pods.writer import ClusterWriter
from mooring.engine.core.machine import Finding
from mooring.engine.core.pod import ContainerKind, QoS
from mooring.service.apiserver import Cluster, ClusterError, cluster_of, configuration_of
from mooring.service.following import PODS, Pages, mapping_of, pods_of, watch_lines

KUBECONFIG = os.environ.get("MOORING_E2E_KUBECONFIG", "")
PATIENCE = 30.0
pytestmark = pytest.mark.skipif(not KUBECONFIG, reason="no API server: MOORING_E2E_KUBECONFIG is not set")


def typed() -> Client:
    """Return lightkube's client, which knows kinds."""
    return Client(config=configuration_of(KUBECONFIG), field_manager="mooring-agent")


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    with cluster_of(configuration_of(KUBECONFIG)) as one:
        yield one


@pytest.fixture
def node(cluster: Cluster) -> Iterator[str]:
    name = f"node-{uuid4().hex[:8]}"
    post(cluster, "api/v1/nodes", {"metadata": {"name": name}})
    yield name
    for pod in typed().list(Pod, namespace="*", fields={"spec.nodeName": name}):
        assert pod.metadata is not None
        typed().delete(Pod, str(pod.metadata.name), namespace=str(pod.metadata.namespace), grace_period=0)
    typed().delete(Node, name)


def eventually(holds: Callable[[], bool]) -> bool:
    deadline = time.monotonic() + PATIENCE
    pause = threading.Event()
    while not holds():
        if time.monotonic() > deadline:
            return False
        pause.wait(0.02)
    return True


def create(cluster: Cluster, node: str, name: str, cpu: str = "2", **spec: Any) -> EventSubject:
    amounts = {"limits": {"cpu": cpu, "memory": "1Gi"}}
    labels = {"app": name}
    content = {
        "metadata": {
            "name": name,
            "namespace": "default",
            "labels": labels,
            "annotations": {"mooring/opt-out": "true"},
        },
        "spec": {
            "nodeName": node,
            "automountServiceAccountToken": False,
            "containers": [{"name": "app", "image": "none", "resources": amounts}],
            **spec,
        },
    }
    made = post(cluster, "api/v1/namespaces/default/pods", content)
    return EventSubject("Pod", name, made["metadata"]["uid"], "default")


def post(cluster: Cluster, path: str, content: dict[str, Any]) -> dict[str, Any]:
    response = cluster.http.post(path, json=content)
    assert response.is_success, response.text
    made: dict[str, Any] = response.json()
    return made


def sandbox(about: EventSubject) -> PodSandbox:
    return PodSandbox("s", about.uid, about.name, about.namespace)


def test_pods_are_known_as_soon_as_they_are_bound(cluster: Cluster, node: str) -> None:
    findings: list[Finding] = []
    first = create(cluster, node, f"first-{node}")
    source = APIPods(lambda: cluster_of(configuration_of(KUBECONFIG)), node, report=findings.append, patience=PATIENCE)
    source.start()
    try:
        assert source.wait_until_listed(PATIENCE)
        found = source.pod(sandbox(first))
        assert found is not None
        assert (found.uid, found.name, found.qos) == (first.uid, first.name, QoS.GUARANTEED)
        assert found.annotations == {"mooring/opt-out": "true"}
        side = {"name": "side", "image": "none", "restartPolicy": "Always", "resources": {"limits": {"cpu": "1"}}}
        second = create(cluster, node, f"second-{node}", "3", initContainers=[side])
        found = source.pod(sandbox(second))
        assert found is not None
        assert [one.kind for one in found.containers] == [ContainerKind.SIDECAR, ContainerKind.APP]
        assert str(found.containers[1].requests["cpu"]) == "3"
        assert found.qos is QoS.BURSTABLE
        typed().delete(Pod, first.name, namespace="default", grace_period=0)
        assert eventually(lambda: len(source) == 1)
    finally:
        source.stop()
    assert findings == []
    assert not any(thread.name.startswith("follow-") for thread in threading.enumerate())


def test_a_version_that_is_none_fails_and_a_list_of_the_newest_goes_on(cluster: Cluster, node: str) -> None:
    about = create(cluster, node, f"pod-{node}")
    with pytest.raises(ClusterError) as failed:
        list(watch_lines(cluster.http, PODS, pods_of(node), "nonsense", lambda _response: None))
    assert failed.value.code >= 400
    pages = Pages(cluster.http, PODS, pods_of(node))
    assert [mapping_of(item)["metadata"]["uid"] for page in pages for item in page] == [about.uid]
    changes = watch_lines(cluster.http, PODS, pods_of(node), str(int(pages.version) - 1), lambda _response: None)
    assert json.loads(next(changes))["type"] in ("ADDED", "MODIFIED", "BOOKMARK")
    changes.close()


def test_an_event_is_accepted_and_counted_up(cluster: Cluster, node: str) -> None:
    about = create(cluster, node, f"pod-{node}")
    happening = ClusterEvent(about, "TopologyAffinityError", "Resources cannot be allocated with Topology locality")
    number = time.time_ns()
    now = datetime.now(UTC)
    for count in (1, 1, 5):
        write_event(cluster.http, EventWrite(happening, number, count), node, now)
    found = typed().get(Event, EventWrite(happening, number, 1).name, namespace="default")
    assert (found.reason, found.note, found.type) == (happening.reason, happening.note, "Warning")
    assert found.series is not None
    assert found.series.count == 5
    late = EventWrite(ClusterEvent(about, "Held", "again"), number + 1, 3)
    write_event(cluster.http, late, node, now)
    assert typed().get(Event, late.name, namespace="default").series is not None
    on_node = EventWrite(
        ClusterEvent(EventSubject("Node", node, node), "AgentReady", "ready", warning=False), number + 2, 1
    )
    write_event(cluster.http, on_node, node, now)
    assert typed().get(Event, on_node.name, namespace="default").type == "Normal"


def test_an_eviction_takes_the_named_pod_and_no_other(cluster: Cluster, node: str) -> None:
    about = create(cluster, node, f"pod-{node}")
    assert not evict_pod(cluster.http, EventSubject("Pod", about.name, "another", "default"))
    assert not ended(about)
    assert evict_pod(cluster.http, about)
    assert eventually(lambda: ended(about))
    assert not evict_pod(cluster.http, EventSubject("Pod", "never", "never", "default"))


def test_a_disruption_budget_holds_an_eviction_back_for_a_while(cluster: Cluster, node: str) -> None:
    about = create(cluster, node, f"pod-{node}")
    budget = {"minAvailable": 1, "selector": {"matchLabels": {"app": about.name}}}
    path = "apis/policy/v1/namespaces/default/poddisruptionbudgets"
    post(cluster, path, {"metadata": {"name": node}, "spec": budget})
    running = {"status": {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}}
    response = cluster.http.patch(
        f"api/v1/namespaces/default/pods/{about.name}/status",
        json=running,
        headers={"Content-Type": "application/merge-patch+json"},
    )
    assert response.is_success
    with pytest.raises(ClusterError) as failed:
        evict_pod(cluster.http, about)
    assert failed.value.code == 429
    assert failed.value.may_pass
    typed().delete(PodDisruptionBudget, node, namespace="default")


def test_the_taint_comes_and_goes_beside_those_of_others(cluster: Cluster, node: str) -> None:
    other = {"key": "other", "effect": "NoSchedule"}
    typed().patch(Node, node, {"spec": {"taints": [other]}})
    assert set_taint(cluster.http, node, present=True)
    assert not set_taint(cluster.http, node, present=True)
    assert taints(node) >= {"other", TAINT}
    assert set_taint(cluster.http, node, present=False)
    assert "other" in taints(node)
    assert TAINT not in taints(node)


def test_the_writer_does_all_of_it_from_its_own_thread(cluster: Cluster, node: str) -> None:
    findings: list[Finding] = []
    about = create(cluster, node, f"pod-{node}")
    writer = ClusterWriter(lambda: cluster_of(configuration_of(KUBECONFIG)), node, report=findings.append)
    writer.start()
    for _try in range(100):
        writer.event(ClusterEvent(about, "Held", "no room"))
    writer.evict(about, "no room")
    writer.taint(present=True)
    writer.stop(PATIENCE)
    assert taints(node) >= {TAINT}
    assert ended(about)
    assert [one.severity for one in findings] == ["info", "info"]
    events = typed().list(Event, namespace="default", fields={"regarding.uid": about.uid})
    assert [one.reason for one in events] == ["Held"]


def ended(about: EventSubject) -> bool:
    try:
        found = typed().get(Pod, about.name, namespace="default")
    except ApiError as error:
        return error.status.code == 404
    return found.metadata is not None and found.metadata.deletionTimestamp is not None


def taints(node: str) -> set[str]:
    spec = typed().get(Node, node).spec
    return {one.key for one in (spec.taints if spec is not None else None) or []}
