"""The flags of the kubelet's command line, and the release from which each is gone; none was added since 1.31.

A kubelet ends on a flag that it does not have, before it reads any file. v1.38.0-beta.0 has the flags of 1.37.

Source: the flags that cmd/kubelet/app/options, pkg/kubelet/config, component-base/logs and component-base/version of
each release register on Linux; the text is pflag's, wrapped by cmd/kubelet/app/server.go.

The metrics that a release of the kubelet has, by the names that they have in the newest release.

The texts are histories of the name (:mod:`mooring.engine.releases.rule`); a metric without a history is the same
in all releases.

Source: pkg/kubelet/metrics of each release; spec: releases.md section 9.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import cache
from typing import Final

from mooring.engine.core.decision import Cause, Fault
from mooring.engine.releases.rule import RELEASE_NAMES, standing

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
    **_since("1.38", "device_plugin_devices"),
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
