"""Random pods: exclusive, wide, shared, too large; of several containers; with memory, huge pages and devices."""

from __future__ import annotations

import random
from collections.abc import Mapping
from typing import Any

from tests.e2e.kubelet.cases import Wants, pod_of
from tests.e2e.kubelet.devices.cases import GPU, NIC
from tests.e2e.kubelet.shadow.topologies import Topology

_ENDS, _STAYS = {"command": ["true"]}, {"restartPolicy": "Always"}


def random_pod(topology: Topology, name: str, drawn: random.Random) -> dict[str, Any]:
    """Return a pod for the node of a topology."""
    apps = [_container(topology, f"app-{one}", drawn) for one in range(drawn.choice((1, 1, 1, 2, 3)))]
    before = []
    if drawn.random() < 0.15:
        before.append(_container(topology, "load", drawn, _ENDS))
    if drawn.random() < 0.15:
        before.append(_container(topology, "side", drawn, _STAYS))
    made = pod_of(name, *apps, init=before)
    return {**made, "spec": {**made["spec"], "nodeName": topology.name}}


def has_devices(pod: Mapping[str, Any]) -> bool:
    """Tell whether a pod wants devices."""
    spec = pod["spec"]
    return any(
        {GPU, NIC} & one.get("resources", {}).get("limits", {}).keys()
        for one in (*spec["containers"], *spec.get("initContainers", ()))
    )


def _container(topology: Topology, name: str, drawn: random.Random, settings: Mapping[str, Any] | None = None) -> Wants:
    case, kind = topology.case, drawn.random()
    if kind < 0.08:
        return Wants(name, settings=settings or {})
    if kind < 0.2:
        return Wants(name, f"{drawn.randint(1, 9)}00m", "32Mi", requests_only=True, settings=settings or {})
    cpu = drawn.choice([str(case.own), "1", "2", "2", str(case.own + 1), str(case.wide), "1500m", "1000"])
    limits = {"cpu": cpu, "memory": drawn.choice([topology.memory[0], *topology.memory])}
    if topology.pages and drawn.random() < 0.3:
        limits["hugepages-2Mi"] = drawn.choice(topology.pages)
    if topology.has_devices:
        counts = {GPU: drawn.choice((0, 0, 1, 1, 2)), NIC: drawn.choice((0, 0, 0, 1, 2))}
        limits |= {resource: str(count) for resource, count in counts.items() if count}
    return Wants(name, settings={**(settings or {}), "resources": {"limits": limits}})
