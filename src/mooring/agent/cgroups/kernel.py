"""The control groups of the machine that the agent runs on."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass

from mooring.agent.cgroups import protocol
from mooring.agent.cgroups.cpuset import Cpuset, cpus_in_effect, in_effect, is_configured, return_cpus, write_cpuset
from mooring.agent.cgroups.files import CGroupLayout, CGroupTrouble, GroupError, Hierarchy
from mooring.agent.cgroups.locate import group_folder, groups_of_container, has_processes, is_above_pods, missing
from mooring.agent.effects import LiftQuota, QuotaOf, ReturnCPUs, WriteCPUSet
from mooring.engine.core.bits import NO_NODES


@dataclass(frozen=True, slots=True)
class KernelCGroups:
    """:class:`~mooring.agent.cgroups.protocol.CGroups` by the files of the kernel; without state of its own."""

    layout: CGroupLayout
    """From :func:`~mooring.agent.cgroups.files.find_layout`."""

    def write_cpuset(self, wanted: WriteCPUSet) -> protocol.CPUSetWritten:
        """Read, write when it differs, read back."""
        cpuset = self.layout.cpuset
        before: Cpuset | None = None
        try:
            groups = groups_of_container(self.layout, cpuset, wanted.cgroup, wanted.pid)
            before = in_effect(cpuset, groups[-1])
            # From the top: what is below is within what is above it at every moment.
            wrote = [write_cpuset(cpuset, group, wanted.cpus, wanted.mems) for group in groups]
            return protocol.CPUSetWritten(
                wanted, before, in_effect(cpuset, groups[-1]) if any(wrote) else before, any(wrote)
            )
        except GroupError as error:
            after = self.in_effect(wanted)
            trouble = error.trouble
            if trouble is CGroupTrouble.GONE:
                trouble = missing(self.layout, self.layout.cpuset, wanted.cgroup, wanted.pid)
            return protocol.CPUSetWritten(wanted, before, after, after != before, trouble, str(error))

    def return_cpus(self, wanted: ReturnCPUs) -> str:
        """Give CPUs back to the groups above containers, from the top."""
        folders = []
        for one in wanted.below:
            with suppress(GroupError):
                folders.append(group_folder(self.layout, self.layout.cpuset, one.cgroup, one.pid))
        return return_cpus(self.layout.cpuset, folders, wanted.cpus)

    def lift_quota(self, wanted: LiftQuota) -> protocol.QuotaLifted:
        """See to it that a group has no CFS quota; without the controller there can be none."""
        if self.layout.cpu is None:
            return protocol.QuotaLifted(wanted)
        try:
            lifted = [protocol.lift_quota(self.layout.cpu, group) for group in self._groups(self.layout.cpu, wanted)]
            return protocol.QuotaLifted(wanted, next((one for one in lifted if one is not None), None))
        except GroupError as error:
            return protocol.QuotaLifted(wanted, None, error.trouble, str(error))

    def restore_quota(self, place: LiftQuota, quota: protocol.Quota) -> CGroupTrouble | None:
        """Give a group its quota back."""
        if self.layout.cpu is None:
            return CGroupTrouble.NO_CONTROLLER
        try:
            for group in self._groups(self.layout.cpu, place):
                protocol.write_quota(self.layout.cpu, group, quota)
        except GroupError as error:
            return error.trouble
        return None

    def in_effect(self, place: WriteCPUSet) -> Cpuset | None:
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

    def deviations(self, wanted: Iterable[WriteCPUSet]) -> tuple[protocol.Deviation, ...]:
        """Compare what is in effect with what is wanted; a container that has ended does not deviate."""
        found: list[protocol.Deviation] = []
        cpuset = self.layout.cpuset
        for one in wanted:
            try:
                groups = groups_of_container(self.layout, cpuset, one.cgroup, one.pid)
                last = groups[-1]
                shown = in_effect(cpuset, last) if one.mems else Cpuset(cpus_in_effect(cpuset, last), NO_NODES)
                if not protocol.shows(shown, one):
                    in_vain = all(is_configured(cpuset, group, one.cpus, one.mems) for group in groups)
                    found.append(protocol.Deviation(one, shown, can_be_repaired=not in_vain))
            except GroupError as error:
                trouble = error.trouble
                if trouble is CGroupTrouble.GONE:
                    trouble = missing(self.layout, cpuset, one.cgroup, one.pid)
                if trouble is not CGroupTrouble.GONE:
                    found.append(protocol.Deviation(one, None, trouble=trouble, problem=str(error)))
        return tuple(found)

    def quotas(self, wanted: Iterable[LiftQuota]) -> tuple[tuple[LiftQuota, protocol.Quota], ...]:
        """Return the quotas that are there and should not be; groups that are gone or unreadable have none."""
        found: list[tuple[LiftQuota, protocol.Quota]] = []
        cpu = self.layout.cpu
        for one in wanted:
            with suppress(GroupError):
                groups = () if cpu is None else groups_of_container(self.layout, cpu, one.cgroup, one.pid)
                there = [protocol.read_quota(cpu, group) for group in groups if cpu is not None]
                found += [(one, quota) for quota in there if quota.microseconds is not None][:1]
        return tuple(found)

    def _groups(self, hierarchy: Hierarchy, place: LiftQuota) -> tuple[str, ...]:
        if place.of is QuotaOf.POD and is_above_pods(place.cgroup):
            raise GroupError(
                CGroupTrouble.NOT_PERMITTED, place.cgroup, "the quota of all pods is not the agent's to change"
            )
        return groups_of_container(self.layout, hierarchy, place.cgroup, place.pid)
