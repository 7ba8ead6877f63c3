"""Pods of the API server: a thread that keeps a list of this node's pods up to date."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from typing import Any

import httpx2

from mooring.agent.nri.types import PodSandbox
from mooring.agent.pods.allocated import pod_of_object, wanted_pod
from mooring.agent.pods.known import KnownPods
from mooring.agent.pods.source import is_static
from mooring.cluster.apiserver import Cluster, ClusterError, cut
from mooring.cluster.watching import Change, list_pods, pause_before, watch_pods
from mooring.core.errors import InputError
from mooring.core.machine import Finding
from mooring.core.pod import Pod
from mooring.manifest.fields import mapping_at, text_at, texts_at
from mooring.manifest.findings import Report, ignore
from mooring.manifest.gates import PodGates
from mooring.manifest.pod_files import FINISHED
from mooring.manifest.pods import DEFAULT_GATES, MIRROR

PATIENCE = 0.1
"""Seconds that a pod is waited for, out of the reply budget of half a second."""
QUIET_PAUSE = 1.0
"""Seconds between a watch that brought nothing and the next."""
_SUBJECT = "API server"


class APIPods:
    """Pods of one node as the API server has them.

    Of each pod only what decides is kept: containers, resources, and the agent's own annotations. While the API server
    is away, what is known stays, and nobody waits for more.
    """

    def __init__(
        self,
        connect: Callable[[], Cluster],
        node: str,
        *,
        gates: PodGates = DEFAULT_GATES,
        report: Report = ignore,
        patience: float = PATIENCE,
        wait: Callable[[float], object] | None = None,
    ) -> None:
        """Do nothing yet; :meth:`start` does.

        Args:
            connect: opens the way to the API server, again after every failure, so that renewed credentials are read.
            node: name of the node, as it is registered.
            gates: the kubelet's feature gates.
            report: receives outages, recoveries and pods that cannot be used; called by the thread.
            patience: seconds that :meth:`pod` waits for a pod that is not there yet.
            wait: waits before another try; ends early when :meth:`stop` is called.
        """
        self._connect = connect
        self._node = node
        self._gates = gates
        self._report = report
        self._patience = patience
        self._stopping = threading.Event()
        self._wait = wait or self._stopping.wait
        self._listed = threading.Event()
        self._tried = threading.Event()
        self._known = KnownPods()
        self._thread = threading.Thread(target=self._run, name="mooring-pods", daemon=True)
        self._lock = threading.Lock()
        self._response: httpx2.Response | None = None
        self._version = ""
        self._newest = False
        self._failures = 0
        self._told = False
        self._unusable: dict[str, str] = {}
        self._wanted: dict[str, Pod] = {}

    def start(self) -> None:
        """Begin to list and watch."""
        self._thread.start()

    def stop(self, patience: float = 5.0) -> None:
        """End the thread, in the middle of a watch too, and wait for it for a while."""
        self._stopping.set()
        with self._lock:
            if self._response is not None:
                cut(self._response)
        if self._thread.is_alive():
            self._thread.join(patience)
        self._known.stale()

    def wait_until_listed(self, patience: float) -> bool:
        """Wait until all pods have been listed once; tell whether they have."""
        return self._listed.wait(patience)

    def wait_until_tried(self, patience: float) -> bool:
        """Wait until the pods have been listed once or that has failed once; tell whether they have been listed."""
        self._tried.wait(patience)
        return self._listed.is_set()

    @property
    def is_live(self) -> bool:
        """Whether changes arrive at the moment; for readiness and metrics."""
        return self._known.is_live

    @property
    def misses(self) -> int:
        """How often a pod was asked for in vain; if it only ever grows, the agent may have another node's name."""
        return self._known.misses

    def __len__(self) -> int:
        return len(self._known)

    def pod(self, sandbox: PodSandbox) -> Pod | None:
        """Return the pod of a sandbox; waits for one that is not there yet, once, unless it is a static pod."""
        return self._known.find(sandbox.uid, 0.0 if is_static(sandbox) else self._patience)

    def wanted(self, sandbox: PodSandbox) -> Pod | None:
        """Return the pod with the resources that it is to have, where a resize of it was not allocated yet."""
        return self._wanted.get(sandbox.uid) or self._known.find(sandbox.uid)

    def _run(self) -> None:
        while not self._stopping.is_set():
            try:
                with self._connect() as cluster:
                    while not self._stopping.is_set():
                        self._round(cluster)
            except ClusterError as error:
                self._failed(error)
            except Exception as error:  # noqa: BLE001 - without this thread every pod would be a guess from now on
                self._failed(ClusterError(f"{type(error).__name__}: {error}"))

    def _round(self, cluster: Cluster) -> None:
        """List if need be, then watch until the server ends it."""
        if not self._version:
            items, version = list_pods(cluster.http, self._node, newest=self._newest)
            self._replace(items)
            self._version = version
            self._newest = False
            self._recovered()
        heard = False
        for change in watch_pods(cluster.http, self._node, self._version, self._opened):
            if not heard:
                heard = True
                self._failures = 0
                self._recovered()
            self._take(change)
        self._closed()
        if not heard and not self._stopping.is_set():
            # Nothing for minutes is rare, because of the bookmarks. A server that ends every watch at once is not to be
            # asked without a pause.
            self._wait(QUIET_PAUSE)

    def _opened(self, response: httpx2.Response) -> None:
        with self._lock:
            self._response = response
            if self._stopping.is_set():
                cut(response)
                return
        self._known.fresh()

    def _closed(self) -> None:
        with self._lock:
            self._response = None

    def _recovered(self) -> None:
        if self._told:
            self._report(Finding("info", _SUBJECT, f"the pods of {self._node} are heard of again"))
        self._told = False

    def _failed(self, error: ClusterError) -> None:
        self._closed()
        if self._stopping.is_set():
            return
        if error.is_gone:
            self._version = ""
            self._newest = True
        self._failures += 1
        if self._failures == 1 and error.is_gone:
            return  # part of the game: the list is read again at once
        self._tried.set()
        self._known.stale()
        if self._failures <= 2 or self._failures % 20 == 0:
            message = f"the pods of {self._node} are not heard of (try {self._failures}): {error}"
            self._report(Finding("warning", _SUBJECT, message))
            self._told = True
        self._wait(max(pause_before(self._failures, self._node), error.pause))

    def _replace(self, items: list[dict[str, Any]]) -> None:
        pods = {}
        self._wanted = {}
        for item in items:
            pod = self._converted(item)
            if pod is not None:
                pods[pod.uid] = pod
        self._known.replace_all(pods)
        self._listed.set()
        self._tried.set()
        self._unusable = {uid: text for uid, text in self._unusable.items() if uid not in pods}

    def _take(self, change: Change) -> None:
        if change.version:
            self._version = change.version
        if change.kind == "BOOKMARK":
            return
        pod = self._converted(change.content) if change.kind in ("ADDED", "MODIFIED") else None
        if pod is not None:
            self._known.put(pod)
            return
        uid = kubelet_uid(change.content)
        self._known.drop(uid)
        self._wanted.pop(uid, None)
        if change.kind == "DELETED":
            self._unusable.pop(uid, None)

    def _converted(self, item: Mapping[str, Any]) -> Pod | None:
        """Return the pod, or None when it has finished or cannot be used."""
        try:
            if text_at(mapping_at(item, "status"), "phase") in FINISHED:
                return None
            pod = pod_of_object(item, source=_SUBJECT, gates=self._gates)
            wanted = wanted_pod(item, source=_SUBJECT, gates=self._gates)
        except InputError as error:
            uid, message = kubelet_uid(item), str(error)
            if self._unusable.get(uid) != message:
                self._unusable[uid] = message
                self._report(Finding("warning", f"pod {uid}", f"the API server's object cannot be used: {message}"))
            return None
        if wanted is None:
            self._wanted.pop(pod.uid, None)
        else:
            self._wanted[pod.uid] = wanted
        return pod


def kubelet_uid(content: Mapping[str, Any]) -> str:
    """Return the uid that the kubelet uses for an object of the API server: that of the manifest for a mirror pod."""
    try:
        metadata = mapping_at(content, "metadata")
        return texts_at(metadata, "annotations").get(MIRROR) or text_at(metadata, "uid")
    except InputError:
        return ""
