"""Checks of fields that no resource manager reads, on which a kubelet does not start all the same.

:data:`mooring.engine.node.validation.CHECKS` has them in the kubelet's order.

Source: kubelets v1.31.14 to v1.37.1, pkg/kubelet/apis/config/validation, pkg/kubelet/apis/config/v1beta1 (defaults);
spec: configuration.md section 3.
"""

from __future__ import annotations

import posixpath
from collections.abc import Callable, Iterator
from typing import Any, Final, TypeAlias

from mooring.engine.core.config import KubeletConfig
from mooring.engine.core.decision import Fault
from mooring.engine.core.gotext import duration_text, float_text, quote
from mooring.engine.core.release import FeatureGates, ReleaseRules
from mooring.engine.releases.config_fields import READ_FIELDS
from mooring.engine.releases.rule import RELEASE_NAMES
from mooring.lazy import dataclass

_OLD_FACTOR = 0.9
_NO_RESERVATION = "None"
_TIERED = "TieredReservation"
_SECOND: Final = 10**9
_INT32: Final = 2**31 - 1


@dataclass(frozen=True, slots=True)
class Given:
    """What the checks look at."""

    config: KubeletConfig
    gates: FeatureGates
    older: ReleaseRules
    release: str

    def get(self, field: str, default: Any = None) -> Any:
        """Return the value of a field; the default where one that is only checked is absent."""
        read = READ_FIELDS.get(field)
        return self.config.checked.values.get(field, default) if read is None else read.of(self.config)

    def filled(self, field: str, default: Any) -> Any:
        """Return the value of a field of which nothing, zero too, means the default."""
        return self.get(field) or default

    def has(self, release: str) -> bool:
        """Tell whether the kubelet is of a release or a later one."""
        return not release or RELEASE_NAMES.index(self.release) >= RELEASE_NAMES.index(release)


Errors: TypeAlias = Callable[[Given], Iterator[str] | Iterator[str | Fault]]
"""The kubelet's texts; a fault where more than the fields of the check is known of it."""


@dataclass(frozen=True, slots=True)
class StartCheck:
    """One or several checks of one or several fields."""

    fields: str
    errors: Errors | None = None
    """None when nothing is decided here."""
    since: str = ""
    """The first release that makes it; empty for all."""
    note: str = ""
    """Why nothing is decided here, or what changed between releases."""


_RANGES: Final = {
    "negative": (0, _INT32, "must not be a negative number"),
    "percent": (0, 100, "must be between 0 and 100, inclusive"),
    "port": (1, 65535, "must be between 1 and 65535, inclusive"),
    "bit": (0, 31, "must be between 0 and 31, inclusive"),
}


def number_check(name: str, least: int, most: int, words: str, *, zero: bool = False, since: str = "") -> StartCheck:
    """Return the check of a number.

    Args:
        name: the field, with its flag as the kubelet prints it.
        least: number that passes.
        most: number that passes.
        words: of the kubelet after name and value, or the whole text.
        zero: whether 0 stands for a default, and passes.
        since: the first release that makes the check.
    """
    field = name.partition(" ")[0]
    text = words if words.startswith(field) else f"{name} %v {words}"

    def errors(given: Given) -> Iterator[str]:
        value = given.get(field)
        if value is not None and not (zero and value == 0) and not least <= value <= most:
            yield text.replace("%v", str(value))

    return StartCheck(field, errors, since)


def range_check(name: str, kind: str, *, zero: bool = False) -> StartCheck:
    """Return the check of a number by one of the usual ranges; arguments as of :func:`number_check`."""
    return number_check(name, *_RANGES[kind], zero=zero)


def cgroup_root_errors(given: Given) -> Iterator[str]:
    """Check systemCgroups needs cgroupRoot."""
    if given.get("systemCgroups") and not given.get("cgroupRoot"):
        yield ("systemCgroups (--system-cgroups) was specified and cgroupRoot (--cgroup-root) was not specified")


