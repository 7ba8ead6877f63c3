"""Pods of played nodes, and what a kubelet writes about them to the API server: statuses and events.

Source: kubelet v1.37.1, pkg/kubelet: status/generate.go, status/status_manager.go, kubelet.go (rejectPod), allocation;
spec: metrics.md section 3, resize.md section 3.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from ipaddress import IPv4Address
from typing import Any, Final

import msgspec

from mooring.cluster.play.nodes import stamp
from mooring.engine.core.decision import Rejection
from mooring.engine.core.moment import SECOND
from mooring.engine.core.pod import Pod
from mooring.engine.node.resources import IN_PROGRESS, INFEASIBLE, PENDING, Resize
from mooring.inputs.decoding.quantities import nanoseconds
from mooring.inputs.pods.cluster_objects import REJECTED

STARTS: Final = "play.mooring.dev/starts-after"
RUNS: Final = "play.mooring.dev/runs-for"
STOPS: Final = "play.mooring.dev/stops-after"
"""Annotations of a pod: durations from its admission to Running, from there to its end, and from its deletion on."""
EXIT_CODE: Final = "play.mooring.dev/exit-code"
"""Annotation of a pod: how its containers end after :data:`RUNS`."""
_ADDRESSES: Final = IPv4Address("10.64.0.1")
"""The first one."""


@dataclass(slots=True)
class PlayedPod:
    """A pod of a played node, with what its status says besides the phase."""

    name: str
    namespace: str
    uid: str
    node: str
    host: str
    """Address of the node."""
    number: int
    """Of the pod, for its address."""
    generation: int
    containers: tuple[tuple[str, str], ...]
    """Names and images."""
    inits: tuple[tuple[str, str, bool], ...]
    """Names and images of init containers, and whether each is a sidecar."""
    on_host: bool
    """Whether it has the address of the node."""
    admitted: float
    """Seconds since 1970."""
    started: float = 0.0
    ran: bool = False
    """Whether it was admitted before these nodes were played."""
    starts: float = 0.0
    """Seconds from its admission to its start."""
    runs: float | None = None
    """Seconds from its start to its end; None where it does not end by itself."""
    stops: float = 0.0
    """Seconds from its deletion to its end."""
    exit_code: int = 0
    phase: str = "Pending"
    ends: bool = False
    """Whether it is being deleted."""
    resources: Mapping[str, Any] = field(default_factory=dict)
    """Container, or nothing for the pod as a whole -> what it has been given, as its specification had it."""
    wanted: Mapping[str, Any] = field(default_factory=dict)
    """The same of the newest specification."""
    wants: Pod | None = None
    """The pod with resources that it has not been given."""
    resize: Resize | None = None
    """The last answer about these."""
    resized: float = 0.0
    """When it was another one last."""

    @property
    def path(self) -> str:
        """Where the API server has it."""
        return f"api/v1/namespaces/{self.namespace}/pods/{self.name}"


def played_pod(document: Mapping[str, Any], node: str, host: str, number: int, *, annotated: bool = True) -> PlayedPod:
    """Return a pod of the API server, as it begins here.

    Args:
        document: of the API server.
        node: its node.
        host: address of the node.
        number: of the pod.
        annotated: whether its annotations say how long it runs.

    Raises:
        InputError: an annotation is no duration.
        ValueError: an annotation is no number.
    """
    metadata, spec, status = document["metadata"], document["spec"], document.get("status") or {}
    pod = PlayedPod(
        metadata["name"],
        metadata["namespace"],
        metadata["uid"],
        node,
        host,
        number,
        int(metadata.get("generation", 1)),
        tuple((one["name"], one["image"]) for one in spec["containers"]),
        tuple(
            (one["name"], one["image"], one.get("restartPolicy") == "Always")
            for one in spec.get("initContainers") or ()
        ),
        on_host=bool(spec.get("hostNetwork")),
        admitted=time.time(),
        wanted=resources_of(spec),
    )
    given = allocated(document)
    pod.resources = pod.wanted if given is document else resources_of(given["spec"])
    if started := status.get("startTime"):
        pod.admitted = pod.started = datetime.fromisoformat(started).timestamp()
        pod.ran, pod.phase = True, status.get("phase") or "Pending"
    annotations = (metadata.get("annotations") or {}) if annotated else {}
    pod.starts, pod.stops = (nanoseconds(annotations.get(name, "0")) / SECOND for name in (STARTS, STOPS))
    if RUNS in annotations and spec.get("restartPolicy") != "Always":
        pod.runs = nanoseconds(annotations[RUNS]) / SECOND
        pod.exit_code = int(annotations.get(EXIT_CODE, "0"))
    return pod


def resources_of(spec: Mapping[str, Any]) -> dict[str, Any]:
    """Return the resources of a specification: by container, those of the whole pod under no name."""
    found: dict[str, Any] = {"": spec["resources"]} if spec.get("resources") else {}
    for container in (*spec["containers"], *(spec.get("initContainers") or ())):
        amounts = container.get("resources") or {}
        # In the order in which a kubelet prints them.
        given = {kind: dict(sorted(amounts[kind].items())) for kind in ("limits", "requests") if amounts.get(kind)}
        found[container["name"]] = given
    return found


def allocated(document: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return a pod with the resources that its kubelet has given it, where its status tells them."""
    spec, status = document["spec"], document.get("status") or {}
    told = [one for kind in ("containerStatuses", "initContainerStatuses") for one in status.get(kind) or ()]
    given = {one["name"]: one["resources"] for one in told if one.get("resources")}
    if not given:
        return document
    made = {
        kind: [
            {**one, "resources": {"claims": (one.get("resources") or {}).get("claims") or [], **given[one["name"]]}}
            if one["name"] in given
            else one
            for one in spec.get(kind) or ()
        ]
        for kind in ("containers", "initContainers")
    }
    of_pod = {"resources": status["resources"]} if status.get("resources") else {}
    return {**document, "spec": {**spec, **made, **of_pod}}


