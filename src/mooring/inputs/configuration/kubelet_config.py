"""KubeletConfiguration v1beta1 to a value.

Only types are checked here. Whether a policy, an option, a gate or a reservation makes sense is for the
kubelet's own checks (:mod:`mooring.engine.node`), which need the texts as they were written.

Source of the field names: k8s.io/kubelet/config/v1beta1 at v0.37.1. Only :data:`READ` decides anything here; the others
are known so that a misspelt name is distinguished from one that does not matter.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from mooring.engine.core.config import CheckedFields, KubeletConfig, ReservedMemory, may_be_off
from mooring.engine.core.errors import InputError
from mooring.engine.core.machine import Finding
from mooring.engine.core.quantity import Quantity, QuantitySyntaxError
from mooring.engine.core.release import NEWEST, Release
from mooring.engine.node.start_checks import CHECKED_FIELDS
from mooring.engine.releases.flags import FIELDS_SINCE, later_fields
from mooring.inputs.configuration.kubelet_values import value_findings
from mooring.inputs.decoding.api_fields import (
    UNKNOWN_CONFIGURATION_FIELD,
    Places,
    fields_of,
    unknown_fields,
    unknown_findings,
)
from mooring.inputs.decoding.fields import (
    Report,
    as_mapping,
    count_at,
    flag_at,
    ignore,
    inside,
    list_at,
    mapping_at,
    text_at,
    texts_at,
    wrong_kind,
)
from mooring.inputs.decoding.quantities import nanoseconds, not_a_quantity, quantity_text

KIND = "KubeletConfiguration"
API_VERSION = "kubelet.config.k8s.io/v1beta1"
CONFIGZ = "kubeletconfig"
"""The single key around the configuration that a kubelet prints under ``/configz``."""
SHOWN_DEFAULTS: Mapping[str, Any] = {
    "crashLoopBackOff": {"maxContainerRestartPeriod": "5m0s"},
    "imagePullCredentialsVerificationPolicy": "NeverVerifyPreloadedImages",
}
"""Fields that ``/configz`` shows with their defaults, and that kubelets whose gate is off refuse."""
_SECOND = 10**9


def is_kubelet_config(content: Mapping[str, Any]) -> bool:
    """Tell whether a document is a kubelet's configuration: by its kind, from ``/configz``, or as bare fields."""
    if "kind" in content:
        return bool(content["kind"] == KIND)
    return set(content) == {CONFIGZ} or not KNOWN.isdisjoint(content)


def kubelet_config(
    content: Mapping[str, Any],
    *,
    source: str,
    report: Report = ignore,
    release: Release = NEWEST,
    places: Places | None = None,
) -> KubeletConfig:
    """Return the fields that the managers read; fields that the kubelet does not know are reported.

    Args:
        content: the document.
        source: where it is from, for messages.
        report: receives findings.
        release: of the kubelet; older ones do not know all fields.
        places: names the lines of fields; without it they are reported with ``source``.

    Raises:
        InputError: another version, or a value of the wrong type.

    >>> kubelet_config({"cpuManagerPolicy": "static"}, source="example").cpu_manager_policy
    'static'
    """
    try:
        within = CONFIGZ if set(content) == {CONFIGZ} else ""
        fields = mapping_at(content, within) if within else content
        _check_version(fields)
        lines = places or (lambda paths: dict.fromkeys(paths, source))
        unknown = unknown_fields([(KIND, fields, within)])
        for finding in unknown_findings(unknown, UNKNOWN_CONFIGURATION_FIELD, source, lines):
            report(finding)
        for finding in value_findings(fields, within, places) if places else ():
            report(finding)
        report_later(fields, source, report, release)
        return config_of_fields(fields)
    except InputError as error:
        raise error.at(source) from None


