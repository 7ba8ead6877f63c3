"""The pods of a kubelet as it lists them itself, for a node without an API server: static pods with their outcomes.

Source: kubelet v1.37.1, pkg/kubelet/kubelet_pods.go (GetPods: the status of a static pod is the kubelet's own), served
as ``/pods`` on ``port`` and ``readOnlyPort``.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import msgspec

from mooring.engine.core.errors import MooringError
from mooring.inputs.decoding.fields import mapping_at, text_at
from mooring.monitoring.shadow.pods import BoundPods
from mooring.service.cluster.apiserver import Cluster, ClusterError
from mooring.service.cluster.watching import Pages, mapping_of

PATH: Final = "pods"
ASKING: Final = 0.5
"""Seconds between two questions."""
STARTING: Final = 5.0
"""Seconds in which a kubelet that has just begun to answer may not have read all of its manifests yet."""


@dataclass(slots=True)
class KubeletPods:
    """Asks a kubelet for its pods in a thread."""

    connect: Callable[[], Cluster]
    """Opens the way to the kubelet."""
    pods: BoundPods
    clock: Callable[[], float] = time.monotonic
    has_listed: threading.Event = field(default_factory=threading.Event)
    """Set when the pods have been listed once."""
    _known: Mapping[str, bytes] = field(default_factory=dict)
    """By uid, as listed last."""
    _answering: float | None = None
    """Since when the kubelet answers; None while it does not."""
    _stopping: threading.Event = field(default_factory=threading.Event)
    _thread: threading.Thread | None = None

    def start(self) -> None:
        """Begin to ask."""
        self._thread = threading.Thread(target=self._run, name="follow-kubelet-pods", daemon=True)
        self._thread.start()

    def stop(self, patience: float = 5.0) -> None:
        """End the thread, and wait for it for a while."""
        self._stopping.set()
        if self._thread is not None:
            self._thread.join(patience)

    def ask(self, cluster: Cluster) -> None:
        """Ask once, and pass on what has changed.

        Raises:
            ClusterError: the kubelet does not answer, or not with objects.
            InputError: an object is no pod.
        """
        found = {_uid(mapping_of(item)): bytes(item) for page in Pages(cluster.http, PATH) for item in page}
        now, has_begun = self.clock(), self._answering is None
        if self._answering is None:
            self._answering = now
        if now - self._answering < STARTING:
            found = {**self._known, **found}
        if has_begun or found != self._known:
            self._known = found
            self.pods.listed(iter([[msgspec.Raw(one) for one in found.values()]]))
        self.has_listed.set()

    def failed(self, error: MooringError) -> None:
        """Keep what is known while the kubelet does not answer."""
        self._answering = None
        self.pods.failed(ClusterError(str(error)), 1)

    def _run(self) -> None:
        while not self._stopping.is_set():
            try:
                with self.connect() as cluster:
                    while not self._stopping.is_set():
                        self.ask(cluster)
                        self._stopping.wait(ASKING)
            except MooringError as error:
                self.failed(error)
            self._stopping.wait(ASKING)


def _uid(content: Mapping[str, Any]) -> str:
    return text_at(mapping_at(content, "metadata"), "uid")
