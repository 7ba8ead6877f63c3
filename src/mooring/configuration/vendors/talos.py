"""Talos: the section ``machine.kubelet`` of the machine configuration.

Sources: https://docs.siderolabs.com/talos/v1.11/reference/configuration/v1alpha1/config;
https://github.com/siderolabs/talos, internal/app/machined/pkg/controllers/k8s/kubelet_spec.go,
pkg/machinery/kubelet (ProtectedConfigurationFields), pkg/machinery/constants
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from mooring.configuration.layers import Layer, Tier
from mooring.configuration.part import VendorPart, pairs_of
from mooring.decoding.fields import mapping_at, text_at

VERSION: Final = "v1alpha1"
_CONFIG: Final = "machine.kubelet.extraConfig"
_ARGUMENTS: Final = "machine.kubelet.extraArgs"
_PROTECTED_FIELDS: Final = (
    "apiVersion",
    "authentication",
    "authorization",
    "cgroupRoot",
    "kind",
    "kubeletCgroups",
    "port",
    "protectKernelDefaults",
    "resolvConf",
    "rotateCertificates",
    "seccompDefault",
    "staticPodPath",
    "systemCgroups",
)
_PROTECTED_FLAGS: Final = (
    "bootstrap-kubeconfig",
    "cert-dir",
    "config",
    "container-runtime",
    "container-runtime-endpoint",
    "kubeconfig",
)
_CONTROL_PLANE: Final = ("controlplane", "init")
_MACHINE_TYPES: Final = (*_CONTROL_PLANE, "worker", "join")


def machine_config(part: VendorPart) -> Iterator[Layer]:
    """Yield Talos' own reservation, the user's configuration and the user's flags."""
    machine_type = text_at(part.mapping("machine"), "type", "worker")
    part.check_value("machine.type", machine_type, _MACHINE_TYPES)
    part.refuse_fields(_CONFIG, _PROTECTED_FIELDS)
    part.refuse_fields(_ARGUMENTS, _PROTECTED_FLAGS)
    if not mapping_at(part.mapping(_CONFIG), "systemReserved"):
        memory = "512Mi" if machine_type in _CONTROL_PLANE else "384Mi"
        own = {"cpu": "50m", "memory": memory, "pid": "100", "ephemeral-storage": "256Mi"}
        yield part.documented(Tier.VENDOR_FILE, {"systemReserved": own})
    yield part.layer(Tier.FILE, _CONFIG)
    arguments = pairs_of(part.mapping("machine.kubelet").get("extraArgs"), _ARGUMENTS)
    if arguments:
        yield part.flags(arguments)
