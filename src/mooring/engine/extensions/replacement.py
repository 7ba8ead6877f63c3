"""Which CPUs replace those that an owner lost (extension cpu-hotplug).

They are taken by the policy's own rules around those that the owner keeps, from the NUMA nodes of its CPUs or from
anywhere, as the configuration says. Where whole cores are handed out a core with an offline CPU is given up as a whole,
and only whole cores replace them.

The hint that the topology manager stored does not count: no file has it, so that a restart would change which CPUs
replace which.
"""

from __future__ import annotations

from collections.abc import Mapping

from mooring.engine.core.bits import CPUMask, NUMAMask, list_text, members
from mooring.engine.core.config import NEVER, SAME_NODES
from mooring.engine.core.pod import Pod
from mooring.engine.cpumanager.options import TakeError
from mooring.engine.cpumanager.policy import StaticPolicy, available_cpus
from mooring.engine.cpumanager.state import CPUState
from mooring.engine.extensions.choosing import usable_cpus
from mooring.engine.extensions.cpu_resize import taken_around
from mooring.engine.extensions.offline import backwards, effective_pool, exchanged, sets_of, with_exchange
from mooring.engine.extensions.owners import OwnerKind, state_owner
from mooring.lazy import replace


def replaced(
    policy: StaticPolicy, state: CPUState, owner: str, rule: str, pod: Pod | None = None
) -> tuple[CPUState, dict[int, int], dict[str, str]]:
    """Return the state with the offline CPUs of one owner replaced, as far as that can be.

    Args:
        policy: the policy.
        state: before.
        owner: uid of a pod, or a claim's name in the state.
        rule: ``never``, ``same-nodes`` or ``anywhere``.
        pod: the owner, where it is known: plugins may withhold CPUs from it.

    Returns:
        The state, the CPUs that the owner had with those that it has instead, and by container why nothing replaces
        what it lost; the partition of a pod is under the empty name.
    """
    sets = sets_of(state, owner)
    # What is inside a pod's partition follows it.
    names = [""] if "" in sets else sorted(sets, key=lambda name: (-sets[name].bit_count(), name))
    pairs: dict[int, int] = {}
    refused: dict[str, str] = {}
    for name in names:
        cpus = sets_of(state, owner)[name]
        if not cpus & state.offline:
            continue
        nodes = nodes_of(policy, state, owner, name)
        pool = available_cpus(policy, state)
        if pod is not None:
            pool = usable_cpus(policy, state, pool, pod, name, (cpus & state.offline).bit_count())
        found = _stand_ins(policy, state, owner, cpus, pool, nodes, rule)
        if isinstance(found, str):
            refused[name] = found
            continue
        lost, taken = (sum(1 << cpu for cpu in cpus) for cpus in (found, found.values()))
        known = state.displaced.get(owner, {})
        # A stand-in that is lost itself is forgotten: what counts is which CPU the owner had at first.
        at_first = {stand_in: cpu for cpu, stand_in in known.items()}
        merged = {**known, **{at_first.get(before, before): after for before, after in found.items()}}
        state = replace(
            with_exchange(state, owner, found),
            default=(state.default | lost) & ~taken,
            displaced={**state.displaced, owner: dict(sorted(merged.items()))},
        )
        pairs |= found
    return state, pairs, refused


def nodes_of(policy: StaticPolicy, state: CPUState, owner: str, container: str) -> NUMAMask:
    """Return the mask of the NUMA nodes of a set, as it is when all CPUs are online."""
    original = exchanged(sets_of(state, owner)[container], backwards(state.displaced.get(owner, {})))
    return NUMAMask(sum(1 << node for node, cpus in policy.topology.numa.items() if node >= 0 and cpus & original))


def _stand_ins(
    policy: StaticPolicy, state: CPUState, owner: str, cpus: CPUMask, pool: CPUMask, nodes: NUMAMask, rule: str
) -> dict[int, int] | str:
    """Return pairs of a lost CPU and its replacement, or why there are none."""
    if rule == NEVER:
        return "cpuHotplug.replace is never"
    kind = state_owner(owner).kind
    if kind is OwnerKind.CLAIM:
        return "a claim keeps the CPUs of its device, which its containers know"
    if kind is OwnerKind.HIDDEN:
        return "no container runs on hidden threads"
    lost = cpus & state.offline
    if policy.rules.whole_cores:
        lost = policy.topology.core_siblings(lost) & cpus
    if rule == SAME_NODES:
        pool &= policy.topology.cpus_in_numa(nodes)
    if pool.bit_count() < lost.bit_count():
        several = "s" if nodes.bit_count() > 1 else ""
        where = f" on NUMA node{several} {list_text(nodes)}" if rule == SAME_NODES else ""
        return f"{lost.bit_count()} needed, {pool.bit_count()} free{where}"
    kept = cpus & ~lost
    found = taken_around(policy, pool, kept, cpus.bit_count(), nodes)
    if isinstance(found, TakeError):
        return found.message
    taken = found & ~kept
    if policy.rules.whole_cores and policy.topology.core_siblings(taken) != taken:
        return "no whole cores are free"
    if not effective_pool(state) & ~taken and not lost & ~state.offline:
        return "they would be the last CPUs of the shared pool"
    return dict(zip(members(lost), members(taken), strict=True))


def restored(state: CPUState, owner: str) -> tuple[CPUState, Mapping[int, int]]:
    """Return the state with the CPUs back that an owner lost, for each set whose lost CPUs are all online.

    Returns:
        The state, and the pairs of a CPU that stood in and the one that is back.
    """
    ready = {lost: one for lost, one in state.displaced.get(owner, {}).items() if not state.offline >> lost & 1}
    ready = _whole_sets_only(state, owner, ready)
    if not ready:
        return state, {}
    back = backwards(ready)
    returned = sum(1 << cpu for cpu in back.values())
    freed = sum(1 << cpu for cpu in back)
    left = {lost: one for lost, one in state.displaced[owner].items() if lost not in ready}
    others = {uid: pairs for uid, pairs in state.displaced.items() if uid != owner}
    state = with_exchange(state, owner, back)
    return (
        replace(
            state, default=(state.default | freed) & ~returned, displaced={**others, owner: left} if left else others
        ),
        back,
    )


def _whole_sets_only(state: CPUState, owner: str, ready: dict[int, int]) -> dict[int, int]:
    """Leave out pairs of a set that waits for another CPU; two sets that share a CPU wait for each other."""
    pairs = backwards(state.displaced.get(owner, {}))
    while True:
        waiting = 0
        for cpus in sets_of(state, owner).values():
            mine = {stand_in: lost for stand_in, lost in pairs.items() if cpus >> stand_in & 1}
            if any(lost not in ready for lost in mine.values()):
                waiting |= sum(1 << lost for lost in mine.values())
        left = {lost: one for lost, one in ready.items() if not waiting >> lost & 1}
        if left == ready:
            return ready
        ready = left