def resize_event(pod: PlayedPod, reason: str, answer: Resize) -> dict[str, Any]:
    """Return one of the events about a resize; pending ones tell what is wanted, and why it is not given."""
    refused = answer.rejection
    word = reason.removeprefix("Resize").lower()
    if refused is not None:
        word = INFEASIBLE if answer.reason == INFEASIBLE else refused.reason
    inits = [one[0] for one in pod.inits]
    amounts = {name: pod.wanted[name] for name in pod.wanted if name}
    told = {
        "initContainers": [{"name": name, "resources": amounts[name]} for name in inits],
        "containers": [{"name": name, "resources": one} for name, one in amounts.items() if name not in inits],
    }
    content = {name: listed for name, listed in told.items() if listed} | {"generation": pod.generation}
    text = msgspec.json.encode(content | ({"error": answer.message} if refused is not None else {})).decode()
    return pod_event(pod, reason, f"Pod resize {word}: {text}", "Normal" if refused is None else "Warning")


def rejected_status(pod: PlayedPod, rejection: Rejection) -> dict[str, Any]:
    """Return the status of a pod that its kubelet rejects."""
    return {
        "phase": "Failed",
        "reason": rejection.reason,
        "message": REJECTED + rejection.message,
        "startTime": stamp(pod.admitted),
        "observedGeneration": pod.generation,
        "conditions": None,
    }


def pod_event(pod: PlayedPod, reason: str, message: str, kind: str = "Warning") -> dict[str, Any]:
    """Return the event with which a kubelet reports something of a pod."""
    now = stamp()
    source = {"component": "kubelet", "host": pod.node}
    about = {"kind": "Pod", "namespace": pod.namespace, "name": pod.name, "uid": pod.uid, "apiVersion": "v1"}
    return {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {"name": f"{pod.name[:200]}.{time.time_ns():x}", "namespace": pod.namespace},
        "involvedObject": about,
        "reason": reason,
        "message": message[:1024],
        "type": kind,
        "source": source,
        "count": 1,
        "firstTimestamp": now,
        "lastTimestamp": now,
        "reportingComponent": source["component"],
        "reportingInstance": pod.node,
    }