def image_thresholds_errors(given: Given) -> Iterator[str]:
    """Check the low threshold of images is below the high one."""
    low, high = given.get("imageGCLowThresholdPercent", 80), given.get("imageGCHighThresholdPercent", 85)
    if low >= high:
        yield (
            f"imageGCLowThresholdPercent (--image-gc-low-threshold) {low} must be less than "
            f"imageGCHighThresholdPercent (--image-gc-high-threshold) {high}"
        )


def image_age_errors(given: Given) -> Iterator[str]:
    """Check the age at which images go."""
    least, most = given.filled("imageMinimumGCAge", 120 * _SECOND), given.get("imageMaximumGCAge", 0)
    if most and not given.gates["ImageMaximumGCAge"]:
        yield "ImageMaximumGCAge feature gate is required for Kubelet configuration option imageMaximumGCAge"
    if most < 0:
        yield f"imageMaximumGCAge {duration_text(most)} must not be negative"
    if 0 < most <= least:
        yield f"imageMaximumGCAge {duration_text(most)} must be greater than imageMinimumGCAge {duration_text(least)}"


def parallel_pulls_errors(given: Given) -> Iterator[str]:
    """Check images that are pulled at once."""
    most = given.get("maxParallelImagePulls")
    if most is not None and most < 1:
        yield f"maxParallelImagePulls {most} must be a positive number"
    if most is not None and most > 1 and given.get("serializeImagePulls", False):
        yield (
            "maxParallelImagePulls cannot be larger than 1 unless SerializeImagePulls (--serialize-image-pulls) is "
            "set to false"
        )


def tls_bootstrap_errors(given: Given) -> Iterator[str]:
    """Check serverTLSBootstrap and its gate."""
    if given.get("serverTLSBootstrap") and not given.gates["RotateKubeletServerCertificate"]:
        yield "serverTLSBootstrap true requires feature gate RotateKubeletServerCertificate"


_ALGORITHMS: Final = (
    *("ECDSA-P256", "ECDSA-P384", "RSA-2048", "RSA-3072", "RSA-4096"),
    *("ML-DSA-44", "ML-DSA-65", "ML-DSA-87"),
)


def certificate_errors(given: Given) -> Iterator[str]:
    """Check the algorithms of the kubelet's own keys."""
    if given.older.certificate_algorithms_unknown:
        return
    for field in ("clientCertificateKeyAlgorithm", "serverCertificateKeyAlgorithm"):
        name = given.get(field, _ALGORITHMS[0])
        if name not in _ALGORITHMS:
            yield f"{field} {quote(name)} is not a supported algorithm"
        elif field.startswith("server") and name.startswith("ML-DSA") and given.get("tlsMinVersion") != _TLS13:
            version = quote(given.get("tlsMinVersion", ""))
            yield f"tlsMinVersion {version} is incompatible with {field} {quote(name)}, ML-DSA requires {_TLS13}"


_TLS13: Final = "VersionTLS13"


def shutdown_errors(given: Given) -> Iterator[str]:
    """Check grace periods of a shutdown of the node."""
    names = ("shutdownGracePeriod", "shutdownGracePeriodCriticalPods")
    whole, critical = (given.get(name, 0) for name in names)
    by_priority = bool(given.get("shutdownGracePeriodByPodPriority"))
    if given.gates["GracefulNodeShutdown"]:
        if critical > whole:
            yield f"{names[1]} {{{duration_text(critical)}}} must be <= {names[0]} {{{duration_text(whole)}}}"
        for name, value in zip(names, (whole, critical), strict=True):
            if value < 0 or 0 < value < _SECOND:
                yield f"{name} {{{duration_text(value)}}} must be either zero or otherwise >= 1 sec"
    elif whole > 0 or critical > 0:
        yield (
            "specifying shutdownGracePeriod or shutdownGracePeriodCriticalPods requires feature gate "
            "GracefulNodeShutdown"
        )
    if not given.gates["GracefulNodeShutdownBasedOnPodPriority"]:
        if by_priority:
            yield (
                "Specifying shutdownGracePeriodByPodPriority requires feature gate "
                "GracefulNodeShutdownBasedOnPodPriority"
            )
    elif by_priority and (whole > 0 or critical > 0):
        yield "Cannot specify both shutdownGracePeriodByPodPriority and shutdownGracePeriod at the same time"


