"""The cpuset of one group: what is configured, what the kernel makes of it, and the order in which it is changed.

A cpuset can hold only what the group above holds. In version 1 the kernel refuses the rest, in version 2 it takes
everything and gives what there is: so what is in effect is read back after each change. Above a container only groups
of its own pod are touched; that the kubelet's groups have all CPUs is the kubelet's business.

Version 1 removes a CPU that goes offline from ``cpuset.cpus`` of every group and returns it to the topmost group only.
The kubelet writes its groups when it starts and not again. So :func:`return_cpus`, and nothing else, widens groups
above pods too, by such CPUs only. In version 2 there is nothing to do. Source: kernel cgroup/cpuset-v1.c, hotplug.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from contextlib import suppress
from functools import lru_cache

from mooring.agent.cgroups.files import CGroupTrouble, GroupError, Hierarchy, read, write
from mooring.agent.cgroups.locate import groups_of_pod_above
from mooring.agent.effects import WriteCPUSet
from mooring.agent.state import Setting
from mooring.engine.core.bits import CPUMask, NUMAMask, list_text
from mooring.engine.core.cpuset import CPUSet, CPUSetSyntaxError

CPUS = "cpuset.cpus"
MEMS = "cpuset.mems"
_IN_EFFECT = {
    (1, CPUS): "cpuset.effective_cpus",
    (1, MEMS): "cpuset.effective_mems",
    (2, CPUS): "cpuset.cpus.effective",
    (2, MEMS): "cpuset.mems.effective",
}

parsed = lru_cache(maxsize=1024)(CPUSet.parse)
"""A node has few different lists and shows them over and over."""


def shows(found: Setting, wanted: WriteCPUSet) -> bool:
    """Tell whether what is in effect is what is wanted; an empty set requests nothing."""
    return (not wanted.cpus or found.cpus == wanted.cpus) and (not wanted.mems or found.mems == wanted.mems)


def differing(found: Setting, wanted: WriteCPUSet) -> str:
    """Return in words what differs.

    >>> from mooring.engine.core.bits import NUMAMask
    >>> from mooring.engine.core.cpuset import CPUSet
    >>> wanted = WriteCPUSet("c", 1, "/c", CPUSet.parse("1-2"), NUMAMask(0b1))
    >>> differing(Setting(CPUSet.parse("0-7"), NUMAMask(0b1)), wanted)
    'CPUs 0-7 instead of 1-2'
    """
    pairs = (("CPUs", found.cpus.mask, wanted.cpus.mask), ("memory nodes", found.mems, wanted.mems))
    parts = [
        f"{what} {list_text(has) or 'none'} instead of {list_text(right)}"
        for what, has, right in pairs
        if right and has != right
    ]
    return " and ".join(parts)


def in_effect(hierarchy: Hierarchy, folder: str) -> Setting:
    """Return what the kernel lets the processes of a group use.

    Raises:
        GroupError: when the group cannot be read.
    """
    return Setting(cpus_in_effect(hierarchy, folder), NUMAMask(_in_effect(hierarchy, folder, MEMS)))


def cpus_in_effect(hierarchy: Hierarchy, folder: str) -> CPUSet:
    """Return the CPUs alone: one file less to read.

    Raises:
        GroupError: when the group cannot be read.
    """
    return CPUSet(CPUMask(_in_effect(hierarchy, folder, CPUS)))


def _in_effect(hierarchy: Hierarchy, folder: str, name: str) -> int:
    try:
        return _set(f"{folder}/{_IN_EFFECT[hierarchy.version, name]}")
    except GroupError as error:
        if error.trouble is not CGroupTrouble.NO_CONTROLLER or hierarchy.version != 1:
            raise
        # Kernels before 3.18 do not tell it apart.
        return _set(f"{folder}/{name}")


def write_cpuset(hierarchy: Hierarchy, folder: str, cpus: CPUSet, mems: NUMAMask) -> bool:
    """Give a group these CPUs and NUMA nodes; an empty set leaves that file alone.

    Where the machine does not have all of it, the part that it has is written before the error: a container that is
    too narrow disturbs no other container.

    Args:
        hierarchy: with the cpuset controller.
        folder: of the group.
        cpus: which it is to have.
        mems: which it is to have.

    Returns:
        Whether something had to be written.

    Raises:
        GroupError: when the kernel does not take it.
    """
    wrote = False
    for name, wanted in ((CPUS, cpus.mask), (MEMS, mems)):
        path = f"{folder}/{name}"
        if wanted and _set(path) != wanted:
            wrote = True
            _write_one(hierarchy, folder, name, wanted)
            if (shown := _set(path)) != wanted:
                raise GroupError(
                    CGroupTrouble.NOT_TAKEN, path, f"{list_text(wanted)} was written and {list_text(shown)} is there"
                )
        if wanted and hierarchy.version == 2:
            wrote = _widen_pod(hierarchy, folder, name, wanted) or wrote
    return wrote


def is_configured(hierarchy: Hierarchy, folder: str, cpus: CPUSet, mems: NUMAMask) -> bool:
    """Tell whether :func:`write_cpuset` would find nothing to write.

    Raises:
        GroupError: when the group cannot be read.
    """
    return all(
        _set(f"{folder}/{name}") == wanted and not _too_narrow(hierarchy, folder, name, wanted)
        for name, wanted in ((CPUS, cpus.mask), (MEMS, mems))
        if wanted
    )


def _write_one(hierarchy: Hierarchy, folder: str, name: str, wanted: int) -> None:
    try:
        write(f"{folder}/{name}", list_text(wanted))
    except GroupError as error:
        if error.trouble is CGroupTrouble.OUTSIDE_PARENT and _widen_pod(hierarchy, folder, name, wanted):
            _write_one(hierarchy, folder, name, wanted)
        elif error.trouble is CGroupTrouble.BUSY and hierarchy.version == 1 and _children(folder):
            _widen_pod(hierarchy, folder, name, wanted)
            _write_nested(folder, name, wanted)
        else:
            if error.trouble in {CGroupTrouble.OUTSIDE_PARENT, CGroupTrouble.OUT_OF_RANGE}:
                part = wanted & _in_effect(hierarchy, folder.rpartition("/")[0], name)
                if part:
                    with suppress(GroupError):
                        write(f"{folder}/{name}", list_text(part))
            raise


def _widen_pod(hierarchy: Hierarchy, folder: str, name: str, wanted: int) -> bool:
    """Give the groups of the pod above what they lack; tell whether they lacked something."""
    lacking = _too_narrow(hierarchy, folder, name, wanted)
    for above, has in lacking:
        write(f"{above}/{name}", list_text(has | wanted))
    return bool(lacking)


def _too_narrow(hierarchy: Hierarchy, folder: str, name: str, wanted: int) -> list[tuple[str, int]]:
    """Return the groups of the pod above that hold ``wanted`` back, from the top, with what they have."""
    above = [(group, _set(f"{group}/{name}")) for group in groups_of_pod_above(hierarchy, folder)]
    # In version 2 an empty set follows the group above it.
    return [(group, has) for group, has in above if wanted & ~has and (has or hierarchy.version == 1)]


def _write_nested(folder: str, name: str, wanted: int) -> None:
    """Change a group of version 1 with groups of its own below, none of which may ever have more than the one above.

    First everything is widened from the top, then narrowed from the bottom. A group below keeps what it had of the new
    set, and gets the whole set when it had nothing of it.
    """
    below = _below(folder)
    had = {group: _set(f"{group}/{name}") for group in below}
    write(f"{folder}/{name}", list_text(_set(f"{folder}/{name}") | wanted))
    for group in below:
        write(f"{group}/{name}", list_text(had[group] | wanted))
    for group in reversed(below):
        # What is below it may have been given the whole set.
        held = 0
        for child in _children(group):
            held |= _set(f"{child}/{name}")
        write(f"{group}/{name}", list_text((had[group] & wanted | held) or wanted))
    write(f"{folder}/{name}", list_text(wanted))


def _below(folder: str) -> list[str]:
    """Return all groups below a group, each after the one above it."""
    found: list[str] = []
    for child in _children(folder):
        found += [child, *_below(child)]
    return found


def _children(folder: str) -> list[str]:
    try:
        with os.scandir(folder) as entries:
            return sorted(entry.path for entry in entries if entry.is_dir(follow_symlinks=False))
    except OSError:
        return []


def _set(path: str) -> int:
    """Return what a file of CPUs or of NUMA nodes shows, as a mask."""
    text = read(path)
    try:
        return parsed(text).mask
    except CPUSetSyntaxError as error:
        raise GroupError(CGroupTrouble.REFUSED, path, str(error)) from None


def return_cpus(hierarchy: Hierarchy, folders: Iterable[str], cpus: CPUSet) -> str:
    """Add CPUs to every group above these, from the top; one that is gone meanwhile is left out.

    Args:
        hierarchy: with the cpuset controller.
        folders: of containers; they themselves are not changed.
        cpus: that are online again.

    Returns:
        The first problem in words; empty when there is none.
    """
    if hierarchy.version != 1:
        return ""
    problem = ""
    # The groups above, each once and after the one above it; the top is not among them
    top = hierarchy.mount.rstrip("/")
    found: dict[str, None] = {}
    for folder in folders:
        above = folder.rpartition("/")[0]
        while above.startswith(f"{top}/"):
            found[above] = None
            above = above.rpartition("/")[0]
    for group in sorted(found, key=lambda group: (group.count("/"), group)):
        try:
            has = parsed(read(f"{group}/{CPUS}"))
            if not cpus <= has:
                write(f"{group}/{CPUS}", str(has | cpus))
        except (GroupError, CPUSetSyntaxError) as error:
            if not isinstance(error, GroupError) or error.trouble is not CGroupTrouble.GONE:
                problem = problem or str(error)
    return problem
