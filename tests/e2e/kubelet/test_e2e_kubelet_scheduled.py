"""Scheduler, extender and a real kubelet: what is bound is admitted, and what would be refused waits and says why."""

from __future__ import annotations

import importlib
import time
from collections.abc import Iterator
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

import pytest
from tests.e2e.containerd.runtime import e2e_parts
from tests.e2e.kube.plane import OURS, Extender, define, extender, scheduler
from tests.e2e.kubelet.apiserver import PODS, APIServer
from tests.e2e.kubelet.cases import Case, Wants, pod_of
from tests.e2e.kubelet.decided import Played, Playing
from tests.e2e.kubelet.kubelet import Kubelet, kubelet_on
from tests.e2e.kubelet.patience import until
from tests.e2e.kubelet.publishing import publishing

from mooring.engine.core.release import NEWEST, FeatureGates, resolve_gates
from mooring.engine.releases.gates import declared_features, known_gates

# Four NUMA nodes of 20 CPUs: four pods of 12 leave room for a fifth in sum, and on no node.
CASE = Case(
    "scheduled",
    "xeon-6230-2s-snc2",
    MappingProxyType(
        {"cpuManagerPolicy": "static", "memoryManagerPolicy": "Static", "topologyManagerPolicy": "single-numa-node"}
    ),
    12,
    24,
    reserved="0,40",
)
REASON = "mooring: no single NUMA node has enough free CPUs (MOOR-103, TopologyAffinityError)"
ROOM = tuple(f"room-{number}" for number in range(4))


@dataclass(frozen=True, slots=True)
class Scheduled:
    """A cluster of one node."""

    api: APIServer
    kubelet: Kubelet
    extender: Extender

    def create(self, name: str, cpus: str = "12", **spec: Any) -> str:
        """Make a pod; return its uid."""
        pod = pod_of(name, Wants("app", cpus, "64Mi"))
        return str(self.api.create_pod({**pod, "spec": {**pod["spec"], **spec}})["metadata"]["uid"])

    def is_bound(self, name: str) -> bool:
        return bool((self.api.pod(name) or {}).get("spec", {}).get("nodeName"))

    def has_cpus(self, uid: str) -> bool:
        """Tell whether the kubelet has given the pod CPUs of its own."""
        return uid in self.kubelet.state("cpu")

    def condition(self, name: str) -> str:
        """Return what ``kubectl describe pod`` shows about the scheduling of a pod."""
        conditions = (self.api.pod(name) or {}).get("status", {}).get("conditions", [])
        return next((str(one.get("message", "")) for one in conditions if one["type"] == "PodScheduled"), "")


@pytest.fixture
def scheduled(api: APIServer, kube: Any, playing: Playing, played: Played) -> Iterator[Scheduled]:
    try:
        program = importlib.import_module("e2e_kube_parts").kube_program("kube-scheduler")
    except e2e_parts().UnavailableError as why:
        pytest.skip(f"e2e kubelet: {why}")
    define(api)
    machine, policies = played(CASE), {**CASE.policies, **CASE.reservations}
    with (
        playing() as node,
        kubelet_on(node, kube.kubelet, CASE.name, policies, machine=machine, kubeconfig=api.kubeconfig) as kubelet,
        publishing(api, CASE.name, kubelet.root, kubelet.configuration, machine),
        extender(node.folder, api.kubeconfig) as asked,
        scheduler(program, node.folder, api.kubeconfig, asked.url),
    ):
        until(lambda: api.cluster.http.get(f"{OURS}/nodestates/{CASE.name}").is_success, "the node is published")
        yield Scheduled(api, kubelet, asked)
        for pod in api.pods():
            api.delete(f"{PODS}/{pod['metadata']['name']}")
        until(lambda: not api.pods(), "all pods are gone")
    api.delete(f"{OURS}/nodestates/{CASE.name}")


def test_pods_come_to_a_real_kubelet_only_when_it_admits_them(scheduled: Scheduled) -> None:
    # All at once: what is bound and not published yet counts.
    uids = [scheduled.create(name) for name in ROOM]
    until(lambda: all(scheduled.has_cpus(uid) for uid in uids), "the kubelet has admitted all four")
    more = scheduled.create("more")
    until(lambda: "nodes are available" in scheduled.condition("more"), "the scheduler says why the fifth waits")
    assert REASON in scheduled.condition("more")
    assert not scheduled.is_bound("more")

    # What the kubelet does with the same pod where nobody asks the extender.
    past = scheduled.create("past", nodeName=CASE.name)
    until(lambda: scheduled.kubelet.refused(past), "the kubelet refuses it")
    assert not any(scheduled.kubelet.refused(uid) for uid in uids)

    # What `mooring play` and `mooring fleet` take its node to declare.
    [node] = scheduled.api.get("api/v1/nodes")["items"]
    gates = resolve_gates({}, known_gates(NEWEST.name), ())
    assert isinstance(gates, FeatureGates)
    assert tuple(node["status"]["declaredFeatures"]) == declared_features(NEWEST.name, gates)

    scheduled.api.delete(f"{PODS}/{ROOM[2]}")
    until(lambda: _comes_in(scheduled, more), "the fifth has come in when there is room")
    assert not scheduled.kubelet.refused(more)
    assert not [name for name in scheduled.extender.metrics() if name.startswith("mispredictions")]


def _comes_in(scheduled: Scheduled, uid: str) -> bool:
    """Tell whether a pod runs, and let something happen in the cluster, at which the scheduler tries pods that wait.

    It hears of the end of a pod when the extender does. Who asks first is chance, and where nothing ever happens the
    scheduler asks again after five minutes.
    """
    node = scheduled.api.get("api/v1/nodes")["items"][0]["metadata"]["name"]
    scheduled.api.patch(f"api/v1/nodes/{node}", {"metadata": {"annotations": {"e2e/moment": str(time.monotonic())}}})
    return scheduled.has_cpus(uid)
