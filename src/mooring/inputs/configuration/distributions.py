"""Distributions of Kubernetes: kubeadm, k3s and RKE2, Talos, OpenShift.

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
from itertools import combinations
from typing import Any, Final

from mooring.engine.core.cpuset import CPUSet, CPUSetSyntaxError
from mooring.engine.core.errors import InputError
from mooring.engine.core.machine import Finding, SourcePlace
from mooring.engine.core.quantity import Quantity, QuantitySyntaxError
from mooring.inputs.configuration.kubelet_config import KIND
from mooring.inputs.configuration.layers import FieldPlace, Layer, Tier
from mooring.inputs.configuration.part import NamedVersion, VendorPart, pairs_of, strings_of
from mooring.inputs.decoding import fields as reading
from mooring.inputs.decoding.api_fields import UNKNOWN_CONFIGURATION_FIELD
from mooring.inputs.decoding.fields import as_mapping, list_at, mapping_at, name_at, text_at, within

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
    arguments = [] if isinstance(given, list) else pairs_of(given, _ARGUMENTS)
    for index, entry in enumerate(given if isinstance(given, list) else ()):
        with within(f"{_ARGUMENTS}[{index}]"):
            fields = as_mapping(entry)
            arguments.append((f"--{name_at(fields, 'name')}={text_at(fields, 'value')}", f"{_ARGUMENTS}[{index}]"))
    if arguments:
        yield part.flags(arguments)


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
    """Tell whether a document without kind is a config.yaml of k3s or RKE2."""
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


CONFIG_VERSION: Final = "machineconfiguration.openshift.io/v1"
PROFILE_GROUP: Final = "performance.openshift.io/"
_CONFIG: Final = "spec.kubeletConfig"
_RESERVED_FIELDS: Final = ("cgroupDriver", "clusterDNS", "clusterDomain", "featureGates", "staticPodPath", "failSwapOn")
"""Fields that the machine config operator refuses in a KubeletConfig."""
_FILE: Final[Mapping[str, Any]] = {"maxPods": 250}
"""What decides of the kubelet's file on every worker."""
_SYSTEM: Final[Mapping[str, str]] = {"cpu": "500m", "memory": "1Gi", "ephemeral-storage": "1Gi"}
"""What ``--system-reserved`` has where a KubeletConfig says nothing else."""
_SYSTEM_FLAG: Final = "--system-reserved of its unit"


def kubelet_config_object(part: VendorPart) -> Iterator[Layer]:
    """Yield what the machine config operator makes of a KubeletConfig."""
    reading.check_version(part.content, CONFIG_VERSION, required=True)
    spec = part.mapping("spec")
    given = part.mapping(_CONFIG)
    part.refuse_fields(_CONFIG, _RESERVED_FIELDS)
    if mapping_at(given, "memorySwap").get("swapBehavior"):
        raise part.refusal(f"{_CONFIG}.memorySwap", f"{part.vendor} does not let this field be set", "remove it")
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
        known = given.get(field.partition(".")[2])
        return part.place(f"{path}.{field}") if known else FieldPlace(SourcePlace(f"{part.vendor}, {_SYSTEM_FLAG}"), "")

    return Layer(Tier.FLAGS, fields, place, built_in=not given)


_POLICIES: Final = ("none", "best-effort", "restricted", "single-numa-node")
_PAGE_SIZES: Final = ("2M", "1G", "32M", "512M")
_SNIPPET: Final = "kubeletconfig.experimental"
_UNCORE: Final = "kubeletconfig.prefer-align-cpus-by-uncorecache"
_THRESHOLDS: Final = {
    "memory.available": "100Mi",
    "nodefs.available": "10%",
    "imagefs.available": "15%",
    "nodefs.inodesFree": "5%",
}
_EACH_RESERVED: Final = "500Mi"
"""Memory of kubeReserved, and of systemReserved, that the operator sets unless the annotation does."""


