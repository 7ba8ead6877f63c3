"""Checks of the configuration alone (configuration.md section 3): the kubelet's texts and order, and their page."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from mooring.engine.core.config import KubeletConfig, MooringConfig, ReservedMemory
from mooring.engine.core.decision import StartRefusal
from mooring.engine.node.settings import Settings, build_settings
from mooring.engine.node.validation import CHECKS
from mooring.engine.releases.catalog import RELEASES
from mooring.engine.releases.config_fields import CHECKED_FIELDS
from mooring.inputs.configuration.kubelet_config import config_of_fields
from mooring.inputs.machines.compact import parse_compact

PAGE = Path(__file__).resolve().parents[2] / "docs" / "reference" / "start-checks.md"
INFO = parse_compact("cores=4 memory=8Gi").info
ENFORCE = "enforceNodeAllocatable (--enforce-node-allocatable)"
KUBE = (
    'kubeReservedCgroup (--kube-reserved-cgroup) must be specified when "kube-reserved" or '
    f'"kube-reserved-compressible" included in {ENFORCE}'
)
SYSTEM = KUBE.replace("kube", "system")
POLICIES = '["none" "best-effort" "restricted" "single-numa-node"]'
CGROUPS = (
    "can't use reservedSystemCPUs (--reserved-cpus) with systemReservedCgroup (--system-reserved-cgroup) "
    "or kubeReservedCgroup (--kube-reserved-cgroup)"
)
PERIOD = "cpuCFSQuotaPeriod (--cpu-cfs-quota-period)"
TWICE = 'the reserved memory has a duplicate value for NUMA node 0 and resource "memory"'
PODS = f'cgroupsPerQOS (--cgroups-per-qos) must be set to true when "pods" contained in {ENFORCE}'


def of_node_0(*limits: dict[str, str]) -> dict[str, Any]:
    return {"reservedMemory": [{"numaNode": 0, "limits": one} for one in limits]}


def refusal(fields: dict[str, Any], release: str = "1.37") -> tuple[str, str]:
    found = build_settings(config_of_fields(fields), MooringConfig(release=RELEASES[release]), INFO)
    return (found.stage, found.message) if isinstance(found, StartRefusal) else ("", "")


@pytest.mark.parametrize(
    ("fields", "text"),
    [
        ({"enforceNodeAllocatable": ["pods", "kube-reserved"]}, KUBE),
        ({"enforceNodeAllocatable": ["system-reserved-compressible"]}, SYSTEM),
        ({"cgroupsPerQOS": False}, PODS),
        ({"enforceNodeAllocatable": ["pods", "pods"]}, f'duplicated enforcements "pods" in {ENFORCE}'),
        (
            {"enforceNodeAllocatable": ["none", "pods"]},
            f'{ENFORCE} may not contain additional enforcements when "none" is specified',
        ),
        (
            {"enforceNodeAllocatable": ["x"]},
            (
                f'option "x" specified for {ENFORCE}. Valid options are "pods", "system-reserved", '
                '"system-reserved-compressible", "kube-reserved", "kube-reserved-compressible" or "none"'
            ),
        ),
        (
            {"memorySwap": {"swapBehavior": "UnlimitedSwap"}},
            'memorySwap.swapBehavior "UnlimitedSwap" must be one of: "", "LimitedSwap" or "NoSwap"',
        ),
        ({"shutdownGracePeriod": "500ms"}, "shutdownGracePeriod {500ms} must be either zero or otherwise >= 1 sec"),
        (
            {"shutdownGracePeriodCriticalPods": "10s"},
            "shutdownGracePeriodCriticalPods {10s} must be <= shutdownGracePeriod {0s}",
        ),
        (
            {"imageGCHighThresholdPercent": 70},
            (
                "imageGCLowThresholdPercent (--image-gc-low-threshold) 80 must be less than "
                "imageGCHighThresholdPercent (--image-gc-high-threshold) 70"
            ),
        ),
        ({"imageMaximumGCAge": "1m"}, "imageMaximumGCAge 1m0s must be greater than imageMinimumGCAge 2m0s"),
        ({"healthzPort": 70000}, "healthzPort (--healthz-port) 70000 must be between 1 and 65535, inclusive"),
        ({"containerLogMaxFiles": 1}, "containerLogMaxFiles must be greater than 1"),
        ({"nodeLeaseDurationSeconds": -1}, "nodeLeaseDurationSeconds must be greater than 0"),
        (
            {"crashLoopBackOff": {"maxContainerRestartPeriod": "301s"}},
            "CrashLoopBackOff.MaxContainerRestartPeriod (got: 301 seconds) must be set between 1s and 300s",
        ),
        (
            {"maxParallelImagePulls": 2, "serializeImagePulls": True},
            (
                "maxParallelImagePulls cannot be larger than 1 unless SerializeImagePulls (--serialize-image-pulls) is "
                "set to false"
            ),
        ),
        ({"podLogsDir": "/var//log"}, 'pod logs path "/var//log" must be normalized'),
        ({"userNamespaces": {"idsPerPod": 70000}}, "userNamespaces.idsPerPod must be a multiple of 65536"),
        ({"maxPods": -3}, "maxPods (--max-pods) -3 must not be a negative number"),
        ({"podsPerCore": -1}, "podsPerCore (--pods-per-core) -1 must not be a negative number"),
        (
            {"topologyManagerPolicy": "strict"},
            f'topologyManagerPolicy (--topology-manager-policy) "strict" must be one of: {POLICIES}',
        ),
        (
            {"topologyManagerScope": "node"},
            'topologyManagerScope (--topology-manager-scope) "node" must be one of: "container", or "pod"',
        ),
        ({"reservedSystemCPUs": "0", "kubeReservedCgroup": "/kube"}, CGROUPS),
        ({"reservedSystemCPUs": "0", "systemReservedCgroup": "/system"}, CGROUPS),
        (
            {"reservedSystemCPUs": "0,x"},
            (
                "unable to parse reservedSystemCPUs (--reserved-cpus) 0,x, error: strconv.Atoi: "
                'parsing "x": invalid syntax'
            ),
        ),
        (
            of_node_0({"cpu": "1"}),
            'the limit type "cpu" for NUMA node 0 is not supported, only [memory hugepages-<HugePageSize>] is accepted',
        ),
        (
            of_node_0({"hugepages-2Mi": "0"}),
            'reserved memory may not be zero for NUMA node 0 and resource "hugepages-2Mi"',
        ),
        # Equal errors once (apimachinery, util/errors, aggregate.Error); one alone has no brackets.
        (of_node_0({"memory": "1Gi"}, {"memory": "1Gi"}, {"memory": "1Gi"}), TWICE),
        ({"cpuCFSQuotaPeriod": "999.999us"}, f"{PERIOD} {{999.999µs}} must be between 1ms and 1sec, inclusive"),
        ({"cpuCFSQuotaPeriod": "1.000000001s"}, f"{PERIOD} {{1.000000001s}} must be between 1ms and 1sec, inclusive"),
        (
            {"cpuCFSQuotaPeriod": "5ns", "featureGates": {"CustomCPUCFSQuotaPeriod": False}},
            f"{PERIOD} {{5ns}} requires feature gate CustomCPUCFSQuotaPeriod",
        ),
    ],
)
def test_a_field_stops_the_kubelet_in_its_words(fields: dict[str, Any], text: str) -> None:
    assert refusal(fields) == ("validation", f"invalid configuration: {text}")


@pytest.mark.parametrize(
    "fields",
    [
        {},
        {"enforceNodeAllocatable": ["none"], "cgroupsPerQOS": False},
        {"enforceNodeAllocatable": ["pods", "kube-reserved"], "kubeReservedCgroup": "/kube"},
        {"memorySwap": {"swapBehavior": "NoSwap"}},
        {"featureGates": {"CustomCPUCFSQuotaPeriod": False}},
        {"maxParallelImagePulls": 5},
        {"nodeLeaseDurationSeconds": 0, "port": 0, "readOnlyPort": 0, "podLogsDir": ""},
        {"evictionSoft": {"memory.available": "0%"}},
        {"evictionSoft": {"memory.available": "1Gi"}, "evictionSoftGracePeriod": {"memory.available": "1m"}},
    ],
)
def test_a_valid_field_stops_nothing(fields: dict[str, Any]) -> None:
    assert refusal(fields) == ("", "")


@pytest.mark.parametrize(
    ("fields", "text"),
    [
        (
            {"evictionSoft": {"memory.available": "1Gi"}},
            "grace period must be specified for the soft eviction threshold memory.available",
        ),
        (
            {"evictionSoftGracePeriod": {"memory.available": "-1s"}},
            "invalid eviction grace period specified: -1s, must be a positive value",
        ),
        ({"evictionMinimumReclaim": {"x": "1"}}, "unsupported eviction signal x"),
        (
            {"evictionMinimumReclaim": {"memory.available": "-1"}},
            "negative eviction minimum reclaim specified for memory.available",
        ),
        (
            {"evictionMinimumReclaim": {"memory.available": "0%"}},
            "eviction percentage minimum reclaim memory.available must be positive: 0%",
        ),
    ],
)
def test_soft_thresholds_stop_the_kubelet_after_its_managers_are_built(fields: dict[str, Any], text: str) -> None:
    assert refusal(fields) == ("kubelet", f"failed to create kubelet: {text}")


def test_all_errors_are_collected_in_the_kubelets_order() -> None:
    fields = {
        "hairpinMode": "x",
        "memorySwap": {"swapBehavior": "x"},
        "cgroupsPerQOS": False,
        "maxPods": -1,
        "cpuCFSQuotaPeriod": "1ns",
        "topologyManagerPolicy": "a",
        "topologyManagerScope": "b",
        "reservedSystemCPUs": "c",
        "kubeReservedCgroup": "d",
        **of_node_0({"x": "0"}, {"x": "0"}),
    }
    _, text = refusal(fields)
    assert text.startswith("[invalid configuration: ")
    assert text.endswith("]")
    starts = [
        *("cpuCFSQuotaPeriod", "maxPods", "topologyManagerPolicy", "topologyManagerScope", "memorySwap"),
        *("cgroupsPerQOS", "option", "can't use reservedSystemCPUs", "unable to parse reservedSystemCPUs"),
        *("the limit type", "reserved memory may not be zero", "the reserved memory has a duplicate"),
    ]
    parts = text[1:-1].split("invalid configuration: ")[1:]
    assert [part for part, start in zip(parts, starts, strict=True) if not part.startswith(start)] == []


def test_a_quantity_that_is_none_is_not_zero() -> None:
    config = KubeletConfig(reserved_memory=(ReservedMemory(0, {"memory": "much"}),))
    assert isinstance(build_settings(config, MooringConfig(), INFO), Settings)


def test_the_first_release_has_fewer_keys_and_fewer_checks() -> None:
    _, text = refusal({"enforceNodeAllocatable": ["kube-reserved", "kube-reserved-compressible"]}, "1.31")
    assert 'must be specified when "kube-reserved" contained in' in text
    assert 'Valid options are "pods", "system-reserved", "kube-reserved", or "none"' in text
    assert refusal({"containerLogMaxFiles": 1}, "1.32") == ("", "")


def test_a_field_of_a_gate_that_is_off_is_refused() -> None:
    _, text = refusal({"featureGates": {"NodeSwap": False}, "memorySwap": {"swapBehavior": "NoSwap"}}, "1.33")
    assert text.endswith("memorySwap.swapBehavior cannot be set when NodeSwap feature flag is disabled")
    _, text = refusal({"crashLoopBackOff": {"maxContainerRestartPeriod": "60s"}}, "1.34")
    assert text.endswith("CrashLoopBackOff.MaxContainerRestartPeriod must not be set")


def test_every_field_that_is_only_checked_is_in_the_table() -> None:
    named = {field for check in CHECKS for field in check.fields.split()}
    eviction = {"evictionSoft", "evictionSoftGracePeriod", "evictionMinimumReclaim"}
    assert {one.name for one in CHECKED_FIELDS} - eviction <= named
    assert all(check.errors or check.note for check in CHECKS)


def test_the_page_shows_every_check() -> None:
    _, _, shown = PAGE.read_text(encoding="utf-8").partition("## Validation")
    rows = [line for line in shown.splitlines() if line.startswith("* ")]
    for row, check in zip(rows, CHECKS, strict=True):
        notes = (f"from {check.since}" if check.since else "", "" if check.errors else "not decided", check.note)
        note = "; ".join(filter(None, notes))
        assert row.endswith(f"` ({note})" if note else "`")
        assert all(field in row for field in check.fields.split())
