"""What a configuration guarantees to every container that it admits, and what another configuration no longer does.

Good placement by luck is no guarantee: the topology manager policies ``none`` and ``best-effort`` give none.
Source: the policies and options of kubelet v1.37.1 (docs/reference/configuration.md).
"""

from __future__ import annotations

from enum import Enum, IntEnum

from mooring.engine.core.config import KubeletConfig, with_defaults
from mooring.engine.core.gotext import GoSyntaxError, parse_bool
from mooring.engine.cpumanager.options import ALIGN_BY_SOCKET, FULL_PCPUS_ONLY, STRICT_RESERVATION
from mooring.engine.topologymanager.merge import BEST_EFFORT, RESTRICTED, SINGLE_NUMA_NODE


class Guarantee(Enum):
    """What a container can rely on; the value is its name in words."""

    EXCLUSIVE = "exclusive CPUs"
    """Of the static CPU manager policy, for whole CPUs in Guaranteed pods."""
    MEMORY = "memory of its own NUMA nodes"
    """Of the Static memory manager policy, for Guaranteed pods."""
    ALIGNED = "NUMA alignment"
    """The fewest NUMA nodes that could hold the request, or with ``align-by-socket`` sockets."""
    ONE_NODE = "one NUMA node"
    """Of single-numa-node."""
    CPU_NODES = "CPUs aligned to NUMA nodes"
    """Without ``align-by-socket``, which aligns them to sockets."""
    POD = "the same NUMA nodes for all containers of a pod"
    """Of the scope ``pod``."""
    WHOLE_CORES = "whole cores"
    """Of ``full-pcpus-only``."""
    RESERVED = "reserved CPUs that no container uses"
    """Of ``strict-cpu-reservation``."""


def guarantees(config: KubeletConfig) -> frozenset[Guarantee]:
    """Return what a configuration guarantees.

    >>> sorted(found.value for found in guarantees(KubeletConfig(topology_manager_policy="best-effort")))
    []
    """
    config = with_defaults(config)
    options = config.cpu_manager_policy_options if config.cpu_manager_policy == "static" else {}
    on = {name for name, text in options.items() if is_on(text)}
    aligns = config.topology_manager_policy in (RESTRICTED, SINGLE_NUMA_NODE)
    given = {
        Guarantee.EXCLUSIVE: config.cpu_manager_policy == "static",
        Guarantee.MEMORY: config.memory_manager_policy == "Static",
        Guarantee.ALIGNED: aligns,
        Guarantee.ONE_NODE: config.topology_manager_policy == SINGLE_NUMA_NODE,
        Guarantee.CPU_NODES: aligns and config.cpu_manager_policy == "static" and ALIGN_BY_SOCKET not in on,
        Guarantee.POD: aligns and config.topology_manager_scope == "pod",
        Guarantee.WHOLE_CORES: FULL_PCPUS_ONLY in on,
        Guarantee.RESERVED: STRICT_RESERVATION in on,
    }
    return frozenset(one for one, is_given in given.items() if is_given)


class AlignmentPromise(IntEnum):
    """What a topology manager policy promises about alignment."""

    NOTHING = 0
    """``none`` uses no hints: alignment is luck."""
    ATTEMPT = 1
    """``best-effort`` prefers aligned placement, and admits every other."""
    SOCKET = 2
    """``restricted`` with ``align-by-socket`` rejects what is not aligned to sockets."""
    GUARANTEE = 3
    """``restricted`` and ``single-numa-node`` reject what is not aligned."""


def alignment_promise(config: KubeletConfig) -> AlignmentPromise:
    """Return what a configuration promises about the alignment of CPUs, memory and devices to NUMA nodes.

    >>> alignment_promise(KubeletConfig(topology_manager_policy="best-effort")).name
    'ATTEMPT'
    """
    held = guarantees(config)
    if Guarantee.ALIGNED in held:
        by_socket = Guarantee.EXCLUSIVE in held and Guarantee.CPU_NODES not in held
        return AlignmentPromise.SOCKET if by_socket else AlignmentPromise.GUARANTEE
    policy = with_defaults(config).topology_manager_policy
    return AlignmentPromise.ATTEMPT if policy == BEST_EFFORT else AlignmentPromise.NOTHING


IMPLIED = {
    Guarantee.EXCLUSIVE: frozenset({Guarantee.CPU_NODES, Guarantee.WHOLE_CORES, Guarantee.RESERVED}),
    Guarantee.ALIGNED: frozenset({Guarantee.ONE_NODE, Guarantee.CPU_NODES, Guarantee.POD}),
}
"""Guarantee -> guarantees that do not exist without it."""


def given_up(before: KubeletConfig, after: KubeletConfig) -> tuple[Guarantee, ...]:
    """Return what is guaranteed before and not after, the weightiest first, without what that implies.

    >>> single, restricted = (KubeletConfig(topology_manager_policy=one) for one in ("single-numa-node", "restricted"))
    >>> [one.value for one in (*given_up(single, KubeletConfig()), *given_up(single, restricted))]
    ['NUMA alignment', 'one NUMA node']
    """
    lost = guarantees(before) - guarantees(after)
    implied = frozenset[Guarantee]().union(*(IMPLIED.get(one, ()) for one in lost))
    return tuple(one for one in Guarantee if one in lost - implied)


def is_on(text: str) -> bool:
    """Tell whether the text of an option is one of the kubelet's forms of true.

    >>> is_on("1"), is_on("false"), is_on("")
    (True, False, False)
    """
    try:
        return parse_bool(text)
    except GoSyntaxError:
        return False
