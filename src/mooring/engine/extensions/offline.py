"""CPUs that are offline: their owners, and the sets that are not whole (extension cpu-hotplug).

A CPU that goes offline leaves no record: in the state it stays in the shared pool or with its owner. A set with such a
CPU is broken. Where a rule replaces what was lost, the replacement CPU moves from the shared pool to the owner and
the lost one to the pool, one for one, so that nothing is lost and nothing is there twice. The pair is remembered, and
undone when the lost CPU is back.

Replacements are taken by the policy's own rules around the CPUs that the owner keeps, from the NUMA nodes of its CPUs
or from anywhere, as the configuration says. Where whole cores are handed out a core with an offline CPU is given up as
a whole, and only whole cores replace them. The hint that the topology manager stored does not count: no file has it, so
that a restart would change which CPUs replace which.

The kubelet has nothing of this: it reads the machine once, when it starts (kubernetes/kubernetes#67500).
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import reduce
from operator import or_

from mooring.engine.core.bits import NO_CPUS, CPUMask, NUMAMask, list_text, members
from mooring.engine.core.config import NEVER, SAME_NODES
from mooring.engine.core.decision import AllocationError
from mooring.engine.core.pod import Pod
from mooring.engine.cpumanager.policy import StaticPolicy, available_cpus
from mooring.engine.cpumanager.state import CPUState
from mooring.engine.extensions.choosing import taken_around, usable_cpus
from mooring.engine.extensions.facts import CPUsBroken
from mooring.engine.extensions.owners import OwnerKind, state_owner
from mooring.lazy import replace


def sets_of(state: CPUState, pod: str) -> dict[str, CPUMask]:
    """Return all sets of an owner by container; that of a whole pod first, under the empty name.

    >>> sets_of(CPUState("static", 1, {"a": {"main": 2}}, pods={"a": 6}), "a")
    {'': 6, 'main': 2}
    """
    whole = {"": state.pods[pod]} if pod in state.pods else {}
    return {**whole, **state.assignments.get(pod, {})}


def held_of(state: CPUState, pod: str) -> CPUMask:
    """Return the mask of all that an owner has."""
    return reduce(or_, sets_of(state, pod).values(), NO_CPUS)


def owners_of(state: CPUState) -> list[str]:
    """Return all owners of CPUs, in a fixed order."""
    return sorted({*state.pods, *state.assignments})


def broken_sets(state: CPUState) -> tuple[CPUsBroken, ...]:
    """Return the sets with offline CPUs.

    >>> state = CPUState("static", 0b0001, {"a": {"main": 0b0110}}, offline=0b0100)
    >>> broken_sets(state)
    (CPUsBroken(pod='a', container='main', cpus=6, lost=4, why=''),)
    """
    if not state.offline:
        return ()
    return tuple(
        CPUsBroken(pod, container, cpus, cpus & state.offline)
        for pod in owners_of(state)
        for container, cpus in sets_of(state, pod).items()
        if cpus & state.offline
    )


def displaced_sets(state: CPUState) -> dict[tuple[str, str], CPUMask]:
    """Return the sets with replacement CPUs, by owner and container, as they are again when all CPUs are back.

    >>> state = CPUState("static", 0b0101, {"a": {"main": 0b1010}}, offline=0b0100, displaced={"a": {2: 3}})
    >>> displaced_sets(state)
    {('a', 'main'): 6}
    """
    return {
        (pod, container): original
        for pod in sorted(state.displaced)
        for container, cpus in sets_of(state, pod).items()
        if (original := exchanged(cpus, backwards(state.displaced[pod]))) != cpus
    }


def exchanged(cpus: CPUMask, pairs: Mapping[int, int]) -> CPUMask:
    """Return a set with the first CPU of each pair replaced by the second, where it has the first.

    >>> exchanged(0b0110, {2: 3, 5: 6})
    10
    """
    found = cpus
    for before, after in pairs.items():
        if cpus >> before & 1:
            found = found & ~(1 << before) | 1 << after
    return found


def backwards(pairs: Mapping[int, int]) -> dict[int, int]:
    """Return the pairs the other way round."""
    return {after: before for before, after in pairs.items()}


def with_exchange(state: CPUState, pod: str, pairs: Mapping[int, int]) -> CPUState:
    """Return the state with CPUs of an owner replaced in all that is recorded of it; pool and pairs stay."""
    assignments, baselines, pending = state.assignments, state.baselines, state.pre_assignments
    if pod in assignments:
        assignments = {**assignments, pod: _exchanged_each(assignments[pod], pairs)}
    if pod in baselines:
        baselines = {**baselines, pod: _exchanged_each(baselines[pod], pairs)}
    if pod in pending:
        after = {name: replace(one, cpus=exchanged(one.cpus, pairs)) for name, one in pending[pod].items()}
        pending = {**pending, pod: after}
    pods = {**state.pods, pod: exchanged(state.pods[pod], pairs)} if pod in state.pods else state.pods
    return replace(state, assignments=assignments, pods=pods, baselines=baselines, pre_assignments=pending)


def _exchanged_each(sets: Mapping[str, CPUMask], pairs: Mapping[int, int]) -> dict[str, CPUMask]:
    return {name: exchanged(cpus, pairs) for name, cpus in sets.items()}


def without_idle_pairs(state: CPUState) -> CPUState:
    """Return the state without pairs whose stand-in its pod has no longer; the same value when there is none.

    A container that ends, or shrinks, gives up what it lost together with what stood in for it.
    """
    if not state.displaced:
        return state
    kept: dict[str, dict[int, int]] = {}
    for pod, pairs in state.displaced.items():
        held = held_of(state, pod)
        left = {lost: stand_in for lost, stand_in in pairs.items() if held >> stand_in & 1}
        if left:
            kept[pod] = left
    return state if kept == state.displaced else replace(state, displaced=kept)


def usable(state: CPUState, cpus: CPUMask) -> CPUMask:
    """Return what a container with a set can run on now: its CPUs that are online, or the pool's when all are gone.

    >>> state = CPUState("static", 0b0011, {"a": {"main": 0b1100}}, offline=0b0100)
    >>> usable(state, 0b1100), usable(replace(state, offline=0b1100), 0b1100)
    (8, 3)
    """
    return cpus & ~state.offline or effective_pool(state)


def effective_pool(state: CPUState) -> CPUMask:
    """Return the mask of the shared pool's CPUs that are online."""
    return state.default & ~state.offline


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
        at_first = backwards(known)
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
    if isinstance(found, AllocationError):
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
