"""Talos: the section ``machine.kubelet`` of the machine configuration, or a document KubeletConfig beside it.

Sources: https://docs.siderolabs.com/talos/v1.11/reference/configuration/v1alpha1/config;
https://github.com/siderolabs/talos, internal/app/machined/pkg/controllers/k8s/kubelet_spec.go,
pkg/machinery/kubelet (ProtectedConfigurationFields), pkg/machinery/constants,
pkg/machinery/config/types/k8s (KubeletConfigV1Alpha1)
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

from mooring.inputs.configuration.layers import Layer, Tier
from mooring.inputs.configuration.part import NamedVersion, VendorPart, pairs_of
from mooring.inputs.decoding.fields import mapping_at, text_at

VERSION: Final = "v1alpha1"
_CONFIG: Final = "machine.kubelet.extraConfig"
_ARGUMENTS: Final = "machine.kubelet.extraArgs"
_IMAGE: Final = "machine.kubelet.image"
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
_RESERVED: Final = {"cpu": "50m", "pid": "100", "ephemeral-storage": "256Mi"}
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
        yield part.documented(Tier.VENDOR_FILE, {"systemReserved": {**_RESERVED, "memory": memory}})
    if part.mapping(_CONFIG):
        yield part.layer(Tier.FILE, _CONFIG)
    arguments = pairs_of(part.mapping("machine.kubelet").get("extraArgs"), _ARGUMENTS)
    if arguments:
        yield part.flags(arguments)


def kubelet_document(part: VendorPart) -> Iterator[Layer]:
    """Yield the same of a document KubeletConfig, which does not tell the type of the machine."""
    part.refuse_fields("config", _PROTECTED_FIELDS)
    part.refuse_fields("extraArgs", _PROTECTED_FLAGS)
    if not part.mapping("config.systemReserved"):
        message = "Talos reserves 384Mi of memory on workers, 512Mi on others: give the machine's file too"
        memory = {"systemReserved.memory": part.computed(message)}
        yield part.documented(Tier.VENDOR_FILE, {"systemReserved": _RESERVED}, memory)
    yield part.layer(Tier.FILE, "config")
    arguments = pairs_of(part.content.get("extraArgs"), "extraArgs")
    if arguments:
        yield part.flags(arguments)


def machine_version(part: VendorPart) -> NamedVersion | None:
    """Return the version of the kubelet's image, its tag; None without an image or a tag.

    Raises:
        InputError: the image is no string.
    """
    return _tag(part, part.mapping("machine.kubelet"), _IMAGE)


def document_version(part: VendorPart) -> NamedVersion | None:
    """Return the same of a document KubeletConfig; errors as there."""
    return _tag(part, part.content, "image")


def _tag(part: VendorPart, fields: Mapping[str, Any], path: str) -> NamedVersion | None:
    image = text_at(fields, "image").partition("@")[0]
    tag = image.rpartition("/")[2].partition(":")[2]
    return NamedVersion(tag, part.place(path)) if tag else None