def swap_errors(given: Given) -> Iterator[str]:
    """Check memorySwap."""
    behavior = given.get("memorySwap.swapBehavior", "")
    if given.older.swap_behavior_needs_gate and not given.gates["NodeSwap"]:
        if behavior:
            yield "memorySwap.swapBehavior cannot be set when NodeSwap feature flag is disabled"
    elif behavior not in ("", "NoSwap", "LimitedSwap"):
        yield f'memorySwap.swapBehavior {quote(behavior)} must be one of: "", "LimitedSwap" or "NoSwap"'


def crash_loop_errors(given: Given) -> Iterator[str]:
    """Check crashLoopBackOff."""
    period = given.get("crashLoopBackOff.maxContainerRestartPeriod")
    if period is None:
        return
    if not given.gates["KubeletCrashLoopBackOffMax"]:
        yield (
            "FeatureGate KubeletCrashLoopBackOffMax not enabled, CrashLoopBackOff.MaxContainerRestartPeriod must not "
            "be set"
        )
    elif not 1000 <= int(period / 10**6) <= 300_000:
        seconds = float_text(period / _SECOND)
        yield f"CrashLoopBackOff.MaxContainerRestartPeriod (got: {seconds} seconds) must be set between 1s and 300s"


_KEYS: Final = (
    "pods",
    "system-reserved",
    "system-reserved-compressible",
    "kube-reserved",
    "kube-reserved-compressible",
)
_KEYS_BEFORE: Final = ("pods", "system-reserved", "kube-reserved")
"""Up to v1.31."""
_WHERE: Final = "enforceNodeAllocatable (--enforce-node-allocatable)"


def enforcement_errors(given: Given) -> Iterator[str]:
    """Check what enforceNodeAllocatable needs."""
    listed = given.get("enforceNodeAllocatable", ["pods"])
    compressible = given.has("1.32")
    keys = _KEYS if compressible else _KEYS_BEFORE
    for kind in ("system", "kube") if compressible else ():
        pair = (f"{kind}-reserved", f"{kind}-reserved-compressible")
        if set(pair) <= set(listed):
            yield f"both {quote(pair[0])} and {quote(pair[1])} cannot be specified together in {_WHERE}"
    cgroups = {"system": given.config.system_reserved_cgroup, "kube": given.config.kube_reserved_cgroup}
    seen: set[str] = set()
    for key in listed:
        if key in seen:
            yield f"duplicated enforcements {quote(key)} in {_WHERE}"
            continue
        seen.add(key)
        if key == "none":
            if len(listed) > 1:
                yield f'{_WHERE} may not contain additional enforcements when "none" is specified'
            continue
        if key not in keys:
            *most, last = [quote(one) for one in (*keys, "none")]
            comma = "" if compressible else ","
            yield f"option {quote(key)} specified for {_WHERE}. Valid options are {', '.join(most)}{comma} or {last}"
            continue
        kind = key.partition("-")[0]
        if kind in cgroups and not cgroups[kind]:
            named = f'"{kind}-reserved" or "{kind}-reserved-compressible" included'
            named = named if compressible else f'"{kind}-reserved" contained'
            yield (f"{kind}ReservedCgroup (--{kind}-reserved-cgroup) must be specified when {named} in {_WHERE}")
        if not given.get("cgroupsPerQOS", True):
            yield f"cgroupsPerQOS (--cgroups-per-qos) must be set to true when {quote(key)} contained in {_WHERE}"


def hairpin_errors(given: Given) -> Iterator[str]:
    """Check hairpinMode."""
    mode = given.filled("hairpinMode", "promiscuous-bridge")
    if mode not in ("none", "hairpin-veth", "promiscuous-bridge"):
        yield (
            f"option {quote(mode)} specified for hairpinMode (--hairpin-mode). Valid options are "
            '"none", "hairpin-veth" or "promiscuous-bridge"'
        )


_POLICIES: Final = ("NeverVerify", "NeverVerifyPreloadedImages", "NeverVerifyAllowlistedImages", "AlwaysVerify")


