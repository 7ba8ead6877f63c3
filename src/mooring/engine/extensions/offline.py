"""CPUs that are offline: their owners, and the sets that are not whole (extension cpu-hotplug).

A CPU that goes offline leaves no record: in the state it stays in the shared pool or with its owner. A set with such a
CPU is broken. Where a rule replaces what was lost, the replacement CPU moves from the shared pool to the owner and
the lost one to the pool, one for one, so that nothing is lost and nothing is there twice. The pair is remembered, and
undone when the lost CPU is back.

The kubelet has nothing of this: it reads the machine once, when it starts (kubernetes/kubernetes#67500).
"""

from __future__ import annotations

from collections.abc import Mapping

from mooring.engine.core.bits import CPUMask
from mooring.engine.cpumanager.state import CPUState
from mooring.lazy import dataclass, replace


@dataclass(frozen=True, slots=True)
class BrokenSet:
    """A set with CPUs that are offline."""

    pod: str
    """Uid; of a claim its owner (:mod:`mooring.engine.extensions.owners`)."""
    container: str
    """Empty for the partition of a whole pod (KEP-5526)."""
    cpus: CPUMask
    """The whole set, as it is recorded."""
    lost: CPUMask
    """Those of it that are offline."""


@dataclass(frozen=True, slots=True)
class DisplacedSet:
    """A set with replacement CPUs for others that the owner lost."""

    pod: str
    container: str
    """Empty for the partition of a whole pod (KEP-5526)."""
    cpus: CPUMask
    """The set now."""
    original: CPUMask
    """What it is again when all CPUs are back."""


def sets_of(state: CPUState, pod: str) -> dict[str, CPUMask]:
    """Return all sets of an owner by container; that of a whole pod first, under the empty name.

    >>> sets_of(CPUState("static", 1, {"a": {"main": 2}}, pods={"a": 6}), "a")
    {'': 6, 'main': 2}
    """
    whole = {"": state.pods[pod]} if pod in state.pods else {}
    return {**whole, **state.assignments.get(pod, {})}


def owners_of(state: CPUState) -> list[str]:
    """Return all owners of CPUs, in a fixed order."""
    return sorted({*state.pods, *state.assignments})


def broken_sets(state: CPUState) -> tuple[BrokenSet, ...]:
    """Return the sets with offline CPUs.

    >>> state = CPUState("static", 0b0001, {"a": {"main": 0b0110}}, offline=0b0100)
    >>> broken_sets(state)
    (BrokenSet(pod='a', container='main', cpus=6, lost=4),)
    """
    if not state.offline:
        return ()
    return tuple(
        BrokenSet(pod, container, cpus, cpus & state.offline)
        for pod in owners_of(state)
        for container, cpus in sets_of(state, pod).items()
        if cpus & state.offline
    )


def displaced_sets(state: CPUState) -> tuple[DisplacedSet, ...]:
    """Return the sets with replacement CPUs for lost ones.

    >>> state = CPUState("static", 0b0101, {"a": {"main": 0b1010}}, offline=0b0100, displaced={"a": {2: 3}})
    >>> displaced_sets(state)
    (DisplacedSet(pod='a', container='main', cpus=10, original=6),)
    """
    return tuple(
        DisplacedSet(pod, container, cpus, original)
        for pod in sorted(state.displaced)
        for container, cpus in sets_of(state, pod).items()
        if (original := exchanged(cpus, backwards(state.displaced[pod]))) != cpus
    )


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
        held = 0
        for cpus in sets_of(state, pod).values():
            held |= cpus
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