def pod_status(pod: PlayedPod) -> dict[str, Any]:
    """Return the status of an admitted pod in its phase: its containers wait, run or have ended together."""
    own, whole = pod.host if pod.on_host else str(_ADDRESSES + pod.number), pod.resources.get("", {})
    inits = [
        _container(pod, name, image, pod.phase if is_sidecar or pod.phase == "Pending" else "Succeeded")
        for name, image, is_sidecar in pod.inits
    ]
    return {
        "phase": pod.phase,
        "startTime": stamp(pod.admitted),
        "observedGeneration": pod.generation,
        "hostIP": pod.host,
        "hostIPs": [{"ip": pod.host}],
        **({} if pod.phase == "Pending" else {"podIP": own, "podIPs": [{"ip": own}]}),
        "conditions": [*_conditions(pod), *_resizing(pod)],
        "containerStatuses": [_container(pod, name, image, pod.phase) for name, image in pod.containers],
        **({"initContainerStatuses": inits} if inits else {}),
        **({"resources": whole, "allocatedResources": whole.get("requests") or {}} if whole else {}),
    }


def _conditions(pod: PlayedPod) -> Iterator[dict[str, str | None]]:
    runs, done = pod.phase == "Running", pod.phase in ("Succeeded", "Failed")
    names = " ".join(name for name, _ in pod.containers)
    completed = {"reason": "PodCompleted"} if pod.phase == "Succeeded" else {"reason": "PodFailed"}
    unready = {"reason": "ContainersNotReady", "message": f"containers with unready status: [{names}]"}
    inits = " ".join(name for name, *_ in pod.inits)
    waits = {"reason": "ContainersNotInitialized", "message": f"containers with incomplete status: [{inits}]"}
    why = {} if runs else completed if done else unready
    for kind, holds, more in (
        ("PodReadyToStartContainers", runs, {}),
        ("Initialized", runs or done or not pod.inits, {} if runs or not pod.inits else completed if done else waits),
        ("Ready", runs, why),
        ("ContainersReady", runs, why),
        ("PodScheduled", True, {}),
    ):
        at = stamp(pod.admitted if kind == "PodScheduled" else None)
        yield {"type": kind, "status": str(holds), "lastTransitionTime": at, "reason": None, "message": None, **more}


def _resizing(pod: PlayedPod) -> Iterator[dict[str, Any]]:
    """Yield the conditions of a resize, and what takes away those that are not so any more."""
    if pod.resize is None:
        return
    for kind in (PENDING, IN_PROGRESS):
        if pod.resize.condition != kind:
            yield {"type": kind, "$patch": "delete"}
            continue
        yield {
            "type": kind,
            "status": "True",
            "lastTransitionTime": stamp(pod.resized),
            "observedGeneration": pod.generation,
            "reason": pod.resize.reason or None,
            "message": pod.resize.message or None,
        }


def _container(pod: PlayedPod, name: str, image: str, phase: str) -> dict[str, Any]:
    ended = phase in ("Succeeded", "Failed")
    identity = f"mooring://{pod.uid}/{name}"
    started, given = {"startedAt": stamp(pod.started)}, pod.resources.get(name, {})
    code = pod.exit_code if phase == "Failed" else 0
    end = {"exitCode": code, "reason": "Error" if code else "Completed", "finishedAt": stamp(), "containerID": identity}
    state: Mapping[str, Mapping[str, Any]] = {
        "Pending": {"waiting": {"reason": "ContainerCreating"}},
        "Running": {"running": started},
    }
    return {
        "name": name,
        "image": image,
        "imageID": "",
        "restartCount": 0,
        **({} if ended else {"resources": given, "allocatedResources": given.get("requests") or {}}),
        "ready": phase == "Running",
        "started": phase == "Running",
        "state": {"terminated": {**started, **end}} if ended else state[phase],
        **({} if phase == "Pending" else {"containerID": identity}),
    }
