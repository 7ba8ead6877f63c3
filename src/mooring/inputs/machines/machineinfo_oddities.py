"""Descriptions of machines that no cAdvisor writes, and what the kubelet makes of them.

Source: kubelet v1.37.1, cm/cpumanager/topology; spec: topology.md section 1.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from typing import Final

from mooring.engine.core.machineinfo import MachineInfo

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
