"""Random pods of a few dozen shapes, as a cluster of replicas has them."""

from __future__ import annotations

import random
from collections.abc import Mapping
from typing import Any

from tests.e2e.kube.kinds import DEVICE

LARGE = (1, 2, 2, 4, 4, 6, 8, 12, 15, 16, 20, 24, 32, 40)
URGENT = "urgent"


def random_pod(chance: random.Random, name: str) -> dict[str, Any]:
    """Return a pod: two in three have exclusive CPUs, every sixth of these huge pages, a device or both."""
    kind = chance.random()
    if kind < 0.66:
        return pod(name, **_exclusive(chance))
    if kind < 0.85:
        amounts = {"cpu": chance.choice(("250m", "1", "2500m")), "memory": chance.choice(("64Mi", "1Gi"))}
        return pod(name, {"requests": amounts})
    if kind < 0.9:
        # Guaranteed, and no whole number of CPUs.
        amounts = {"cpu": "1500m", "memory": "256Mi"}
        return pod(name, {"limits": amounts})
    return pod(name, {})


def _exclusive(chance: random.Random) -> dict[str, Any]:
    cpus, memory = chance.choice(LARGE), chance.choice(("256Mi", "256Mi", "2Gi", "8Gi"))
    limits = {"cpu": str(cpus), "memory": memory}
    extra = chance.random()
    if extra < 0.06:
        limits["hugepages-2Mi"] = "256Mi"
    if 0.05 < extra < 0.15:
        limits[DEVICE] = "1"
    containers = [{"limits": limits}]
    more = chance.random()
    if more < 0.12:
        containers.append({"limits": {"cpu": str(chance.choice((1, 2, 4))), "memory": "128Mi"}})
    elif more < 0.2:
        containers.append({"limits": {"cpu": "500m", "memory": "128Mi"}})
    first, side = None, None
    if more > 0.94:
        first = {"limits": {"cpu": "2", "memory": "256Mi"}}
    elif more > 0.88:
        side = {"limits": {"cpu": "1", "memory": "128Mi"}}
    return {
        "resources": containers[0],
        "others": containers[1:],
        "first": first,
        "side": side,
        "urgent": chance.random() < 0.03,
    }


def pod(
    name: str,
    resources: Mapping[str, Any],
    *,
    others: list[Mapping[str, Any]] | None = None,
    first: Mapping[str, Any] | None = None,
    side: Mapping[str, Any] | None = None,
    urgent: bool = False,
    node: str = "",
) -> dict[str, Any]:
    """Return a pod.

    Args:
        name: of the pod.
        resources: of its container.
        others: resources of more containers.
        first: resources of an init container.
        side: resources of a sidecar.
        urgent: whether others may be preempted for it.
        node: bound there past every scheduler.
    """
    apps = [_container(f"app-{number}", one) for number, one in enumerate([resources, *(others or ())])]
    inits = [_container("first", first)] if first else []
    if side:
        inits.append({**_container("side", side), "restartPolicy": "Always"})
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": "default"},
        "spec": {
            "automountServiceAccountToken": False,
            "enableServiceLinks": False,
            "terminationGracePeriodSeconds": 1,
            "tolerations": [{"operator": "Exists"}],
            "containers": apps,
            **({"initContainers": inits} if inits else {}),
            **({"priorityClassName": URGENT} if urgent else {}),
            **({"nodeName": node} if node else {}),
        },
    }


def _container(name: str, resources: Mapping[str, Any]) -> dict[str, Any]:
    return {"name": name, "image": "none", "resources": dict(resources)}
