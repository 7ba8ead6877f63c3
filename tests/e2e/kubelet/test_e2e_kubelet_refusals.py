"""What becomes of a pod that has no place: held back until there is room, or evicted."""

from __future__ import annotations

from types import MappingProxyType
from typing import Any

from tests.e2e.containerd.runtime import Runtime
from tests.e2e.kubelet.apiserver import PODS, APIServer
from tests.e2e.kubelet.arrival import arrive, runs
from tests.e2e.kubelet.cases import Case, Wants, pod_of
from tests.e2e.kubelet.decided import Played, Playing
from tests.e2e.kubelet.patience import until
from tests.e2e.kubelet.pinning import Pinned, pinned
from tests.e2e.kubelet.placements import given

from mooring.engine.core.cpuset import CPUSet

# Four NUMA nodes of 20 CPUs: four pods of 12 leave room for a fifth in sum, and on no node.
FULL = Case(
    "full",
    "xeon-6230-2s-snc2",
    MappingProxyType({"cpuManagerPolicy": "static", "topologyManagerPolicy": "single-numa-node"}),
    12,
    24,
    reserved="0,40",
)
REASON, MESSAGE = "TopologyAffinityError", "Resources cannot be allocated with Topology locality"
OWNER = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "web", "uid": "web", "controller": True}


def fill(api: APIServer, node: Runtime, both: Pinned, **metadata: Any) -> dict[str, Any]:
    """Let four pods arrive that have room, and one that has none; return the last one."""
    wants = Wants("app", "12", "64Mi")
    room = [pod_of(f"room-{number}", wants) for number in range(4)]
    *_, last = arrive(api, node, FULL.name, [*room, pod_of("more", wants, **metadata)], both.says_no)
    assert both.holds(last["metadata"]["uid"])
    return last


def waiting(api: APIServer, name: str) -> dict[str, str]:
    """Return why a pod's only container waits."""
    statuses = (api.pod(name) or {}).get("status", {}).get("containerStatuses", [{}])
    found: dict[str, str] = statuses[0].get("state", {}).get("waiting", {})
    return found


def test_a_pod_without_a_place_is_held_back_with_the_kubelets_words_and_comes_in_when_there_is_room(
    api: APIServer, kube: Any, playing: Playing, played: Played
) -> None:
    with playing() as node, pinned(node, kube.kubelet, FULL, played(FULL), api=api) as both:
        held = fill(api, node, both)
        assert both.agent.status()["held"] == [
            {
                "namespace": "default",
                "name": "more",
                "uid": held["metadata"]["uid"],
                "reason": REASON,
                "message": MESSAGE,
                "running": [],
            }
        ]
        until(lambda: waiting(api, "more").get("reason") == "CreateContainerError", "the API server says why")
        assert f"{REASON}: {MESSAGE}" in waiting(api, "more")["message"]
        until(lambda: _told(api, held), "the event stands in the API server")
        [event] = _told(api, held)
        assert (event["note"], event["type"], event["regarding"]["uid"]) == (
            MESSAGE,
            "Warning",
            held["metadata"]["uid"],
        )
        freed = given(node)["room-2/app"]
        api.delete(f"{PODS}/room-2")
        # The kubelet tries again every 10 to 15 seconds.
        until(lambda: runs(node, held), "the pod that was held back runs")
        assert given(node)["more/app"] == freed
        assert len(CPUSet.parse(freed[0])) == 12
        assert both.agent.status()["held"] == []


def test_a_pod_of_a_controller_is_evicted_where_the_operator_wants_that(
    api: APIServer, kube: Any, playing: Playing, played: Played
) -> None:
    with playing() as node, pinned(node, kube.kubelet, FULL, played(FULL), api=api, onRejection="evict") as both:
        evicted = fill(api, node, both, ownerReferences=[OWNER])
        until(lambda: api.pod("more") is None, "the pod is gone")
        until(lambda: both.agent.status()["counts"]["evictions"] == 1, "the eviction is counted")
        assert {pod["metadata"]["name"] for pod in api.pods()} == {f"room-{number}" for number in range(4)}
        until(lambda: both.agent.status()["held"] == [], "the agent has forgotten the pod")
        assert not runs(node, evicted)
        [event] = _told(api, evicted)
        assert event["note"] == MESSAGE


def _told(api: APIServer, pod: dict[str, Any]) -> list[dict[str, Any]]:
    return [event for event in api.events(pod["metadata"]["uid"]) if event["reason"] == REASON]
