"""Which document is in which format: the one table of all that ``--config`` reads of a kubelet."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

from mooring.inputs.configuration import clouds, distributions
from mooring.inputs.configuration import kubelet_config as kubelet
from mooring.inputs.configuration.layers import Layer, Tier
from mooring.inputs.configuration.part import NamedVersion, VendorPart, strings_of
from mooring.inputs.configuration.sources import BOOTSTRAP_OPTIONS, KUBELET_ARGUMENTS
from mooring.lazy import dataclass


@dataclass(frozen=True, slots=True)
class ConfigurationFormat:
    """One format of a vendor."""

    name: str
    """In messages."""
    matches: Callable[[Mapping[str, Any]], bool]
    read: Callable[[VendorPart], Iterator[Layer]]
    type: str = ""
    """In the table of fields (:mod:`mooring.inputs.decoding.fields`); empty where unknown fields are not
    reported."""
    several: bool = False
    """Whether a node may have more than one."""
    has_file: bool = True
    """Whether the kubelet then runs with ``--config``."""
    one_of: str = ""
    """Formats of one name exclude one another; empty for the format's own name."""
    remedy: str = ""
    """Where a second document is refused; empty for the usual one."""
    replaces: Callable[[Mapping[str, Any]], bool] = lambda _: False
    """Tells whether a document takes the place of the flags in earlier ones of the format."""
    version: Callable[[VendorPart], NamedVersion | None] = lambda _: None
    """Returns the kubelet's version that a document names, if it names one."""


def _of_kind(*kinds: str, group: str) -> Callable[[Mapping[str, Any]], bool]:
    return lambda content: content.get("kind") in kinds and str(content.get("apiVersion", "")).startswith(group)


def _of_talos(*kinds: str) -> Callable[[Mapping[str, Any]], bool]:
    return lambda content: (
        content.get("apiVersion") == distributions.TALOS_VERSION
        and (content.get("kind") in kinds if kinds else "kind" in content)
    )


def _plain(matches: Callable[[Any], bool]) -> Callable[[Mapping[str, Any]], bool]:
    return lambda content: "kind" not in content and matches(content)


def _is_aks(content: Mapping[str, Any]) -> bool:
    reserved = content.get("kubeReserved")
    inner = isinstance(reserved, Mapping) and not {"cpuMillicores", "memoryMB"}.isdisjoint(reserved)
    return inner or not clouds.OWN_NAMES.isdisjoint(content)


def _drop_in(part: VendorPart) -> Iterator[Layer]:
    for field, wanted in (("apiVersion", kubelet.API_VERSION), ("kind", kubelet.KIND)):
        if part.content.get(field) != wanted:
            raise part.refusal(field, f"the kubelet refuses a drop-in without {field}: {wanted}", "add it")
    yield part.layer(Tier.DROP_IN, "")


DROP_IN: Final = ConfigurationFormat(
    "file of --config-dir", lambda _: True, _drop_in, kubelet.KIND, several=True, has_file=False
)
_OPENSHIFT: Final = "KubeletConfig or PerformanceProfile"
_CREATED_LAST: Final = (
    "OpenShift does not merge those of one pool, the one created last decides alone: keep that one, or write the "
    "fields of the KubeletConfig into the profile's annotation kubeletconfig.experimental"
)
FORMATS: Final = (
    ConfigurationFormat(
        "flags of the kubelet", lambda content: set(content) == {KUBELET_ARGUMENTS},
        lambda part: iter([part.flags(strings_of(part.content[KUBELET_ARGUMENTS], KUBELET_ARGUMENTS))]), several=True,
        has_file=False,
    ),
    ConfigurationFormat(
        "EKS bootstrap.sh", lambda content: set(content) == {BOOTSTRAP_OPTIONS}, clouds.bootstrap_script
    ),
    ConfigurationFormat(
        "kubeadm", _of_kind(*distributions.NODE_KINDS, group=distributions.KUBEADM_GROUP), distributions.kubeadm_node,
        "KubeadmNodeConfiguration", one_of="InitConfiguration or JoinConfiguration",
    ),
    ConfigurationFormat(
        "kubeadm", _of_kind(distributions.CLUSTER_KIND, group=distributions.KUBEADM_GROUP), distributions.nothing,
        several=True, version=distributions.named_version,
    ),
    ConfigurationFormat(
        "kubeadm", _of_kind(*distributions.OTHER_KINDS, group=distributions.KUBEADM_GROUP), distributions.nothing,
        several=True,
    ),
    ConfigurationFormat(
        "kube-proxy", _of_kind("KubeProxyConfiguration", group="kubeproxy.config.k8s.io/"), distributions.nothing,
        several=True, has_file=False,
    ),
    ConfigurationFormat(
        "OpenShift", _of_kind("KubeletConfig", group="machineconfiguration.openshift.io/"),
        distributions.kubelet_config_object, "OpenShiftKubeletConfig", one_of=_OPENSHIFT, remedy=_CREATED_LAST,
    ),
    ConfigurationFormat(
        "OpenShift", _of_kind("PerformanceProfile", group=distributions.PROFILE_GROUP),
        distributions.performance_profile, "PerformanceProfile", one_of=_OPENSHIFT, remedy=_CREATED_LAST,
    ),
    ConfigurationFormat(
        "EKS", _of_kind("NodeConfig", group="node.eks.aws/"), clouds.node_config, "EKSNodeConfig", several=True
    ),
    ConfigurationFormat(
        "Talos",
        _plain(lambda content: content.get("version") == distributions.TALOS_VERSION and "machine" in content),
        distributions.machine_config, "TalosConfig", version=distributions.machine_version,
    ),
    ConfigurationFormat(
        "Talos", _of_talos("KubeletConfig"), distributions.kubelet_document, "TalosKubeletConfig",
        one_of="KubeletConfig of Talos", version=distributions.document_version,
    ),
    ConfigurationFormat("Talos", _of_talos(), distributions.nothing, several=True, one_of="document of Talos"),
    ConfigurationFormat("AKS", clouds.is_node_pool, clouds.node_pool, version=clouds.pool_version),
    ConfigurationFormat(
        "GKE", _plain(lambda content: bool(content) and not clouds.GKE_SECTIONS.isdisjoint(content)),
        clouds.node_system_config, "GKENodeSystemConfig",
    ),
    ConfigurationFormat("AKS", _plain(_is_aks), clouds.custom_kubelet_config, "AKSKubeletConfig"),
    ConfigurationFormat(
        "k3s", _plain(distributions.is_rancher_config), distributions.rancher_config, several=True, has_file=False,
        replaces=lambda content: distributions.RANCHER_ARGUMENTS in content,
    ),
)  # fmt: skip
"""Looked through in this order; a KubeletConfiguration is tried after them."""


def format_of(content: Mapping[str, Any]) -> ConfigurationFormat | None:
    """Return the vendor's format of a document; None when it is none of them.

    >>> found = format_of({"kubeletConfig": {"cpuManagerPolicy": "static"}})
    >>> found.name if found else ""
    'GKE'
    """
    return next((one for one in FORMATS if one.matches(content)), None)
