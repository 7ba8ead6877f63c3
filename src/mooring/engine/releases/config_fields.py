"""The fields of KubeletConfiguration that decide something here, the kubelet's flags, and what releases know of both.

One table for reading, flags, writing, differences and changes of a configuration, and for the checks at the start. A
kubelet ignores a field that it does not know. Which values a release refuses is a rule of
:mod:`mooring.engine.releases.rules`.

Source: k8s.io/kubelet/config/v1beta1, pkg/kubelet/apis/config/v1beta1 (defaults) and cmd/kubelet/app/options of each
release; spec: releases.md sections 5 to 8. Flags: those that cmd/kubelet/app/options, pkg/kubelet/config,
component-base/logs and component-base/version of each release register on Linux; the text is pflag's, wrapped by
cmd/kubelet/app/server.go.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from enum import Enum
from functools import cache
from typing import Any, Final

from mooring.engine.core.config import KubeletConfig
from mooring.engine.core.decision import Cause, Fault
from mooring.engine.releases.rule import RELEASE_NAMES
from mooring.lazy import dataclass

CPU_OPTIONS: Final = "cpuManagerPolicyOptions"
TOPOLOGY_OPTIONS: Final = "topologyManagerPolicyOptions"


class Holds(Enum):
    """What a field holds."""

    TEXT = "text"
    POLICY = "one of several words"
    CPUS = "list of CPUs"
    FLAG = "true or false"
    COUNT = "whole number"
    NUMBER = "number"
    DURATION = "duration"
    LIST = "list"
    TEXTS = "list of texts"
    OPTIONS = "option -> text"
    AMOUNTS = "resource -> quantity"
    THRESHOLDS = "signal -> quantity or percentage"
    MINIMA = "signal -> quantity"
    DURATIONS = "signal -> duration"
    GATES = "gate -> true or false"
    MEMORY = "list of NUMA nodes with quantities"
    OBJECT = "mapping"
    OTHER = "nothing that decides here"


MAPS_OF_TEXTS: Final = frozenset({Holds.OPTIONS, Holds.AMOUNTS, Holds.THRESHOLDS, Holds.MINIMA, Holds.DURATIONS})


@dataclass(frozen=True, slots=True)
class KubeletField:
    """One field."""

    name: str
    """Path in a file."""
    holds: Holds
    flag: str = ""
    """Of the command line, without dashes."""
    member: str = ""
    """Of :class:`KubeletConfig`; empty where only a check at the start reads the field."""
    values: frozenset[str] = frozenset()
    """That a policy can have."""
    gate: str = ""
    """Without which a kubelet refuses the field."""
    since: str = ""
    """First release that has the field, where not all have it."""
    defaults: str = ""
    """Defaults that changed, and those of fields that came later (:mod:`mooring.engine.releases.rule`)."""
    zero_is_default: bool = False

    def of(self, config: KubeletConfig) -> Any:
        """Return the field's value in a configuration; only of fields with a member."""
        return getattr(config, self.member)


