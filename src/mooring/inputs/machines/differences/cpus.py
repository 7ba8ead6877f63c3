"""CPUs, cores and sockets: which the kubelet misses, counts twice, merges or divides."""

from __future__ import annotations

from collections.abc import Iterator

from mooring.engine.core.hardware import Hardware
from mooring.engine.core.machine import Finding
from mooring.inputs.machines.differences.kubeletview import KubeletView, about_cpus, regrouped


def cpu_differences(view: KubeletView, hardware: Hardware) -> Iterator[Finding]:
    """Compare which CPUs there are, and how they form cores and sockets."""
    yield from _presence(view, hardware)
    yield from _permission(view, hardware)
    yield from _cores(view, hardware)
    yield from _sockets(view, hardware)
    yield from _unknown_levels(hardware)


def _presence(view: KubeletView, hardware: Hardware) -> Iterator[Finding]:
    listed = view.cpus
    yield from about_cpus(
        hardware.online - listed, "MOOR-402", "The kubelet does not see {}, which the kernel has online."
    )
    yield from about_cpus(
        view.listed_again,
        "MOOR-403",
        "The kubelet counts {} once for each place that lists them, and keeps the last place.",
    )
    yield from about_cpus(
        listed & hardware.offline,
        "MOOR-404",
        "The kubelet gives {} to containers, although the kernel has them offline.",
    )
    yield from about_cpus(
        listed - hardware.online - hardware.offline,
        "MOOR-405",
        "The kubelet lists {}, which the machine does not have.",
    )
    if view.info.num_cores != len(hardware.online):
        message = (
            f"The kubelet counts {view.info.num_cores} CPUs where {len(hardware.online)} are online; "
            "its averages for cores and sockets and the node's capacity come from that count."
        )
        yield Finding("warning", "num_cores", message, "MOOR-406")


def _permission(view: KubeletView, hardware: Hardware) -> Iterator[Finding]:
    usable = view.cpus & hardware.online
    yield from about_cpus(
        usable - hardware.allowed,
        "MOOR-407",
        "The kubelet assigns {}, although the cpuset in force does not allow them.",
    )
    yield from about_cpus(
        usable & hardware.isolated,
        "MOOR-408",
        "The kubelet treats {} like any other, although the kernel keeps them out of scheduling (isolcpus).",
    )


def _cores(view: KubeletView, hardware: Hardware) -> Iterator[Finding]:
    real = {cpu.id: cpu.core for cpu in hardware.cpus if cpu.core is not None}
    merged = (
        "The kubelet treats {count} cores as one, its core {group}, because their core and package ids are equal: "
        "those with CPUs {parts}"
    )
    divided = (
        "The kubelet treats one core as {count}, so its threads are not kept together: core {group} for those "
        "with CPUs {parts}"
    )
    yield from regrouped(view.core_ids, real, ("MOOR-409", merged), ("MOOR-410", divided))
    count = len(set(real.values()))
    if real and view.info.num_physical_cores != count:
        message = f"num_physical_cores is {view.info.num_physical_cores}, the machine has {count}; no manager reads it."
        yield Finding("info", "num_physical_cores", message, "MOOR-411")


def _sockets(view: KubeletView, hardware: Hardware) -> Iterator[Finding]:
    real = {cpu.id: cpu.package_first_cpu for cpu in hardware.cpus if cpu.package_first_cpu is not None}
    yield from regrouped(
        {cpu: core.socket_id for cpu, core in view.cores.items()},
        real,
        ("MOOR-412", "The kubelet treats {count} packages as one socket, {group}: those with CPUs {parts}"),
        ("MOOR-413", "The kubelet treats one package as {count} sockets: those with CPUs {parts}"),
    )
    count = len(set(real.values()))
    if real and view.info.num_sockets != count:
        message = (
            f"num_sockets is {view.info.num_sockets}, the machine has {count}; the kubelet's CPUs per socket, and "
            "whether it takes NUMA nodes or sockets first, follow from that count."
        )
        yield Finding("warning", "num_sockets", message, "MOOR-414")
    negative = sorted({core.socket_id for core in view.cores.values() if core.socket_id < 0})
    if negative:
        ids = ", ".join(str(number) for number in negative)
        message = f"The kernel does not know the packages: the kubelet has socket id {ids}."
        yield Finding("info", "sockets", message, "MOOR-415")


def _unknown_levels(hardware: Hardware) -> Iterator[Finding]:
    """Tell which levels of the machine the kubelet has no notion of."""
    if len(hardware.kinds) > 1:
        kinds = "; ".join(str(kind.cpus) for kind in hardware.kinds)
        message = f"The kubelet treats {len(hardware.kinds)} kinds of cores as equal (CPUs, slowest first: {kinds})."
        yield Finding("info", "core kinds", message, "MOOR-416")
    dies = {cpu.die for cpu in hardware.cpus if cpu.die is not None}
    packages = {cpu.package_first_cpu for cpu in hardware.cpus}
    if len(dies) > len(packages):
        message = f"The kubelet does not know the {len(dies)} dies of the packages."
        yield Finding("info", "dies", message, "MOOR-417")
    clusters = {cpu.cluster for cpu in hardware.cpus if cpu.cluster is not None}
    if clusters:
        message = f"The kubelet does not know that the cores form {len(clusters)} clusters."
        yield Finding("info", "clusters", message, "MOOR-418")
