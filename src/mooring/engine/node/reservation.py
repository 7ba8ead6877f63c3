"""What the node keeps for the system, and what is left for pods.

Source: kubelet v1.37.1, cmd/kubelet/app/server.go, pkg/kubelet/eviction/helpers.go,
cm/node_container_manager_linux.go; spec: configuration.md section 5. What of it is checked before the machine is read:
pkg/kubelet/apis/config/validation; spec: configuration.md section 3.
"""

from __future__ import annotations

import math
import re
import struct
from collections.abc import Iterator, Mapping
from functools import reduce
from typing import Any

from mooring.engine.core.config import KubeletConfig
from mooring.engine.core.cpuset import CPUSet, CPUSetSyntaxError, CPUTooLargeError
from mooring.engine.core.decision import Cause, Fault
from mooring.engine.core.gotext import INT64_MAX, duration_text, int64, quote
from mooring.engine.core.machineinfo import MachineInfo
from mooring.engine.core.quantity import Quantity, QuantitySyntaxError, written
from mooring.engine.core.release import NEWEST_RULES, ReleaseRules
from mooring.engine.core.topology import Topology
from mooring.engine.node.validation_fields import Given
from mooring.lazy import dataclass, replace

DEFAULT_EVICTION_HARD: Mapping[str, str] = {
    "memory.available": "100Mi",
    "nodefs.available": "10%",
    "nodefs.inodesFree": "5%",
    "imagefs.available": "15%",
    "imagefs.inodesFree": "5%",
}
"""The kubelet's own thresholds on Linux, for a configuration file without ``evictionHard``."""

EVICTION_SIGNALS = frozenset(
    {
        *DEFAULT_EVICTION_HARD, "allocatableMemory.available", "containerfs.available", "containerfs.inodesFree",
        "pid.available",
    },
)  # fmt: skip
"""What a threshold can be for (pkg/kubelet/eviction/types.go, OpForSignal)."""

RESERVABLE = ("cpu", "memory", "ephemeral-storage", "pid")

_NO_THRESHOLD = ("0%", "100%")
_MILLI = 10**6  # billionths in a thousandth
_DIGITS, _HEX = "[0-9](?:_?[0-9])*", "[0-9a-f](?:_?[0-9a-f])*"
_FLOAT = re.compile(
    rf"[+-]?((?P<hex>0x(_?{_HEX}\.?({_HEX})?|\.{_HEX})p[+-]?{_DIGITS})"
    rf"|({_DIGITS}\.?({_DIGITS})?|\.{_DIGITS})(e[+-]?{_DIGITS})?|inf(inity)?)",
    re.ASCII | re.IGNORECASE,
)


class _Refused(Exception):  # noqa: N818 - carries a fault out of nested parsing, never leaves this module
    def __init__(
        self, text: str, cause: Cause = Cause.RESERVATION, field: str = "", *names: str, value: str = ""
    ) -> None:
        self.fault = Fault(text, cause, field, names, (value,))