FIELDS: Final = (
    KubeletField(
        "cpuManagerPolicy", Holds.POLICY, "cpu-manager-policy", "cpu_manager_policy", frozenset({"none", "static"}),
    ),
    KubeletField(
        CPU_OPTIONS, Holds.OPTIONS, "cpu-manager-policy-options", "cpu_manager_policy_options",
        gate="CPUManagerPolicyOptions",
    ),
    KubeletField(
        "cpuManagerReconcilePeriod", Holds.DURATION, "cpu-manager-reconcile-period", "cpu_manager_reconcile_period_ns",
        zero_is_default=True,
    ),
    KubeletField(
        "memoryManagerPolicy", Holds.POLICY, "memory-manager-policy", "memory_manager_policy",
        frozenset({"None", "Static"}),
    ),
    KubeletField("reservedMemory", Holds.MEMORY, "reserved-memory", "reserved_memory"),
    KubeletField(
        "topologyManagerPolicy", Holds.POLICY, "topology-manager-policy", "topology_manager_policy",
        frozenset({"none", "best-effort", "restricted", "single-numa-node"}),
    ),
    KubeletField(
        "topologyManagerScope", Holds.POLICY, "topology-manager-scope", "topology_manager_scope",
        frozenset({"container", "pod"}),
    ),
    KubeletField(
        TOPOLOGY_OPTIONS, Holds.OPTIONS, "topology-manager-policy-options", "topology_manager_policy_options",
        gate="TopologyManagerPolicyOptions",
    ),
    KubeletField("reservedSystemCPUs", Holds.CPUS, "reserved-cpus", "reserved_system_cpus"),
    KubeletField("kubeReserved", Holds.AMOUNTS, "kube-reserved", "kube_reserved"),
    KubeletField("systemReserved", Holds.AMOUNTS, "system-reserved", "system_reserved"),
    KubeletField("kubeReservedCgroup", Holds.TEXT, "kube-reserved-cgroup", "kube_reserved_cgroup"),
    KubeletField("systemReservedCgroup", Holds.TEXT, "system-reserved-cgroup", "system_reserved_cgroup"),
    KubeletField(
        "mergeDefaultEvictionSettings", Holds.FLAG, member="merge_default_eviction_settings", since="1.33",
        defaults="1.33 false",
    ),
    KubeletField("cpuCFSQuota", Holds.FLAG, "cpu-cfs-quota", "cpu_cfs_quota"),
    KubeletField("cpuCFSQuotaPeriod", Holds.DURATION, "cpu-cfs-quota-period", "cpu_cfs_quota_period_ns"),
    KubeletField("featureGates", Holds.GATES, "feature-gates", "feature_gates"),
    KubeletField("maxPods", Holds.COUNT, "max-pods", "max_pods", zero_is_default=True),
    KubeletField("podsPerCore", Holds.COUNT, "pods-per-core", "pods_per_core"),
    KubeletField("evictionHard", Holds.THRESHOLDS, "eviction-hard", "eviction_hard"),
    # What no manager reads, and the kubelet checks at its start.
    KubeletField("nodeLeaseDurationSeconds", Holds.COUNT),
    KubeletField("systemCgroups", Holds.TEXT, "system-cgroups"),
    KubeletField("cgroupRoot", Holds.TEXT, "cgroup-root"),
    KubeletField("eventBurst", Holds.COUNT, "event-burst"),
    KubeletField("eventRecordQPS", Holds.COUNT, "event-qps"),
    KubeletField("healthzPort", Holds.COUNT, "healthz-port"),
    KubeletField("imageGCHighThresholdPercent", Holds.COUNT, "image-gc-high-threshold"),
    KubeletField("imageGCLowThresholdPercent", Holds.COUNT, "image-gc-low-threshold"),
    KubeletField("imageMinimumGCAge", Holds.DURATION),
    KubeletField("imageMaximumGCAge", Holds.DURATION),
    KubeletField("iptablesDropBit", Holds.COUNT),
    KubeletField("iptablesMasqueradeBit", Holds.COUNT),
    KubeletField("kubeAPIBurst", Holds.COUNT, "kube-api-burst"),
    KubeletField("kubeAPIQPS", Holds.COUNT, "kube-api-qps"),
    KubeletField("nodeStatusMaxImages", Holds.COUNT, "node-status-max-images"),
    KubeletField("maxOpenFiles", Holds.COUNT, "max-open-files"),
    KubeletField("oomScoreAdj", Holds.COUNT, "oom-score-adj"),
    KubeletField("port", Holds.COUNT, "port"),
    KubeletField("readOnlyPort", Holds.COUNT, "read-only-port"),
    KubeletField("registryBurst", Holds.COUNT, "registry-burst"),
    KubeletField("registryPullQPS", Holds.COUNT, "registry-qps"),
    KubeletField("maxParallelImagePulls", Holds.COUNT),
    KubeletField("serializeImagePulls", Holds.FLAG, "serialize-image-pulls"),
    KubeletField("serverTLSBootstrap", Holds.FLAG),
    KubeletField("clientCertificateKeyAlgorithm", Holds.TEXT, since="1.38", defaults="1.38 ECDSA-P256"),
    KubeletField("serverCertificateKeyAlgorithm", Holds.TEXT, since="1.38", defaults="1.38 ECDSA-P256"),
    KubeletField("tlsMinVersion", Holds.TEXT, "tls-min-version"),
    KubeletField("shutdownGracePeriod", Holds.DURATION),
    KubeletField("shutdownGracePeriodCriticalPods", Holds.DURATION),
    KubeletField("shutdownGracePeriodByPodPriority", Holds.LIST),
    KubeletField("memorySwap.swapBehavior", Holds.TEXT),
    KubeletField("crashLoopBackOff.maxContainerRestartPeriod", Holds.DURATION),
    KubeletField("enforceNodeAllocatable", Holds.TEXTS, "enforce-node-allocatable"),
    KubeletField("cgroupsPerQOS", Holds.FLAG, "cgroups-per-qos"),
    KubeletField("hairpinMode", Holds.TEXT, "hairpin-mode"),
    KubeletField("imagePullCredentialsVerificationPolicy", Holds.TEXT, since="1.33"),
    KubeletField("preloadedImagesVerificationAllowlist", Holds.LIST, since="1.33"),
    KubeletField("userNamespaces.idsPerPod", Holds.COUNT),
    KubeletField("containerLogMaxWorkers", Holds.COUNT),
    KubeletField("containerLogMonitorInterval", Holds.DURATION),
    KubeletField("containerLogMaxFiles", Holds.COUNT),
    KubeletField("podLogsDir", Holds.TEXT),
    KubeletField("evictionSoft", Holds.THRESHOLDS, "eviction-soft"),
    KubeletField("evictionSoftGracePeriod", Holds.DURATIONS, "eviction-soft-grace-period"),
    KubeletField("evictionMinimumReclaim", Holds.MINIMA, "eviction-minimum-reclaim"),
    KubeletField("runOnce", Holds.FLAG, "runonce"),
    KubeletField("defaultPodSysctls", Holds.OBJECT, since="1.37"),
    KubeletField("memoryThrottlingFactor", Holds.NUMBER, defaults="1.31 0.9, 1.37 none"),
    KubeletField("memoryReservationPolicy", Holds.TEXT, since="1.36", defaults="1.36 None"),
    KubeletField("enableSystemLogQuery", Holds.FLAG),
    KubeletField("enableSystemLogHandler", Holds.FLAG),
    # What is here for its history.
    KubeletField("crashLoopBackOff", Holds.OTHER, since="1.32"),
    KubeletField("failCgroupV1", Holds.OTHER, defaults="1.31 false, 1.35 true"),
    KubeletField("singleProcessOOMKill", Holds.OTHER, since="1.32"),
    KubeletField("tlsCurvePreferences", Holds.OTHER, since="1.36"),
    KubeletField("userNamespaces", Holds.OTHER, since="1.33"),
)  # fmt: skip
"""The fields; those that managers read come first (spec: configuration.md section 1)."""

