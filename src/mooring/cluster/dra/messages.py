"""The messages of the kubelet's interface of a driver, and of the registration of plugins.

Source for numbers, names and types: k8s.io/kubelet v0.37.1, pkg/apis/dra/v1 and pkg/apis/pluginregistration/v1.
"""

from __future__ import annotations

from typing import Final

from mooring.service.protobuf import Map, Repeated, TypedMessage, at

_DRA_PACKAGE: Final = "k8s.io.kubelet.pkg.apis.dra.v1"
DRA_SERVICE: Final = f"{_DRA_PACKAGE}.DRAPlugin"
DRA_VERSION: Final = "v1.DRAPlugin"
"""How the registration names the interface."""
_REGISTRATION_PACKAGE: Final = "pluginregistration"
REGISTRATION_SERVICE: Final = f"{_REGISTRATION_PACKAGE}.Registration"


class ClaimMessage(TypedMessage, package=_DRA_PACKAGE):
    namespace: str = at(1)
    uid: str = at(2)
    name: str = at(3)


class NodePrepareResourcesRequestMessage(TypedMessage, package=_DRA_PACKAGE):
    claims: Repeated[ClaimMessage] = at(1)


class DeviceMessage(TypedMessage, package=_DRA_PACKAGE):
    request_names: Repeated[str] = at(1)
    pool_name: str = at(2)
    device_name: str = at(3)
    cdi_device_ids: Repeated[str] = at(4)
    # Optional in the original: an empty one is not written, which says the same.
    share_id: str = at(5)


class NodePrepareResourceResponseMessage(TypedMessage, package=_DRA_PACKAGE):
    devices: Repeated[DeviceMessage] = at(1)
    error: str = at(2)


class NodePrepareResourcesResponseMessage(TypedMessage, package=_DRA_PACKAGE):
    claims: Map[str, NodePrepareResourceResponseMessage] = at(1)


class NodeUnprepareResourcesRequestMessage(TypedMessage, package=_DRA_PACKAGE):
    claims: Repeated[ClaimMessage] = at(1)


class NodeUnprepareResourceResponseMessage(TypedMessage, package=_DRA_PACKAGE):
    error: str = at(1)


class NodeUnprepareResourcesResponseMessage(TypedMessage, package=_DRA_PACKAGE):
    claims: Map[str, NodeUnprepareResourceResponseMessage] = at(1)


class PluginInfoMessage(TypedMessage, package=_REGISTRATION_PACKAGE):
    type: str = at(1)
    name: str = at(2)
    endpoint: str = at(3)
    supported_versions: Repeated[str] = at(4)


class RegistrationStatusMessage(TypedMessage, package=_REGISTRATION_PACKAGE):
    plugin_registered: bool = at(1)
    error: str = at(2)


class RegistrationStatusResponseMessage(TypedMessage, package=_REGISTRATION_PACKAGE):
    """Has no field."""


class InfoRequestMessage(TypedMessage, package=_REGISTRATION_PACKAGE):
    """Has no field."""
