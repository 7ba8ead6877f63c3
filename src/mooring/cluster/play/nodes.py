"""The kubelets of all played nodes: they are notified of their pods as kubelets are, and the engine decides.

Pods are admitted in the order in which the API server shows them as bound, after a list in the order of their creation,
as the kubelet sorts them. A kubelet that starts on pods that run admits these first, in the order of their start.

Source: kubelet v1.37.1, pkg/kubelet/kubelet.go (HandlePodAdditions, rejectPod), config/apiserver.go.
"""

from __future__ import annotations

import sched
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any, Final, TypeAlias

import msgspec

from mooring.cluster.play.objects import (
    EXIT_CODE,
    FAULT,
    RUNS,
    STARTS,
    STOPS,
    PlayedPod,
    node_status,
    pod_status,
    rejected_event,
    rejected_status,
)
from mooring.engine.core.decision import Rejection
from mooring.engine.core.errors import InputError
from mooring.engine.core.pod import Pod
from mooring.engine.kubelet.events import (
    Admit,
    Event,
    EventResult,
    Offline,
    Online,
    Readmit,
    Remove,
    Restart,
    after_event,
    check_known,
)
from mooring.engine.kubelet.kubelet import Kubelet
from mooring.fleet.cluster import Member
from mooring.inputs.decoding.quantities import nanoseconds
from mooring.inputs.pods.cluster_objects import FINISHED
from mooring.inputs.pods.defaults import PodGates
from mooring.inputs.pods.pods import cpu_list, pod_from_object
from mooring.published.objects import NodeFacts, NodeState
from mooring.published.restored import NodeKind, restored
from mooring.service.apiserver import ClusterError
from mooring.service.following import mapping_of

Document: TypeAlias = dict[str, Any]
Write: TypeAlias = Callable[[str, str, str, Document], object]
"""Takes a write: what it is about, method, path and body; writes about one thing arrive in their order."""
FAULTS: Final = ("restart", "lose-state", "offline=CPUS", "online=CPUS", "unhealthy=DEVICES", "healthy=DEVICES")
"""What the annotation of a node can say."""


@dataclass(slots=True)
class PlayedNode:
    """One node."""

    member: Member
    kubelet: Kubelet
    address: str
    problem: str = ""
    """Why its kubelet does not run; empty when it does."""
    waiting: dict[str, Document] = field(default_factory=dict)
    """Uid -> pod of which it will be notified when it runs again."""
    faulted: str = ""
    """What its annotation said last; that has happened."""

    @property
    def name(self) -> str:
        """Its name in the cluster."""
        return self.member.name

    def read(self, document: Document) -> Pod:
        """Return a pod as this kubelet understands it.

        Raises:
            InputError: it cannot be read.
        """
        gates = PodGates.of_node(self.kubelet.settings.config, self.kubelet.mooring)
        return pod_from_object(document, source=self.name, gates=gates)

    def happens(self, event: Event) -> EventResult:
        """Let the engine take an event."""
        self.kubelet, result = after_event(self.kubelet, event)
        return result

    def fault(self, text: str) -> EventResult:
        """Let happen what an annotation says.

        Raises:
            InputError: it says nothing that is known.
        """
        what, _, about = text.partition("=")
        kubelet, devices = self.kubelet, self.kubelet.node.providers.devices
        if what == "restart":
            return self.happens(Restart())
        if what == "lose-state":
            emptied = kubelet.with_devices(replace(devices, held={}))
            self.kubelet = replace(emptied, cpu_file=None, memory_file=None)
            return self.happens(Restart())
        if what in ("offline", "online"):
            cpus = cpu_list(about, FAULT)
            check_known(kubelet.node, cpus, FAULT)
            return self.happens(Offline(cpus) if what == "offline" else Online(cpus))
        if what in ("unhealthy", "healthy"):
            ids = set(about.split(","))
            if unknown := ids - {one.id for known in devices.devices.values() for one in known}:
                raise InputError(f"the node has no device {min(unknown)!r:.60}", field=FAULT)
            healths = {
                resource: tuple(replace(one, healthy=what == "healthy") if one.id in ids else one for one in known)
                for resource, known in devices.devices.items()
            }
            self.kubelet = kubelet.with_devices(replace(devices, devices=healths))
            return EventResult()
        raise InputError(f"{text!r:.60} is not known", field=FAULT, remedy=f"write one of {', '.join(FAULTS)}")


