"""Distributions of Kubernetes: kubeadm, k3s and RKE2, Talos, OpenShift; and the one table of all vendors' formats.

kubeadm's file: flags of the kubelet beside its configuration.

Source: https://kubernetes.io/docs/reference/config-api/kubeadm-config.v1beta4/ (NodeRegistrationOptions;
kubeletExtraArgs is a list of names and values there, and a mapping in v1beta3). Flags of the file win over the
KubeletConfiguration. Labels of versions: kubeadm v1.37.1, cmd/kubeadm/app/util/version.go.

k3s and RKE2: ``kubelet-arg`` of config.yaml and of the files of config.yaml.d. A later file replaces the list,
``kubelet-arg+`` adds to it. The distribution's own settings are a drop-in; the kubelet runs without ``--config``, so
that it has no other eviction thresholds. Sources:
https://docs.k3s.io/installation/configuration; https://docs.rke2.io/install/configuration;
https://github.com/k3s-io/k3s, pkg/daemons/agent/agent.go (defaultKubeletConfig)

Talos: the section ``machine.kubelet`` of the machine configuration, or a document KubeletConfig beside it.
Sources: https://docs.siderolabs.com/talos/v1.11/reference/configuration/v1alpha1/config;
https://github.com/siderolabs/talos, internal/app/machined/pkg/controllers/k8s/kubelet_spec.go,
pkg/machinery/kubelet (ProtectedConfigurationFields), pkg/machinery/constants,
pkg/machinery/config/types/k8s (KubeletConfigV1Alpha1)

OpenShift: KubeletConfig of the machine config operator, PerformanceProfile of the node tuning operator.
Sources: https://github.com/openshift/machine-config-operator, pkg/controller/kubelet-config/helpers.go and
templates/worker/01-worker-kubelet; https://github.com/openshift/cluster-node-tuning-operator,
pkg/performanceprofile/controller/performanceprofile/components/kubeletconfig/kubeletconfig.go and
pkg/apis/performanceprofile/v2. Both end in one file of the kubelet, and the reservation of the system in a flag.
A pool's KubeletConfigs are not merged, that of a profile included: https://github.com/openshift/openshift-docs/pull/118856.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from functools import partial, reduce
from itertools import combinations
from operator import add
from typing import Any, Final

from mooring.engine.core.cpuset import CPUSet, CPUSetSyntaxError
from mooring.engine.core.errors import InputError
from mooring.engine.core.machine import Finding, SourcePlace
from mooring.engine.core.quantity import Quantity, QuantitySyntaxError
from mooring.inputs.configuration import clouds, vendors
from mooring.inputs.configuration.kubelet_config import KIND, FieldPlace, Layer, Tier
from mooring.inputs.configuration.vendors import ConfigurationFormat, NamedVersion, VendorPart, of_kind, without_kind
from mooring.inputs.decoding import fields as reading
from mooring.inputs.decoding.api_fields import UNKNOWN_CONFIGURATION_FIELD
from mooring.inputs.decoding.fields import each_at, list_at, mapping_at, name_at, text_at, within

_KUBEADM: Final = "kubeadm.k8s.io/"
_ARGUMENTS: Final = "nodeRegistration.kubeletExtraArgs"
_KUBEADM_VERSIONS: Final = {
    "v1beta3": (dict, "must be a mapping of names to values in v1beta3", f"write apiVersion: {_KUBEADM}v1beta4"),
    "v1beta4": (list, "must be a list of names and values in v1beta4", "write - {name: max-pods, value: '110'}"),
}
"""Version -> form of the arguments, and what is said of the other's."""
_RELEASE: Final = "kubernetesVersion"
_LABEL: Final = re.compile(r"(?:latest|stable)(?:-1(\.\d+)?)?")


def kubeadm_node(part: VendorPart) -> Iterator[Layer]:
    """Yield the flags that kubeadm passes to the kubelet of a node."""
    version = part.text("apiVersion").removeprefix(_KUBEADM)
    if version not in _KUBEADM_VERSIONS:
        remedy = f"write {' or '.join(_KUBEADM + one for one in _KUBEADM_VERSIONS)}"
        raise InputError(f"{_KUBEADM}{version:.20} is not supported", field="apiVersion", remedy=remedy)
    form, problem, remedy = _KUBEADM_VERSIONS[version]
    registration = part.mapping("nodeRegistration")
    given = registration.get("kubeletExtraArgs")
    if isinstance(given, list | dict) and not isinstance(given, form):
        raise InputError(problem, field=_ARGUMENTS, remedy=remedy)
    if isinstance(given, list):
        with within("nodeRegistration"):
            texts = each_at(
                registration, "kubeletExtraArgs", lambda one: f"--{name_at(one, 'name')}={text_at(one, 'value')}"
            )
        arguments = [(text, f"{_ARGUMENTS}[{index}]") for index, text in enumerate(texts)]
    else:
        arguments = part.pairs(_ARGUMENTS)
    if arguments:
        yield part.flags(arguments)


