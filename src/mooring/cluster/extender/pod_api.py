"""Pods at the API server: read, and bound."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import Any, Protocol

import httpx2
import msgspec

from mooring.cluster.extender.wire import BindArguments
from mooring.service.cluster.apiserver import Cluster, check_response, cluster_errors

_REUSED_FOR = 300.0
"""Seconds for which a connection is used: certificates of the kubeconfig are read when it is opened."""


class _PodList(msgspec.Struct):
    items: list[msgspec.Raw] = []


class PodAPI(Protocol):
    """Where pods are read and bound."""

    def read_pod(self, namespace: str, name: str) -> bytes:
        """Return a pod as JSON.

        Raises:
            ClusterError: it cannot be had.
        """

    def read_claim(self, namespace: str, name: str) -> bytes:
        """Return a ResourceClaim as JSON.

        Raises:
            ClusterError: it cannot be had.
        """

    def pods_on(self, node: str) -> list[msgspec.Raw]:
        """Return the pods that are bound to a node at this moment, as JSON.

        Raises:
            ClusterError: they cannot be had.
        """

    def bind(self, asked: BindArguments) -> None:
        """Bind a pod.

        Raises:
            ClusterError: it is not bound; where ``code`` is 0 or of the server, it may be all the same.
        """

    def close(self) -> None:
        """Close what is open."""


@dataclass(frozen=True, slots=True)
class ClusterPodAPI:
    """The API server. Connections are kept for the next pod: opening one costs more than a bind."""

    connect: Callable[[], Cluster]
    clock: Callable[[], float] = time.monotonic
    _idle: deque[tuple[float, Cluster]] = field(default_factory=deque)
    """Connections that no thread uses, with the seconds at which they were opened."""

    def close(self) -> None:
        """Close the connections that no thread uses."""
        while self._idle:
            self._idle.pop()[1].close()

    def read_pod(self, namespace: str, name: str) -> bytes:
        """Return a pod as JSON."""
        return self._read(f"api/v1/namespaces/{namespace}/pods/{name}")

    def read_claim(self, namespace: str, name: str) -> bytes:
        """Return a ResourceClaim as JSON."""
        return self._read(f"apis/resource.k8s.io/v1/namespaces/{namespace}/resourceclaims/{name}")

    def pods_on(self, node: str) -> list[msgspec.Raw]:
        """Return the pods of a node: without a version the API server answers with the newest state."""
        with cluster_errors(), self._cluster() as cluster:
            response = cluster.http.get("api/v1/pods", params={"fieldSelector": f"spec.nodeName={node}"})
            check_response(response)
            return msgspec.json.decode(response.content, type=_PodList).items

    def bind(self, asked: BindArguments) -> None:
        """Create the Binding; the uid keeps a pod of the same name that came since from being bound."""
        body: dict[str, Any] = {
            "apiVersion": "v1",
            "kind": "Binding",
            "metadata": {"name": asked.PodName, "namespace": asked.PodNamespace, "uid": asked.PodUID},
            "target": {"apiVersion": "v1", "kind": "Node", "name": asked.Node},
        }
        path = f"api/v1/namespaces/{asked.PodNamespace}/pods/{asked.PodName}/binding"
        with cluster_errors(), self._cluster() as cluster:
            response: httpx2.Response = cluster.http.post(
                path, content=msgspec.json.encode(body), headers={"Content-Type": "application/json"}
            )
            check_response(response)

    def _read(self, path: str) -> bytes:
        with cluster_errors(), self._cluster() as cluster:
            response = cluster.http.get(path)
            check_response(response)
            return response.content

    @contextmanager
    def _cluster(self) -> Iterator[Cluster]:
        """Give a connection to one thread; one on which something went wrong is not used again."""
        opened, cluster = self._from_idle() or (self.clock(), self.connect())
        try:
            yield cluster
        except BaseException:
            cluster.close()
            raise
        self._idle.append((opened, cluster))

    def _from_idle(self) -> tuple[float, Cluster] | None:
        # Popping is one step for all threads, so that none gets what another one has.
        with suppress(IndexError):
            while True:
                opened, cluster = self._idle.pop()
                if self.clock() - opened < _REUSED_FOR:
                    return opened, cluster
                cluster.close()
        return None