@dataclass(frozen=True, slots=True)
class Reservation:
    """What is kept for the system, and what the machine has."""

    cpus: CPUSet
    """The explicit ``reservedSystemCPUs``; empty when only an amount is reserved."""
    reserved: Mapping[str, Quantity]
    """Resource -> systemReserved + kubeReserved, for memory with the hard eviction threshold; zero sums are left
    out."""
    capacity: Mapping[str, Quantity]
    """Resource -> capacity of the machine: cpu, memory and each pool of huge pages."""
    eviction: Quantity | None = None
    """The part of the reserved memory that is the hard eviction threshold."""

    def allocatable(self, resource: str) -> int:
        """Return what pods may request: cpu in millicores, everything else in whole units."""
        return self._without_reserved(resource, 0)

    def allocatable_absolute(self, resource: str) -> int:
        """Return the same with the hard eviction threshold, the kubelet's GetNodeAllocatableAbsolute."""
        return self._without_reserved(resource, self.eviction.nano if self.eviction and resource == "memory" else 0)

    def _without_reserved(self, resource: str, more: int) -> int:
        capacity, reserved = self.capacity.get(resource), self.reserved.get(resource)
        if capacity is None:
            return 0
        nano = capacity.nano - (reserved.nano if reserved is not None else 0) + more
        return max(nano, 0) // (_MILLI if resource == "cpu" else 10**9)

    def overcommitment(self, older: ReleaseRules = NEWEST_RULES) -> Fault | None:
        """Return the resources of which more is kept than there is, as the kubelet refuses them.

        The kubelet names them in random order; here they are sorted.
        """
        errors = {
            resource: f"Resource {quote(resource)} has a reservation of {_go_struct(reserved, older)} but capacity of "
            f"{_go_struct(self.capacity[resource], older)}. Expected capacity >= reservation."
            for resource, reserved in sorted(self.reserved.items())
            if reserved.nano > self.capacity[resource].nano
        }
        text = f"invalid Node Allocatable configuration. {' '.join(errors.values())}"
        return Fault(text, Cause.OVERCOMMITTED, names=tuple(errors)) if errors else None


def _go_struct(amount: Quantity, older: ReleaseRules) -> str:
    """Print a quantity as Go prints its fields: the kubelet formats the structure instead of the amount.

    Long numbers, which are not in the fast form, print as an address in memory; their value is printed here. Since
    v1.38.0-beta.0 there is one more field (rule huge-amounts-wrap: the same change of quantities).
    """
    text = "" if older.huge_amounts_wrap else "{ 0}"
    scale = amount.scale if amount.fast else 0
    return f"{{{{{amount.nano // 10 ** (9 + scale)} {scale}}} {{<nil>}} {text} {amount.format.value}}}"


def hugepages_resource(page_size_kib: int) -> str:
    """Return the resource name of a pool of huge pages.

    >>> hugepages_resource(2048), hugepages_resource(1048576)
    ('hugepages-2Mi', 'hugepages-1Gi')
    """
    return f"hugepages-{Quantity.of_bytes(page_size_kib * 1024)}"


def reserve(
    config: KubeletConfig, info: MachineInfo, topology: Topology | str, older: ReleaseRules = NEWEST_RULES
) -> Reservation | Fault:
    """Return what is kept for the system, or what the kubelet finds wrong.

    Args:
        config: as written.
        info: the kubelet's view of the machine.
        topology: of its CPUs, or why it cannot be made out.
        older: rules of an older release.
    """
    try:
        cpus = _explicit_cpus(config, topology)
        kube = dict(config.kube_reserved)
        system = dict(config.system_reserved)
        if cpus:
            # An explicit set replaces both amounts of cpu.
            kube.pop("cpu", None)
            system["cpu"] = str(len(cpus))
        kube_amounts = _amounts(kube, "kube", older)
        system_amounts = _amounts(system, "system", older)
        hard = DEFAULT_EVICTION_HARD if config.eviction_hard is None else config.eviction_hard
        if config.merge_default_eviction_settings and not older.eviction_defaults_not_merged:
            # Up to v1.32 defaults are never merged (rule eviction-defaults-not-merged).
            hard = {**DEFAULT_EVICTION_HARD, **hard}
        eviction = _memory_eviction(hard, info.memory_capacity, "evictionHard")
    except _Refused as refused:
        return refused.fault
    capacity = {"cpu": Quantity.of_milli(info.num_cores * 1000), "memory": Quantity.of_bytes(info.memory_capacity)}
    for pool in info.hugepages:
        capacity[hugepages_resource(pool.page_size)] = Quantity.of_bytes(pool.page_size * 1024 * pool.num_pages)
    reserved: dict[str, Quantity] = {}
    for resource in capacity:
        given = (system_amounts.get(resource), kube_amounts.get(resource), eviction if resource == "memory" else None)
        parts = [part for part in given if part is not None]
        total = reduce(Quantity.__add__, parts) if parts else None
        if total is not None and not total.is_zero:
            reserved[resource] = total
    return Reservation(cpus, reserved, capacity, eviction)


