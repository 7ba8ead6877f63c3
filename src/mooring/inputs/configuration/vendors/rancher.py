"""k3s and RKE2: ``kubelet-arg`` of config.yaml and of the files of config.yaml.d.

A later file replaces the list, ``kubelet-arg+`` adds to it. The distribution's own settings are a drop-in; the kubelet
runs without ``--config``, so that it has no other eviction thresholds. Sources:
https://docs.k3s.io/installation/configuration; https://docs.rke2.io/install/configuration;
https://github.com/k3s-io/k3s, pkg/daemons/agent/agent.go (defaultKubeletConfig)
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from mooring.engine.core.machine import Finding
from mooring.inputs.configuration.layers import Layer, Tier
from mooring.inputs.configuration.part import VendorPart, strings_of
from mooring.inputs.decoding.api_fields import UNKNOWN_CONFIGURATION_FIELD

ARGUMENTS: Final = "kubelet-arg"
ADDED: Final = "kubelet-arg+"
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
_THRESHOLDS: Final = {"imagefs.available": "5%", "nodefs.available": "5%"}
_MISSPELT: Final = (
    "kubelet-args",
    "kubelet_arg",
    "kubelet_args",
    "kubeletArg",
    "kubelet-extra-args",
    "kubelet-arguments",
)


def is_config(content: dict[str, object]) -> bool:
    """Tell whether a document without kind is a config.yaml."""
    names = {name.removesuffix("+") for name in content}
    return bool(names & {ARGUMENTS, *_MISSPELT} or names & _FLAGS_OF_K3S) and "kind" not in content


def config(part: VendorPart) -> Iterator[Layer]:
    """Yield the distribution's own drop-in and the flags of the file."""
    for name in _MISSPELT:
        if name in part.content:
            message = f"{part.place(name).source}: {part.vendor} has no field {name}; did you mean {ARGUMENTS}?"
            part.report(Finding("warning", name, message, UNKNOWN_CONFIGURATION_FIELD))
    yield part.documented(Tier.VENDOR_DROP_IN, {"evictionHard": dict(_THRESHOLDS)})
    given = [
        (f"--{text.lstrip('-')}", path)
        for name in (ARGUMENTS, ADDED)
        for text, path in strings_of(part.content.get(name), name)
    ]
    yield part.flags(given)
