"""Checks of the configuration alone, before anything is known of the machine.

Source: kubelet v1.37.1, pkg/kubelet/apis/config/validation; spec: configuration.md section 3.
"""

from __future__ import annotations

from collections.abc import Iterator

from mooring.core.config import KubeletConfig
from mooring.core.cpuset import CPUSet, CPUSetSyntaxError
from mooring.core.gates import FeatureGates
from mooring.core.gotext import duration_text, quote
from mooring.core.quantity import Quantity, QuantitySyntaxError
from mooring.topologymanager.merge import POLICIES

SCOPES = ("container", "pod")
PREFIX = "invalid configuration: "

_DEFAULT_PERIOD = 100_000_000
_SHORTEST_PERIOD = 1_000_000
_LONGEST_PERIOD = 1_000_000_000


def validate(config: KubeletConfig, gates: FeatureGates) -> str:
    """Return the kubelet's text for everything that is wrong, or an empty text.

    The kubelet collects all errors and prints several as one list.
    """
    errors = [PREFIX + error for error in _errors(config, gates)]
    if len(errors) > 1:
        return f"[{', '.join(errors)}]"
    return errors[0] if errors else ""


def _errors(config: KubeletConfig, gates: FeatureGates) -> Iterator[str]:
    yield from _quota_period_errors(config, gates)
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


def _quota_period_errors(config: KubeletConfig, gates: FeatureGates) -> Iterator[str]:
    period = config.cpu_cfs_quota_period_ns
    name = f"cpuCFSQuotaPeriod (--cpu-cfs-quota-period) {duration_text(period)}"
    if period != _DEFAULT_PERIOD and not gates["CustomCPUCFSQuotaPeriod"]:
        yield f"{name} requires feature gate CustomCPUCFSQuotaPeriod"
    elif not _SHORTEST_PERIOD <= period <= _LONGEST_PERIOD:
        yield f"{name} must be between 1ms and 1sec, inclusive"


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
