"""CPUs, cores and sockets: which the kubelet misses, counts twice, merges or divides."""

from __future__ import annotations

from collections.abc import Iterator

from mooring.core.hardware import Hardware
from mooring.core.machine import Finding
from mooring.discovery.kubeletview import KubeletView, ids_text, parts_text, regrouping, union


def cpu_differences(view: KubeletView, hardware: Hardware) -> Iterator[Finding]:
    """Compare which CPUs there are, and how they form cores and sockets."""
    yield from _presence(view, hardware)
    yield from _permission(view, hardware)
    yield from _cores(view, hardware)
    yield from _sockets(view, hardware)
    yield from _kinds(hardware)


def _presence(view: KubeletView, hardware: Hardware) -> Iterator[Finding]:
    missing = hardware.online - view.cpus
    if missing:
        message = f"CPUs {missing} are online, but the kubelet does not see them and never uses them."
        yield Finding("warning", f"CPUs {missing}", message)
    if view.listed_again:
        message = f"CPUs {view.listed_again} are listed in several places; the kubelet counts them each time and keeps the last."
        yield Finding("warning", f"CPUs {view.listed_again}", message)
    offline = view.cpus & hardware.offline
    if offline:
        yield Finding("warning", f"CPUs {offline}", f"CPUs {offline} are offline, but the kubelet gives them to containers.")
    unknown = view.cpus - hardware.online - hardware.offline
    if unknown:
        yield Finding("warning", f"CPUs {unknown}", f"CPUs {unknown} are listed, but the machine has no such CPUs.")
    if view.info.num_cores != len(hardware.online):
        message = (
            f"The kubelet counts {view.info.num_cores} CPUs where {len(hardware.online)} are online; "
            "its averages for cores and sockets and the node's capacity come from that count."
        )
        yield Finding("warning", "num_cores", message)


def _permission(view: KubeletView, hardware: Hardware) -> Iterator[Finding]:
    forbidden = (view.cpus & hardware.online) - hardware.allowed
    if forbidden:
        message = f"CPUs {forbidden} are outside the cpuset in force; the kubelet ignores cpusets and hands them out."
        yield Finding("warning", f"CPUs {forbidden}", message)
    isolated = view.cpus & hardware.isolated
    if isolated:
        message = f"CPUs {isolated} are kept out of scheduling by the kernel (isolcpus); the kubelet does not know and shares them."
        yield Finding("warning", f"CPUs {isolated}", message)


def _cores(view: KubeletView, hardware: Hardware) -> Iterator[Finding]:
    real = {cpu.id: cpu.core for cpu in hardware.cpus if cpu.core is not None}
    found = regrouping(view.core_ids, real)
    if found.merged:
        core, parts = next(iter(found.merged.items()))
        cpus = union(found.merged)
        message = (
            f"{len(found.merged)} of the kubelet's cores are several real ones each (equal core and package ids): "
            f"its core {core} is the cores with CPUs {parts_text(parts)}."
        )
        yield Finding("warning", f"CPUs {cpus}", message)
    if found.divided:
        core, parts = next(iter(found.divided.items()))
        cpus = union(found.divided)
        message = (
            f"{len(found.divided)} cores are taken apart by the kubelet, so that whole cores cannot be kept together: "
            f"core {core} into CPUs {parts_text(parts)}."
        )
        yield Finding("warning", f"CPUs {cpus}", message)
    count = len(set(real.values()))
    if real and view.info.num_physical_cores != count:
        message = f"num_physical_cores is {view.info.num_physical_cores}, the machine has {count}; no manager reads it."
        yield Finding("info", "num_physical_cores", message)


def _sockets(view: KubeletView, hardware: Hardware) -> Iterator[Finding]:
    real = {cpu.id: cpu.package_first_cpu for cpu in hardware.cpus if cpu.package_first_cpu is not None}
    found = regrouping({cpu: core.socket_id for cpu, core in view.cores.items()}, real)
    if found.merged:
        socket, parts = next(iter(found.merged.items()))
        message = (
            f"{len(found.merged)} of the kubelet's sockets are several packages each: "
            f"socket {socket} is the packages with CPUs {parts_text(parts)}."
        )
        yield Finding("warning", f"CPUs {union(found.merged)}", message)
    if found.divided:
        first, parts = next(iter(found.divided.items()))
        message = (
            f"{len(found.divided)} packages are taken apart by the kubelet: the package of CPU {first} into sockets "
            f"with CPUs {parts_text(parts)}."
        )
        yield Finding("warning", f"CPUs {union(found.divided)}", message)
    count = len(set(real.values()))
    if real and view.info.num_sockets != count:
        message = (
            f"The kubelet counts {view.info.num_sockets} sockets where there are {count}; "
            "CPUs per socket, and whether NUMA nodes or sockets are taken first, follow from that count."
        )
        yield Finding("warning", "num_sockets", message)
    negative = {core.socket_id for core in view.cores.values() if core.socket_id < 0}
    if negative:
        yield Finding("info", "sockets", f"Socket ids {ids_text(negative)} are negative: the kernel does not know the packages.")


def _kinds(hardware: Hardware) -> Iterator[Finding]:
    if len(hardware.kinds) > 1:
        kinds = "; ".join(f"CPUs {kind.cpus}" for kind in hardware.kinds)
        message = f"The machine has {len(hardware.kinds)} kinds of cores (slowest first: {kinds}); the kubelet takes them for equal."
        yield Finding("info", "core kinds", message)
    dies = {cpu.die for cpu in hardware.cpus if cpu.die is not None}
    packages = {cpu.package_first_cpu for cpu in hardware.cpus}
    if len(dies) > len(packages):
        yield Finding("info", "dies", f"The packages have {len(dies)} dies in all; the kubelet does not know dies.")
    clusters = {cpu.cluster for cpu in hardware.cpus if cpu.cluster is not None}
    if clusters:
        yield Finding("info", "clusters", f"The cores form {len(clusters)} clusters; the kubelet does not know clusters.")
