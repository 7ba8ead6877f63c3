"""The observing points: plugins hear who got CPUs and whose came back, after it was decided and stored.

What they are told is the difference between two states that were in force, not what was tried in between: a pod that
was refused had CPUs for a moment in which nobody could have used them, and a what-if question puts no state in force.

Source: CPU Manager Plugin Model (proposal), allocate and deallocate; spec: resize.md section 7.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Literal

from mooring.core.bits import CPUMask
from mooring.core.cpuset import CPUSet
from mooring.core.observer import Observer
from mooring.core.plugins import PluginChoice
from mooring.cpumanager.state import CPUState
from mooring.plugins.asking import Asking
from mooring.plugins.values import Change

Point = Literal["allocated", "deallocated"]


@dataclass(frozen=True, slots=True)
class Told:
    """One thing that plugins are told."""

    point: Point
    change: Change


def changes_between(before: CPUState, after: CPUState) -> tuple[Told, ...]:
    """Return who lost CPUs and who got some from one state to the next; what came back is told first.

    >>> before = CPUState("static", 0b1100, {"uid": {"app": 0b0011}})
    >>> after = CPUState("static", 0b1010, {"uid": {"app": 0b0101}})
    >>> [(told.point, str(told.change.cpus)) for told in changes_between(before, after)]
    [('deallocated', '1'), ('allocated', '2')]
    """
    if before is after:
        return ()
    old, new = _held(before), _held(after)
    lost = [_told("deallocated", who, cpus & ~new.get(who, 0)) for who, cpus in old.items()]
    got = [_told("allocated", who, cpus & ~old.get(who, 0)) for who, cpus in new.items()]
    return tuple(told for told in (*lost, *got) if told.change.cpus)


def tell(choice: PluginChoice, changes: Iterable[Told], observer: Observer | None = None) -> None:
    """Tell plugins; one that fails, or has no time, is named to the observer and changes nothing."""
    for told in changes:
        asking = Asking(choice, told.change.uid, told.change.container, observer)
        if asking.of(told.point):
            asking.within_budget(partial(_ask, asking, told))


def _ask(asking: Asking, told: Told) -> None:
    for plugin in asking.of(told.point):
        asking.ask(plugin, told.point, _nothing, change=told.change)


def _nothing(_answer: object) -> None:
    """Understand whatever was returned: it means nothing."""


def _held(state: CPUState) -> Mapping[tuple[str, str], CPUMask]:
    return dict(_each_holder(state))


def _each_holder(state: CPUState) -> Iterator[tuple[tuple[str, str], CPUMask]]:
    for uid, cpus in state.pods.items():
        yield (uid, ""), cpus
    for uid, containers in state.assignments.items():
        for container, cpus in containers.items():
            yield (uid, container), cpus


def _told(point: Point, who: tuple[str, str], cpus: int) -> Told:
    return Told(point, Change(*who, CPUSet(CPUMask(cpus))))
