"""Caches: which L3 the kubelet loses, merges or takes for something else.

The kubelet's unit is the uncore id: the id of a core's first uncore cache, or the socket id when it has none. Aligning CPUs by
uncore cache is right exactly where CPUs of one uncore id share one L3.
"""

from __future__ import annotations

from collections.abc import Iterator

from mooring.core.bits import mask_of
from mooring.core.cpuset import CPUSet
from mooring.core.hardware import Hardware
from mooring.core.machine import Finding
from mooring.core.machineinfo import Node
from mooring.discovery.kubeletview import L3_LEVEL, KubeletView, ids_text, parts_text, regrouping, union


def cache_differences(view: KubeletView, hardware: Hardware) -> Iterator[Finding]:
    """Compare L3 and L2 caches."""
    l3 = {cpu.id: cpu.l3 for cpu in hardware.cpus if cpu.l3 is not None}
    listed = any(core.caches or core.uncore_caches for core in view.cores.values())
    if l3 and not listed and not any(node.caches for node in view.info.topology):
        message = (
            "The machine has L3 caches, but the kubelet sees no cache at all (usually because the kernel has no cache/index*/id "
            "file); it takes each socket for one uncore cache."
        )
        yield Finding("warning", "L3", message)
        return
    yield from _lost(view, l3)
    yield from _uncores(view, hardware, l3)
    yield from _node_caches(view, l3)
    yield from _l2(view, hardware)


def _lost(view: KubeletView, l3: dict[int, int]) -> Iterator[Finding]:
    lost = CPUSet.from_ids(cpu for cpu, core in view.cores.items() if cpu in l3 and not _has_l3(view.nodes[cpu], cpu, view))
    if lost:
        yield Finding("warning", f"CPUs {lost}", f"CPUs {lost} have an L3 that the kubelet does not see.")
    without = CPUSet.from_ids(cpu for cpu in view.cores if cpu not in l3)
    if l3 and without:
        message = f"CPUs {without} have no L3; for the kubelet they belong to the uncore cache with the id of their socket."
        yield Finding("info", f"CPUs {without}", message)


def _has_l3(node: Node, cpu: int, view: KubeletView) -> bool:
    core = view.cores[cpu]
    return any(cache.level >= L3_LEVEL for caches in (core.uncore_caches, node.caches) for cache in caches)
