"""The kubelet's view of a machine laid open by CPU, for comparison with the hardware.

Descriptions of machines that no cAdvisor writes, and what the kubelet makes of them.

Source: kubelet v1.37.1, cm/cpumanager/topology; spec: topology.md section 1.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable, Iterable, Iterator, Mapping
from itertools import islice
from typing import Final

from mooring.engine.core.bits import list_text, mask_of
from mooring.engine.core.cpuset import CPUSet
from mooring.engine.core.machine import Finding
from mooring.engine.core.machineinfo import Core, MachineInfo, NUMANode
from mooring.lazy import dataclass

L3_LEVEL: Final = 3
"""Caches from this level on are node or uncore caches."""


@dataclass(frozen=True, slots=True)
class KubeletView:
    """Where the kubelet takes each CPU to be. A CPU listed twice is where it was listed last, as in the kubelet."""

    info: MachineInfo
    nodes: Mapping[int, NUMANode]
    """CPU -> its NUMA node."""
    cores: Mapping[int, Core]
    """CPU -> its core."""
    core_ids: Mapping[int, int]
    """CPU -> the kubelet's id of its core, which is the core's smallest CPU."""
    listed_again: CPUSet
    """CPUs that are listed in more than one place."""

    @property
    def cpus(self) -> CPUSet:
        """All CPUs that are listed."""
        return CPUSet.from_ids(self.cores)

    @property
    def uncores(self) -> dict[int, int]:
        """CPU -> uncore id: that of the core's first uncore cache, else the socket id (spec: topology.md section 2)."""
        return {
            cpu: core.uncore_caches[0].id if core.uncore_caches else core.socket_id for cpu, core in self.cores.items()
        }


def kubelet_view(info: MachineInfo) -> KubeletView:
    """Lay a description open by CPU."""
    nodes: dict[int, NUMANode] = {}
    cores: dict[int, Core] = {}
    core_ids: dict[int, int] = {}
    again: set[int] = set()
    for node in info.topology:
        for core in node.cores:
            first = min(core.thread_ids, default=0)
            for cpu in core.thread_ids:
                if cpu in cores:
                    again.add(cpu)
                nodes[cpu], cores[cpu], core_ids[cpu] = node, core, first
    return KubeletView(info, nodes, cores, core_ids, CPUSet.from_ids(again))


def regrouped(
    kubelet: Mapping[int, Hashable], real: Mapping[int, Hashable], merged: tuple[str, str], divided: tuple[str, str]
) -> Iterator[Finding]:
    """Yield warnings where two groupings of CPUs differ.

    Args:
        kubelet: CPU -> its group for the kubelet.
        real: CPU -> its group on the machine.
        merged: code and message where the kubelet treats several groups as one. The message has no full stop; in it
            ``{group}``, ``{count}`` and ``{parts}`` are filled in from the first of several cases.
        divided: the same, where the kubelet treats one group as several.

    >>> merged, divided = ("1", "{group} is {count}: {parts}"), ("2", "")
    >>> [one.message for one in regrouped({0: "a", 1: "a", 2: "b"}, {0: 0, 1: 1, 2: 2}, merged, divided)]
    ['a is 2: 0 and 1.']
    """
    cells: dict[tuple[Hashable, Hashable], list[int]] = defaultdict(list)
    for cpu in sorted(kubelet.keys() & real.keys()):
        cells[kubelet[cpu], real[cpu]].append(cpu)
    for side, (code, message) in enumerate((merged, divided)):
        parts_of: dict[Hashable, list[CPUSet]] = defaultdict(list)
        for groups, cpus in cells.items():
            parts_of[groups[side]].append(CPUSet.from_ids(cpus))
        several = {group: parts for group, parts in parts_of.items() if len(parts) > 1}
        for group, parts in list(several.items())[:1]:
            shown = " and ".join(map(str, parts[:4])) + (f" and {len(parts) - 4} more" if len(parts) > 4 else "")
            text = message.format(group=group, count=len(parts), parts=shown)
            whole = text_of_cpus(CPUSet.from_ids(cpu for some in several.values() for part in some for cpu in part))
            yield Finding("warning", whole, f"{text}{likewise(len(several))}.", code)


