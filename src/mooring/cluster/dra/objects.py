"""Claims and slices at the API server.

Client of the agent's claims socket: the agent allocates the CPUs of claims.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from threading import Lock
from typing import Any, Final, TypeVar

import httpx2
import msgspec
from google.protobuf.message import DecodeError, Message

from mooring.engine.core.cpuset import CPUSet
from mooring.engine.core.errors import MooringError
from mooring.engine.core.machineinfo import MachineInfo
from mooring.engine.extensions.owners import HeldClaim
from mooring.inputs.machines.machineinfo_json import parse_machine_info
from mooring.service import messages
from mooring.service.apiserver import Cluster, ClusterError, ClusterOnDemand, asked_json
from mooring.service.following import CACHED, objects_at
from mooring.service.grpc_client import CallError, UnaryClient

GROUP: Final = "apis/resource.k8s.io/v1"
MANAGER: Final = "mooring-dra"
_FINALIZER: Final = "resource.kubernetes.io/delete-protection"
"""Keeps an allocated claim from being deleted; set before the allocation."""
_APPLY: Final = {"Content-Type": "application/apply-patch+yaml"}
_MERGE: Final = {"Content-Type": "application/merge-patch+json"}
_FRESH = 300.0
"""Seconds after which credentials are read again: those of a service account are renewed."""


class ClaimObjects:
    """Calls the API server, one request at a time; usable from any thread."""

    def __init__(self, connect: Callable[[], Cluster]) -> None:
        """Do not connect yet.

        Args:
            connect: opens a way to the API server, with credentials that are read again.
        """
        self._lock = Lock()
        self._cluster = ClusterOnDemand(connect)
        self._opened = float("-inf")

    def close(self) -> None:
        """Close the connections."""
        with self._lock:
            self._cluster.close()

    def claim(self, namespace: str, name: str) -> dict[str, Any] | None:
        """Return a ResourceClaim; None when there is none.

        Raises:
            ClusterError: the request failed.
        """
        return self._asked("GET", f"{GROUP}/namespaces/{namespace}/resourceclaims/{name}", passing=(404,)) or None

    def claims(self) -> list[dict[str, Any]]:
        """Return all ResourceClaims, as the API server's cache has them.

        Raises:
            ClusterError: the request failed.
        """
        return self._listed(f"{GROUP}/resourceclaims", CACHED)

    def classes(self) -> list[dict[str, Any]]:
        """Return all DeviceClasses.

        Raises:
            ClusterError: the request failed.
        """
        return self._listed(f"{GROUP}/deviceclasses", CACHED)

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
        found = self._asked("GET", f"api/v1/nodes/{name}", passing=(404,))
        return str(found["metadata"]["uid"]) if found else ""

    def apply_slice(self, content: Mapping[str, Any]) -> dict[str, Any]:
        """Create or update a slice, and return what the API server keeps of it.

        Raises:
            ClusterError: the request failed.
        """
        return self._apply(f"{GROUP}/resourceslices/{content['metadata']['name']}", content)

    def delete_slice(self, name: str) -> None:
        """Delete a slice, if it is there.

        Raises:
            ClusterError: the request failed.
        """
        self._asked("DELETE", f"{GROUP}/resourceslices/{name}", passing=(404,))

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
            version = self._asked("PATCH", path, json=content, headers=_MERGE)["metadata"]["resourceVersion"]
        # Without the time every pod that is to use the claim fails in the scheduler, which then adds one (1.37.1).
        stamp = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        status = {"allocation": {**allocation, "allocationTimestamp": stamp}}
        content = {"metadata": {"resourceVersion": version}, "status": status}
        self._asked("PATCH", f"{path}/status", json=content, headers=_MERGE)

    def _apply(self, path: str, content: Mapping[str, Any]) -> dict[str, Any]:
        query = {"fieldManager": MANAGER, "force": "true"}
        return self._asked("PATCH", path, params=query, json=content, headers=_APPLY)

    def _listed(self, path: str, query: Mapping[str, str]) -> list[dict[str, Any]]:
        with self._way() as http:
            return objects_at(http, path, query)

    def _asked(self, method: str, path: str, **more: Any) -> dict[str, Any]:
        with self._way() as http:
            return asked_json(http, method, path, **more)

    @contextmanager
    def _way(self) -> Iterator[httpx2.Client]:
        """Give the connection to one thread; credentials are read again after a failure, and now and then."""
        with self._lock:
            if time.monotonic() - self._opened > _FRESH:
                self._cluster.close()
                self._opened = time.monotonic()
            try:
                yield self._cluster.http
            except ClusterError as error:
                if error.code in (0, 401):
                    self._cluster.close()
                raise


SECONDS: Final = 10.0
"""How long an answer may take; the kubelet waits for 45."""
LARGEST_ANSWER: Final = 16 * 1024**2
"""Bytes; a description of the machine is the largest."""

_Response = TypeVar("_Response", bound=Message)


class ClaimsError(MooringError):
    """The agent is not reachable or refuses; the text names the reason."""


class PreparedShare(msgspec.Struct, frozen=True):
    """The CPUs that a claim has from one device for one request."""

    request: str
    device: str
    cpus: str
    variable: str


@dataclass(frozen=True, slots=True)
class ClaimableCPUs:
    """CPUs that claims hold or can get on a node."""

    claimable: int
    """Mask of the CPUs that a claim could be given now."""
    last: bool
    """Whether these are all CPUs of the shared pool, so that one of them has to stay."""
    claims: tuple[HeldClaim, ...] = ()
    group_size: int = 1
    """CPUs of a core."""
    whole_cores: bool = False


@dataclass(frozen=True, slots=True)
class AgentNode:
    """The node as its agent describes it."""

    node: str
    info: MachineInfo
    is_static: bool
    """Whether its CPU manager's policy is static, without which there are no claims."""
    is_synchronized: bool
    room: ClaimableCPUs
    reserved: int


