"""What is wrong with a state file, as values; and the nearest CPU state on which the kubelet starts.

That state keeps as many entries as go together; the rest is the shared pool.
An entry is what one container holds; where a pod has a set of its own (KEP-5526, gate on) the pod with all its
containers is one. An entry can stay when its CPUs are there and not reserved, and when it shares none with another pod.
The shared pool follows from the entries, so that nothing else ever has to be given up, but for one thing: with
strict-cpu-reservation the entries can use up the pool, on which the kubelet does not start; then a small one goes.

Source: kubelet v1.37.1, cpumanager policy_static.go (validateState); spec: cpu-manager.md section 2.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Generic, Literal, TypeAlias, TypeVar

from mooring.engine.core.bits import NO_CPUS, CPUMask
from mooring.engine.core.cpuset import CPUSet
from mooring.engine.cpumanager.policy import StaticPolicy
from mooring.engine.cpumanager.state import CPUState, PreAssignment
from mooring.engine.extensions.owners import OwnerKind, state_owner
from mooring.engine.memorymanager.state import MemoryState
from mooring.explanations.phrases import cpus_text

Severity: TypeAlias = Literal["error", "warning", "note"]
"""``error``: the kubelet does not start, or promises what is not so. ``warning``: it starts with a problem.
``note``: nothing needs to be done."""


@dataclass(frozen=True, slots=True, order=True)
class EntryHolder:
    """An entry of a state file."""

    uid: str
    """Of the pod; empty for entries by container id."""
    container: str
    """Empty for what a pod holds as a whole."""


@dataclass(frozen=True, slots=True)
class Problem:
    """One thing that is wrong."""

    code: str
    """``MOOR-3xx``; its page tells what it means."""
    severity: Severity
    file: str
    """Name of the state file; empty when it is about more than one."""
    message: str
    """One or two sentences."""
    holders: tuple[EntryHolder, ...] = ()
    """Entries that it concerns."""
    cpus: CPUSet = CPUSet()  # noqa: RUF009 - frozen
    """CPUs that it is about."""
    nodes: tuple[int, ...] = ()
    """NUMA nodes that it is about."""


@dataclass(frozen=True, slots=True)
class Dropped:
    """An entry that a repair gives up."""

    holder: EntryHolder
    held: str
    """What it held, in words."""
    why: str
    """A clause that says why it cannot stay."""


State_co = TypeVar("State_co", bound=CPUState | MemoryState | None, covariant=True)


@dataclass(frozen=True, slots=True)
class Repaired(Generic[State_co]):
    """What a file should hold instead; without a state it is to be deleted."""

    state: State_co
    dropped: tuple[Dropped, ...]


def in_order(wanted: Mapping[EntryHolder, int], active: Collection[str]) -> list[EntryHolder]:
    """Return the entries in the order in which they are kept, as far as they go together.

    Entries of active pods come first, because stale ones are dropped by the kubelet anyway. Then those that stand
    against fewer entries of other pods, so that fewer are lost; then larger ones; then the order of uids and names.

    Args:
        wanted: CPUs of each entry.
        active: uids of running pods, where they are known.

    >>> one, two, both = EntryHolder("a", "c"), EntryHolder("b", "c"), EntryHolder("c", "c")
    >>> [holder.uid for holder in in_order({one: 0b001, two: 0b100, both: 0b111}, ())]
    ['a', 'b', 'c']
    """

    def against(holder: EntryHolder) -> int:
        mask = wanted[holder]
        return sum(
            1
            for other, cpus in wanted.items()
            if cpus & mask and state_owner(other.uid).root != state_owner(holder.uid).root
        )

    return sorted(
        wanted,
        key=lambda holder: (
            state_owner(holder.uid).root not in active,
            against(holder),
            -wanted[holder].bit_count(),
            holder,
        ),
    )


def repaired_cpu(policy: StaticPolicy, broken: CPUState, active: Collection[str]) -> Repaired[CPUState]:
    """Return the state with everything that can stay.

    Args:
        policy: the static policy of the configuration.
        broken: what the file says.
        active: uids of running pods, where they are known.
    """
    units = _units(policy, broken)
    dropped: dict[EntryHolder, str] = {}
    fitting = {}
    for holder, cpus in units.items():
        why = _misfit(policy, cpus)
        if why:
            dropped[holder] = why
        else:
            fitting[holder] = cpus
    # Fewer entries always go together where more do, so that taking up one after the other misses none.
    kept: dict[EntryHolder, int] = {}
    # A claim stays until it is released, so it is as little stale as a running pod.
    claims = {holder.uid for holder in fitting if state_owner(holder.uid).kind is OwnerKind.CLAIM}
    for holder in in_order(fitting, {*active, *claims}):
        why = _obstacle(policy, kept, holder, fitting[holder])
        if why:
            dropped[holder] = why
        else:
            kept[holder] = fitting[holder]
    state = _state(policy, broken, kept)
    return Repaired(
        state,
        tuple(
            Dropped(single, cpus_text(mask) if mask else "no CPUs", dropped[unit])
            for unit in sorted(dropped)
            for single, mask in _singles(policy, broken, unit)
        ),
    )


def _is_whole(policy: StaticPolicy, state: CPUState, uid: str) -> bool:
    return policy.gates.managers and uid in state.pods


def _units(policy: StaticPolicy, state: CPUState) -> dict[EntryHolder, int]:
    """Return the CPUs of everything that is kept or given up as one."""
    units: dict[EntryHolder, int] = {}
    for uid, sets in state.assignments.items():
        for name, mask in sets.items():
            unit = EntryHolder(uid, "" if _is_whole(policy, state, uid) else name)
            units[unit] = units.get(unit, 0) | mask
    if policy.gates.managers:
        for uid, mask in state.pods.items():
            units[EntryHolder(uid, "")] = units.get(EntryHolder(uid, ""), 0) | mask
    return dict(sorted(units.items()))


def _singles(policy: StaticPolicy, state: CPUState, unit: EntryHolder) -> list[tuple[EntryHolder, CPUMask]]:
    """Return the entries of a unit; those of a pod begin with its own set."""
    sets = state.assignments.get(unit.uid, {})
    if not _is_whole(policy, state, unit.uid):
        return [(unit, sets[unit.container])]
    containers = [(EntryHolder(unit.uid, name), mask) for name, mask in sorted(sets.items())]
    return containers or [(unit, state.pods[unit.uid])]


def _misfit(policy: StaticPolicy, cpus: int) -> str:
    gone, reserved = cpus & ~policy.topology.all_cpus, cpus & policy.reserved
    parts = [f"{cpus_text(gone)} {_is(gone)} not there"] if gone else []
    parts += [f"{cpus_text(reserved)} {_is(reserved)} reserved"] if reserved else []
    return " and ".join(parts)


def _is(cpus: int) -> str:
    return "is" if cpus.bit_count() == 1 else "are"


def _obstacle(policy: StaticPolicy, kept: Mapping[EntryHolder, int], holder: EntryHolder, cpus: int) -> str:
    """Return why an entry cannot stay beside those that are kept; empty when it can."""
    for other, held in kept.items():
        if held & cpus and state_owner(other.uid).root != state_owner(holder.uid).root:
            return f"{_who(other)} holds {cpus_text(held & cpus)} too"
    return "" if _pool(policy, [*kept.values(), cpus]) else "no CPU would be left for the shared pool"


def _who(holder: EntryHolder) -> str:
    owner = state_owner(holder.uid, holder.container)
    return owner.label() if owner.kind is OwnerKind.CLAIM else f"pod {owner.uid}"


def _pool(policy: StaticPolicy, masks: Collection[int]) -> int:
    pool = policy.shareable
    for mask in masks:
        pool &= ~mask
    return pool


def _state(policy: StaticPolicy, broken: CPUState, kept: Mapping[EntryHolder, int]) -> CPUState:
    def stays(uid: str, name: str) -> bool:
        # Hidden threads go with their container.
        pod = state_owner(uid).root
        own = EntryHolder(pod, "" if _is_whole(policy, broken, pod) else name) in kept
        return own and (pod == uid or EntryHolder(uid, name) in kept)

    assignments = {
        uid: held
        for uid, sets in broken.assignments.items()
        if (held := {name: mask for name, mask in sets.items() if stays(uid, name)})
    }
    return CPUState(
        "static",
        CPUMask(_pool(policy, kept.values())),
        assignments,
        {uid: mask for uid, mask in broken.pods.items() if EntryHolder(uid, "") in kept},
        {
            uid: held
            for uid, sets in broken.baselines.items()
            if (held := {name: mask for name, mask in sets.items() if name in assignments.get(uid, {})})
        },
        _releases(broken, assignments),
    )


def _releases(broken: CPUState, assignments: Mapping[str, Mapping[str, int]]) -> dict[str, dict[str, PreAssignment]]:
    """Return the pending releases of the containers that keep what they have."""
    kept = {}
    for uid, releases in broken.pre_assignments.items():
        sets, baselines = assignments.get(uid, {}), broken.baselines.get(uid, {})
        held = {
            name: pre
            for name, pre in releases.items()
            if pre.fits(CPUMask(sets.get(name, 0)), baselines.get(name, NO_CPUS))
        }
        if held:
            kept[uid] = held
    return kept
