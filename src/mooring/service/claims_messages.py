"""The messages with which a driver of dynamic resource allocation and the agent of its node speak.

Mooring's own service: CPU sets are Linux CPU lists in it, and a "no" is a message and no error of gRPC.
"""

from __future__ import annotations

from collections.abc import Mapping

from google.protobuf.message import Message

from mooring.service.protobuf import build_messages

PACKAGE = "mooring.claims.v1"
SERVICE = f"{PACKAGE}.Claims"

_TABLES = {
    "Share": """
        1 request string
        2 device string
        3 count int64
        4 within string
        5 wished string""",
    "PrepareRequest": """
        1 uid string
        2 namespace string
        3 name string
        4 shares repeated Share
        5 pods repeated string""",
    "PrepareResponse": """
        1 shares repeated HeldShare
        2 reason string""",
    "HeldShare": """
        1 request string
        2 device string
        3 cpus string
        4 variable string""",
    "UnprepareRequest": "1 uid string",
    "UnprepareResponse": "1 reason string",
    "NodeRequest": "",
    "NodeResponse": """
        1 node string
        2 machine bytes
        3 static bool
        4 group_size int64
        5 whole_cores bool
        6 claimable string
        7 shared string
        8 claims repeated HeldClaim
        9 synchronized bool
        10 reserved string""",
    "HeldClaim": """
        1 uid string
        2 namespace string
        3 name string
        4 shares repeated HeldShare
        5 pods repeated string""",
}

MESSAGES: Mapping[str, type[Message]] = build_messages(PACKAGE, _TABLES)
"""Message class by name."""
