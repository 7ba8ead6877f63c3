"""What the agent needs of a node's control groups: as values, as a protocol, and done by the files of the kernel.

The effects :class:`~mooring.agent.effects.WriteCPUSet` and :class:`~mooring.agent.effects.LiftQuota` say what is
wanted. A "no" of the kernel is a value too: a container may end at any moment.

A group's processes get ``quota`` microseconds of CPU time per ``period``. A quota on any group from the container up to
its pod throttles exclusive CPUs, so that the quota is lifted on all of them (spec: pod-level.md section 5). When it is
lifted :mod:`mooring.agent.reactor.desired` says.
"""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from typing import Protocol

from mooring.agent.cgroups.cpuset import (
    cpus_in_effect,
    differing,
    in_effect,
    is_configured,
    return_cpus,
    shows,
    write_cpuset,
)
from mooring.agent.cgroups.files import CGroupLayout, CGroupTrouble, GroupError, Hierarchy, read, write
from mooring.agent.cgroups.locate import group_folder, groups_of_container, has_processes, is_above_pods, missing
from mooring.agent.effects import LiftQuota, QuotaOf, ReturnCPUs, WriteCPUSet
from mooring.agent.reactor.lifecycle import Compliance, WriteOutcome
from mooring.agent.state import Setting
from mooring.engine.core.bits import NO_NODES


@dataclass(frozen=True, slots=True)
class CPUSetSeen:
    """What the kernel shows of a container's group, and what came of writing it where it was written."""

    wanted: WriteCPUSet
    before: Setting | None = None
    """What was in effect; None when the group could not be read."""
    after: Setting | None = None
    """What is in effect now."""
    wrote: bool = False
    """Whether something was written; what that means, the occasion says."""
    trouble: CGroupTrouble | None = None
    """Why it is not as wanted; not taken where it is configured so: a CPU is offline, or a group above lacks it."""
    problem: str = ""
    """The trouble in words."""

    @property
    def is_right(self) -> bool:
        """Whether the kernel now shows exactly what is wanted."""
        return self.after is not None and not self.trouble and shows(self.after, self.wanted)


class CGroups(Protocol):
    """The control groups of a node. Calls may come from several threads; no two for one container at once.

    One that inherits sees no group: nothing is written and nothing deviates.
    """

    def write_cpuset(self, wanted: WriteCPUSet) -> CPUSetSeen:
        """Read, write when it differs, read back."""
        return CPUSetSeen(wanted)

    def return_cpus(self, _wanted: ReturnCPUs) -> str:
        """Give CPUs back to groups above containers, where the kernel does not; return the first problem in words."""
        return ""

    def lift_quota(self, _wanted: LiftQuota) -> Quota | None:
        """See to it that a group has no CFS quota; return the one that was there.

        Raises:
            GroupError: it cannot be lifted.
        """
        return None

    def restore_quota(self, _place: LiftQuota, _quota: Quota) -> CGroupTrouble | None:
        """Give a group its quota back: for a pod that stops being exclusive, and when the agent leaves the node."""
        return None

    def in_effect(self, _place: WriteCPUSet) -> Setting | None:
        """Return what a container may use now; None when it has no group."""
        return None

    def has_group(self, _cgroup: str, _pid: int) -> bool:
        """Tell whether a container or sandbox has a control group still; also where that is unknown.

        Asked with ``cgroups_path`` as the runtime gives it, and a process in it, 0 when none is known.
        """
        return True

    def has_processes(self, _cgroup: str, _pid: int) -> bool:
        """Tell whether a container or sandbox has a control group in which, or below which, something runs.

        Also where the group exists and cannot be read. Asked as :meth:`has_group`.
        """
        return False

    def deviations(self, _wanted: Iterable[WriteCPUSet]) -> tuple[CPUSetSeen, ...]:
        """Compare what is in effect with what is wanted, for many containers; nothing is written."""
        return ()

    def quotas(self, _wanted: Iterable[LiftQuota]) -> tuple[tuple[LiftQuota, Quota], ...]:
        """Return the quotas that are there and should not be; nothing is written."""
        return ()


def written_of(done: CPUSetSeen) -> WriteOutcome:
    """Return what came of a write."""
    wanted, after, had = done.wanted, done.after, ""
    if done.wrote and done.before is not None and not shows(done.before, wanted):
        had = differing(done.before, wanted)
    if after is None:
        if done.trouble in (None, CGroupTrouble.GONE):
            return WriteOutcome(wanted, Compliance.UNSEEN if done.trouble is None else Compliance.ENDED, had)
        return WriteOutcome(wanted, Compliance.UNKNOWN, had, unknown_text(wanted, done.trouble, done.problem))
    if shows(after, wanted):
        return WriteOutcome(wanted, Compliance.RIGHT, had)
    pairs = ((after.cpus.mask, wanted.cpus.mask), (after.mems, wanted.mems))
    is_within = all(not right or not has & ~right for has, right in pairs)
    why = f": {done.problem}" if done.problem else ", though it was written"
    standing = Compliance.WITHIN if is_within else Compliance.BEYOND
    return WriteOutcome(wanted, standing, had, f"has {differing(after, wanted)}{why}")