def _explicit_cpus(config: KubeletConfig, topology: Topology | str) -> CPUSet:
    text = config.reserved_system_cpus
    if not text:
        return CPUSet()
    if isinstance(topology, str):
        raise _Refused(f"unable to discover CPU topology info: {topology}")
    online = CPUSet(topology.all_cpus)
    try:
        cpus = CPUSet.parse(text)
    except CPUTooLargeError:
        cpus = None
    if cpus is None or not cpus <= online:
        there = "" if cpus is None else str(CPUSet(cpus.mask & online.mask))
        problem = f"reserved-cpus: {text} is not a subset of online-cpus: {online}"
        raise _Refused(problem, Cause.CPUS_NOT_ONLINE, "reservedSystemCPUs", value=there)
    return cpus


def _amounts(texts: Mapping[str, str], kind: str, older: ReleaseRules) -> dict[str, Quantity]:
    prefix = f"--{kind}-reserved value failed to parse: "
    amounts: dict[str, Quantity] = {}
    for resource in sorted(texts):
        if resource not in RESERVABLE:
            problem = f"{prefix}cannot reserve {quote(resource)} resource"
            raise _Refused(problem, Cause.NOT_RESERVABLE, f"{kind}Reserved", resource)
        try:
            amount = Quantity.parse(texts[resource])
        except QuantitySyntaxError as error:
            raise _Refused(
                f"{prefix}failed to parse quantity {quote(texts[resource])} for {quote(resource)} resource: {error}"
            ) from None
        if amount.nano < 0:
            raise _Refused(f"{prefix}resource quantity for {quote(resource)} cannot be negative: {texts[resource]}")
        if not older.huge_amounts_wrap:
            # Up to v1.37 an amount beyond 64 bits wraps (rule huge-amounts-wrap; spec: preview.md section 7).
            amount = amount.saturated(_MILLI if resource == "cpu" else 10**9)
        fits = older.huge_amounts_wrap or amount.nano <= (INT64_MAX - 500) * 1000
        if resource == "cpu" and fits and not older.reserved_cpu_not_rounded:
            # Rounded up to millionths, then to the nearest thousandth, in 64 bits. Up to v1.36 the amount is kept
            # exactly (rule reserved-cpu-not-rounded; spec: releases.md section 5).
            nearest = int64(amount.micro + 500)
            milli = nearest // 1000 if nearest >= 0 else -(-nearest // 1000)
            amount = Quantity(milli * _MILLI, amount.format, fast=True, scale=-3)
        amounts[resource] = amount
    return amounts


def _memory_eviction(thresholds: Mapping[str, str], memory: int, field: str) -> Quantity | None:
    """Check all thresholds and return that of ``memory.available`` as an amount."""
    found: Quantity | None = None
    for signal in sorted(thresholds):
        if signal not in EVICTION_SIGNALS:
            raise _Refused(f"unsupported eviction signal {signal}")
        text = thresholds[signal]
        amount = _percentage(signal, text, memory, field) if text.endswith("%") else _quantity(text)
        if amount is not None and amount.nano <= 0 and not text.endswith("%"):
            problem = f"eviction threshold {signal} must be positive: {written(text)}"
            raise _Refused(problem, Cause.RESERVATION, field, signal)
        if signal == "memory.available":
            found = amount
    return found


def soft_eviction_fault(config: KubeletConfig, memory: int) -> Fault | None:
    """Return what is wrong with soft thresholds, which the kubelet reads after the managers are built.

    Source: pkg/kubelet/eviction (ParseThresholdConfig), called by pkg/kubelet/kubelet.go; signals in sorted order.
    """
    try:
        _check_soft_eviction(config.checked.values, memory)
    except _Refused as refused:
        return replace(refused.fault, text=f"failed to create kubelet: {refused.fault.text}")
    return None


