"""Checks of the configuration alone (configuration.md section 3)."""

from __future__ import annotations

from dataclasses import replace

import pytest

from mooring.engine.core.config import KubeletConfig, MooringConfig, ReservedMemory
from mooring.engine.core.decision import StartRefusal
from mooring.engine.node.settings import build_settings
from mooring.inputs.machines.compact import parse_compact

DEFAULT = KubeletConfig()
INFO = parse_compact("cores=4 memory=8Gi").info
POLICIES = '["none" "best-effort" "restricted" "single-numa-node"]'
ATOI = "strconv.Atoi:"
CGROUPS = (
    "can't use reservedSystemCPUs (--reserved-cpus) with systemReservedCgroup (--system-reserved-cgroup) "
    "or kubeReservedCgroup (--kube-reserved-cgroup)"
)


def errors(config: KubeletConfig, **gates: bool) -> str:
    found = build_settings(replace(config, feature_gates=gates), MooringConfig(), INFO)
    return found.message if isinstance(found, StartRefusal) and found.stage == "validation" else ""


@pytest.mark.parametrize(
    ("config", "text"),
    [
        (replace(DEFAULT, max_pods=-3), "maxPods (--max-pods) -3 must not be a negative number"),
        (replace(DEFAULT, pods_per_core=-1), "podsPerCore (--pods-per-core) -1 must not be a negative number"),
        (
            replace(DEFAULT, topology_manager_policy="strict"),
            f'topologyManagerPolicy (--topology-manager-policy) "strict" must be one of: {POLICIES}',
        ),
        (
            replace(DEFAULT, topology_manager_scope="node"),
            'topologyManagerScope (--topology-manager-scope) "node" must be one of: "container", or "pod"',
        ),
        (replace(DEFAULT, reserved_system_cpus="0", kube_reserved_cgroup="/kube"), CGROUPS),
        (replace(DEFAULT, reserved_system_cpus="0", system_reserved_cgroup="/system"), CGROUPS),
        (
            replace(DEFAULT, reserved_system_cpus="0,x"),
            f'unable to parse reservedSystemCPUs (--reserved-cpus) 0,x, error: {ATOI} parsing "x": invalid syntax',
        ),
        (
            replace(DEFAULT, reserved_memory=(ReservedMemory(1, {"cpu": "1"}),)),
            'the limit type "cpu" for NUMA node 1 is not supported, only [memory hugepages-<HugePageSize>] is accepted',
        ),
        (
            replace(DEFAULT, reserved_memory=(ReservedMemory(0, {"hugepages-2Mi": "0"}),)),
            'reserved memory may not be zero for NUMA node 0 and resource "hugepages-2Mi"',
        ),
        (
            replace(
                DEFAULT, reserved_memory=(ReservedMemory(0, {"memory": "1Gi"}), ReservedMemory(0, {"memory": "2Gi"}))
            ),
            'the reserved memory has a duplicate value for NUMA node 0 and resource "memory"',
        ),
        (
            replace(DEFAULT, cpu_cfs_quota_period_ns=999_999),
            "cpuCFSQuotaPeriod (--cpu-cfs-quota-period) {999.999µs} must be between 1ms and 1sec, inclusive",
        ),
        (
            replace(DEFAULT, cpu_cfs_quota_period_ns=1_000_000_001),
            "cpuCFSQuotaPeriod (--cpu-cfs-quota-period) {1.000000001s} must be between 1ms and 1sec, inclusive",
        ),
    ],
)
def test_texts(config: KubeletConfig, text: str) -> None:
    assert errors(config) == f"invalid configuration: {text}"


def test_another_period_needs_its_gate() -> None:
    config = replace(DEFAULT, cpu_cfs_quota_period_ns=5)
    assert errors(config, CustomCPUCFSQuotaPeriod=False) == (
        "invalid configuration: cpuCFSQuotaPeriod (--cpu-cfs-quota-period) {5ns} "
        "requires feature gate CustomCPUCFSQuotaPeriod"
    )
    assert errors(DEFAULT, CustomCPUCFSQuotaPeriod=False) == ""


def test_all_errors_are_collected_in_order() -> None:
    config = KubeletConfig(
        cpu_cfs_quota_period_ns=1,
        topology_manager_policy="a",
        topology_manager_scope="b",
        reserved_system_cpus="c",
        kube_reserved_cgroup="d",
        reserved_memory=(ReservedMemory(0, {"x": "0"}), ReservedMemory(0, {"x": "0"})),
    )
    text = errors(config)
    assert text.startswith("[invalid configuration: ")
    assert text.endswith("]")
    parts = text[1:-1].split("invalid configuration: ")[1:]
    starts = [
        "cpuCFSQuotaPeriod",
        "topologyManagerPolicy",
        "topologyManagerScope",
        "can't use reservedSystemCPUs",
        "unable to parse reservedSystemCPUs",
        "the limit type",
        "reserved memory may not be zero",
        "the reserved memory has a duplicate",
    ]
    assert [part.startswith(start) for part, start in zip(parts, starts, strict=True)] == [True] * len(starts)


def test_equal_errors_are_printed_once() -> None:
    """As an aggregate of apimachinery prints them (util/errors, aggregate.Error); one alone has no brackets."""
    again = (ReservedMemory(0, {"memory": "1Gi"}),) * 3
    text = 'invalid configuration: the reserved memory has a duplicate value for NUMA node 0 and resource "memory"'
    assert errors(replace(DEFAULT, reserved_memory=again)) == text


def test_a_quantity_that_is_none_is_not_zero() -> None:
    assert errors(replace(DEFAULT, reserved_memory=(ReservedMemory(0, {"memory": "much"}),))) == ""