def likewise(count: int) -> str:
    """Return what follows the description of the first of several groups.

    >>> likewise(2), likewise(1)
    (' (and 1 more case)', '')
    """
    return f" (and {count - 1} more case{'s' if count > 2 else ''})" if count > 1 else ""


def text_of_cpus(cpus: CPUSet) -> str:
    """Return the CPUs as a person writes them.

    >>> text_of_cpus(CPUSet.of(3)), text_of_cpus(CPUSet.of(3, 4))
    ('CPU 3', 'CPUs 3-4')
    """
    return f"CPU{'s' if len(cpus) > 1 else ''} {cpus}"


def text_of_nodes(ids: Iterable[int]) -> str:
    """Return the nodes as a person writes them.

    >>> text_of_nodes([2]), text_of_nodes([2, 1, 0])
    ('NUMA node 2', 'NUMA nodes 0-2')
    """
    distinct = set(ids)
    return f"NUMA node{'s' if len(distinct) > 1 else ''} {ids_text(distinct)}"


def ids_text(ids: Iterable[int]) -> str:
    """Return node ids as a list with runs, negative ones first.

    >>> ids_text([2, 0, 1, -1])
    '-1,0-2'
    """
    distinct = set(ids)
    negative = [str(number) for number in sorted(distinct) if number < 0]
    runs = list_text(mask_of(number for number in distinct if number >= 0))
    return ",".join(part for part in (*negative, runs) if part)


_MOST_REPORTED: Final = 20


def oddities(info: MachineInfo, prefix: str = "") -> dict[str, str]:
    """Return the paths of odd fields, with what the kubelet makes of each.

    Args:
        info: the description.
        prefix: of every path.

    >>> oddities(MachineInfo(0, 0, 0, ()))
    {'topology': 'there are no CPUs: the kubelet does not start'}
    """
    return {} if _is_ordinary(info) else dict(islice(_found(info, prefix), _MOST_REPORTED))


def _is_ordinary(info: MachineInfo) -> bool:
    """Tell whether there are no oddities, at less cost than looking for them: publishers' facts are read often."""
    cores = [core for node in info.topology for core in node.cores]
    cpus = [cpu for core in cores for cpu in core.thread_ids]
    nodes = {node.node_id for node in info.topology}
    return (
        len(cpus) == len(set(cpus)) > 0
        and len(nodes) == len(info.topology)
        and min((core.core_id for core in cores), default=0) >= 0
    )


def _found(info: MachineInfo, prefix: str) -> Iterator[tuple[str, str]]:
    """Yield the odd fields one after another."""
    nodes: set[int] = set()
    cpus: set[int] = set()
    for index, node in enumerate(info.topology):
        field = f"{prefix}topology[{index}]"
        if node.node_id in nodes:
            problem = f"NUMA node {node.node_id} is there twice: the kubelet adds its CPUs up and takes the last memory"
            yield f"{field}.node_id", problem
        nodes.add(node.node_id)
        for position, core in enumerate(node.cores):
            inner = f"{field}.cores[{position}]"
            if core.core_id < 0:
                yield f"{inner}.core_id", f"{core.core_id} is negative: the kubelet numbers cores by their first CPU"
            again = sorted(cpus & set(core.thread_ids))
            if again:
                yield f"{inner}.thread_ids", f"CPU {again[0]} is in another core, too: the kubelet keeps the last"
            cpus.update(core.thread_ids)
    if not cpus:
        problem = "there are no CPUs: " + (
            "the kubelet starts and its managers find none" if info.num_cores else "the kubelet does not start"
        )
        yield f"{prefix}topology", problem
