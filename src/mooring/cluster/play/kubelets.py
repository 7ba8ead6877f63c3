"""The kubelets of all played nodes: they are notified of their pods as kubelets are, and the engine decides.

Pods are admitted in the order in which the API server shows them as bound, after a list in the order of their creation,
as the kubelet sorts them. A kubelet that starts on pods that run admits these first, in the order of their start, with
the resources that they had been given.

Source: kubelet v1.37.1, pkg/kubelet/kubelet.go (HandlePodAdditions, rejectPod), config/apiserver.go.
"""

from __future__ import annotations

import sched
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Final, TypeAlias

import msgspec

from mooring.cluster.play.claims import PlayedClaims, release
from mooring.cluster.play.nodes import FAULT, Document, PlayedNode, node_status
from mooring.cluster.play.pods import (
    PlayedPod,
    allocated,
    played_pod,
    pod_event,
    pod_status,
    rejected_status,
    resize_event,
    resources_of,
)
from mooring.engine.core.decision import Rejection
from mooring.engine.core.errors import InputError
from mooring.engine.core.moment import SECOND
from mooring.engine.core.pod import Pod, without_status
from mooring.engine.kubelet.events import (
    FIRST_RETRY,
    Admit,
    Advance,
    Event,
    EventResult,
    Living,
    PodUpdate,
    Readmit,
    Remove,
)
from mooring.engine.node.resizing import resize_state
from mooring.engine.node.resources import Resize
from mooring.inputs.pods.cluster_objects import FINISHED
from mooring.published.objects import NodeFacts, NodeState
from mooring.published.restored import NodeKind, restored
from mooring.service.apiserver import ClusterError
from mooring.service.following import mapping_of