def lasting_text(deviation: CPUSetSeen) -> str:
    """Return the text about a deviation that cannot be corrected, as it continues the container's name."""
    wanted = deviation.wanted
    if deviation.after is None:
        return unknown_text(wanted, deviation.trouble, deviation.problem)
    return f"has {differing(deviation.after, wanted)}, though that is configured: offline, or missing in a group above"


def unknown_text(wanted: WriteCPUSet, trouble: CGroupTrouble | None, problem: str) -> str:
    """Return the text for a container whose cpuset is unknown."""
    if trouble in (CGroupTrouble.GONE, CGroupTrouble.NOT_FOUND):
        process = f"process {wanted.pid}" if wanted.pid else "no process is known"
        return (
            f"has no control group {wanted.cgroup or 'with a name'} that can be found ({process}); "
            "the agent must see the control groups and processes of the host"
        )
    return f"has a control group that cannot be read or written: {problem or 'for an unknown reason'}"


class UnseenCGroups(CGroups):
    """Control groups of a machine that is not this one.

    For an agent that runs on a machine description of a test or a simulation, whose CPUs are not those of the kernel.
    """


_V1_QUOTA = "cpu.cfs_quota_us"
_V1_PERIOD = "cpu.cfs_period_us"
_V2 = "cpu.max"
_NONE_V1 = -1
_NONE_V2 = "max"


@dataclass(frozen=True, slots=True)
class Quota:
    """CPU time of a group."""

    microseconds: int | None
    """Per period; None means no limit."""
    period: int
    """Microseconds."""


def read_quota(hierarchy: Hierarchy, folder: str) -> Quota:
    """Return the quota of a group.

    Raises:
        GroupError: when it cannot be read.
    """
    if hierarchy.version == 2:
        return parse_max(read(f"{folder}/{_V2}"), f"{folder}/{_V2}")
    quota, period = (_number(read(path), path) for path in (f"{folder}/{_V1_QUOTA}", f"{folder}/{_V1_PERIOD}"))
    return Quota(quota if quota >= 0 else None, period)


def lift_quota(hierarchy: Hierarchy, folder: str) -> Quota | None:
    """See to it that a group has no quota, and return the one that was there, if any; its period stays.

    Raises:
        GroupError: when it cannot be read or written.
    """
    before = read_quota(hierarchy, folder)
    if before.microseconds is None:
        return None
    write_quota(hierarchy, folder, Quota(None, before.period))
    return before


def write_quota(hierarchy: Hierarchy, folder: str, quota: Quota) -> None:
    """Write a quota and read it back.

    In version 1 no group may have a larger share of its period than the group above: give quotas back from the top.

    Raises:
        GroupError: when the kernel does not take it.
    """
    if hierarchy.version == 2:
        write(f"{folder}/{_V2}", format_max(quota))
    else:
        if _number(read(f"{folder}/{_V1_PERIOD}"), folder) != quota.period:
            # A quota of another period would be judged with the new one in between.
            write(f"{folder}/{_V1_QUOTA}", str(_NONE_V1))
            write(f"{folder}/{_V1_PERIOD}", str(quota.period))
        write(f"{folder}/{_V1_QUOTA}", str(_NONE_V1 if quota.microseconds is None else quota.microseconds))
    shown = read_quota(hierarchy, folder)
    if shown != quota:
        raise GroupError(
            CGroupTrouble.NOT_TAKEN, folder, f"{format_max(quota)} was written and {format_max(shown)} is there"
        )


def format_max(quota: Quota) -> str:
    """Return the form of ``cpu.max``.

    >>> format_max(Quota(150000, 100000)), format_max(Quota(None, 100000))
    ('150000 100000', 'max 100000')
    """
    return f"{_NONE_V2 if quota.microseconds is None else quota.microseconds} {quota.period}"


def parse_max(text: str, path: str = "") -> Quota:
    """Read the form of ``cpu.max``.

    Raises:
        GroupError: when it is not of this form.

    >>> parse_max("max 100000")
    Quota(microseconds=None, period=100000)
    """
    quota, _, period = text.partition(" ")
    return Quota(None if quota == _NONE_V2 else _number(quota, path), _number(period, path))


def _number(text: str, path: str) -> int:
    try:
        return int(text)
    except ValueError:
        raise GroupError(CGroupTrouble.REFUSED, path, f"{text!r} is not a number") from None


