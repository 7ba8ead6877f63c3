"""Claims to CPUs: allocated, kept, and released.

The kubelet has nothing of this: its CPU manager does not know of dynamic resource allocation. Here a claim is an owner
in the CPU manager's ledger (:mod:`mooring.engine.extensions.owners`), so that pods and claims can never be given the
same
CPU. A scheduler has chosen the devices, which are groups of CPUs; which CPUs of a group become the claim's is chosen by
the rules by which the node takes CPUs for pods.

A claim has all of its shares or none. It never takes reserved CPUs and never the last CPU of the shared pool.
"""

from __future__ import annotations

from mooring.engine.core.bits import NO_CPUS, CPUMask, list_text
from mooring.engine.core.decision import AllocationError, Endless, Observer, Rejection
from mooring.engine.cpumanager.facts import CPUsAssigned
from mooring.engine.cpumanager.policy import StaticPolicy, available_cpus
from mooring.engine.cpumanager.state import CPUState
from mooring.engine.cpumanager.static import SMT_ALIGNMENT_ERROR
from mooring.engine.cpumanager.take import take
from mooring.engine.extensions.offline import effective_pool
from mooring.engine.extensions.owners import claim_key, claim_of, entry_of
from mooring.engine.extensions.scale_down import release as release_cpus
from mooring.engine.node.node import Node
from mooring.lazy import dataclass, replace

NO_CPU_MANAGER = "CPUManagerPolicyNone"
CLAIM_CHANGED = "ClaimChanged"
INSUFFICIENT_CPUS = "InsufficientCPUs"
POOL_WOULD_BE_EMPTY = "EmptySharedPool"


@dataclass(frozen=True, slots=True)
class Share:
    """What a request of a claim is to have of one device."""

    request: str
    device: str
    count: int
    """CPUs; at least one."""
    within: CPUMask
    """Mask of the device's CPUs."""
    wished: CPUMask = NO_CPUS
    """Mask of the CPUs that it had before the state was lost; taken where they are free, as many and allowed."""
    numa_nodes: int = 0
    """Number of NUMA nodes over which the CPUs are evenly distributed; 0: by the node's options."""


@dataclass(frozen=True, slots=True)
class Claim:
    """A claim to CPUs, for which devices are allocated."""

    uid: str
    namespace: str
    name: str
    shares: tuple[Share, ...]
    """Pairs of request and device that differ."""


def claim(node: Node, asked: Claim, observer: Observer | None = None) -> tuple[Node, Rejection | None]:
    """Give a claim its CPUs; one that has them keeps them.

    Args:
        node: before.
        asked: with at least one share.
        observer: hears what was assigned.

    Returns:
        The node with the claim among its owners, or the same node and why not.
    """
    held = claim_of(node.cpu, asked.uid)
    if held is not None:
        wanted = {(share.device, share.request): share for share in asked.shares}
        if wanted.keys() == held.shares.keys() and all(
            cpus.bit_count() == wanted[key].count and not cpus & ~wanted[key].within
            for key, cpus in held.shares.items()
        ):
            return node, None
        text = f"the claim has CPUs {list_text(held.cpus)} by another allocation and has to release them first"
        return node, Rejection(CLAIM_CHANGED, text)
    policy = node.settings.cpu
    if policy is None:
        text = "the CPU manager's policy is none, so no CPU can be exclusive"
        return node, Rejection(NO_CPU_MANAGER, text)
    state, owner = node.cpu, claim_key(asked.uid)
    for share in asked.shares:
        taken = _taken(policy, state, share)
        if isinstance(taken, Rejection):
            return node, taken
        entry = entry_of(asked.namespace, asked.name, share.device, share.request)
        entries = {**state.assignments.get(owner, {}), entry: CPUMask(taken)}
        assignments = {**state.assignments, owner: entries}
        state = replace(state, default=state.default & ~taken, assignments=assignments)
    if not effective_pool(state):
        text = "the claim would take the last CPU of the shared pool"
        return node, Rejection(POOL_WOULD_BE_EMPTY, text)
    if observer is not None:
        for entry, cpus in sorted(state.assignments[owner].items()):
            observer(CPUsAssigned(owner, entry, cpus, state.held, state))
    return node.with_cpu(state), None


def release(node: Node, uid: str, observer: Observer | None = None) -> Node:
    """Return the node after a claim released everything; the same node when it had nothing."""
    policy, owner = node.settings.cpu, claim_key(uid)
    entries = node.cpu.assignments.get(owner)
    if policy is None or entries is None:
        return node
    state = node.cpu
    for entry in sorted(entries):
        state = release_cpus(policy, state, owner, entry, observer)
    return node.with_cpu(state)


def claimable(node: Node) -> int:
    """Return the mask of CPUs that claims could be given now, all of them but the pool's last."""
    policy = node.settings.cpu
    return 0 if policy is None else available_cpus(policy, node.cpu)


def _taken(policy: StaticPolicy, state: CPUState, share: Share) -> int | Rejection:
    """Choose CPUs of the device."""
    free = available_cpus(policy, state) & share.within
    group = policy.group_size
    whole = policy.rules.whole_cores
    if whole and share.count % group:
        text = f"SMT Alignment Error: requested {share.count} cpus not multiple cpus per core = {group}"
        return Rejection(SMT_ALIGNMENT_ERROR, text)
    wished = share.wished
    is_whole = not whole or policy.topology.core_siblings(wished) == wished
    if wished.bit_count() == share.count and not wished & ~free and is_whole:
        return wished
    if share.count > free.bit_count():
        text = f"device {share.device} has {free.bit_count()} free CPUs of the {share.count} requested"
        return Rejection(INSUFFICIENT_CPUS, text)
    rules = policy.rules
    if share.numa_nodes:
        rules = replace(rules, distribute=True, older=replace(rules.older, distribute_ignores_hint_width=False))
    taken = take(policy.topology, free, share.count, rules, width=share.numa_nodes)
    if isinstance(taken, AllocationError):
        return Rejection(INSUFFICIENT_CPUS, f"device {share.device}: {taken.message}")
    if isinstance(taken, Endless):
        text = f"device {share.device}: the choice would never end (defect {taken.defect})"
        return Rejection(INSUFFICIENT_CPUS, text)
    if whole and policy.topology.core_siblings(taken) != taken:
        text = f"device {share.device} has no {share.count} free CPUs on whole cores"
        return Rejection(SMT_ALIGNMENT_ERROR, text)
    if share.numa_nodes:
        parts = [(taken & node).bit_count() for node in policy.topology.numa.values() if taken & node]
        if len(parts) != share.numa_nodes or max(parts) - min(parts) > (group if whole else 1):
            text = f"device {share.device} cannot give {share.count} CPUs evenly of {share.numa_nodes} NUMA nodes"
            return Rejection(INSUFFICIENT_CPUS, text)
    return taken
