"""The messages with which a driver of dynamic resource allocation and the agent of its node speak.

Mooring's own service: CPU sets are Linux CPU lists in it, and a "no" is a message and no error of gRPC.
"""

from __future__ import annotations

from typing import Final

from mooring.service.protobuf import Int64, Repeated, TypedMessage, at

PACKAGE: Final = "mooring.claims.v1"
SERVICE: Final = f"{PACKAGE}.Claims"


class ShareMessage(TypedMessage, package=PACKAGE):
    request: str = at(1)
    device: str = at(2)
    count: Int64 = at(3)
    within: str = at(4)
    wished: str = at(5)


class PrepareRequestMessage(TypedMessage, package=PACKAGE):
    uid: str = at(1)
    namespace: str = at(2)
    name: str = at(3)
    shares: Repeated[ShareMessage] = at(4)
    pods: Repeated[str] = at(5)


class HeldShareMessage(TypedMessage, package=PACKAGE):
    request: str = at(1)
    device: str = at(2)
    cpus: str = at(3)
    variable: str = at(4)


class PrepareResponseMessage(TypedMessage, package=PACKAGE):
    shares: Repeated[HeldShareMessage] = at(1)
    reason: str = at(2)


class UnprepareRequestMessage(TypedMessage, package=PACKAGE):
    uid: str = at(1)


class UnprepareResponseMessage(TypedMessage, package=PACKAGE):
    reason: str = at(1)


class NodeRequestMessage(TypedMessage, package=PACKAGE):
    """Has no field."""


class HeldClaimMessage(TypedMessage, package=PACKAGE):
    uid: str = at(1)
    namespace: str = at(2)
    name: str = at(3)
    shares: Repeated[HeldShareMessage] = at(4)
    pods: Repeated[str] = at(5)


class NodeResponseMessage(TypedMessage, package=PACKAGE):
    node: str = at(1)
    machine: bytes = at(2)
    static: bool = at(3)
    group_size: Int64 = at(4)
    whole_cores: bool = at(5)
    claimable: str = at(6)
    shared: str = at(7)
    claims: Repeated[HeldClaimMessage] = at(8)
    synchronized: bool = at(9)
    reserved: str = at(10)