def named_version(part: VendorPart) -> NamedVersion | None:
    """Return the version of a ClusterConfiguration; None where it names none, or a label without a minor release.

    Raises:
        InputError: the version is no string.
    """
    text = part.text(_RELEASE).rpartition("/")[2]
    if label := _LABEL.fullmatch(text):
        text = f"1{label[1]}" if label[1] else ""
    return NamedVersion(text, part.place(_RELEASE)) if text else None


_RANCHER_ARGUMENTS: Final = "kubelet-arg"
_FLAGS = """
    agent-token cluster-cidr cluster-dns cluster-init cni data-dir datastore-endpoint debug disable
    disable-cloud-controller disable-kube-proxy embedded-registry etcd-snapshot-retention flannel-backend
    ingress-controller kube-apiserver-arg kube-controller-manager-arg kube-proxy-arg kube-scheduler-arg
    node-external-ip node-ip node-label node-name node-taint private-registry profile protect-kernel-defaults
    secrets-encryption selinux server service-cidr system-default-registry tls-san token token-file
    write-kubeconfig write-kubeconfig-mode
"""
_K3S_THRESHOLDS: Final = {"imagefs.available": "5%", "nodefs.available": "5%"}
_MISSPELT: Final = (
    "kubelet-args", "kubelet_arg", "kubelet_args", "kubeletArg", "kubelet-extra-args", "kubelet-arguments",
)  # fmt: skip


_RANCHER_NAMES: Final = frozenset({_RANCHER_ARGUMENTS, *_MISSPELT, *_FLAGS.split()})
"""Fields, and some flags of both distributions, by which their files are recognised."""


def rancher_config(part: VendorPart) -> Iterator[Layer]:
    """Yield the distribution's own drop-in and the flags of the file."""
    for name in _MISSPELT:
        if name in part.content:
            place = part.place(name).source
            message = f"{place}: {part.vendor} has no field {name}; did you mean {_RANCHER_ARGUMENTS}?"
            part.report(Finding("warning", name, message, UNKNOWN_CONFIGURATION_FIELD, place))
    yield part.documented(Tier.VENDOR_DROP_IN, {"evictionHard": dict(_K3S_THRESHOLDS)})
    given = [
        (f"--{text.lstrip('-')}", path)
        for name in (_RANCHER_ARGUMENTS, f"{_RANCHER_ARGUMENTS}+")
        for text, path in part.strings(name)
    ]
    yield part.flags(given)


_TALOS: Final = "v1alpha1"
_PROTECTED_FIELDS: Final = (
    "apiVersion", "authentication", "authorization", "cgroupRoot", "kind", "kubeletCgroups", "port",
    "protectKernelDefaults", "resolvConf", "rotateCertificates", "seccompDefault", "staticPodPath", "systemCgroups",
)  # fmt: skip
_PROTECTED_FLAGS: Final = (
    "bootstrap-kubeconfig", "cert-dir", "config", "container-runtime", "container-runtime-endpoint", "kubeconfig",
)  # fmt: skip
_RESERVED: Final = {"cpu": "50m", "pid": "100", "ephemeral-storage": "256Mi"}
_CONTROL_PLANE: Final = ("controlplane", "init")


def machine_config(part: VendorPart) -> Iterator[Layer]:
    """Yield Talos' own reservation, the user's configuration and the user's flags."""
    machine_type = part.text("machine.type", "worker")
    part.check_value("machine.type", machine_type, (*_CONTROL_PLANE, "worker", "join"))
    memory = "512Mi" if machine_type in _CONTROL_PLANE else "384Mi"
    reserved = part.documented(Tier.VENDOR_FILE, {"systemReserved": {**_RESERVED, "memory": memory}})
    yield from _talos_layers(part, "machine.kubelet.extraConfig", "machine.kubelet", reserved)


def kubelet_document(part: VendorPart) -> Iterator[Layer]:
    """Yield the same of a document KubeletConfig, which does not tell the type of the machine."""
    message = "Talos reserves 384Mi of memory on workers, 512Mi on others: give the machine's file too"
    memory = {"systemReserved.memory": part.computed(message)}
    reserved = part.documented(Tier.VENDOR_FILE, {"systemReserved": _RESERVED}, memory)
    yield from _talos_layers(part, "config", "", reserved)