def config_of_fields(fields: Mapping[str, Any]) -> KubeletConfig:
    """Return the fields that the managers read, without a check of the version or of unknown fields.

    Raises:
        InputError: a value of the wrong type; it names the field alone.
    """
    fields = with_empty_texts(fields)
    return KubeletConfig(
        cpu_manager_policy=text_at(fields, "cpuManagerPolicy", "none"),
        cpu_manager_policy_options=texts_at(fields, "cpuManagerPolicyOptions"),
        cpu_manager_reconcile_period_ns=_duration(fields, "cpuManagerReconcilePeriod", 0) or 10 * _SECOND,
        memory_manager_policy=text_at(fields, "memoryManagerPolicy", "None"),
        reserved_memory=_reserved_memory(fields),
        topology_manager_policy=text_at(fields, "topologyManagerPolicy", "none"),
        topology_manager_scope=text_at(fields, "topologyManagerScope", "container"),
        topology_manager_policy_options=texts_at(fields, "topologyManagerPolicyOptions"),
        reserved_system_cpus=text_at(fields, "reservedSystemCPUs"),
        kube_reserved=texts_at(fields, "kubeReserved"),
        system_reserved=texts_at(fields, "systemReserved"),
        kube_reserved_cgroup=text_at(fields, "kubeReservedCgroup"),
        system_reserved_cgroup=text_at(fields, "systemReservedCgroup"),
        eviction_hard=None if fields.get("evictionHard") is None else texts_at(fields, "evictionHard"),
        merge_default_eviction_settings=flag_at(fields, "mergeDefaultEvictionSettings", default=False),
        cpu_cfs_quota=flag_at(fields, "cpuCFSQuota", default=True),
        cpu_cfs_quota_period_ns=_duration(fields, "cpuCFSQuotaPeriod", _SECOND // 10),
        feature_gates=_feature_gates(fields),
        max_pods=count_at(fields, "maxPods", 0) or 110,
        pods_per_core=count_at(fields, "podsPerCore", 0),
        checked=_checked(fields),
    )


def with_empty_texts(fields: Mapping[str, Any]) -> dict[str, Any]:
    """Return a file's fields as Go decodes a null in a mapping of strings: as the empty string.

    >>> with_empty_texts({"kubeReserved": {"cpu": None}})
    {'kubeReserved': {'cpu': ''}}
    """
    decoded = dict(fields)
    for name in _MAPPINGS & fields.keys():
        if isinstance(fields[name], dict) and None in fields[name].values():
            decoded[name] = {key: "" if value is None else value for key, value in fields[name].items()}
    return decoded


def _checked(fields: Mapping[str, Any]) -> CheckedFields:
    return CheckedFields(
        values=_checked_values(fields),
        null_duration=any(fields.get(name, "") is None for name in DURATIONS),
        run_once=flag_at(fields, "runOnce", default=False),
        default_pod_sysctls=bool(mapping_at(fields, "defaultPodSysctls")),
        image_minimum_gc_age_ns=_duration(fields, "imageMinimumGCAge", 0),
        memory_throttling_factor=_factor(fields.get("memoryThrottlingFactor")),
        memory_reservation_policy=text_at(fields, "memoryReservationPolicy"),
        enable_system_log_query=flag_at(fields, "enableSystemLogQuery", default=False),
        enable_system_log_handler=flag_at(fields, "enableSystemLogHandler", default=True),
        cpu_options_empty=_is_empty_behind_gate(fields, "cpuManagerPolicyOptions", "CPUManagerPolicyOptions"),
        topology_options_empty=_is_empty_behind_gate(
            fields, "topologyManagerPolicyOptions", "TopologyManagerPolicyOptions"
        ),
    )


_CHECKED: Mapping[str, Callable[[Mapping[str, Any], str], Any]] = {
    "text": text_at,
    "flag": partial(flag_at, default=False),
    "count": partial(count_at, default=0),
    "duration": lambda parent, name: _duration(parent, name, 0),
    "list": list_at,
    "texts": lambda parent, name: [text_at({name: one}, name) for one in list_at(parent, name)],
    "mapping": texts_at,
    "durations": lambda parent, name: {
        key: _duration(periods, key, 0) for periods in [texts_at(parent, name)] for key in periods
    },
}
"""What a field holds -> how it is read."""


def _checked_values(fields: Mapping[str, Any]) -> dict[str, Any]:
    values = {}
    for path, kind in CHECKED_FIELDS.items():
        above, _, name = path.rpartition(".")
        parent = mapping_at(fields, above) if above else fields
        if parent.get(name) is not None:
            try:
                values[path] = _CHECKED[kind](parent, name)
            except InputError as error:
                raise (inside(error, above) if above else error) from None
    return values


def _is_empty_behind_gate(fields: Mapping[str, Any], field: str, gate: str) -> bool:
    return fields.get(field) == {} and may_be_off(mapping_at(fields, "featureGates"), gate)


def _factor(value: Any) -> float | None:
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise wrong_kind(value, "a number", "memoryThrottlingFactor")
    return float(value)


def _check_version(fields: Mapping[str, Any]) -> None:
    version = text_at(fields, "apiVersion", API_VERSION)
    if version != API_VERSION:
        raise InputError(f"{version!r:.60} is not supported", field="apiVersion", remedy=f"write {API_VERSION}")


def report_later(fields: Mapping[str, Any], source: str, report: Report, release: Release) -> None:
    """Report the fields that a release does not have yet."""
    for name in sorted(later_fields(release.name) & set(fields)):
        problem = f"kubelet {release.name} does not have the field {name} yet and ignores it"
        report(Finding("warning", name, f"{source}: {problem}; it came with {FIELDS_SINCE[name]}", "MOOR-501"))


def _duration(fields: Mapping[str, Any], field: str, default: int) -> int:
    text = text_at(fields, field)
    if not text and fields.get(field) is None:
        return default
    try:
        return nanoseconds(text)
    except InputError as error:
        raise inside(error, field) from None


def _feature_gates(fields: Mapping[str, Any]) -> dict[str, bool]:
    gates = mapping_at(fields, "featureGates")
    for name, value in gates.items():
        if not isinstance(value, bool):
            raise wrong_kind(value, "true or false", f"featureGates.{name}")
    return gates


def _reserved_memory(config: Mapping[str, Any]) -> tuple[ReservedMemory, ...]:
    entries = []
    for index, entry in enumerate(list_at(config, "reservedMemory")):
        try:
            fields = as_mapping(entry)
            entries.append(ReservedMemory(count_at(fields, "numaNode", 0), _limits(fields)))
        except InputError as error:
            raise inside(error, f"reservedMemory[{index}]") from None
    return tuple(entries)


def _limits(entry: Mapping[str, Any]) -> dict[str, str]:
    limits = {}
    for name, value in mapping_at(entry, "limits").items():
        try:
            limits[name] = quantity_text(value)
            Quantity.parse(limits[name])
        except InputError as error:
            raise inside(error, f"limits.{name}") from None
        except QuantitySyntaxError as error:
            raise not_a_quantity(value, error, f"limits.{name}") from None
    return limits


_READ = """
    cpuManagerPolicy cpuManagerPolicyOptions cpuManagerReconcilePeriod memoryManagerPolicy reservedMemory
    topologyManagerPolicy topologyManagerScope topologyManagerPolicyOptions reservedSystemCPUs kubeReserved
    systemReserved kubeReservedCgroup systemReservedCgroup evictionHard mergeDefaultEvictionSettings
    cpuCFSQuota cpuCFSQuotaPeriod featureGates maxPods podsPerCore
"""
READ = frozenset(_READ.split())
"""Fields that the resource managers read (spec: configuration.md section 1)."""

_MAPPINGS = frozenset(
    {
        "cpuManagerPolicyOptions",
        "topologyManagerPolicyOptions",
        "kubeReserved",
        "systemReserved",
        "evictionHard",
        "evictionSoft",
        "evictionSoftGracePeriod",
        "evictionMinimumReclaim",
    }
)

_DURATIONS = """
    syncFrequency fileCheckFrequency httpCheckFrequency streamingConnectionIdleTimeout nodeStatusUpdateFrequency
    nodeStatusReportFrequency imageMinimumGCAge imageMaximumGCAge volumeStatsAggPeriod cpuManagerReconcilePeriod
    runtimeRequestTimeout evictionPressureTransitionPeriod shutdownGracePeriod shutdownGracePeriodCriticalPods
"""
DURATIONS = frozenset(_DURATIONS.split())
"""Fields of a duration that cannot be absent in Go: a file with null there is not decoded."""

KNOWN = frozenset(fields_of(KIND))
"""Every field of the type."""
