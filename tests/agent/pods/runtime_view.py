"""What a runtime tells about pods: recorded from a real kubelet, or made of a pod as the kubelet would."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from mooring.agent.nri.types import ContainerState, LinuxResources, PodSandbox, RuntimeContainer
from mooring.agent.pods.source import PERIOD, asked_of, quota_of, shares_of
from mooring.engine.core.pod import Container, Pod, QoS
from mooring.inputs.pods.defaults import total_limits, total_requests

FOLDER = Path(__file__).parent / "recorded"
_BELOW = {QoS.GUARANTEED: "", QoS.BURSTABLE: "burstable/", QoS.BEST_EFFORT: "besteffort/"}


def recorded(name: str) -> tuple[PodSandbox, RuntimeContainer]:
    """Return the sandbox and the container of a recorded CreateContainer."""
    request = json.loads((FOLDER / f"{name}.json").read_text())["request"]
    pod, container = request["pod"], request["container"]
    sandbox = PodSandbox(
        id=pod["id"],
        uid=pod["uid"],
        name=pod["name"],
        namespace=pod["namespace"],
        labels=pod["labels"],
        annotations=pod["annotations"],
        cgroup_parent=pod["linux"]["cgroup_parent"],
        overhead=_resources(pod["linux"]["pod_overhead"]),
        pod_resources=_resources(pod["linux"]["pod_resources"]),
    )
    made = RuntimeContainer(
        id=container["id"],
        pod_sandbox_id=container["pod_sandbox_id"],
        name=container["name"],
        resources=_resources(container["linux"]["resources"]),
    )
    return sandbox, made


def names() -> list[str]:
    return sorted(file.stem for file in FOLDER.glob("*.json"))


def sandbox_of(pod: Pod, *, period: int = PERIOD, systemd: bool = False) -> PodSandbox:
    """Return the sandbox that the kubelet makes for a pod."""
    if systemd:
        words = ["kubepods", *([_BELOW[pod.qos].rstrip("/")] if _BELOW[pod.qos] else []), f"pod{pod.uid}"]
        parent = "/" + "/".join("-".join(words[: count + 1]) + ".slice" for count in range(len(words)))
    else:
        parent = f"/kubepods/{_BELOW[pod.qos]}pod{pod.uid}"
    requests, limits = total_requests(pod.containers), total_limits(pod.containers)
    if pod.resources is not None:
        requests, limits = {**requests, **pod.resources.requests}, {**limits, **pod.resources.limits}
    whole = asked_of(replace(pod, resources=None), Container("pod", requests=requests, limits=limits), period)
    overhead = LinuxResources(shares=0, quota=0, period=0, memory_limit=0)
    if pod.overhead:
        milli = pod.overhead["cpu"].milli
        memory = pod.overhead["memory"].units
        overhead = LinuxResources(
            shares=shares_of(milli), quota=quota_of(milli, period), period=period, memory_limit=memory
        )
    return PodSandbox(
        id=f"sandbox-{pod.uid}",
        uid=pod.uid,
        name=pod.name,
        namespace=pod.namespace,
        annotations={"kubernetes.io/config.source": "api", **pod.annotations},
        cgroup_parent=parent,
        overhead=overhead,
        pod_resources=whole,
    )


def container_of(
    pod: Pod, container: Container, *, period: int = PERIOD, state: ContainerState = ContainerState.UNKNOWN
) -> RuntimeContainer:
    """Return a container as the kubelet asks for it."""
    asked = asked_of(pod, container, period)
    given = replace(asked, quota=asked.quota or None, memory_limit=asked.memory_limit or None)
    return RuntimeContainer(
        id=f"{pod.uid}-{container.name}",
        pod_sandbox_id=f"sandbox-{pod.uid}",
        name=container.name,
        state=state,
        resources=given,
    )


def containers_of(pod: Pod, containers: Sequence[Container], *, period: int = PERIOD) -> list[RuntimeContainer]:
    return [container_of(pod, one, period=period) for one in containers]


def _resources(content: dict[str, Any]) -> LinuxResources:
    cpu, memory = content.get("cpu", {}), content.get("memory", {})
    return LinuxResources(
        cpus=cpu.get("cpus", ""),
        mems=cpu.get("mems", ""),
        shares=_number(cpu.get("shares")),
        quota=_number(cpu.get("quota")),
        period=_number(cpu.get("period")),
        memory_limit=_number(memory.get("limit")),
    )


def _number(wrapped: dict[str, str] | None) -> int | None:
    return None if wrapped is None else int(wrapped.get("value", 0))
