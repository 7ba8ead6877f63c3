"""kubeadm's file: flags of the kubelet beside its configuration.

Source: https://kubernetes.io/docs/reference/config-api/kubeadm-config.v1beta4/ (NodeRegistrationOptions;
kubeletExtraArgs is a list of names and values there, and a mapping in v1beta3). Flags of the file win over the
KubeletConfiguration. Labels of versions: kubeadm v1.37.1, cmd/kubeadm/app/util/version.go.

k3s and RKE2: ``kubelet-arg`` of rancher_config.yaml and of the files of rancher_config.yaml.d.

A later file replaces the list, ``kubelet-arg+`` adds to it. The distribution's own settings are a drop-in; the kubelet
runs without ``--rancher_config``, so that it has no other eviction thresholds. Sources:
https://docs.k3s.io/installation/configuration; https://docs.rke2.io/install/configuration;
https://github.com/k3s-io/k3s, pkg/daemons/agent/agent.go (defaultKubeletConfig)

Talos: the section ``machine.kubelet`` of the machine configuration, or a document KubeletConfig beside it.

Sources: https://docs.siderolabs.com/talos/v1.11/reference/configuration/v1alpha1/config;
https://github.com/siderolabs/talos, internal/app/machined/pkg/controllers/k8s/kubelet_spec.go,
pkg/machinery/kubelet (ProtectedConfigurationFields), pkg/machinery/constants,
pkg/machinery/config/types/k8s (KubeletConfigV1Alpha1)
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any, Final

from mooring.engine.core.errors import InputError
from mooring.engine.core.machine import Finding
from mooring.inputs.configuration.layers import Layer, Tier
from mooring.inputs.configuration.part import NamedVersion, VendorPart, pairs_of, strings_of
from mooring.inputs.decoding.api_fields import UNKNOWN_CONFIGURATION_FIELD
from mooring.inputs.decoding.fields import as_mapping, mapping_at, name_at, text_at, within

KUBEADM_GROUP: Final = "kubeadm.k8s.io/"
NODE_KINDS: Final[tuple[str, ...]] = ("InitConfiguration", "JoinConfiguration")
CLUSTER_KIND: Final = "ClusterConfiguration"
OTHER_KINDS: Final[tuple[str, ...]] = ("ResetConfiguration", "UpgradeConfiguration")
_ARGUMENTS: Final = "nodeRegistration.kubeletExtraArgs"
_KUBEADM_VERSIONS: Final = ("v1beta3", "v1beta4")
_RELEASE: Final = "kubernetesVersion"
_LABEL: Final = re.compile(r"(?:latest|stable)(?:-1(\.\d+)?)?")


def kubeadm_node(part: VendorPart) -> Iterator[Layer]:
    """Yield the flags that kubeadm passes to the kubelet of a node."""
    version = text_at(part.content, "apiVersion").removeprefix(KUBEADM_GROUP)
    if version not in _KUBEADM_VERSIONS:
        remedy = f"write {' or '.join(KUBEADM_GROUP + one for one in _KUBEADM_VERSIONS)}"
        raise InputError(f"{KUBEADM_GROUP}{version:.20} is not supported", field="apiVersion", remedy=remedy)
    given = part.mapping("nodeRegistration").get("kubeletExtraArgs")
    if isinstance(given, list) and version == "v1beta3":
        problem = "must be a mapping of names to values in v1beta3"
        raise InputError(problem, field=_ARGUMENTS, remedy=f"write apiVersion: {KUBEADM_GROUP}v1beta4")
    if isinstance(given, dict) and version == "v1beta4":
        problem = "must be a list of names and values in v1beta4"
        raise InputError(problem, field=_ARGUMENTS, remedy="write - {name: max-pods, value: '110'}")
    arguments = _listed(given) if isinstance(given, list) else pairs_of(given, _ARGUMENTS)
    if arguments:
        yield part.flags(arguments)


def _listed(entries: list[Any]) -> list[tuple[str, str]]:
    found = []
    for index, entry in enumerate(entries):
        with within(f"{_ARGUMENTS}[{index}]"):
            fields = as_mapping(entry)
            found.append((f"--{name_at(fields, 'name')}={text_at(fields, 'value')}", f"{_ARGUMENTS}[{index}]"))
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


RANCHER_ARGUMENTS: Final = "kubelet-arg"
RANCHER_ADDED: Final = "kubelet-arg+"
_FLAGS = """
    agent-token cluster-cidr cluster-dns cluster-init cni data-dir datastore-endpoint debug disable
    disable-cloud-controller disable-kube-proxy embedded-registry etcd-snapshot-retention flannel-backend
    ingress-controller kube-apiserver-arg kube-controller-manager-arg kube-proxy-arg kube-scheduler-arg
    node-external-ip node-ip node-label node-name node-taint private-registry profile protect-kernel-defaults
    secrets-encryption selinux server service-cidr system-default-registry tls-san token token-file
    write-kubeconfig write-kubeconfig-mode
