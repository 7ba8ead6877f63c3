"""EKS: NodeConfig of Amazon Linux 2023, and the options of bootstrap.sh of Amazon Linux 2.

nodeadm writes its own file for the kubelet, and the user's ``spec.kubelet.config`` as a drop-in; bootstrap.sh writes
the same file and passes the user's flags. Sources: https://awslabs.github.io/amazon-eks-ami/nodeadm/doc/api/;
https://github.com/awslabs/amazon-eks-ami, nodeadm/internal/kubelet/config.go, nodeadm/internal/api/merge.go,
templates/al2/runtime/bootstrap.sh and kubelet-config.json
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

from mooring.engine.core.errors import InputError
from mooring.inputs.configuration.kubelet_arguments import split_arguments
from mooring.inputs.configuration.layers import Layer, Tier
from mooring.inputs.configuration.part import VendorPart, strings_of
from mooring.inputs.configuration.reservations import eks_memory, milli_by_ranges
from mooring.inputs.configuration.sources import BOOTSTRAP_OPTIONS
from mooring.inputs.decoding.fields import as_mapping, list_at

VERSION: Final = "node.eks.aws/v1alpha1"
_CONFIG: Final = "spec.kubelet.config"
_FLAGS: Final = "spec.kubelet.flags"
_THRESHOLDS: Final = {"memory.available": "100Mi", "nodefs.available": "10%", "nodefs.inodesFree": "5%"}
_CGROUPS: Final = {"kubeReservedCgroup": "/runtime", "systemReservedCgroup": "/system"}
_EXTRA: Final = "--kubelet-extra-args"
_RESERVED_CPUS: Final = "--reserved-cpus"


def node_config(part: VendorPart) -> Iterator[Layer]:
    """Yield nodeadm's own file, the user's drop-in and the user's flags."""
    part.check_version(VERSION)
    yield _own_file(part, with_cgroups=True)
    yield part.layer(Tier.DROP_IN, _CONFIG)
    kubelet = part.mapping("spec.kubelet")
    try:
        listed = list_at(kubelet, "flags")
    except InputError as error:
        raise InputError(error.problem, field=_FLAGS, remedy="write a list such as - --node-labels=a=b") from None
    if listed:
        yield part.flags(strings_of(listed, _FLAGS))


def bootstrap_script(part: VendorPart) -> Iterator[Layer]:
    """Yield the file of bootstrap.sh and the flags that are passed through it."""
    arguments = []
    for index, entry in enumerate(list_at(part.content, BOOTSTRAP_OPTIONS)):
        path = f"{BOOTSTRAP_OPTIONS}[{index}]"
        text = as_mapping(entry).get(_EXTRA)
        if isinstance(text, str):
            arguments += [(word, path) for word in split_arguments(text, part.place(path).source)]
    layer = part.flags(arguments)
    # bootstrap.sh leaves the cgroups of the reservation out where it finds this text.
    with_cgroups = not any(word.startswith(_RESERVED_CPUS) for word, _ in arguments)
    yield _own_file(part, with_cgroups=with_cgroups)
    yield layer


def _own_file(part: VendorPart, *, with_cgroups: bool) -> Layer:
    reserved = {"ephemeral-storage": "1Gi"}
    if part.machine is not None:
        reserved["cpu"] = f"{milli_by_ranges(part.machine.num_cores)}m"
    fields = {"evictionHard": dict(_THRESHOLDS), "kubeReserved": reserved, **(_CGROUPS if with_cgroups else {})}
    message = (
        "EKS reserves 255Mi and 11Mi for each pod that the instance type can have, which a NodeConfig does not tell: "
        "maxPods counts, set kubeReserved.memory where the instance type has another number"
    )
    return part.documented(
        Tier.VENDOR_FILE, fields, {"kubeReserved.memory": part.computed(message, _memory, eks_memory(0))}
    )


def _memory(fields: Mapping[str, Any]) -> int | None:
    pods = fields.get("maxPods")
    return eks_memory(pods) if isinstance(pods, int) else None