@dataclass(slots=True)
class Play:
    """All nodes; a listener to the pods that are bound to them."""

    nodes: dict[str, PlayedNode]
    write: Write
    report: Callable[[str, str], object]
    """Takes what it is about, and what is the matter."""
    speed: float = 1.0
    """How many seconds of pods pass in one."""
    states: Mapping[str, NodeState] = field(default_factory=dict)
    """Name of a node -> what it had allocated when it was played last."""
    decided: Callable[[PlayedPod, Rejection | None], object] = lambda _pod, _rejection: None
    """Is notified of each decision."""
    pods: dict[str, PlayedPod] = field(default_factory=dict)
    """Uid -> pod, of all that were decided about and are there still."""
    counts: Counter[str] = field(default_factory=Counter)
    """Admitted pods, and rejected ones by their reasons."""
    timers: sched.scheduler = field(default_factory=lambda: sched.scheduler(time.monotonic))
    lock: threading.RLock = field(default_factory=threading.RLock)
    _numbers: int = 0

    # What kubelets are notified of.

    def listed(self, pages: Iterator[list[msgspec.Raw]]) -> None:
        """Take all pods that are bound."""
        found = [mapping_of(item) for page in pages for item in page]
        with self.lock:
            here = {one["metadata"]["uid"]: one for one in found if one["spec"].get("nodeName") in self.nodes}
            for uid in self.pods.keys() - here.keys():
                self._forget(uid)
            for node in self.nodes.values():
                node.waiting = {uid: one for uid, one in node.waiting.items() if uid in here}
            for node in [self.nodes[name] for name in self.states if name in self.nodes]:
                self._restore(node, self.states[node.name], here)
            self.states = {}
            for one in sorted(here.values(), key=_order):
                self._take(one)

    def changed(self, item: msgspec.Raw) -> None:
        """Take a pod that is new or changed."""
        with self.lock:
            self._take(mapping_of(item))

    def deleted(self, item: msgspec.Raw) -> None:
        """Take a pod that is gone."""
        document = mapping_of(item)
        uid, node = str(document["metadata"]["uid"]), self.nodes.get(document["spec"].get("nodeName", ""))
        with self.lock:
            if node is not None:
                node.waiting.pop(uid, None)
            self._forget(uid)

    def failed(self, error: ClusterError, times: int) -> None:
        """Report an outage."""
        if times == 1:
            self.report("pods", str(error))

    def _take(self, document: Document) -> None:
        metadata, phase = document["metadata"], (document.get("status") or {}).get("phase")
        uid, node = str(metadata["uid"]), self.nodes.get(document["spec"].get("nodeName", ""))
        if node is None:
            return
        if node.problem:
            node.waiting[uid] = document
            return
        pod = self.pods.get(uid)
        if pod is None and phase not in FINISHED:
            pod = self._decide(node, document)
        if "deletionTimestamp" not in metadata:
            return
        if pod is None:
            self._delete(f"api/v1/namespaces/{metadata['namespace']}/pods/{metadata['name']}", uid)
        elif not pod.ends:
            pod.ends = True
            stops = min(pod.stops, float(metadata.get("deletionGracePeriodSeconds") or 0))
            self._later(stops if pod.phase == "Running" else 0.0, self._end, pod)

    def _decide(self, node: PlayedNode, document: Document) -> PlayedPod:
        pod = self._read(node, document)
        self.pods[pod.uid] = pod
        if pod.uid not in node.kubelet.node.active:
            try:
                asked = node.read(document)
            except InputError as error:
                self.report(node.name, f"a pod is left alone: {error}")
                return pod
            [result] = node.happens(Readmit(asked) if pod.ran else Admit(asked)).admissions
            if result.never_returns:
                why = result.crash or "it would never return from the admission"
                self.report(node.name, f"the kubelet would crash at {pod.namespace}/{pod.name}: {why}")
                return pod
            if result.decision.rejection is not None:
                self._reject(pod, result.decision.rejection)
                return pod
        self.counts["admitted"] += 1
        self.decided(pod, None)
        if pod.phase == "Running":
            self._run(pod)
        elif pod.starts:
            self._status(pod)
            self._later(pod.starts, self._start, pod)
        else:
            self._start(pod)
        return pod

    def _read(self, node: PlayedNode, document: Document) -> PlayedPod:
        metadata, spec, status = document["metadata"], document["spec"], document.get("status") or {}
        self._numbers += 1
        pod = PlayedPod(
            metadata["name"],
            metadata["namespace"],
            metadata["uid"],
            node.name,
            node.address,
            self._numbers,
            int(metadata.get("generation", 1)),
            tuple((one["name"], one["image"]) for one in spec["containers"]),
            tuple(
                (one["name"], one["image"], one.get("restartPolicy") == "Always")
                for one in spec.get("initContainers") or ()
            ),
            on_host=bool(spec.get("hostNetwork")),
            admitted=time.time(),
        )
        if started := status.get("startTime"):
            pod.admitted = pod.started = datetime.fromisoformat(started).timestamp()
            pod.ran, pod.phase = True, status.get("phase") or "Pending"
        annotations = metadata.get("annotations") or {}
        try:
            pod.starts, pod.stops = (nanoseconds(annotations.get(name, "0")) / 1e9 for name in (STARTS, STOPS))
            if RUNS in annotations and spec.get("restartPolicy") != "Always":
                pod.runs = nanoseconds(annotations[RUNS]) / 1e9
                pod.exit_code = int(annotations.get(EXIT_CODE, "0"))
        except (InputError, ValueError) as error:
            self.report(f"{pod.namespace}/{pod.name}", f"an annotation of play.mooring.dev is not used: {error}")
        return pod

    def _reject(self, pod: PlayedPod, rejection: Rejection) -> None:
        pod.phase = "Failed"
        self.counts[rejection.reason] += 1
        self.decided(pod, rejection)
        self._patch(pod, rejected_status(pod, rejection))
        self.write(pod.uid, "POST", f"api/v1/namespaces/{pod.namespace}/events", rejected_event(pod, rejection))

    # What containers do.

    def _later(self, seconds: float, action: Callable[[PlayedPod], object], pod: PlayedPod) -> None:
        if seconds <= 0:
            action(pod)
        else:
            self.timers.enter(seconds / self.speed, 0, self._due, (action, pod))

    def _due(self, action: Callable[[PlayedPod], object], pod: PlayedPod) -> None:
        with self.lock:
            node = self.nodes.get(pod.node)
            if node is not None and node.problem:
                self.timers.enter(1.0, 0, self._due, (action, pod))  # it will notice when it runs again
            elif pod.uid in self.pods:
                action(pod)

    def _start(self, pod: PlayedPod) -> None:
        if pod.ends or pod.phase != "Pending":
            return
        pod.phase, pod.started = "Running", time.time()
        self._status(pod)
        self._run(pod)

    def _run(self, pod: PlayedPod) -> None:
        if pod.runs is not None:
            passed = (time.time() - pod.started) * self.speed
            self._later(max(pod.runs - passed, 1e-3), self._finish, pod)

    def _finish(self, pod: PlayedPod) -> None:
        if pod.ends or pod.phase != "Running":
            return
        pod.phase = "Failed" if pod.exit_code else "Succeeded"
        self._release(pod)
        self._status(pod)

    def _end(self, pod: PlayedPod) -> None:
        self._release(pod)
        self._delete(pod.path, pod.uid)

    def _forget(self, uid: str) -> None:
        if (pod := self.pods.pop(uid, None)) is not None:
            self._release(pod)

    def _release(self, pod: PlayedPod) -> None:
        node = self.nodes.get(pod.node)
        if node is not None and pod.uid in node.kubelet.node.active:
            node.happens(Remove(pod.uid))

    # What happens to kubelets.

    def happens(self, name: str, event: Event | str) -> None:
        """Let something happen to a node: an event, or what its annotation says."""
        with self.lock:
            node = self.nodes[name]
            try:
                result = node.fault(event) if isinstance(event, str) else node.happens(event)
            except InputError as error:
                self.report(name, str(error))
                return
            for one in result.admissions:
                if one.decision.rejection is not None and one.pod.uid in self.pods:
                    self._reject(self.pods[one.pod.uid], one.decision.rejection)
            node.problem = result.crash or ("" if result.refusal is None else result.refusal.message)
            if node.problem:
                self.report(name, f"the kubelet does not start: {node.problem}")
            self.write(
                name, "PATCH", f"api/v1/nodes/{name}/status", {"status": node_status(node.kubelet, node.problem)}
            )
            waiting = [] if node.problem else sorted(node.waiting.values(), key=_order)
            for document in waiting:
                del node.waiting[document["metadata"]["uid"]]
                self._take(document)

    def put_node(self, document: Document) -> str:
        """Take a Node that is new or changed: a fault in its annotations happens once, and is taken away."""
        name = str(document["metadata"]["name"])
        text = (document["metadata"].get("annotations") or {}).get(FAULT, "")
        with self.lock:
            node = self.nodes.get(name)
            if node is not None and text != node.faulted:
                node.faulted = text
                if text:
                    self.happens(name, text)
                    self.write(name, "PATCH", f"api/v1/nodes/{name}", {"metadata": {"annotations": {FAULT: None}}})
        return name

    def drop_node(self, document: Document) -> None:
        """Take a Node that was deleted: its machine is gone."""
        with self.lock:
            self.nodes.pop(str(document["metadata"]["name"]), None)

    def _restore(self, node: PlayedNode, state: NodeState, documents: Mapping[str, Document]) -> None:
        pods = {uid: node.read(one) for uid, one in documents.items() if one["spec"]["nodeName"] == node.name}
        kubelet = node.kubelet
        facts = NodeFacts(kubelet.info, kubelet.settings.config, kubelet.mooring)
        found = restored(NodeKind("", facts, kubelet.settings), state, pods)
        if isinstance(found, str):
            self.report(node.name, f"its saved state is not used: {found}")
            return
        node.kubelet = found
        for uid in found.node.active.keys() - pods.keys():
            node.happens(Remove(uid))

    def _status(self, pod: PlayedPod) -> None:
        self._patch(pod, pod_status(pod))

    def _patch(self, pod: PlayedPod, status: Document) -> None:
        self.write(pod.uid, "PATCH", f"{pod.path}/status", {"metadata": {"uid": pod.uid}, "status": status})

    def _delete(self, path: str, uid: str) -> None:
        self.write(uid, "DELETE", path, {"gracePeriodSeconds": 0, "preconditions": {"uid": uid}})


def _order(document: Document) -> tuple[bool, str]:
    """Pods that run come first, by their start; the others by their creation."""
    started = (document.get("status") or {}).get("startTime")
    return not started, str(started or document["metadata"]["creationTimestamp"])
