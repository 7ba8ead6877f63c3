"""The metrics that a release of the kubelet has, by the names that they have in the newest release.

The texts are histories of the name (:mod:`mooring.engine.releases.history`); a metric without a history is the same
in all releases.

Source: pkg/kubelet/metrics of each release; spec: releases.md section 9.
"""

from __future__ import annotations

from collections.abc import Mapping

from mooring.engine.releases.history import standing


def _since(release: str, *names: str) -> dict[str, str]:
    return {f"kubelet_{name}": f"{release} kubelet_{name}" for name in names}


METRIC_HISTORY: Mapping[str, str] = {
    **_since(
        "1.32",
        "cpu_manager_shared_pool_size_millicores",
        "cpu_manager_exclusive_cpu_allocation_count",
        "container_aligned_compute_resources_count",
    ),
    **_since("1.33", "container_aligned_compute_resources_failure_count", "cpu_manager_allocation_per_numa"),
    **_since(
        "1.34",
        "container_requested_resizes_total",
        "pod_deferred_accepted_resizes_total",
        "pod_in_progress_resizes",
        "pod_infeasible_resizes_total",
        "pod_pending_resizes",
        "pod_resize_duration_milliseconds",
    ),
    **_since("1.37", "pod_deferred_resize_duration_seconds", "pod_level_resources_admission_total"),
    "kubelet_resource_manager_allocations_total": (
        "1.36 resource_manager_allocations_total, 1.37 kubelet_resource_manager_allocations_total"
    ),
    "kubelet_resource_manager_allocation_errors_total": (
        "1.36 resource_manager_allocation_errors_total, 1.37 kubelet_resource_manager_allocation_errors_total"
    ),
    "kubelet_resource_manager_container_assignments_total": (
        "1.36 resource_manager_container_assignments, 1.37 kubelet_resource_manager_container_assignments_total"
    ),
}
"""Metric -> its names."""


def metric_name(metric: str, release: str) -> str:
    """Return the name that a metric of the newest release has in another one; empty when it does not have it.

    >>> metric_name("kubelet_resource_manager_allocations_total", "1.36")
    'resource_manager_allocations_total'
    >>> metric_name("kubelet_cpu_manager_allocation_per_numa", "1.32")
    ''
    """
    history = METRIC_HISTORY.get(metric)
    return metric if history is None else standing(history, release)