def pull_credentials_errors(given: Given) -> Iterator[str]:
    """Check the verification of pulled images."""
    policy, images = (
        given.get("imagePullCredentialsVerificationPolicy", ""),
        given.get("preloadedImagesVerificationAllowlist", []),
    )
    if not given.gates["KubeletEnsureSecretPulledImages"]:
        fields = ("imagePullCredentialsVerificationPolicy", policy), ("preloadedImagesVerificationAllowlist", images)
        for field, value in fields:
            if value:
                yield f"`{field}` must not be set if KubeletEnsureSecretPulledImages feature gate is not enabled"
        return
    if policy and policy not in _POLICIES:
        *most, last = map(quote, _POLICIES)
        yield (
            f"option {quote(policy)} specified for imagePullCredentialsVerificationPolicy. Valid options are "
            f"{', '.join(most)} or {last}"
        )
    if images and policy != _POLICIES[2]:
        yield (
            "can't set `preloadedImagesVerificationAllowlist` if `imagePullCredentialsVertificationPolicy` is not "
            '"NeverVerifyAllowlistedImages"'
        )


def ids_per_pod_errors(given: Given) -> Iterator[str]:
    """Check ids of user namespaces."""
    ids = given.get("userNamespaces.idsPerPod")
    if ids is None:
        return
    if ids < 65536:
        yield "userNamespaces.idsPerPod must not be less than 65536"
    elif ids % 65536:
        yield "userNamespaces.idsPerPod must be a multiple of 65536"


def log_interval_errors(given: Given) -> Iterator[str]:
    """Check the interval of log rotation."""
    if given.get("containerLogMonitorInterval", 10 * _SECOND) < 3 * _SECOND:
        yield "containerLogMonitorInterval must be a positive time duration greater than or equal to 3s"


def logs_dir_errors(given: Given) -> Iterator[str]:
    """Check the folder of logs."""
    folder = given.filled("podLogsDir", "/var/log/pods")
    if not folder.startswith("/"):
        yield f"pod logs path {quote(folder)} must be absolute path"
    if posixpath.normpath(folder).replace("//", "/", 1) != folder:
        yield f"pod logs path {quote(folder)} must be normalized"
    if not folder.isascii():
        yield f"pod logs path {quote(folder)} mut contains ASCII characters only"


def sysctl_errors(given: Given) -> Iterator[str]:
    """Check the gate of sysctls for all pods."""
    is_known = not given.older.default_pod_sysctls_unknown
    if given.get("defaultPodSysctls") and is_known and not given.gates["DefaultPodSysctls"]:
        yield "DefaultPodSysctls feature gate is required for Kubelet configuration option defaultPodSysctls"


def minimum_age_errors(given: Given) -> Iterator[str]:
    """Check the age up to which images stay."""
    age = given.get("imageMinimumGCAge", 0)
    if age < 0 and not given.older.image_minimum_gc_age_not_checked:
        yield f"imageMinimumGCAge {duration_text(age)} must not be negative"


def run_once_errors(given: Given) -> Iterator[str]:
    """Check that the mode which is no more is not on."""
    if given.get("runOnce") and not given.older.run_once_accepted:
        yield "runOnce (--runOnce) true, Runonce mode has been deprecated and should not be set"


def memory_qos_errors(given: Given) -> Iterator[str]:
    """Check how memory is throttled and reserved, and the gate of both."""
    gates, older = given.gates, given.older
    factor, policy = given.get("memoryThrottlingFactor"), given.filled("memoryReservationPolicy", _NO_RESERVATION)
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


def log_query_errors(given: Given) -> Iterator[str]:
    """Check what the query of system logs needs."""
    gates, older = given.gates, given.older
    if not given.get("enableSystemLogQuery"):
        return
    if not gates["NodeLogQuery"]:
        field = "enableSystemLogHandler" if older.log_query_text_names_handler else "enableSystemLogQuery"
        yield f"NodeLogQuery feature gate is required for {field}"
    if not given.get("enableSystemLogHandler", True):
        yield "enableSystemLogHandler is required for enableSystemLogQuery"