@dataclass(frozen=True, slots=True)
class KernelCGroups:
    """:class:`~mooring.agent.cgroups.protocol.CGroups` by the files of the kernel; without state of its own."""

    layout: CGroupLayout
    """From :func:`~mooring.agent.cgroups.files.find_layout`."""

    def write_cpuset(self, wanted: WriteCPUSet) -> CPUSetSeen:
        """Read, write when it differs, read back."""
        cpuset = self.layout.cpuset
        before: Setting | None = None
        try:
            groups = groups_of_container(self.layout, cpuset, wanted.cgroup, wanted.pid)
            before = in_effect(cpuset, groups[-1])
            # From the top: what is below is within what is above it at every moment.
            wrote = [write_cpuset(cpuset, group, wanted.cpus, wanted.mems) for group in groups]
            return CPUSetSeen(wanted, before, in_effect(cpuset, groups[-1]) if any(wrote) else before, any(wrote))
        except GroupError as error:
            after = self.in_effect(wanted)
            return CPUSetSeen(wanted, before, after, after != before, self._trouble(error, wanted), str(error))

    def return_cpus(self, wanted: ReturnCPUs) -> str:
        """Give CPUs back to the groups above containers, from the top."""
        folders = []
        for one in wanted.below:
            with suppress(GroupError):
                folders.append(group_folder(self.layout, self.layout.cpuset, one.cgroup, one.pid))
        return return_cpus(self.layout.cpuset, folders, wanted.cpus)

    def lift_quota(self, wanted: LiftQuota) -> Quota | None:
        """See to it that a group has no CFS quota; without the controller there can be none."""
        if self.layout.cpu is None:
            return None
        lifted = [lift_quota(self.layout.cpu, group) for group in self._groups(self.layout.cpu, wanted)]
        return next((one for one in lifted if one is not None), None)

    def restore_quota(self, place: LiftQuota, quota: Quota) -> CGroupTrouble | None:
        """Give a group its quota back."""
        if self.layout.cpu is None:
            return CGroupTrouble.NO_CONTROLLER
        try:
            for group in self._groups(self.layout.cpu, place):
                write_quota(self.layout.cpu, group, quota)
        except GroupError as error:
            return error.trouble
        return None

    def in_effect(self, place: WriteCPUSet) -> Setting | None:
        """Return what a container may use now; None when it has no group."""
        try:
            groups = groups_of_container(self.layout, self.layout.cpuset, place.cgroup, place.pid)
            return in_effect(self.layout.cpuset, groups[-1])
        except GroupError:
            return None

    def has_group(self, cgroup: str, pid: int) -> bool:
        """Tell whether there is a group of that name."""
        try:
            group_folder(self.layout, self.layout.cpuset, cgroup, pid)
        except GroupError as error:
            return error.trouble is not CGroupTrouble.GONE
        return True

    def has_processes(self, cgroup: str, pid: int) -> bool:
        """Tell whether something runs in a group of that name or below it."""
        try:
            return has_processes(self.layout.cpuset, group_folder(self.layout, self.layout.cpuset, cgroup, pid))
        except GroupError as error:
            return error.trouble is not CGroupTrouble.GONE

    def deviations(self, wanted: Iterable[WriteCPUSet]) -> tuple[CPUSetSeen, ...]:
        """Compare what is in effect with what is wanted; a container that has ended does not deviate."""
        found: list[CPUSetSeen] = []
        cpuset = self.layout.cpuset
        for one in wanted:
            try:
                groups = groups_of_container(self.layout, cpuset, one.cgroup, one.pid)
                last = groups[-1]
                shown = in_effect(cpuset, last) if one.mems else Setting(cpus_in_effect(cpuset, last), NO_NODES)
                if not shows(shown, one):
                    in_vain = all(is_configured(cpuset, group, one.cpus, one.mems) for group in groups)
                    found.append(CPUSetSeen(one, after=shown, trouble=CGroupTrouble.NOT_TAKEN if in_vain else None))
            except GroupError as error:
                if (trouble := self._trouble(error, one)) is not CGroupTrouble.GONE:
                    found.append(CPUSetSeen(one, trouble=trouble, problem=str(error)))
        return tuple(found)

    def quotas(self, wanted: Iterable[LiftQuota]) -> tuple[tuple[LiftQuota, Quota], ...]:
        """Return the quotas that are there and should not be; groups that are gone or unreadable have none."""
        found: list[tuple[LiftQuota, Quota]] = []
        cpu = self.layout.cpu
        for one in wanted:
            with suppress(GroupError):
                groups = () if cpu is None else groups_of_container(self.layout, cpu, one.cgroup, one.pid)
                there = [read_quota(cpu, group) for group in groups if cpu is not None]
                found += [(one, quota) for quota in there if quota.microseconds is not None][:1]
        return tuple(found)

    def _trouble(self, error: GroupError, place: WriteCPUSet) -> CGroupTrouble:
        """Return what is wrong with a container's group: one that is gone may be missing although its process lives."""
        is_gone = error.trouble is CGroupTrouble.GONE
        return missing(self.layout, self.layout.cpuset, place.cgroup, place.pid) if is_gone else error.trouble

    def _groups(self, hierarchy: Hierarchy, place: LiftQuota) -> tuple[str, ...]:
        if place.of is QuotaOf.POD and is_above_pods(place.cgroup):
            raise GroupError(
                CGroupTrouble.NOT_PERMITTED, place.cgroup, "the quota of all pods is not the agent's to change"
            )
        return groups_of_container(self.layout, hierarchy, place.cgroup, place.pid)