Write: TypeAlias = Callable[[str, str, str, Document], object]
"""Takes a write: what it is about, method, path and body; writes about one thing arrive in their order."""
_CLAIM_RETRY: Final = 1.0
"""Seconds after which claims that cannot be prepared are looked at again."""


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
    claims: PlayedClaims | None = None
    """Of a cluster that plays drivers; without, claims are not looked at."""
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
            if node is not None and (waiting := node.waiting.pop(uid, None)) is not None and self.claims is not None:
                self.claims.refused.pop(uid, None)
                with suppress(InputError):
                    release(node, node.read(waiting))
            self._forget(uid)

    def failed(self, error: ClusterError, times: int) -> None:
        """Report an outage."""
        if times == 1:
            self.report("pods", str(error))

    def _late(self, node: PlayedNode, uid: str) -> None:
        with self.lock:
            if not node.problem and (document := node.waiting.pop(uid, None)) is not None:
                self._take(document, is_late=True)

    def _take(self, document: Document, *, is_late: bool = False) -> None:
        metadata, phase = document["metadata"], (document.get("status") or {}).get("phase")
        uid, node = str(metadata["uid"]), self.nodes.get(document["spec"].get("nodeName", ""))
        if node is None:
            return
        if node.problem or (node.slow and not is_late):
            node.waiting[uid] = document
            if node.slow:
                self.timers.enter(node.slow / self.speed, 0, self._late, (node, uid))
            return
        node.waiting.pop(uid, None)
        pod = self.pods.get(uid)
        if pod is None and phase not in FINISHED and self._prepared(node, document):
            pod = self._decide(node, document)
        elif pod is not None and pod.generation != metadata.get("generation", 1):
            self._change(node, pod, document)
        if "deletionTimestamp" not in metadata:
            return
        if pod is None:
            self._delete(f"api/v1/namespaces/{metadata['namespace']}/pods/{metadata['name']}", uid)
        elif not pod.ends:
            pod.ends = True
            stops = min(pod.stops, float(metadata.get("deletionGracePeriodSeconds") or 0))
            self._later(stops if pod.phase == "Running" else 0.0, self._end, pod)

    def _prepared(self, node: PlayedNode, document: Document) -> bool:
        """Prepare the claims of a pod; one that has to wait for that is taken again in a while."""
        metadata = document["metadata"]
        if self.claims is None or "deletionTimestamp" in metadata:
            return True
        try:
            asked = node.read(document)
        except InputError:
            return True  # it is left alone
        try:
            if self.claims.prepare(node, asked):
                return True
        except InputError as error:
            why = f"Failed to prepare dynamic resources: {error}"
            if self.claims.refused.get(metadata["uid"]) != why:
                pod = played_pod(document, node.name, node.address, 0, annotated=False)
                self._event(pod, pod_event(pod, "FailedPrepareDynamicResources", why))
            self.claims.refused[metadata["uid"]] = why
        node.waiting[metadata["uid"]] = document
        self.timers.enter(_CLAIM_RETRY / self.speed, 0, self._late, (node, metadata["uid"]))
        return False

    def _decide(self, node: PlayedNode, document: Document) -> PlayedPod:
        self._numbers += 1
        try:
            pod = played_pod(document, node.name, node.address, self._numbers)
        except (InputError, ValueError) as error:
            pod = played_pod(document, node.name, node.address, self._numbers, annotated=False)
            self.report(f"{pod.namespace}/{pod.name}", f"an annotation of play.mooring.dev is not used: {error}")
        self.pods[pod.uid] = pod
        try:
            given = allocated(document)
            asked = node.read(given)
            wants = asked if given is document else without_status(node.read(document))
        except InputError as error:
            self.report(node.name, f"a pod is left alone: {error}")
            return pod
        if pod.uid not in node.kubelet.node.active:
            [result] = self._happens(node, Readmit(asked) if pod.ran else Admit(asked)).admissions
            if result.never_returns:
                why = result.crash or "it would never return from the admission"
                self.report(node.name, f"the kubelet would crash at {pod.namespace}/{pod.name}: {why}")
                return pod
            if result.decision.rejection is not None:
                self._reject(pod, asked, result.decision.rejection)
                return pod
        self.counts["admitted"] += 1
        self.decided(pod, None)
        if wants != asked:
            pod.wants = wants
            self._later(FIRST_RETRY / SECOND, self._ask, pod)
        if pod.phase == "Running":
            self._run(pod)
        elif pod.starts:
            self._status(pod)
            self._later(pod.starts, self._start, pod)
        else:
            self._start(pod)
        return pod

    def _reject(self, pod: PlayedPod, asked: Pod, rejection: Rejection) -> None:
        pod.phase = "Failed"
        release(self.nodes[pod.node], asked)
        self.counts[rejection.reason] += 1
        self.decided(pod, rejection)
        self._patch(pod, rejected_status(pod, rejection))
        self._event(pod, pod_event(pod, rejection.reason, rejection.message))

    # What they are changed to.

    def _change(self, node: PlayedNode, pod: PlayedPod, document: Document) -> None:
        pod.generation = int(document["metadata"]["generation"])
        try:
            pod.wants, pod.wanted = without_status(node.read(document)), resources_of(document["spec"])
        except InputError as error:
            self.report(node.name, f"a changed pod is left as it was: {error}")
            return
        self._ask(pod)

    def _ask(self, pod: PlayedPod) -> None:
        node = self.nodes.get(pod.node)
        if node is not None and pod.wants is not None and pod.uid in node.kubelet.node.active:
            self._happens(node, PodUpdate(pod.wants))

    def _happens(self, node: PlayedNode, event: Living | str) -> EventResult:
        """Let an event or a fault happen, and write what became of the resizes that it was asked about."""
        result = node.fault(event) if isinstance(event, str) else node.happens(event)
        own = {} if result.resize is None else {result.resize.uid: result.resize}
        for uid, answer in {**result.retried, **own}.items():
            if (pod := self.pods.get(uid)) is not None:
                self._answered(pod, answer)
        if node.kubelet.node.cpu.pre_assignments and not node.reconciles:
            node.reconciles = True
            self.timers.enter(node.period / SECOND / self.speed, 0, self._reconcile, (node,))
        return result

    def _answered(self, pod: PlayedPod, answer: Resize) -> None:
        for name in answer.events:
            self._event(pod, resize_event(pod, name, answer))
        if answer.accepted:
            pod.resources, pod.wants = pod.wanted, None
        before, pod.resize = pod.resize, answer
        if before is None or (before.condition, before.reason) != (answer.condition, answer.reason):
            pod.resized = time.time()
        self._status(pod)

    def _reconcile(self, node: PlayedNode) -> None:
        """Let the period of a reconciliation pass, which releases CPUs whose time is over."""
        with self.lock:
            node.reconciles, held = False, node.kubelet.node.cpu.pre_assignments.keys()
            self._happens(node, Advance(node.period))
            for uid in held - node.kubelet.node.cpu.pre_assignments.keys():
                if uid in self.pods and uid in node.kubelet.node.active:
                    ended = replace(resize_state(node.kubelet.node, uid), events=("ResizeCompleted",))
                    self._answered(self.pods[uid], ended)

    def _event(self, pod: PlayedPod, event: Document) -> None:
        self.write(pod.uid, "POST", f"api/v1/namespaces/{pod.namespace}/events", event)

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
        if node is not None and (held := node.kubelet.node.active.get(pod.uid)) is not None:
            self._happens(node, Remove(pod.uid))
            release(node, held)

    # What happens to kubelets.

    def happens(self, name: str, event: Event | str) -> None:
        """Let something happen to a node: an event, or what its annotation says."""
        with self.lock:
            node = self.nodes[name]
            try:
                result = self._happens(node, event)
            except InputError as error:
                self.report(name, str(error))
                return
            for one in result.admissions:
                if one.decision.rejection is not None and one.pod.uid in self.pods:
                    self._reject(self.pods[one.pod.uid], one.pod, one.decision.rejection)
            node.problem = result.crash or ("" if result.refusal is None else result.refusal.message)
            if node.problem:
                self.report(name, f"the kubelet does not start: {node.problem}")
            status = {"status": node_status(node.kubelet, node.problem)}
            self.write(name, "PATCH", f"api/v1/nodes/{name}/status", status)
            if result.started is not None:
                for pod in [one for one in self.pods.values() if one.node == name and one.wants is not None]:
                    self._later(FIRST_RETRY / SECOND, self._ask, pod)
            for document in [] if node.problem or node.slow else sorted(node.waiting.values(), key=_order):
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
        pods = {
            uid: node.read(allocated(one)) for uid, one in documents.items() if one["spec"]["nodeName"] == node.name
        }
        facts = NodeFacts(node.kubelet.info, node.kubelet.settings.config, node.kubelet.mooring)
        found = restored(NodeKind("", facts, node.kubelet.settings), state, pods)
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
