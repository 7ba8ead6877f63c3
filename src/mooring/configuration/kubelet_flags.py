"""The kubelet's command line: what of it decides, and how it changes a configuration file.

Source: kubelet v1.37.1, cmd/kubelet/app/options; a flag wins over the configuration file, and feature gates of both are
put together. Names of all flags:
https://kubernetes.io/docs/reference/command-line-tools-reference/kubelet/
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, TypeAlias

_Reading: TypeAlias = Callable[[str], Any]


def _pairs(text: str, sign: str = "=") -> dict[str, str]:
    parts = (part.partition(sign) for part in text.split(",") if part.strip())
    return {name.strip(): value.strip() for name, _, value in parts}


def _signals(text: str) -> dict[str, str]:
    return _pairs(text, "<")


def _truth(text: str) -> bool:
    return text.lower() in ("", "1", "t", "true")


def _gates(text: str) -> dict[str, bool]:
    return {name: _truth(value) for name, value in _pairs(text).items()}


def _count(text: str) -> int | str:
    return int(text) if text.isascii() and text.isdigit() and len(text) < 10 else text


def _reserved_memory(text: str) -> list[dict[str, Any]]:
    entries = []
    for part in text.split(";"):
        node, _, limits = part.partition(":")
        if node.strip():
            entries.append({"numaNode": _count(node.strip()), "limits": _pairs(limits)})
    return entries


_FIELDS: Final[Mapping[str, tuple[str, _Reading]]] = {
    "cpu-cfs-quota": ("cpuCFSQuota", _truth),
    "cpu-cfs-quota-period": ("cpuCFSQuotaPeriod", str),
    "cpu-manager-policy": ("cpuManagerPolicy", str),
    "cpu-manager-policy-options": ("cpuManagerPolicyOptions", _pairs),
    "cpu-manager-reconcile-period": ("cpuManagerReconcilePeriod", str),
    "eviction-hard": ("evictionHard", _signals),
    "feature-gates": ("featureGates", _gates),
    "kube-reserved": ("kubeReserved", _pairs),
    "kube-reserved-cgroup": ("kubeReservedCgroup", str),
    "max-pods": ("maxPods", _count),
    "memory-manager-policy": ("memoryManagerPolicy", str),
    "pods-per-core": ("podsPerCore", _count),
    "reserved-cpus": ("reservedSystemCPUs", str),
    "reserved-memory": ("reservedMemory", _reserved_memory),
    "system-reserved": ("systemReserved", _pairs),
    "system-reserved-cgroup": ("systemReservedCgroup", str),
    "topology-manager-policy": ("topologyManagerPolicy", str),
    "topology-manager-policy-options": ("topologyManagerPolicyOptions", _pairs),
    "topology-manager-scope": ("topologyManagerScope", str),
}
"""Flag -> field of the configuration and how its text is read."""

_PLACES: Final = {"config": "config", "config-dir": "config_dir", "root-dir": "root_dir", "hostname-override": "node"}
_SWITCHES: Final = frozenset({"cpu-cfs-quota"})
"""Flags that need no value."""


_OTHERS = """
    address allowed-unsafe-sysctls alsologtostderr anonymous-auth application-metrics-count-limit
    authentication-token-webhook authentication-token-webhook-cache-ttl authorization-mode
    authorization-webhook-cache-authorized-ttl authorization-webhook-cache-unauthorized-ttl
    azure-container-registry-config boot-id-file bootstrap-checkpoint-path bootstrap-kubeconfig cert-dir
    cgroup-driver cgroup-root cgroups-per-qos client-ca-file cloud-config cloud-provider cluster-dns
    cluster-domain cni-bin-dir cni-cache-dir cni-conf-dir container-hints container-log-max-files
    container-log-max-size container-runtime container-runtime-endpoint containerd containerd-namespace
    contention-profiling docker docker-endpoint docker-env-metadata-whitelist docker-only docker-root docker-tls
    enable-controller-attach-detach enable-debugging-handlers enable-load-reader enable-server
    enforce-node-allocatable event-burst event-qps event-storage-age-limit event-storage-event-limit
    eviction-max-pod-grace-period eviction-minimum-reclaim eviction-pressure-transition-period eviction-soft
    eviction-soft-grace-period exit-on-lock-contention experimental-allocatable-ignore-eviction
    experimental-mounter-path fail-cgroupv1 fail-swap-on file-check-frequency global-housekeeping-interval
    hairpin-mode healthz-bind-address healthz-port help housekeeping-interval http-check-frequency
    image-credential-provider-bin-dir image-credential-provider-config image-gc-high-threshold
    image-gc-low-threshold image-pull-progress-deadline image-service-endpoint iptables-drop-bit
    iptables-masquerade-bit keep-terminated-pod-volumes kernel-memcg-notification kube-api-burst
    kube-api-content-type kube-api-qps kubeconfig kubelet-cgroups local-storage-capacity-isolation lock-file
    log-backtrace-at log-cadvisor-usage log-dir log-file log-file-max-size log-flush-frequency
    log-json-info-buffer-size log-json-split-stream log-text-info-buffer-size log-text-split-stream
    logging-format logtostderr machine-id-file make-iptables-util-chains manifest-url manifest-url-header
    master-service-namespace max-housekeeping-interval max-open-files maximum-dead-containers
    maximum-dead-containers-per-container minimum-container-ttl-duration minimum-image-ttl-duration
    network-plugin network-plugin-mtu node-ip node-labels node-status-max-images node-status-update-frequency
    non-masquerade-cidr one-output oom-score-adj pod-cidr pod-infra-container-image pod-manifest-path
    pod-max-pids port protect-kernel-defaults provider-id qos-reserved read-only-port
    register-node register-schedulable register-with-taints registry-burst registry-qps resolv-conf
    rotate-certificates rotate-server-certificates run-once runonce runtime-cgroups runtime-request-timeout
    seccomp-default serialize-image-pulls skip-headers skip-log-headers stderrthreshold
    storage-driver-buffer-duration storage-driver-db storage-driver-host storage-driver-password
    storage-driver-secure storage-driver-table storage-driver-user streaming-connection-idle-timeout
    sync-frequency system-cgroups tls-cert-file tls-cipher-suites tls-min-version tls-private-key-file v version
    vmodule volume-plugin-dir volume-stats-agg-period
