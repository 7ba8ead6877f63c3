"""kubeadm's file: flags of the kubelet beside its configuration.

Source: https://kubernetes.io/docs/reference/config-api/kubeadm-config.v1beta4/ (NodeRegistrationOptions;
kubeletExtraArgs is a list of names and values there, and a mapping in v1beta3). Flags of the file win over the
KubeletConfiguration. Labels of versions: kubeadm v1.37.1, cmd/kubeadm/app/util/version.go.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, Final

from mooring.engine.core.errors import InputError
from mooring.inputs.configuration.layers import Layer
from mooring.inputs.configuration.part import NamedVersion, VendorPart, pairs_of
from mooring.inputs.decoding.fields import as_mapping, inside, name_at, text_at

GROUP: Final = "kubeadm.k8s.io/"
NODE_KINDS: Final = ("InitConfiguration", "JoinConfiguration")
CLUSTER_KIND: Final = "ClusterConfiguration"
OTHER_KINDS: Final = ("ResetConfiguration", "UpgradeConfiguration")
_ARGUMENTS: Final = "nodeRegistration.kubeletExtraArgs"
_VERSIONS: Final = ("v1beta3", "v1beta4")
_RELEASE: Final = "kubernetesVersion"
_LABEL: Final = re.compile(r"(?:latest|stable)(?:-1(\.\d+)?)?")


def kubeadm_node(part: VendorPart) -> Iterator[Layer]:
    """Yield the flags that kubeadm passes to the kubelet of a node."""
    version = text_at(part.content, "apiVersion").removeprefix(GROUP)
    if version not in _VERSIONS:
        remedy = f"write {' or '.join(GROUP + one for one in _VERSIONS)}"
        raise InputError(f"{GROUP}{version:.20} is not supported", field="apiVersion", remedy=remedy)
    given = part.mapping("nodeRegistration").get("kubeletExtraArgs")
    if isinstance(given, list) and version == "v1beta3":
        problem = "must be a mapping of names to values in v1beta3"
        raise InputError(problem, field=_ARGUMENTS, remedy=f"write apiVersion: {GROUP}v1beta4")
    if isinstance(given, dict) and version == "v1beta4":
        problem = "must be a list of names and values in v1beta4"
        raise InputError(problem, field=_ARGUMENTS, remedy="write - {name: max-pods, value: '110'}")
    arguments = _listed(given) if isinstance(given, list) else pairs_of(given, _ARGUMENTS)
    if arguments:
        yield part.flags(arguments)


def _listed(entries: list[Any]) -> list[tuple[str, str]]:
    found = []
    for index, entry in enumerate(entries):
        try:
            fields = as_mapping(entry)
            found.append((f"--{name_at(fields, 'name')}={text_at(fields, 'value')}", f"{_ARGUMENTS}[{index}]"))
        except InputError as error:
            raise inside(error, f"{_ARGUMENTS}[{index}]") from None
    return found


def nothing(_part: VendorPart) -> Iterator[Layer]:
    """Yield nothing: the document is not about the kubelet's configuration."""
    return iter(())


def named_version(part: VendorPart) -> NamedVersion | None:
    """Return the version of a ClusterConfiguration; None where it names none, or a label without a minor release.

    Raises:
        InputError: the version is no string.
    """
    text = text_at(part.content, _RELEASE).rpartition("/")[2]
    if label := _LABEL.fullmatch(text):
        text = f"1{label[1]}" if label[1] else ""
    return NamedVersion(text, part.place(_RELEASE)) if text else None
