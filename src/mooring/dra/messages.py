"""The messages of the kubelet's plugin interface, as far as a driver needs them.

Source for numbers, names and types: k8s.io/kubelet v0.37.1, pkg/apis/dra/v1 and pkg/apis/pluginregistration/v1.
"""

from __future__ import annotations

from collections.abc import Mapping

from google.protobuf.message import Message

from mooring.service.protobuf import build_messages

DRA_PACKAGE = "k8s.io.kubelet.pkg.apis.dra.v1"
DRA_SERVICE = f"{DRA_PACKAGE}.DRAPlugin"
DRA_VERSION = "v1.DRAPlugin"
"""How the registration names the interface."""
REGISTRATION_PACKAGE = "pluginregistration"
REGISTRATION_SERVICE = f"{REGISTRATION_PACKAGE}.Registration"

DRA: Mapping[str, type[Message]] = build_messages(
    DRA_PACKAGE,
    {
        "NodePrepareResourcesRequest": "1 claims repeated Claim",
        "NodePrepareResourcesResponse": "1 claims map string NodePrepareResourceResponse",
        "NodePrepareResourceResponse": """
            1 devices repeated Device
            2 error string""",
        # share_id is optional in the original: an empty one is not written, which says the same.
        "Device": """
            1 request_names repeated string
            2 pool_name string
            3 device_name string
            4 cdi_device_ids repeated string
            5 share_id string""",
        "NodeUnprepareResourcesRequest": "1 claims repeated Claim",
        "NodeUnprepareResourcesResponse": "1 claims map string NodeUnprepareResourceResponse",
        "NodeUnprepareResourceResponse": "1 error string",
        "Claim": """
            1 namespace string
            2 uid string
            3 name string""",
    },
)
"""Message class of the interface by name."""

REGISTRATION: Mapping[str, type[Message]] = build_messages(
    REGISTRATION_PACKAGE,
    {
        "PluginInfo": """
            1 type string
            2 name string
            3 endpoint string
            4 supported_versions repeated string""",
        "RegistrationStatus": """
            1 plugin_registered bool
            2 error string""",
        "RegistrationStatusResponse": "",
        "InfoRequest": "",
    },
)
"""Message class of the registration by name."""
