"""A pod that waits is tried again when a node publishes more room; all that the publisher may write of its node."""

from __future__ import annotations

import importlib
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from tests.cli.command import mooring
from tests.e2e.containerd.runtime import e2e_parts
from tests.e2e.kube.plane import define, extender, scheduler
from tests.e2e.kubelet.apiserver import APIServer
from tests.e2e.kubelet.cases import Wants, pod_of
from tests.e2e.kubelet.patience import until
from tests.e2e.kubelet.rights import binding_of, give_rights, kubeconfig_of

from mooring.service.apiserver import cluster_of, configuration_of

NODE, OTHER = "wakes", "another"
ACCOUNT, NAMESPACE = "mooring-publish", "mooring"
MACHINE = "sockets=1 numa=2 cores=8 threads=1 memory=16Gi"
CONFIG = {
    "kind": "KubeletConfiguration",
    "cpuManagerPolicy": "static",
    "topologyManagerPolicy": "single-numa-node",
    "reservedSystemCPUs": "0",
}


@dataclass(frozen=True, slots=True)
class Publishing:
    """A node without a kubelet, published by hand."""

    api: APIServer
    folder: Path
    kubeconfig: Path

    def publish(self, *options: str, running: list[dict[str, Any]]) -> None:
        """Publish the node with some running pods."""
        active, config = self.folder / "active.json", self.folder / "kubelet.json"
        active.write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": running}), encoding="utf-8")
        config.write_text(json.dumps(CONFIG), encoding="utf-8")
        where = ("--machine", MACHINE, "--config", str(config), "--active", str(active), "--node-name", NODE)
        done = mooring("publish", *where, "--kubeconfig", str(self.kubeconfig), *options)
        assert (done.code, done.out) == (0, f"{NODE} is published.\n"), done.err

    def scheduling_of(self, name: str) -> str:
        """Return where a pod is, or what is said about why it is nowhere."""
        pod = self.api.pod(name) or {}
        conditions = pod.get("status", {}).get("conditions", [])
        told = next((str(one.get("message", "")) for one in conditions if one["type"] == "PodScheduled"), "")
        return str(pod.get("spec", {}).get("nodeName") or told)


@pytest.fixture
def by_hand(api: APIServer, folder: Path) -> Publishing:
    define(api)
    for name in (NODE, OTHER):
        ready = [{"type": "Ready", "status": "True", "reason": "ByHand", "message": "by hand"}]
        amounts = {"cpu": "8", "memory": "16Gi", "pods": "110"}
        api.post("api/v1/nodes", {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}})
        api.patch(
            f"api/v1/nodes/{name}/status",
            {"status": {"conditions": ready, "capacity": amounts, "allocatable": amounts}},
        )
    # The API server itself taints a new node; of the two only one is to be had.
    api.patch(f"api/v1/nodes/{NODE}", {"spec": {"taints": None}})
    give_rights(api, "publish.yaml", binding_of("mooring-publish-wake", ACCOUNT, NAMESPACE))
    return Publishing(api, folder, kubeconfig_of(api, folder, ACCOUNT, NAMESPACE, NODE))


def test_a_pod_that_waits_is_tried_again_when_the_node_has_published_more_room(
    by_hand: Publishing,
    kube: Any,  # noqa: ARG001 - its script is known from then on
) -> None:
    script = importlib.import_module("e2e_kube_parts")
    try:
        program = script.kube_program("kube-scheduler")
    except e2e_parts().UnavailableError as why:
        pytest.skip(f"e2e kubelet: {why}")
    api = by_hand.api
    by_hand.publish(running=[pod_of("there", Wants("app", "3", "64Mi")), pod_of("here", Wants("app", "4", "64Mi"))])
    with (
        extender(by_hand.folder, api.kubeconfig) as asked,
        scheduler(program, by_hand.folder, api.kubeconfig, asked.url),
    ):
        api.create_pod(pod_of("waits", Wants("app", "4", "64Mi")))
        until(lambda: "MOOR-10" in by_hand.scheduling_of("waits"), "the extender has no node for it")
        by_hand.publish("--wake", running=[])
        until(lambda: by_hand.scheduling_of("waits") == NODE, "it is bound")


def test_the_publisher_annotates_its_own_node_and_nothing_else(by_hand: Publishing) -> None:
    def tried(node: str, **content: Any) -> tuple[int, str]:
        answer = publisher.http.patch(
            f"api/v1/nodes/{node}",
            json=content,
            params={"dryRun": "All"},
            headers={"Content-Type": "application/merge-patch+json"},
        )
        return answer.status_code, answer.text

    room = {"annotations": {"mooring.dev/room": "1"}}
    own, nothing_else = "the publisher annotates its own node only", "the annotation mooring.dev/room and nothing else"
    by_hand.api.patch(f"api/v1/nodes/{NODE}", {"metadata": {"annotations": {"somebody/else": "1"}}})
    with cluster_of(configuration_of(str(by_hand.kubeconfig))) as publisher:
        until(lambda: own in tried(OTHER, metadata=room)[1], "the policy is in force")
        assert tried(NODE, metadata=room)[0] == 200
        for content in (
            {"metadata": {"labels": {"a": "b"}}},
            {"metadata": {"annotations": {"somebody/else": "2"}}},
            {"metadata": {"annotations": {"somebody/else": None}}},
            {"metadata": {"annotations": {"somebody/new": "2"}}},
            {"metadata": {"finalizers": ["some/body"]}},
            {"spec": {"unschedulable": True}},
        ):
            status, text = tried(NODE, **content)
            assert (status, nothing_else in text) == (422, True), text
        assert publisher.http.get("api/v1/nodes").status_code == 403
        assert publisher.http.delete(f"api/v1/nodes/{NODE}").status_code == 403
        assert publisher.http.get(f"apis/mooring.dev/v1alpha1/nodestates/{NODE}").status_code == 403