def _talos_layers(part: VendorPart, config: str, section: str, reserved: Layer) -> Iterator[Layer]:
    flags = f"{section}.extraArgs".lstrip(".")
    part.refuse_fields(config, _PROTECTED_FIELDS)
    part.refuse_fields(flags, _PROTECTED_FLAGS)
    if not part.mapping(f"{config}.systemReserved"):
        yield reserved
    # A document KubeletConfig is the kubelet's file, even if it is empty.
    if part.mapping(config) or not section:
        yield part.layer(Tier.FILE, config)
    if arguments := part.pairs(flags):
        yield part.flags(arguments)


def image_version(part: VendorPart, path: str) -> NamedVersion | None:
    """Return the version of the kubelet's image, its tag; None without an image or a tag.

    Raises:
        InputError: the image is no string.
    """
    image = part.text(path).partition("@")[0]
    tag = image.rpartition("/")[2].partition(":")[2]
    return NamedVersion(tag, part.place(path)) if tag else None


_MACHINE_CONFIG: Final = "machineconfiguration.openshift.io/"
_PROFILE: Final = "performance.openshift.io/"
_CONFIG: Final = "spec.kubeletConfig"
_RESERVED_FIELDS: Final = ("cgroupDriver", "clusterDNS", "clusterDomain", "featureGates", "staticPodPath", "failSwapOn")
"""Fields that the machine config operator refuses in a KubeletConfig."""
_FILE: Final[Mapping[str, Any]] = {"maxPods": 250}
"""What decides of the kubelet's file on every worker."""
_SYSTEM: Final[Mapping[str, str]] = {"cpu": "500m", "memory": "1Gi", "ephemeral-storage": "1Gi"}
"""What ``--system-reserved`` has where a KubeletConfig says nothing else."""


def kubelet_config_object(part: VendorPart) -> Iterator[Layer]:
    """Yield what the machine config operator makes of a KubeletConfig."""
    reading.check_version(part.content, f"{_MACHINE_CONFIG}v1", required=True)
    spec = part.mapping("spec")
    given = part.mapping(_CONFIG)
    part.refuse_fields(_CONFIG, _RESERVED_FIELDS)
    if mapping_at(given, "memorySwap").get("swapBehavior"):
        part.refuse_fields(_CONFIG, ("memorySwap",))
    level = reading.count_at(spec, "logLevel", 1)
    if not 1 <= level <= 10:
        raise part.refusal("spec.logLevel", f"{level} is not from 1 to 10")
    automatic = reading.flag_at(spec, "autoSizingReserved", default=False)
    if automatic and given.get("systemReserved"):
        remedy = "remove one of the two"
        raise part.refusal("spec.autoSizingReserved", "cannot be set together with systemReserved", remedy)
    message = "with autoSizingReserved the node computes its own reservation, by a formula of its release"
    sized = {"systemReserved.memory": part.computed(message)} if automatic else {}
    yield part.documented(Tier.VENDOR_FILE, _FILE, sized)
    yield part.layer(Tier.FILE, _CONFIG)
    if not automatic:
        yield _system_reserved(part, reading.texts_at(given, "systemReserved"), _CONFIG)


def _system_reserved(part: VendorPart, given: Mapping[str, str], path: str) -> Layer:
    """Return the flag that replaces systemReserved of the file; each resource is the user's or the default."""
    fields = {"systemReserved": {name: given.get(name) or default for name, default in _SYSTEM.items()}}

    def place(field: str) -> FieldPlace:
        if given.get(field.partition(".")[2]):
            return part.place(f"{path}.{field}")
        return FieldPlace(SourcePlace(f"{part.vendor}, --system-reserved of its unit"), "")

    return Layer(Tier.FLAGS, fields, place, built_in=not given)


_PAGE_SIZES: Final = ("2M", "1G", "32M", "512M")
_SNIPPET: Final = "metadata.annotations.kubeletconfig.experimental"
_UNCORE: Final = "kubeletconfig.prefer-align-cpus-by-uncorecache"
_THRESHOLDS: Final = {
    "memory.available": "100Mi", "nodefs.available": "10%", "imagefs.available": "15%", "nodefs.inodesFree": "5%",
}  # fmt: skip
_EACH_RESERVED: Final = "500Mi"
"""Memory of kubeReserved, and of systemReserved, that the operator sets unless the annotation does."""