def _check_soft_eviction(values: Mapping[str, Any], memory: int) -> None:
    soft, periods, reclaims = (
        values.get(name, {}) for name in ("evictionSoft", "evictionSoftGracePeriod", "evictionMinimumReclaim")
    )
    _memory_eviction(soft, memory, "evictionSoft")
    for signal in sorted({*periods, *reclaims} - EVICTION_SIGNALS):
        raise _Refused(f"unsupported eviction signal {signal}")
    for signal in sorted(periods):
        if periods[signal] < 0:
            given = duration_text(periods[signal])
            raise _Refused(f"invalid eviction grace period specified: {given}, must be a positive value")
    for signal in sorted(reclaims):
        text = reclaims[signal]
        if text.endswith("%"):
            if _parse_float(text.rstrip("%")) <= 0:
                raise _Refused(f"eviction percentage minimum reclaim {signal} must be positive: {text}")
        elif _quantity(text).nano < 0:
            raise _Refused(f"negative eviction minimum reclaim specified for {signal}")
    for signal in sorted(soft):
        if signal not in periods and soft[signal] not in _NO_THRESHOLD:
            problem = f"grace period must be specified for the soft eviction threshold {signal}"
            raise _Refused(problem, Cause.RESERVATION, "evictionSoft", signal)


def _percentage(signal: str, text: str, memory: int, field: str) -> Quantity | None:
    if text in _NO_THRESHOLD:
        return None
    percent = _parse_float(text.rstrip("%"))
    share = _float32(percent / 100)
    if not 0 <= share <= 1:
        bound = ">= 0%" if share < 0 else "<= 100%"
        problem = f"eviction percentage threshold {signal} must be {bound}: {text}"
        raise _Refused(problem, Cause.RESERVATION, field, signal)
    return Quantity.of_bytes(int(memory * share))


def _parse_float(text: str) -> float:
    """Read a number as Go's strconv does for 32 bits.

    Go also reads ``nan``, which is refused here: what the kubelet makes of such a threshold depends on the processor.
    """
    found = _FLOAT.fullmatch(text)
    if found is None:
        raise _Refused(f"strconv.ParseFloat: parsing {quote(text)}: invalid syntax")
    digits = text.replace("_", "")
    try:
        value = _float32(float.fromhex(digits) if found["hex"] else float(digits))
    except OverflowError:
        value = math.inf
    if math.isinf(value) and "inf" not in text.lower():
        raise _Refused(f"strconv.ParseFloat: parsing {quote(text)}: value out of range")
    return value


def _float32(value: float) -> float:
    """Round to a 32-bit float, which is what the kubelet keeps a percentage in."""
    rounded: float = struct.unpack("f", struct.pack("f", value))[0]
    return rounded


def _quantity(text: str) -> Quantity:
    try:
        return Quantity.parse(text)
    except QuantitySyntaxError as error:
        raise _Refused(str(error)) from None


def reserved_cpus_errors(given: Given) -> Iterator[str]:
    """Check reservedSystemCPUs, before the machine is read."""
    config = given.config
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


def reserved_memory_errors(given: Given) -> Iterator[str | Fault]:
    """Check reservedMemory, before the machine is read."""
    seen: set[tuple[int, str]] = set()
    for entry in given.config.reserved_memory:
        for resource in sorted(entry.limits):
            if resource != "memory" and not resource.startswith("hugepages-"):
                yield (
                    f"the limit type {quote(resource)} for NUMA node {entry.numa_node} is not supported, "
                    "only [memory hugepages-<HugePageSize>] is accepted"
                )
            try:
                is_zero = Quantity.parse(entry.limits[resource]).is_zero
            except QuantitySyntaxError:
                is_zero = False
            if is_zero:
                text = f"reserved memory may not be zero for NUMA node {entry.numa_node} and resource {quote(resource)}"
                yield Fault(text, field="reservedMemory", names=(resource,), node=entry.numa_node)
            key = (entry.numa_node, resource)
            if key in seen:
                text = (
                    f"the reserved memory has a duplicate value for NUMA node {entry.numa_node} "
                    f"and resource {quote(resource)}"
                )
                yield Fault(text, field="reservedMemory", names=(resource,), node=entry.numa_node)
            seen.add(key)
