"""Checks of the configuration alone, before anything is known of the machine: all that the kubelet makes, in its order.

``docs/reference/start-checks.md`` shows the table :data:`CHECKS`.

Source: kubelets v1.31.14 to v1.38.0-beta.0, pkg/kubelet/apis/config/validation; spec: configuration.md section 3,
releases.md sections 5 to 8, preview.md section 14.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from mooring.engine.core.config import KubeletConfig
from mooring.engine.core.decision import Cause, Fault
from mooring.engine.core.gotext import duration_text, quote
from mooring.engine.core.release import NEWEST, FeatureGates, Release
from mooring.engine.node import validation_fields as checks
from mooring.engine.node.reservation import reserved_cpus_errors, reserved_memory_errors
from mooring.engine.node.validation_fields import Given, StartCheck, number_check, range_check
from mooring.engine.topologymanager.merge import POLICIES
from mooring.lazy import replace

SCOPES = ("container", "pod")
PREFIX = "invalid configuration: "

_DEFAULT_PERIOD = 100_000_000
_SHORTEST_PERIOD = 1_000_000
_LONGEST_PERIOD = 1_000_000_000


def validate(config: KubeletConfig, gates: FeatureGates, release: Release = NEWEST) -> tuple[Fault, ...]:
    """Return everything that is wrong; the kubelet collects all errors, equal ones once (apimachinery, util/errors).

    Args:
        config: with its defaults.
        gates: as the configuration sets them.
        release: of the kubelet.
    """
    given = Given(config, gates, release.rules, release.name)
    faults: dict[str, Fault] = {}
    for check in CHECKS:
        if check.errors is not None and given.has(check.since):
            for error in check.errors(given):
                fault = error if isinstance(error, Fault) else Fault(error, names=tuple(check.fields.split()))
                faults.setdefault(fault.text, replace(fault, text=PREFIX + fault.text, cause=Cause.FIELD))
    return tuple(faults.values())


def _policy_errors(given: Given) -> Iterator[str]:
    policy, scope = given.config.topology_manager_policy, given.config.topology_manager_scope
    if policy not in POLICIES:
        allowed = " ".join(map(quote, POLICIES))
        yield f"topologyManagerPolicy (--topology-manager-policy) {quote(policy)} must be one of: [{allowed}]"
    if scope not in SCOPES:
        yield (f'topologyManagerScope (--topology-manager-scope) {quote(scope)} must be one of: "container", or "pod"')


def _quota_period_errors(given: Given) -> Iterator[str]:
    period = given.config.cpu_cfs_quota_period_ns
    name = f"cpuCFSQuotaPeriod (--cpu-cfs-quota-period) {{{duration_text(period)}}}"
    if period != _DEFAULT_PERIOD and not given.gates["CustomCPUCFSQuotaPeriod"]:
        yield f"{name} requires feature gate CustomCPUCFSQuotaPeriod"
    elif not _SHORTEST_PERIOD <= period <= _LONGEST_PERIOD:
        yield f"{name} must be between 1ms and 1sec, inclusive"


_ROUTINE: Final = "checks objects of another API"

CHECKS: Final[tuple[StartCheck, ...]] = (
    number_check("nodeLeaseDurationSeconds", 1, 2**31, "nodeLeaseDurationSeconds must be greater than 0", zero=True),
    StartCheck("systemCgroups cgroupRoot", checks.cgroup_root_errors),
    range_check("eventBurst (--event-burst)", "negative"),
    range_check("eventRecordQPS (--event-qps)", "negative"),
    range_check("healthzPort (--healthz-port)", "port", zero=True),
    StartCheck("cpuCFSQuotaPeriod", _quota_period_errors),
    range_check("imageGCHighThresholdPercent (--image-gc-high-threshold)", "percent"),
    range_check("imageGCLowThresholdPercent (--image-gc-low-threshold)", "percent"),
    StartCheck("imageGCLowThresholdPercent imageGCHighThresholdPercent", checks.image_thresholds_errors),
    StartCheck("defaultPodSysctls", checks.sysctl_errors, "1.37", "the names of sysctls are not checked here"),
    StartCheck("imageMinimumGCAge", checks.minimum_age_errors, "1.36"),
    StartCheck("imageMaximumGCAge", checks.image_age_errors),
    range_check("iptablesDropBit (--iptables-drop-bit)", "bit"),
    range_check("iptablesMasqueradeBit (--iptables-masquerade-bit)", "bit"),
    range_check("kubeAPIBurst (--kube-api-burst)", "negative"),
    range_check("kubeAPIQPS (--kube-api-qps)", "negative"),
    number_check("nodeStatusMaxImages (--node-status-max-images)", -1, 2**31, "must be -1 or greater"),
    range_check("maxOpenFiles (--max-open-files)", "negative"),
    range_check("maxPods (--max-pods)", "negative"),
    number_check("oomScoreAdj (--oom-score-adj)", -1000, 1000, "must be between -1000 and 1000, inclusive"),
    range_check("podsPerCore (--pods-per-core)", "negative"),
    range_check("port (--port)", "port", zero=True),
    number_check("readOnlyPort (--read-only-port)", 1, 65535, "must be between 0 and 65535, inclusive", zero=True),
    range_check("registryBurst (--registry-burst)", "negative"),
    range_check("registryPullQPS (--registry-qps)", "negative"),
    StartCheck("maxParallelImagePulls serializeImagePulls", checks.parallel_pulls_errors),
    StartCheck("serverTLSBootstrap", checks.tls_bootstrap_errors),
    StartCheck(
        "clientCertificateKeyAlgorithm serverCertificateKeyAlgorithm tlsMinVersion", checks.certificate_errors, "1.38"
    ),
    StartCheck("runOnce", checks.run_once_errors, "1.32"),
    StartCheck("registerWithTaints", note=_ROUTINE),
    StartCheck("topologyManagerPolicy topologyManagerScope", _policy_errors),
    StartCheck(
        "shutdownGracePeriod shutdownGracePeriodCriticalPods shutdownGracePeriodByPodPriority", checks.shutdown_errors
    ),
    StartCheck(
        "memorySwap.swapBehavior",
        checks.swap_errors,
        note="LimitedSwap on cgroup v1 is not decided: the cgroup version is unknown",
    ),
    StartCheck("crashLoopBackOff.maxContainerRestartPeriod", checks.crash_loop_errors, "1.32"),
    StartCheck(
        "enforceNodeAllocatable kubeReservedCgroup systemReservedCgroup cgroupsPerQOS",
        checks.enforcement_errors,
        note="v1.31 has no compressible keys and words two texts differently",
    ),
    StartCheck("hairpinMode", checks.hairpin_errors),
    StartCheck(
        "imagePullCredentialsVerificationPolicy preloadedImagesVerificationAllowlist",
        checks.pull_credentials_errors,
        "1.33",
        "patterns of images are not checked here",
    ),
    StartCheck("reservedSystemCPUs", reserved_cpus_errors),
    StartCheck("reservedMemory", reserved_memory_errors),
    StartCheck("failCgroupV1 singleProcessOOMKill", note="the cgroup version is unknown"),
    StartCheck("userNamespaces.idsPerPod", checks.ids_per_pod_errors, "1.33"),
    StartCheck("showHiddenMetricsForVersion logging tracing", note=_ROUTINE),
    StartCheck("memoryThrottlingFactor memoryReservationPolicy", checks.memory_qos_errors),
    StartCheck("containerRuntimeEndpoint", note="the kubelet fills in a default"),
    StartCheck("enableSystemLogQuery enableSystemLogHandler", checks.log_query_errors),
    number_check("containerLogMaxWorkers", 1, 2**31, "containerLogMaxWorkers must be greater than or equal to 1"),
    StartCheck("containerLogMonitorInterval", checks.log_interval_errors),
    number_check("containerLogMaxFiles", 2, 2**31, "containerLogMaxFiles must be greater than 1", since="1.33"),
    StartCheck("podLogsDir", checks.logs_dir_errors),
)
"""In the kubelet's order; gates come before all of them."""
