"""The fields of KubeletConfiguration that decide something here, and what the releases know of them.

One table for reading, flags, writing, differences and changes of a configuration, and for the checks at the start. A
kubelet ignores a field that it does not know. Which values a release refuses is a rule of
:mod:`mooring.engine.releases.rules`.

Source: k8s.io/kubelet/config/v1beta1, pkg/kubelet/apis/config/v1beta1 (defaults) and cmd/kubelet/app/options of each
release; spec: releases.md sections 5 to 8.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from functools import cache
from typing import Any, Final

from mooring.engine.core.config import KubeletConfig
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
