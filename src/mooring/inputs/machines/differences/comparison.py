"""Where the kubelet's view of a machine departs from the hardware, in plain words.

The two views are compared as they are, whatever they were read from; nothing here knows why cAdvisor is wrong about a
machine, except where the reason can be named for certain. A *warning* is something that makes the kubelet decide on
wrong facts, *info* something that it leaves out or tells in an unexpected way.
"""

from __future__ import annotations

from collections.abc import Iterator

from mooring.engine.core.hardware import Hardware
from mooring.engine.core.machine import Finding
from mooring.engine.core.machineinfo import MachineInfo
from mooring.inputs.machines.differences.caches import cache_differences
from mooring.inputs.machines.differences.cpus import cpu_differences
from mooring.inputs.machines.differences.kubeletview import kubelet_view, text_of_cpus
from mooring.inputs.machines.differences.nodes import node_differences


def differences(info: MachineInfo, hardware: Hardware) -> tuple[Finding, ...]:
    """Return what the kubelet gets wrong, gravest kind of element first: CPUs, nodes, caches.

    Args:
        info: The kubelet's view.
        hardware: The machine as it is.
    """
    return tuple(_differences(info, hardware))


def _differences(info: MachineInfo, hardware: Hardware) -> Iterator[Finding]:
    view = kubelet_view(info)
    if not view.cores:
        yield _no_topology(info, hardware)
        return
    yield from cpu_differences(view, hardware)
    yield from node_differences(view, hardware)
    yield from cache_differences(view, hardware)


def _no_topology(info: MachineInfo, hardware: Hardware) -> Finding:
    if info.num_cores == 0:
        consequence = "its managers fail with 'could not detect number of cpus'"
    else:
        consequence = f"it counts {info.num_cores} CPUs and can place none of them"
    message = f"The kubelet sees no topology at all; {consequence}."
    return Finding("warning", text_of_cpus(hardware.online), message, "MOOR-401")