def performance_profile(part: VendorPart) -> Iterator[Layer]:
    """Yield what the node tuning operator makes of a PerformanceProfile."""
    if not text_at(part.content, "apiVersion").startswith(PROFILE_GROUP):
        raise InputError("is not supported", field="apiVersion", remedy=f"write {PROFILE_GROUP}v2")
    # The profile's sets are checked as the operator does.
    cpu = part.mapping("spec.cpu")
    sets = {name: _cpus(part, name, text_at(cpu, name)) for name in ("reserved", "isolated", "offlined", "shared")}
    for name in ("reserved", "isolated"):
        if not sets[name]:
            raise part.refusal(f"spec.cpu.{name}", f"{part.vendor} needs {name} CPUs", "write a CPU list such as 0-3")
    for one, other in combinations(sets, 2):
        if both := sets[one] & sets[other]:
            raise part.refusal(f"spec.cpu.{other}", f"CPUs {both} are {one} too", "name each CPU once")
    mixed = reading.flag_at(part.mapping("spec.workloadHints"), "mixedCpus", default=False)
    if mixed and not sets["shared"]:
        raise part.refusal("spec.workloadHints.mixedCpus", "needs shared CPUs", "set spec.cpu.shared")
    reserved = sets["reserved"] | sets["shared"] if mixed else sets["reserved"]
    policy = text_at(part.mapping("spec.numa"), "topologyPolicy")
    if policy:
        part.check_value("spec.numa.topologyPolicy", policy, _POLICIES)
    snippet = _snippet(part)
    fields = _fields(part, snippet, reserved, policy or "best-effort")
    if pages := _pages(part):
        part.note("spec.hugepages", f"{pages} are kernel arguments: they count as far as the machine has them")
    if offlined := text_at(part.mapping("spec.cpu"), "offlined"):
        part.note("spec.cpu.offlined", f"CPUs {offlined} go offline at boot: give a machine without them")

    def place(field: str) -> FieldPlace:
        name, _, key = field.partition(".")
        given = snippet.get(name)
        if name not in _PATHS and key and not (isinstance(given, Mapping) and key in given):
            return FieldPlace(SourcePlace(f"{part.vendor}'s default"), "")
        return part.place(_PATHS.get(name, f"metadata.annotations.{_SNIPPET}"))

    yield part.documented(Tier.VENDOR_FILE, _FILE)
    yield Layer(Tier.FILE, fields, place)
    yield _system_reserved(part, fields["systemReserved"], f"metadata.annotations.{_SNIPPET}")


_PATHS: Final = {
    "cpuManagerPolicy": "spec.cpu",
    "cpuManagerPolicyOptions": "spec.numa.topologyPolicy",
    "cpuManagerReconcilePeriod": "spec.cpu",
    "memoryManagerPolicy": "spec.numa.topologyPolicy",
    "reservedMemory": "spec.numa.topologyPolicy",
    "reservedSystemCPUs": "spec.cpu.reserved",
    "topologyManagerPolicy": "spec.numa.topologyPolicy",
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
            amounts = (fields["kubeReserved"], fields["systemReserved"])
            texts = [*(amount["memory"] for amount in amounts), fields["evictionHard"]["memory.available"]]
            try:
                first, *rest = (Quantity.parse(text) for text in texts)
            except QuantitySyntaxError as error:
                problem = f"memory of the reservations cannot be added: {error}"
                raise InputError(problem, field=f"metadata.annotations.{_SNIPPET}") from None
            for amount in rest:
                first += amount
            fields["reservedMemory"] = [{"numaNode": 0, "limits": {"memory": str(first)}}]
    if policy == "single-numa-node":
        options = {"full-pcpus-only": "true", **options}
    annotation = text_at(part.mapping("metadata.annotations"), _UNCORE)
    if annotation in ("true", "false"):
        options = {**options, "prefer-align-cpus-by-uncorecache": annotation}
    return {**fields, "cpuManagerPolicyOptions": options} if options else fields


def _snippet(part: VendorPart) -> dict[str, Any]:
    """Return the fields of a KubeletConfiguration in the profile's annotation."""
    text = text_at(part.mapping("metadata.annotations"), _SNIPPET)
    field = f"metadata.annotations.{_SNIPPET}"
    try:
        fields = reading.as_mapping(json.loads(text)) if text else {}
    except (ValueError, RecursionError):
        raise InputError("is not valid JSON", field=field, remedy="write fields of a KubeletConfiguration") from None
    except InputError as error:
        raise reading.inside(error, field) from None
    part.report_unknown(KIND, fields, field)
    return fields


def _cpus(part: VendorPart, name: str, text: str) -> CPUSet:
    try:
        return CPUSet.parse(text)
    except CPUSetSyntaxError as error:
        raise part.refusal(f"spec.cpu.{name}", f"{text!r:.60} is not a CPU list: {error}") from None


def _pages(part: VendorPart) -> str:
    """Return the huge pages of a profile in words."""
    seen: set[tuple[str, int]] = set()
    words = []
    for index, page in enumerate(list_at(part.mapping("spec.hugepages"), "pages")):
        path = f"spec.hugepages.pages[{index}]"
        with within(path):
            fields = reading.as_mapping(page)
            size, count, node = (
                text_at(fields, "size"),
                reading.count_at(fields, "count", 0),
                reading.count_at(fields, "node", -1),
            )
        part.check_value(f"{path}.size", size, _PAGE_SIZES)
        if (size, node) in seen:
            raise part.refusal(path, f"pages of {size} are listed twice for the same node", "keep one of them")
        seen.add((size, node))
        words.append(f"{count} huge pages of {size}" + ("" if node < 0 else f" on NUMA node {node}"))
    return ", ".join(words)
