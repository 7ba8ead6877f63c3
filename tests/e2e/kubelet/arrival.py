"""Letting pods arrive on a node one after another."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

from tests.e2e.containerd.runtime import Runtime
from tests.e2e.kubelet.apiserver import PODS, APIServer
from tests.e2e.kubelet.patience import until
from tests.e2e.kubelet.placements import containers


def arrive(
    api: APIServer, node: Runtime, name: str, pods: Sequence[Mapping[str, Any]], refused: Callable[[str], bool]
) -> list[dict[str, Any]]:
    """Create pods one after another on a node, each when the one before runs or is refused, and return them.

    Args:
        api: server of the cluster.
        node: the node's runtime.
        name: of the node.
        pods: without a node.
        refused: tells by its uid whether a pod is refused.
    """
    made = []
    for pod in pods:
        created = api.create_pod({**pod, "spec": {**pod["spec"], "nodeName": name}})
        until(partial(_is_settled, node, created, refused), f"pod {created['metadata']['name']} runs or is refused")
        made.append(created)
    return made


def remove_pods(api: APIServer) -> None:
    """Delete all pods, and wait until their kubelet has ended them."""
    for pod in api.pods():
        api.delete(f"{PODS}/{pod['metadata']['name']}")
    until(lambda: not api.pods(), "all pods are gone")


def runs(node: Runtime, pod: Mapping[str, Any]) -> bool:
    """Tell whether all containers of a pod run that are to stay."""
    wanted = {one["name"] for one in stays(pod)}
    return wanted <= {
        one.place.rpartition("/")[2]
        for one in containers(node)
        if one.uid == pod["metadata"]["uid"] and one.state == "RUNNING"
    }


def _is_settled(node: Runtime, pod: Mapping[str, Any], refused: Callable[[str], bool]) -> bool:
    return refused(pod["metadata"]["uid"]) or runs(node, pod)


def stays(pod: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """Return the containers of a pod that do not end by themselves: ordinary ones and sidecars."""
    spec = pod["spec"]
    return [*spec["containers"], *(one for one in spec.get("initContainers", ()) if one.get("restartPolicy"))]
