"""Checks of the configuration alone, before anything is known of the machine.

Checked are the fields that the resource managers read, and those whose check differs between releases.

Source: kubelet v1.37.1, pkg/kubelet/apis/config/validation; spec: configuration.md section 3, releases.md sections 5
to 8.
"""

from __future__ import annotations

from collections.abc import Iterator

from mooring.core.config import CheckedFields, KubeletConfig
from mooring.core.cpuset import CPUSet, CPUSetSyntaxError, CPUTooLargeError
from mooring.core.gates import FeatureGates
from mooring.core.gotext import duration_text, float_text, quote
from mooring.core.quantity import Quantity, QuantitySyntaxError
from mooring.core.release import NEWEST_RULES, ReleaseRules
from mooring.topologymanager.merge import POLICIES

SCOPES = ("container", "pod")
PREFIX = "invalid configuration: "

_DEFAULT_PERIOD = 100_000_000
_SHORTEST_PERIOD = 1_000_000
_LONGEST_PERIOD = 1_000_000_000
_OLD_FACTOR = 0.9
_NO_RESERVATION = "None"
_TIERED = "TieredReservation"


def validate(config: KubeletConfig, gates: FeatureGates, older: ReleaseRules = NEWEST_RULES) -> str:
    """Return the kubelet's text for everything that is wrong, or an empty text.

    The kubelet collects all errors and prints several as one list, equal ones once (apimachinery, util/errors).

    Args:
        config: with its defaults.
        gates: as the configuration sets them.
        older: rules of an older release.
    """
    errors = [PREFIX + error for error in dict.fromkeys(_errors(config, gates, older))]
    if len(errors) > 1:
        return f"[{', '.join(errors)}]"
    return errors[0] if errors else ""


def _errors(config: KubeletConfig, gates: FeatureGates, older: ReleaseRules) -> Iterator[str]:
    yield from _quota_period_errors(config, gates)
    yield from _pod_errors(config, gates, older)
    if config.topology_manager_policy not in POLICIES:
        allowed = " ".join(quote(policy) for policy in POLICIES)
        yield (
            f"topologyManagerPolicy (--topology-manager-policy) {quote(config.topology_manager_policy)} "
            f"must be one of: [{allowed}]"
        )
    if config.topology_manager_scope not in SCOPES:
        yield (
            f"topologyManagerScope (--topology-manager-scope) {quote(config.topology_manager_scope)} "
            'must be one of: "container", or "pod"'
        )
    yield from _reserved_cpus_errors(config)
    yield from _reserved_memory_errors(config)
    yield from _memory_qos_errors(config.checked, gates, older)
    yield from _log_query_errors(config.checked, gates, older)


def _quota_period_errors(config: KubeletConfig, gates: FeatureGates) -> Iterator[str]:
    period = config.cpu_cfs_quota_period_ns
    name = f"cpuCFSQuotaPeriod (--cpu-cfs-quota-period) {{{duration_text(period)}}}"
    if period != _DEFAULT_PERIOD and not gates["CustomCPUCFSQuotaPeriod"]:
        yield f"{name} requires feature gate CustomCPUCFSQuotaPeriod"
    elif not _SHORTEST_PERIOD <= period <= _LONGEST_PERIOD:
        yield f"{name} must be between 1ms and 1sec, inclusive"


def _pod_errors(config: KubeletConfig, gates: FeatureGates, older: ReleaseRules) -> Iterator[str]:
    """Check maxPods, podsPerCore, and what releases added: v1.32 runOnce, v1.36 the age, v1.37 defaultPodSysctls."""
    checked = config.checked
    if checked.default_pod_sysctls and not older.default_pod_sysctls_unknown and not gates["DefaultPodSysctls"]:
        yield "DefaultPodSysctls feature gate is required for Kubelet configuration option defaultPodSysctls"
    if checked.image_minimum_gc_age_ns < 0 and not older.image_minimum_gc_age_not_checked:
        yield f"imageMinimumGCAge {duration_text(checked.image_minimum_gc_age_ns)} must not be negative"
    if config.max_pods < 0:
        yield f"maxPods (--max-pods) {config.max_pods} must not be a negative number"
    if config.pods_per_core < 0:
        yield f"podsPerCore (--pods-per-core) {config.pods_per_core} must not be a negative number"
    if checked.run_once and not older.run_once_accepted:
        yield "runOnce (--runOnce) true, Runonce mode has been deprecated and should not be set"


def _memory_qos_errors(checked: CheckedFields, gates: FeatureGates, older: ReleaseRules) -> Iterator[str]:
    factor, policy = checked.memory_throttling_factor, checked.memory_reservation_policy or _NO_RESERVATION
    has_qos = gates["MemoryQoS"]
    if factor is not None and factor != _OLD_FACTOR and not has_qos and not older.memory_throttling_needs_no_gate:
        yield "memoryThrottlingFactor must not be set when MemoryQoS feature gate is disabled"
    if factor is not None and not 0 < factor <= 1:
        yield f"memoryThrottlingFactor {float_text(factor)} must be greater than 0 and less than or equal to 1.0"
    if older.memory_reservation_policy_unknown:
        return
    if policy == _TIERED and not has_qos:
        yield f"memoryReservationPolicy {quote(policy)} requires MemoryQoS feature gate to be enabled"
    if policy not in (_NO_RESERVATION, _TIERED):
        valid = f"{quote(_NO_RESERVATION)} or {quote(_TIERED)}"
        yield f"option {quote(policy)} specified for memoryReservationPolicy. Valid options are {valid}"


def _log_query_errors(checked: CheckedFields, gates: FeatureGates, older: ReleaseRules) -> Iterator[str]:
    if not checked.enable_system_log_query:
        return
    if not gates["NodeLogQuery"]:
        field = "enableSystemLogHandler" if older.log_query_text_names_handler else "enableSystemLogQuery"
        yield f"NodeLogQuery feature gate is required for {field}"
    if not checked.enable_system_log_handler:
        yield "enableSystemLogHandler is required for enableSystemLogQuery"


def _reserved_cpus_errors(config: KubeletConfig) -> Iterator[str]:
    text = config.reserved_system_cpus
    if not text:
        return
    if config.system_reserved_cgroup or config.kube_reserved_cgroup:
        yield (
            "can't use reservedSystemCPUs (--reserved-cpus) with systemReservedCgroup (--system-reserved-cgroup) "
            "or kubeReservedCgroup (--kube-reserved-cgroup)"
        )
    try:
        CPUSet.parse(text)
    except CPUTooLargeError:
        return
    except CPUSetSyntaxError as error:
        yield f"unable to parse reservedSystemCPUs (--reserved-cpus) {text}, error: {error}"


def _reserved_memory_errors(config: KubeletConfig) -> Iterator[str]:
    seen: set[tuple[int, str]] = set()
    for entry in config.reserved_memory:
        for resource in sorted(entry.limits):
            if resource != "memory" and not resource.startswith("hugepages-"):
                yield (
                    f"the limit type {quote(resource)} for NUMA node {entry.numa_node} is not supported, "
                    "only [memory hugepages-<HugePageSize>] is accepted"
                )
            if _is_zero(entry.limits[resource]):
                yield f"reserved memory may not be zero for NUMA node {entry.numa_node} and resource {quote(resource)}"
            key = (entry.numa_node, resource)
            if key in seen:
                yield (
                    f"the reserved memory has a duplicate value for NUMA node {entry.numa_node} "
                    f"and resource {quote(resource)}"
                )
            seen.add(key)


def _is_zero(text: str) -> bool:
    try:
        return Quantity.parse(text).is_zero
    except QuantitySyntaxError:
        return False
