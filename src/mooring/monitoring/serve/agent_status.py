"""A node from the status of its agent: what holds what, what waits, drift and repairs."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from typing import Any

from mooring.monitoring.serve.snapshot import ANY, NodeNotice, NodeSnapshot, PendingRelease, ShownPod
from mooring.views.view import NodeView


def snapshot_of_status(view: NodeView, document: Mapping[str, Any]) -> NodeSnapshot:
    """Return the node of an agent.

    Args:
        view: its picture.
        document: the agent's status, of kind ``AgentStatus``.
    """
    return NodeSnapshot(view, tuple(_pods(document)), tuple(_pending(document)), tuple(_notices(document)))


def _pods(document: Mapping[str, Any]) -> Iterator[ShownPod]:
    for pod in document["pods"]:
        holds = tuple(_held(one) for one in pod["containers"])
        yield ShownPod(pod["namespace"], pod["name"], pod["uid"], "running", admitted=True, holds=holds)
    for pod in document["held"]:
        yield ShownPod(
            pod["namespace"], pod["name"], pod["uid"], pod["reason"], admitted=False, why=f"{pod['message']}."
        )


def _held(container: Mapping[str, Any]) -> str:
    words = [f"CPUs {container['cpus']}" if container["cpus"] else "shared pool"]
    words += [f"memory of NUMA {container['mems']}"] if container["mems"] else []
    words += [f"devices {', '.join(one['id'] for one in container['devices'])}"] if container.get("devices") else []
    words += [f"offline {container['lost']}"] if container.get("lost") else []
    words += [f"until CPUs {container['original']} are online"] if container.get("original") else []
    return f"{container['name']}: {'; '.join(words)}"


def _pending(document: Mapping[str, Any]) -> Iterator[PendingRelease]:
    now = time.time()
    for pod in document["pods"]:
        for container in pod["containers"]:
            if pending := container.get("pending"):
                owner = f"{pod['namespace']}/{pod['name']}/{container['name']}"
                yield PendingRelease(
                    pod["namespace"], owner, pending["releases"], round(now + pending["secondsLeft"], 1)
                )


def _notices(document: Mapping[str, Any]) -> Iterator[NodeNotice]:
    # Reasons and refusals have the words of the engine and the runtime, which can name any pod.
    for reason in document["reasons"]:
        yield NodeNotice(f"Not ready: {reason}", True, ANY, "Not ready")
    if refusal := document["configuration"]["refusal"]:
        brief = "The configuration as it is now is not in force"
        yield NodeNotice(f"{brief}: {refusal}", True, ANY, brief)
    cpus, counts = document["cpus"], document["counts"]
    if cpus.get("offline"):
        yield NodeNotice(f"CPUs {cpus['offline']} are offline", warning=True)
    if cpus["overlap"]:
        yield NodeNotice(f"Other containers may run on exclusive CPUs {cpus['overlap']}", warning=True)
    for pod in document["pods"]:
        for container in pod["containers"]:
            yield from _drift(pod, container)
    if counts["repairs"]:
        yield NodeNotice(f"{counts['repairs']} repairs since the agent started")
    if interrupts := document.get("interrupts"):
        moved, pending = len(interrupts["moved"]), len(interrupts["pending"])
        yield NodeNotice(f"interrupts ({interrupts['mode']}): {moved} moved, {pending} to be moved")


def _drift(pod: Mapping[str, Any], container: Mapping[str, Any]) -> Iterator[NodeNotice]:
    """Yield what of a container is elsewhere than the agent placed it."""
    name = f"{pod['namespace']}/{pod['name']}/{container['name']}"
    told, effective = container.get("told"), container.get("effective")
    if effective and container["cpus"] and effective["cpus"] != container["cpus"]:
        text = f"{name} holds CPUs {container['cpus']}; the kernel lets it run on {effective['cpus']}"
        yield NodeNotice(text, True, pod["namespace"])
    elif told and container["cpus"] and told["cpus"] != container["cpus"]:
        text = f"{name} holds CPUs {container['cpus']}; the runtime has {told['cpus']} on record"
        yield NodeNotice(text, True, pod["namespace"])