def performance_profile(part: VendorPart) -> Iterator[Layer]:
    """Yield what the node tuning operator makes of a PerformanceProfile."""
    if not part.text("apiVersion").startswith(_PROFILE):
        raise InputError("is not supported", field="apiVersion", remedy=f"write {_PROFILE}v2")
    reserved = _reserved_cpus(part)
    policy = part.text("spec.numa.topologyPolicy")
    if policy:
        part.check_value("spec.numa.topologyPolicy", policy, clouds.POLICIES)
    # The fields of a KubeletConfiguration in the profile's annotation
    text = text_at(part.mapping("metadata.annotations"), _SNIPPET.removeprefix("metadata.annotations."))
    with within(_SNIPPET):
        try:
            snippet = reading.as_mapping(json.loads(text)) if text else {}
        except (ValueError, RecursionError):
            raise InputError("is not valid JSON", remedy="write fields of a KubeletConfiguration") from None
    part.report_unknown(KIND, snippet, _SNIPPET)
    fields = _fields(part, snippet, reserved, policy or "best-effort")
    if pages := _pages(part):
        part.note("spec.hugepages", f"{pages} are kernel arguments: they count as far as the machine has them")
    if offlined := part.text("spec.cpu.offlined"):
        part.note("spec.cpu.offlined", f"CPUs {offlined} go offline at boot: give a machine without them")

    def place(field: str) -> FieldPlace:
        name, _, key = field.partition(".")
        given = snippet.get(name)
        if name not in _PATHS and key and not (isinstance(given, Mapping) and key in given):
            return FieldPlace(SourcePlace(f"{part.vendor}'s default"), "")
        return part.place(_PATHS.get(name, _SNIPPET))

    yield part.documented(Tier.VENDOR_FILE, _FILE)
    yield Layer(Tier.FILE, fields, place)
    yield _system_reserved(part, fields["systemReserved"], _SNIPPET)


def _reserved_cpus(part: VendorPart) -> CPUSet:
    """Return the reserved CPUs of a profile, whose sets are checked as the operator does."""
    sets: dict[str, CPUSet] = {}
    for name in ("reserved", "isolated", "offlined", "shared"):
        text = part.text(f"spec.cpu.{name}")
        try:
            sets[name] = CPUSet.parse(text)
        except CPUSetSyntaxError as error:
            raise part.refusal(f"spec.cpu.{name}", f"{text!r:.60} is not a CPU list: {error}") from None
    for name in ("reserved", "isolated"):
        if not sets[name]:
            raise part.refusal(f"spec.cpu.{name}", f"{part.vendor} needs {name} CPUs", "write a CPU list such as 0-3")
    for one, other in combinations(sets, 2):
        if both := sets[one] & sets[other]:
            raise part.refusal(f"spec.cpu.{other}", f"CPUs {both} are {one} too", "name each CPU once")
    mixed = reading.flag_at(part.mapping("spec.workloadHints"), "mixedCpus", default=False)
    if mixed and not sets["shared"]:
        raise part.refusal("spec.workloadHints.mixedCpus", "needs shared CPUs", "set spec.cpu.shared")
    return sets["reserved"] | sets["shared"] if mixed else sets["reserved"]


_BY_POLICY: Final = ("cpuManagerPolicyOptions", "memoryManagerPolicy", "reservedMemory", "topologyManagerPolicy")
_PATHS: Final = {
    "reservedSystemCPUs": "spec.cpu.reserved",
    **dict.fromkeys(("cpuManagerPolicy", "cpuManagerReconcilePeriod"), "spec.cpu"),
    **dict.fromkeys(_BY_POLICY, "spec.numa.topologyPolicy"),
}
"""Field of the kubelet -> what of the profile decides it; others come from the annotation or are defaults."""


def _fields(part: VendorPart, snippet: Mapping[str, Any], reserved: CPUSet, policy: str) -> dict[str, Any]:
    fields = {
        **snippet,
        "cpuManagerPolicy": "static",
        "cpuManagerReconcilePeriod": "5s",
        "topologyManagerPolicy": policy,
        "reservedSystemCPUs": str(reserved),
        "evictionHard": {**_THRESHOLDS, **reading.texts_at(snippet, "evictionHard")},
        "kubeReserved": {"memory": _EACH_RESERVED, **reading.texts_at(snippet, "kubeReserved")},
        "systemReserved": {"memory": _EACH_RESERVED, **reading.texts_at(snippet, "systemReserved")},
    }
    options = reading.texts_at(snippet, "cpuManagerPolicyOptions")
    if policy in ("restricted", "single-numa-node"):
        fields["memoryManagerPolicy"] = "Static"
        if snippet.get("reservedMemory") is None:
            # The first NUMA node is the only one that every machine has.
            texts = [fields[name]["memory"] for name in ("kubeReserved", "systemReserved")]
            try:
                memory = reduce(add, map(Quantity.parse, [*texts, fields["evictionHard"]["memory.available"]]))
            except QuantitySyntaxError as error:
                raise InputError(f"memory of the reservations cannot be added: {error}", field=_SNIPPET) from None
            fields["reservedMemory"] = [{"numaNode": 0, "limits": {"memory": str(memory)}}]
    if policy == "single-numa-node":
        options = {"full-pcpus-only": "true", **options}
    annotation = text_at(part.mapping("metadata.annotations"), _UNCORE)
    if annotation in ("true", "false"):
        options = {**options, "prefer-align-cpus-by-uncorecache": annotation}
    return {**fields, "cpuManagerPolicyOptions": options} if options else fields


