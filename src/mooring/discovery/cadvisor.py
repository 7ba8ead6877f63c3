"""The machine as the kubelet is told about it: what cAdvisor reads from sysfs and /proc, gaps and mistakes included.

Source: cAdvisor library 0.60.5, machine.Info, the version in kubelet v1.37.1; spec: topology.md section 3. No rule here
knows a machine; where cAdvisor is wrong about one, the same rule makes the same mistake.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Final

from mooring.core.machineinfo import MachineInfo, Node
from mooring.discovery.architecture import architecture
from mooring.discovery.cadvisor_counts import clock_speed, distinct_elements, vendor
from mooring.discovery.cadvisor_memory import huge_pages, memory_by_type, memory_capacity, swap_capacity
from mooring.discovery.cadvisor_topology import TopologyReader, read_topology
from mooring.discovery.online import online_cpus
from mooring.discovery.probe import ProbeError, read_or_fail
from mooring.discovery.tree import Tree

_LONGEST_ERROR: Final = 160
"""cAdvisor quotes whole files in some errors; more than this is cut, so that an error stays one readable line."""


@dataclass(frozen=True, slots=True)
class CadvisorAnswer:
    """What cAdvisor says about a machine."""

    info: MachineInfo
    """The description; with ``info_error`` only the parts that can be had: counts, memory and topology."""
    info_error: str = ""
    """cAdvisor's error when it cannot describe the machine at all; a kubelet does not start then."""
    topology_error: str = ""
    """Why there is no topology although the description succeeds; the kubelet's managers then fail on 0 CPUs."""


def read_machine_info(tree: Tree) -> CadvisorAnswer:
    """Return the kubelet's view of the machine whose files are in ``tree``.

    Never fails for what the files hold or lack: what cAdvisor would fail on becomes ``info_error`` or
    ``topology_error``.
    """
    machine = architecture(tree)
    is_s390x = machine == "s390x"
    online = online_cpus(tree)
    cpuinfo = tree.read("proc/cpuinfo") or ""
    topology: tuple[Node, ...] = ()
    num_cores, topology_error = 0, ""
    try:
        topology, num_cores = read_topology(TopologyReader(tree, online, is_s390x=is_s390x))
    except ProbeError as error:
        topology_error = _shortened(str(error))

    def count(attribute: str) -> int:
        return distinct_elements(tree, cpuinfo, online, attribute)

    parts = MachineInfo(
        num_cores=num_cores,
        num_sockets=count("physical_package_id"),
        memory_capacity=_value_or_zero(tree, memory_capacity),
        topology=topology,
        num_physical_cores=count("core_id"),
        vendor_id=vendor(cpuinfo),
        num_books=count("book_id") if is_s390x else 0,
        num_drawers=count("drawer_id") if is_s390x else 0,
    )
    try:
        info = _complete(tree, machine, parts)
    except ProbeError as error:
        return CadvisorAnswer(parts, info_error=_shortened(str(error)), topology_error=topology_error)
    return CadvisorAnswer(info, topology_error=topology_error)


def _complete(tree: Tree, machine: str, parts: MachineInfo) -> MachineInfo:
    """Add what only a successful description has. The order decides which of several errors is reported.

    Raises:
        ProbeError: cAdvisor cannot describe the machine.
    """
    cpuinfo = read_or_fail(tree, "proc/cpuinfo")
    frequency = clock_speed(tree, cpuinfo, machine)
    memory = memory_capacity(tree)
    modules = memory_by_type(tree)
    swap = swap_capacity(tree)
    pools = huge_pages(tree, "sys/kernel/mm/hugepages")
    return replace(
        parts,
        memory_capacity=memory,
        hugepages=pools,
        cpu_frequency_khz=frequency,
        swap_capacity=swap,
        memory_by_type=modules,
    )


def _value_or_zero(tree: Tree, read: Callable[[Tree], int]) -> int:
    try:
        return read(tree)
    except ProbeError:
        return 0


def _shortened(text: str) -> str:
    return text if len(text) <= _LONGEST_ERROR else f"{text[:_LONGEST_ERROR]}..."