READ_FIELDS: Final[Mapping[str, KubeletField]] = {one.name: one for one in FIELDS if one.member}
"""Fields that the resource managers read, by name."""
CHECKED_FIELDS: Final = tuple(one for one in FIELDS if not one.member and one.holds is not Holds.OTHER)
"""Fields that nothing but a check at the start reads."""
POLICY_FIELDS: Final = tuple(one for one in FIELDS if one.holds in (Holds.POLICY, Holds.OPTIONS))
"""The managers' policies and their options."""
FIELDS_SINCE: Final[Mapping[str, str]] = {one.name: one.since for one in FIELDS if one.since}
"""Field -> the first release that has it. All other fields are in every release."""
DEFAULT_HISTORY: Final[Mapping[str, str]] = {one.name: one.defaults for one in FIELDS if one.defaults}
"""Field -> its defaults by release."""


@cache
def later_fields(release: str) -> frozenset[str]:
    """Return the fields that a release does not have yet.

    >>> sorted(later_fields("1.36"))
    ['clientCertificateKeyAlgorithm', 'defaultPodSysctls', 'serverCertificateKeyAlgorithm']
    """
    position = RELEASE_NAMES.index(release)
    return frozenset(name for name, since in FIELDS_SINCE.items() if RELEASE_NAMES.index(since) > position)