"""
_FLAGS_OF_K3S: Final = frozenset(_FLAGS.split())
"""Some flags of both distributions, by which their files are recognised."""
_K3S_THRESHOLDS: Final = {"imagefs.available": "5%", "nodefs.available": "5%"}
_MISSPELT: Final = (
    "kubelet-args", "kubelet_arg", "kubelet_args", "kubeletArg", "kubelet-extra-args", "kubelet-arguments",
)  # fmt: skip


def is_rancher_config(content: dict[str, object]) -> bool:
    """Tell whether a document without kind is a rancher_config.yaml."""
    names = {name.removesuffix("+") for name in content}
    return bool(names & {RANCHER_ARGUMENTS, *_MISSPELT} or names & _FLAGS_OF_K3S) and "kind" not in content


def rancher_config(part: VendorPart) -> Iterator[Layer]:
    """Yield the distribution's own drop-in and the flags of the file."""
    for name in _MISSPELT:
        if name in part.content:
            place = part.place(name).source
            message = f"{place}: {part.vendor} has no field {name}; did you mean {RANCHER_ARGUMENTS}?"
            part.report(Finding("warning", name, message, UNKNOWN_CONFIGURATION_FIELD, place))
    yield part.documented(Tier.VENDOR_DROP_IN, {"evictionHard": dict(_K3S_THRESHOLDS)})
    given = [
        (f"--{text.lstrip('-')}", path)
        for name in (RANCHER_ARGUMENTS, RANCHER_ADDED)
        for text, path in strings_of(part.content.get(name), name)
    ]
    yield part.flags(given)


TALOS_VERSION: Final = "v1alpha1"
_TALOS_CONFIG: Final = "machine.kubelet.extraConfig"
_TALOS_ARGUMENTS: Final = "machine.kubelet.extraArgs"
_IMAGE: Final = "machine.kubelet.image"
_PROTECTED_FIELDS: Final = (
    "apiVersion", "authentication", "authorization", "cgroupRoot", "kind", "kubeletCgroups", "port",
    "protectKernelDefaults", "resolvConf", "rotateCertificates", "seccompDefault", "staticPodPath", "systemCgroups",
)  # fmt: skip
_PROTECTED_FLAGS: Final = (
    "bootstrap-kubeconfig", "cert-dir", "config", "container-runtime", "container-runtime-endpoint", "kubeconfig",
)  # fmt: skip
_RESERVED: Final = {"cpu": "50m", "pid": "100", "ephemeral-storage": "256Mi"}
_CONTROL_PLANE: Final = ("controlplane", "init")
_MACHINE_TYPES: Final = (*_CONTROL_PLANE, "worker", "join")


def machine_config(part: VendorPart) -> Iterator[Layer]:
    """Yield Talos' own reservation, the user's configuration and the user's flags."""
    machine_type = text_at(part.mapping("machine"), "type", "worker")
    part.check_value("machine.type", machine_type, _MACHINE_TYPES)
    part.refuse_fields(_TALOS_CONFIG, _PROTECTED_FIELDS)
    part.refuse_fields(_TALOS_ARGUMENTS, _PROTECTED_FLAGS)
    if not mapping_at(part.mapping(_TALOS_CONFIG), "systemReserved"):
        memory = "512Mi" if machine_type in _CONTROL_PLANE else "384Mi"
        yield part.documented(Tier.VENDOR_FILE, {"systemReserved": {**_RESERVED, "memory": memory}})
    if part.mapping(_TALOS_CONFIG):
        yield part.layer(Tier.FILE, _TALOS_CONFIG)
    arguments = pairs_of(part.mapping("machine.kubelet").get("extraArgs"), _TALOS_ARGUMENTS)
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
