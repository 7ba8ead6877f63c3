"""The agent's gRPC service for claims of dynamic resource allocation.

A claim that is answered with CPUs is in the journal already, and no other container runs on them.
"""

from __future__ import annotations

import re
from typing import Final

import msgspec

from mooring.agent.reactor.create_container import prepare_claim, unprepare_claim
from mooring.agent.reactor.response import Refused
from mooring.agent.state import variables
from mooring.agent.state_holder import StateHolder
from mooring.agent.status import Published, Snapshot
from mooring.engine.core.bits import CPUMask, list_text
from mooring.engine.core.cpuset import CPUSet, CPUSetSyntaxError
from mooring.engine.core.errors import InputError
from mooring.engine.extensions.owners import HeldClaim, claim_key, claim_of, claims_of
from mooring.engine.node.claims import Claim, Share, claimable
from mooring.inputs.machines.machineinfo_json import machine_info_document
from mooring.service import messages
from mooring.service.grpc_socket import GRPCSocket, Method, Methods
from mooring.service.logs import Log

MOST_SHARES: Final = 64
"""Shares of one claim; the API server allows 32 devices."""
NOT_READY: Final = "NotReady: the container runtime has not reported the running containers yet"
_NAME = re.compile(r"[0-9A-Za-z]([0-9A-Za-z.-]{0,252}[0-9A-Za-z])?", re.ASCII)
_REQUEST = re.compile(rf"{_NAME.pattern}(/{_NAME.pattern})?", re.ASCII)


def serve_claims(path: str, provider: Published, holder: StateHolder, log: Log) -> GRPCSocket:
    """Serve Prepare, Unprepare and Node on a Unix socket until that is closed.

    Args:
        path: of the socket.
        provider: knows the node.
        holder: has the state.
        log: of the agent.

    Raises:
        InputError: there can be no such socket.
    """

    def prepare(request: messages.PrepareRequestMessage) -> messages.PrepareResponseMessage:
        if not provider.snapshot().runtime.synchronized:
            return messages.PrepareResponseMessage(reason=NOT_READY)
        try:
            asked, pods = claim_asked(request)
        except InputError as error:
            return messages.PrepareResponseMessage(reason=f"InvalidClaim: {error}")
        key = claim_key(asked.uid)
        outcome = holder.apply(lambda state, observer: prepare_claim(state, asked, pods, observer), key)
        held = claim_of(outcome.state.kubelet.node.cpu, asked.uid)
        if isinstance(outcome.answer, Refused) or held is None:
            reason = outcome.answer.text if isinstance(outcome.answer, Refused) else NOT_READY
            return messages.PrepareResponseMessage(reason=reason)
        return messages.PrepareResponseMessage(shares=_shares(held))

    def unprepare(request: messages.UnprepareRequestMessage) -> messages.UnprepareResponseMessage:
        answer = holder.apply(lambda state, observer: unprepare_claim(state, request.uid, observer)).answer
        return messages.UnprepareResponseMessage(reason=answer.text if isinstance(answer, Refused) else "")

    methods: Methods = {
        "Prepare": Method(messages.PrepareRequestMessage, prepare),
        "Unprepare": Method(messages.UnprepareRequestMessage, unprepare),
        "Node": Method(messages.NodeRequestMessage, lambda _request: node_message(provider.snapshot())),
    }
    return GRPCSocket(path, messages.CLAIMS_SERVICE, methods, log)


def claim_asked(request: messages.PrepareRequestMessage) -> tuple[Claim, frozenset[str]]:
    """Return the claim of a request, and the uids of its pods.

    Raises:
        InputError: a name that is none, a list that is none, or nothing asked for.
    """
    for field, text in (("uid", request.uid), ("namespace", request.namespace), ("name", request.name)):
        _check(text, _NAME, field)
    shares: dict[tuple[str, str], Share] = {}
    for one in request.shares:
        _check(one.request, _REQUEST, "request")
        _check(one.device, _NAME, "device")
        if one.count < 1:
            raise InputError("requests no CPU", field="count")
        share = Share(
            one.request,
            one.device,
            one.count,
            CPUMask(_mask(one.within, "within")),
            CPUMask(_mask(one.wished, "wished")),
            one.numa_nodes,
        )
        if (share.device, share.request) in shares:
            raise InputError("is there twice for one request", field=f"device {share.device}")
        shares[share.device, share.request] = share
    if not 0 < len(shares) <= MOST_SHARES:
        raise InputError(f"are {len(shares)}", field="shares", remedy=f"request 1 to {MOST_SHARES}")
    return Claim(request.uid, request.namespace, request.name, tuple(shares.values())), frozenset(request.pods)


def node_message(snapshot: Snapshot) -> messages.NodeResponseMessage:
    """Return what a driver has to know of the node."""
    message = messages.NodeResponseMessage(node=snapshot.node, synchronized=snapshot.runtime.synchronized)
    message.machine = msgspec.json.encode(
        machine_info_document(snapshot.machine.info, info_error=snapshot.machine.info_error)
    )
    state = snapshot.state
    node = state.kubelet.node
    policy = node.settings.cpu
    if policy is not None:
        message.static = True
        message.group_size, message.whole_cores = policy.group_size, policy.rules.whole_cores
        message.reserved = list_text(policy.reserved)
        message.claimable = list_text(claimable(node))
        message.shared = list_text(node.cpu.default)
    for claim in claims_of(node.cpu).values():
        message.claims.add(
            uid=claim.uid,
            namespace=claim.namespace,
            name=claim.name,
            shares=_shares(claim),
            pods=sorted(state.claim_users.get(claim.uid, ())),
        )
    return message


def _shares(claim: HeldClaim) -> list[messages.HeldShareMessage]:
    return [
        messages.HeldShareMessage(request=request, device=device, cpus=list_text(cpus), variable=variable)
        for ((device, request), cpus), variable in zip(claim.shares.items(), variables(claim), strict=True)
    ]


def _check(text: str, pattern: re.Pattern[str], field: str) -> None:
    if not pattern.fullmatch(text):
        raise InputError(f"{text!r:.60} is not a name", field=field)


def _mask(text: str, field: str) -> int:
    try:
        return CPUSet.parse(text).mask
    except CPUSetSyntaxError:
        raise InputError(f"{text!r:.60} is not a CPU list", field=field) from None
