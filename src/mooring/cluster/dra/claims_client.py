"""Client of the agent's claims socket: the agent allocates the CPUs of claims."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import closing
from dataclasses import dataclass
from typing import Final, TypeVar

import msgspec
from google.protobuf.message import DecodeError, Message

from mooring.engine.core.cpuset import CPUSet
from mooring.engine.core.errors import MooringError
from mooring.engine.core.machineinfo import MachineInfo
from mooring.engine.extensions.owners import HeldClaim, HeldShare
from mooring.inputs.machines.machineinfo_json import parse_machine_info
from mooring.service.claims_messages import (
    SERVICE,
    NodeRequestMessage,
    NodeResponseMessage,
    PrepareRequestMessage,
    PrepareResponseMessage,
    ShareMessage,
    UnprepareRequestMessage,
    UnprepareResponseMessage,
)
from mooring.service.grpc_client import CallError, UnaryClient

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
        found = self._call("Node", NodeRequestMessage(), NodeResponseMessage)
        claimable, shared = CPUSet.parse(found.claimable).mask, CPUSet.parse(found.shared).mask
        claims = tuple(
            HeldClaim(
                one.uid,
                one.namespace,
                one.name,
                tuple(HeldShare(share.request, share.device, CPUSet.parse(share.cpus).mask) for share in one.shares),
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
        self, uid: str, namespace: str, name: str, shares: Iterable[ShareMessage], pods: Iterable[str]
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
        request = PrepareRequestMessage(uid=uid, namespace=namespace, name=name, shares=shares, pods=sorted(pods))
        answer = self._call("Prepare", request, PrepareResponseMessage)
        if answer.reason:
            raise ClaimsError(answer.reason)
        return tuple(PreparedShare(one.request, one.device, one.cpus, one.variable) for one in answer.shares)

    def unprepare(self, uid: str) -> None:
        """Release the CPUs of a claim; does nothing for a claim without CPUs.

        Raises:
            ClaimsError: the agent does not answer, or refuses.
        """
        answer = self._call("Unprepare", UnprepareRequestMessage(uid=uid), UnprepareResponseMessage)
        if answer.reason:
            raise ClaimsError(answer.reason)

    def _call(self, method: str, request: Message, response: type[_Response]) -> _Response:
        # A connection for each call, so that any thread can ask.
        with closing(UnaryClient(self._path, LARGEST_ANSWER)) as client:
            try:
                return response.FromString(client.ask(f"{SERVICE}/{method}", request.SerializeToString(), SECONDS))
            except (CallError, DecodeError) as error:
                raise ClaimsError(
                    f"{self._path}: the agent of this node does not answer ({error}); start mooring agent "
                    "with claimsSocket, or name its socket with --agent"
                ) from None