# The flags of the command line, and the release from which each is gone; none was added since 1.31. A kubelet ends on a
# flag that it does not have, before it reads any file. v1.38.0-beta.0 has the flags of 1.37.
_NEWEST: Final = """
    address allowed-unsafe-sysctls anonymous-auth authentication-token-webhook
    authentication-token-webhook-cache-ttl authorization-mode authorization-webhook-cache-authorized-ttl
    authorization-webhook-cache-unauthorized-ttl bootstrap-kubeconfig cert-dir cgroup-driver cgroup-root
    cgroups-per-qos client-ca-file cloud-provider cluster-dns cluster-domain config config-dir
    container-log-max-files container-log-max-size container-runtime-endpoint contention-profiling cpu-cfs-quota
    cpu-cfs-quota-period cpu-manager-policy cpu-manager-policy-options cpu-manager-reconcile-period
    enable-controller-attach-detach enable-debugging-handlers enable-server enforce-node-allocatable event-burst
    event-qps eviction-hard eviction-max-pod-grace-period eviction-minimum-reclaim
    eviction-pressure-transition-period eviction-soft eviction-soft-grace-period exit-on-lock-contention
    experimental-allocatable-ignore-eviction experimental-mounter-path fail-cgroupv1 fail-swap-on feature-gates
    file-check-frequency hairpin-mode healthz-bind-address healthz-port help hostname-override
    housekeeping-interval http-check-frequency image-credential-provider-bin-dir
    image-credential-provider-config image-gc-high-threshold image-gc-low-threshold image-service-endpoint
    kernel-memcg-notification kube-api-burst kube-api-content-type kube-api-qps kube-reserved
    kube-reserved-cgroup kubeconfig kubelet-cgroups local-storage-capacity-isolation lock-file
    log-flush-frequency log-json-info-buffer-size log-json-split-stream log-text-info-buffer-size
    log-text-split-stream logging-format make-iptables-util-chains manifest-url manifest-url-header
    max-open-files max-pods maximum-dead-containers maximum-dead-containers-per-container memory-manager-policy
    minimum-container-ttl-duration minimum-image-ttl-duration node-ip node-labels node-status-max-images
    node-status-update-frequency oom-score-adj pod-cidr pod-manifest-path pod-max-pids pods-per-core port
    protect-kernel-defaults provider-id qos-reserved read-only-port register-node register-with-taints
    registry-burst registry-qps reserved-cpus reserved-memory resolv-conf root-dir rotate-certificates
    rotate-server-certificates runonce runtime-cgroups runtime-request-timeout seccomp-default
    serialize-image-pulls streaming-connection-idle-timeout sync-frequency system-cgroups system-reserved
    system-reserved-cgroup tls-cert-file tls-cipher-suites tls-min-version tls-private-key-file
    topology-manager-policy topology-manager-policy-options topology-manager-scope v version vmodule
    volume-plugin-dir volume-stats-agg-period
"""
"""Flags of every release."""

_GONE: Final = {
    "1.34": "cloud-config register-schedulable",
    "1.35": "pod-infra-container-image",
    "1.37": """
    application-metrics-count-limit boot-id-file container-hints containerd containerd-namespace
    enable-load-reader event-storage-age-limit event-storage-event-limit global-housekeeping-interval
    log-cadvisor-usage machine-id-file storage-driver-buffer-duration storage-driver-db storage-driver-host
    storage-driver-password storage-driver-secure storage-driver-table storage-driver-user
    """,
}
"""Release -> flags that it no longer has, and that the release before has."""

_EARLIER: Final = """
    alsologtostderr azure-container-registry-config bootstrap-checkpoint-path cni-bin-dir cni-cache-dir
    cni-conf-dir container-runtime docker docker-endpoint docker-env-metadata-whitelist docker-only docker-root
    docker-tls image-pull-progress-deadline iptables-drop-bit iptables-masquerade-bit
    keep-terminated-pod-volumes log-backtrace-at log-dir log-file log-file-max-size logtostderr
    master-service-namespace max-housekeeping-interval network-plugin network-plugin-mtu non-masquerade-cidr
    one-output run-once skip-headers skip-log-headers stderrthreshold
"""
"""Flags that were gone before 1.31."""

LASTING_FLAGS: Final = frozenset(_NEWEST.split())
KNOWN_FLAGS: Final = LASTING_FLAGS.union(_EARLIER.split(), *(names.split() for names in _GONE.values()))
"""Flags of any release."""

_SHORT: Final = "hv"


@cache
def flags_of(release: str) -> frozenset[str]:
    """Return the flags of a release.

    >>> ["pod-infra-container-image" in flags_of(name) for name in ("1.34", "1.35")]
    [True, False]
    """
    position = RELEASE_NAMES.index(release)
    later = (names.split() for name, names in _GONE.items() if RELEASE_NAMES.index(name) > position)
    return LASTING_FLAGS.union(*later)


def is_lasting(flag: str) -> bool:
    """Tell whether every release takes a flag, as it is written: with its dashes, without its value."""
    return _refused(flag, LASTING_FLAGS) == ""


def unknown_flag(flags: Iterable[str], release: str) -> Fault | None:
    """Return the first flag that a release does not have, as the kubelet refuses it.

    >>> unknown_flag(["--v", "--pod_infra_container_image"], "1.35").text
    'failed to parse kubelet flag: unknown flag: --pod_infra_container_image'
    >>> unknown_flag(["-cpu-manager-policy"], "1.37").text
    "failed to parse kubelet flag: unknown shorthand flag: 'c' in -cpu-manager-policy"
    """
    for flag in flags:
        if refused := _refused(flag, flags_of(release)):
            return Fault(f"failed to parse kubelet flag: {refused}", Cause.FLAG, names=(flag,))
    return None


def _refused(flag: str, known: frozenset[str]) -> str:
    if flag.startswith("--"):
        return "" if flag[2:].replace("_", "-") in known else f"unknown flag: {flag}"
    return "" if flag[1:2] in _SHORT else f"unknown shorthand flag: '{flag[1:2]}' in {flag}"
