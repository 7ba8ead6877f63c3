"""Claims and slices at the API server."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from threading import Lock
from typing import Any, Final

import httpx2
import msgspec
from lightkube.config.kubeconfig import SingleConfig

from mooring.service.cluster.apiserver import Cluster, ClusterError, check_response, cluster_errors, cluster_of

GROUP: Final = "apis/resource.k8s.io/v1"
MANAGER: Final = "mooring-dra"
_FINALIZER: Final = "resource.kubernetes.io/delete-protection"
"""Keeps an allocated claim from being deleted; set before the allocation."""
_APPLY = "application/apply-patch+yaml"
_MERGE = "application/merge-patch+json"
_FRESH = 300.0
"""Seconds after which credentials are read again: those of a service account are renewed."""
_PAGE = 500


class ClaimObjects:
    """Calls the API server, one request at a time; usable from any thread."""

    def __init__(self, open_config: Callable[[], SingleConfig]) -> None:
        """Do not connect yet.

        Args:
            open_config: returns the configuration, read again.
        """
        self._open = open_config
        self._lock = Lock()
        self._cluster: Cluster | None = None
        self._opened = 0.0

    def close(self) -> None:
        """Close the connections."""
        with self._lock:
            self._forget()

    def claim(self, namespace: str, name: str) -> dict[str, Any] | None:
        """Return a ResourceClaim; None when there is none.

        Raises:
            ClusterError: the request failed.
        """
        return self._found("GET", f"{GROUP}/namespaces/{namespace}/resourceclaims/{name}")

    def claims(self) -> list[dict[str, Any]]:
        """Return all ResourceClaims, as the API server's cache has them.

        Raises:
            ClusterError: the request failed.
        """
        return self._listed(f"{GROUP}/resourceclaims", {"resourceVersion": "0"})

    def classes(self) -> list[dict[str, Any]]:
        """Return all DeviceClasses.

        Raises:
            ClusterError: the request failed.
        """
        return self._listed(f"{GROUP}/deviceclasses", {"resourceVersion": "0"})

    def slices(self, driver: str, node: str) -> list[dict[str, Any]]:
        """Return the slices of a driver on a node.

        Raises:
            ClusterError: the request failed.
        """
        selector = f"spec.driver={driver},spec.nodeName={node}"
        return self._listed(f"{GROUP}/resourceslices", {"fieldSelector": selector})

    def node_uid(self, name: str) -> str:
        """Return the uid of a Node; empty when there is none yet.

        Raises:
            ClusterError: the request failed.
        """
        found = self._found("GET", f"api/v1/nodes/{name}")
        return "" if found is None else str(found["metadata"]["uid"])

    def apply_slice(self, content: Mapping[str, Any]) -> None:
        """Create or update a slice.

        Raises:
            ClusterError: the request failed.
        """
        self._apply(f"{GROUP}/resourceslices/{content['metadata']['name']}", content)

    def delete_slice(self, name: str) -> None:
        """Delete a slice, if it is there.

        Raises:
            ClusterError: the request failed.
        """
        self._found("DELETE", f"{GROUP}/resourceslices/{name}")

    def apply_claim_devices(self, namespace: str, name: str, devices: list[dict[str, Any]]) -> None:
        """Write the devices of a claim into its status.

        Raises:
            ClusterError: the request failed.
        """
        content = {
            "apiVersion": "resource.k8s.io/v1",
            "kind": "ResourceClaim",
            "metadata": {"name": name, "namespace": namespace},
            "status": {"devices": devices},
        }
        self._apply(f"{GROUP}/namespaces/{namespace}/resourceclaims/{name}/status", content)

    def allocate(self, claim: Mapping[str, Any], allocation: Mapping[str, Any]) -> None:
        """Allocate a claim, unless it has changed meanwhile.

        Raises:
            ClusterError: the request failed; ``code`` 409 when the claim has changed.
        """
        metadata = claim["metadata"]
        path = f"{GROUP}/namespaces/{metadata['namespace']}/resourceclaims/{metadata['name']}"
        version = metadata["resourceVersion"]
        if _FINALIZER not in metadata.get("finalizers", ()):
            finalizers = [*metadata.get("finalizers", ()), _FINALIZER]
            content = {"metadata": {"resourceVersion": version, "finalizers": finalizers}}
            version = self._asked("PATCH", path, content, _MERGE)["metadata"]["resourceVersion"]
        # Without the time every pod that is to use the claim fails in the scheduler, which then adds one (1.37.1).
        stamp = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        status = {"allocation": {**allocation, "allocationTimestamp": stamp}}
        content = {"metadata": {"resourceVersion": version}, "status": status}
        self._asked("PATCH", f"{path}/status", content, _MERGE)

    def _apply(self, path: str, content: Mapping[str, Any]) -> None:
        self._asked("PATCH", f"{path}?fieldManager={MANAGER}&force=true", content, _APPLY)

    def _found(self, method: str, path: str) -> dict[str, Any] | None:
        try:
            return self._asked(method, path)
        except ClusterError as error:
            if error.code == 404:
                return None
            raise

    def _listed(self, path: str, query: Mapping[str, str]) -> list[dict[str, Any]]:
        items: list[dict[str, Any]] = []
        more = {**query, "limit": str(_PAGE)}
        while True:
            found = self._asked("GET", f"{path}?{httpx2.QueryParams(more)}")
            items += found.get("items") or []
            token = found["metadata"].get("continue")
            if not token:
                return items
            more["continue"] = token

    def _asked(
        self, method: str, path: str, content: Mapping[str, Any] | None = None, kind: str = ""
    ) -> dict[str, Any]:
        body = None if content is None else msgspec.json.encode(content)
        headers = {"Content-Type": kind} if kind else {}
        with self._lock:
            try:
                with cluster_errors():
                    response = self._way().http.request(method, path, content=body, headers=headers)
                    check_response(response)
                    found: dict[str, Any] = msgspec.json.decode(response.content)
            except ClusterError as error:
                if error.code in (0, 401):
                    self._forget()
                raise
        return found

    def _way(self) -> Cluster:
        if self._cluster is None or time.monotonic() - self._opened > _FRESH:
            self._forget()
            self._cluster, self._opened = cluster_of(self._open()), time.monotonic()
        return self._cluster

    def _forget(self) -> None:
        if self._cluster is not None:
            self._cluster.close()
            self._cluster = None