class ClaimsClient:
    """Calls the agent; usable from any thread."""

    def __init__(self, path: str) -> None:
        """Ask nothing yet.

        Args:
            path: the agent's ``claimsSocket``.
        """
        self._path = path

    def node(self) -> AgentNode:
        """Ask for the node.

        Raises:
            ClaimsError: the agent does not answer.
            InputError: its description of the machine cannot be understood.
        """
        found = self._call("Node", messages.NodeRequestMessage(), messages.NodeResponseMessage)
        claimable, shared = CPUSet.parse(found.claimable).mask, CPUSet.parse(found.shared).mask
        claims = tuple(
            HeldClaim(
                one.uid,
                one.namespace,
                one.name,
                {(share.device, share.request): CPUSet.parse(share.cpus).mask for share in one.shares},
            )
            for one in found.claims
        )
        room = ClaimableCPUs(claimable, claimable == shared, claims, found.group_size or 1, found.whole_cores)
        return AgentNode(
            found.node,
            parse_machine_info(found.machine, self._path).info,
            found.static,
            found.synchronized,
            room,
            CPUSet.parse(found.reserved).mask,
        )

    def prepare(
        self, uid: str, namespace: str, name: str, shares: Iterable[messages.ShareMessage], pods: Iterable[str]
    ) -> tuple[PreparedShare, ...]:
        """Allocate the CPUs of a claim.

        Args:
            uid: of the claim.
            namespace: its namespace.
            name: its name.
            shares: what is asked for.
            pods: uids of those for which it is reserved.

        Raises:
            ClaimsError: the agent does not answer, or refuses.
        """
        request = messages.PrepareRequestMessage(
            uid=uid, namespace=namespace, name=name, shares=shares, pods=sorted(pods)
        )
        answer = self._call("Prepare", request, messages.PrepareResponseMessage)
        if answer.reason:
            raise ClaimsError(answer.reason)
        return tuple(PreparedShare(one.request, one.device, one.cpus, one.variable) for one in answer.shares)

    def unprepare(self, uid: str) -> None:
        """Release the CPUs of a claim; does nothing for a claim without CPUs.

        Raises:
            ClaimsError: the agent does not answer, or refuses.
        """
        answer = self._call("Unprepare", messages.UnprepareRequestMessage(uid=uid), messages.UnprepareResponseMessage)
        if answer.reason:
            raise ClaimsError(answer.reason)

    def _call(self, method: str, request: Message, response: type[_Response]) -> _Response:
        # A connection for each call, so that any thread can ask.
        with closing(UnaryClient(self._path, LARGEST_ANSWER)) as client:
            try:
                return response.FromString(
                    client.ask(f"{messages.CLAIMS_SERVICE}/{method}", request.SerializeToString(), SECONDS)
                )
            except (CallError, DecodeError) as error:
                raise ClaimsError(
                    f"{self._path}: the agent of this node does not answer ({error}); start mooring agent "
                    "with claimsSocket, or name its socket with --agent"
                ) from None