def _pages(part: VendorPart) -> str:
    """Return the huge pages of a profile in words."""
    seen: set[tuple[str, int]] = set()
    words = []
    for index, page in enumerate(list_at(part.mapping("spec.hugepages"), "pages")):
        path = f"spec.hugepages.pages[{index}]"
        with within(path):
            fields = reading.as_mapping(page)
            size, count = text_at(fields, "size"), reading.count_at(fields, "count", 0)
            node = reading.count_at(fields, "node", -1)
        part.check_value(f"{path}.size", size, _PAGE_SIZES)
        if (size, node) in seen:
            raise part.refusal(path, f"pages of {size} are listed twice for the same node", "keep one of them")
        seen.add((size, node))
        words.append(f"{count} huge pages of {size}" + ("" if node < 0 else f" on NUMA node {node}"))
    return ", ".join(words)


_REMEDY: Final = (
    "OpenShift does not merge those of one pool, the one created last decides alone: keep that one, or write the "
    "fields of the KubeletConfig into the profile's annotation kubeletconfig.experimental"
)
_OpenShift = partial(ConfigurationFormat, "OpenShift", one_of="KubeletConfig or PerformanceProfile", remedy=_REMEDY)
FORMATS: Final[tuple[ConfigurationFormat, ...]] = (
    vendors.ARGUMENTS,
    ConfigurationFormat(
        "kubeadm", of_kind(_KUBEADM, "InitConfiguration", "JoinConfiguration"), kubeadm_node,
        "KubeadmNodeConfiguration", one_of="InitConfiguration or JoinConfiguration",
    ),
    ConfigurationFormat("kubeadm", of_kind(_KUBEADM, "ClusterConfiguration"), several=True, version=named_version),
    ConfigurationFormat("kubeadm", of_kind(_KUBEADM, "ResetConfiguration", "UpgradeConfiguration"), several=True),
    ConfigurationFormat(
        "kube-proxy", of_kind("kubeproxy.config.k8s.io/", "KubeProxyConfiguration"), several=True, has_file=False
    ),
    _OpenShift(of_kind(_MACHINE_CONFIG, "KubeletConfig"), kubelet_config_object, "OpenShiftKubeletConfig"),
    _OpenShift(of_kind(_PROFILE, "PerformanceProfile"), performance_profile, "PerformanceProfile"),
    ConfigurationFormat(
        "Talos", without_kind(lambda content: content.get("version") == _TALOS and "machine" in content),
        machine_config, "TalosConfig", version=lambda part: image_version(part, "machine.kubelet.image"),
    ),
    ConfigurationFormat(
        "Talos", lambda content: content.get("apiVersion") == _TALOS and content.get("kind") == "KubeletConfig",
        kubelet_document, "TalosKubeletConfig", one_of="KubeletConfig of Talos",
        version=lambda part: image_version(part, "image"),
    ),
    ConfigurationFormat(
        "Talos", lambda content: content.get("apiVersion") == _TALOS and "kind" in content, several=True,
        one_of="document of Talos",
    ),
    *clouds.FORMATS,
    ConfigurationFormat(
        "k3s",
        without_kind(lambda names: not _RANCHER_NAMES.isdisjoint(name.removesuffix("+") for name in names)),
        rancher_config, several=True, has_file=False, replaces=lambda content: _RANCHER_ARGUMENTS in content,
    ),
)  # fmt: skip
"""All formats of vendors; the first that matches is meant. A KubeletConfiguration is tried after them."""


def format_of(content: Mapping[str, Any]) -> ConfigurationFormat | None:
    """Return the vendor's format of a document; None when it is none of them.

    >>> found = format_of({"kubeletConfig": {"cpuManagerPolicy": "static"}})
    >>> found.name if found else ""
    'GKE'
    """
    return next((one for one in FORMATS if one.matches(content)), None)