"""
KNOWN_FLAGS: Final = frozenset({*_FIELDS, *_PLACES, *_OTHERS.split(), "reserved-memory"})
"""Flags of the kubelet, with those that older releases had."""


@dataclass(frozen=True, slots=True)
class KubeletFlags:
    """What a kubelet's command line says about its decisions, and where it looks for more."""

    config: str = ""
    config_dir: str = ""
    root_dir: str = ""
    node: str = ""
    """The node's name, where it is not the computer's."""
    fields: Mapping[str, Any] = field(default_factory=dict)
    """Fields of a KubeletConfiguration."""
    positions: Mapping[str, int] = field(default_factory=dict)
    """Field -> number of the last argument that sets it, counted from 0."""
    unknown: Mapping[str, int] = field(default_factory=dict)
    """Flag that no kubelet has -> number of its argument; a kubelet refuses to start with it."""

    def over(self, configuration: Mapping[str, Any]) -> dict[str, Any]:
        """Return a configuration as the flags change it.

        >>> flags = kubelet_flags(["--max-pods=250", "--feature-gates=A=true"])
        >>> flags.over({"maxPods": 110, "featureGates": {"B": False}})
        {'maxPods': 250, 'featureGates': {'B': False, 'A': True}}
        """
        merged = {**configuration, **self.fields}
        of_file, of_flags = configuration.get("featureGates"), self.fields.get("featureGates")
        if isinstance(of_file, dict) and isinstance(of_flags, dict):
            merged["featureGates"] = {**of_file, **of_flags}
        return merged


def kubelet_flags(arguments: Iterable[str]) -> KubeletFlags:
    """Return what decides among a kubelet's arguments; everything else is ignored.

    >>> kubelet_flags(["--config", "/etc/kubelet.yaml", "--reserved_cpus=0-1", "--v=2"]).fields
    {'reservedSystemCPUs': '0-1'}
    """
    fields: dict[str, Any] = {}
    places: dict[str, str] = {}
    positions: dict[str, int] = {}
    unknown: dict[str, int] = {}
    for position, name, value in _named(list(arguments)):
        if name in _PLACES:
            places[_PLACES[name]] = value
        elif name in _FIELDS:
            target, read = _FIELDS[name]
            read_value = read(value)
            earlier = fields.get(target)
            positions[target] = position
            # Flags that hold several values may be repeated.
            if isinstance(earlier, dict):
                fields[target] = {**earlier, **read_value}
            elif isinstance(earlier, list):
                fields[target] = [*earlier, *read_value]
            else:
                fields[target] = read_value
        elif name not in KNOWN_FLAGS:
            unknown.setdefault(name, position)
    return KubeletFlags(**places, fields=fields, positions=positions, unknown=unknown)


def _named(arguments: list[str]) -> Iterable[tuple[int, str, str]]:
    """Yield flags with their positions and values, which may be in one argument or in two."""
    index = 0
    while index < len(arguments):
        position, argument = index, arguments[index]
        index += 1
        if not argument.startswith("-"):
            continue
        name, equals, value = argument.lstrip("-").partition("=")
        name = name.replace("_", "-")
        if not equals and name not in _SWITCHES and index < len(arguments) and not arguments[index].startswith("-"):
            value = arguments[index]
            index += 1
        yield position, name, value


def merged_configuration(base: Mapping[str, Any], patch: Mapping[str, Any]) -> dict[str, Any]:
    """Return a configuration after a file of ``--config-dir``: a JSON merge patch (RFC 7386).

    >>> merged_configuration({"a": 1, "b": {"x": 1}}, {"a": None, "b": {"y": 2}})
    {'b': {'x': 1, 'y': 2}}
    """
    merged = dict(base)
    for name, value in patch.items():
        if value is None:
            merged.pop(name, None)
        elif isinstance(value, dict):
            below = merged.get(name)
            merged[name] = merged_configuration(below if isinstance(below, dict) else {}, value)
        else:
            merged[name] = value
    return merged
