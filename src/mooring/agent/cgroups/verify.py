"""Comparing many containers with what they should have: two small files each, one where no NUMA nodes are wanted."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from mooring.agent.cgroups.cpuset import Cpuset, cpus_in_effect, in_effect, is_configured
from mooring.agent.cgroups.files import GroupError, Trouble
from mooring.agent.cgroups.layout import Hierarchy, Layout
from mooring.agent.cgroups.locate import group_folder, missing
from mooring.agent.cgroups.protocol import Deviation, QuotaFound, shows
from mooring.agent.cgroups.quota import read_quota
from mooring.agent.reactor.effects import LiftQuota, WriteCPUSet
from mooring.core.cpuset import CPUSet


def deviations(layout: Layout, wanted: Iterable[WriteCPUSet]) -> Iterator[Deviation]:
    """Yield the containers whose groups are not as wanted; a container that has ended is not one of them."""
    for one in wanted:
        try:
            folder = group_folder(layout, layout.cpuset, one.cgroup, one.pid)
            found = (
                in_effect(layout.cpuset, folder)
                if one.mems
                else Cpuset(cpus_in_effect(layout.cpuset, folder), CPUSet())
            )
            if not shows(found, one):
                in_vain = is_configured(layout.cpuset, folder, CPUSet.parse(one.cpus), CPUSet.parse(one.mems))
                yield Deviation(one, found, can_be_repaired=not in_vain)
        except GroupError as error:
            trouble = error.trouble
            if trouble is Trouble.GONE:
                trouble = missing(layout, layout.cpuset, one.cgroup, one.pid)
            if trouble is not Trouble.GONE:
                yield Deviation(one, None, trouble=trouble, problem=str(error))


def quotas(layout: Layout, hierarchy: Hierarchy, wanted: Iterable[LiftQuota]) -> Iterator[QuotaFound]:
    """Yield the quotas where none should be; groups that are gone or unreadable have none."""
    for one in wanted:
        try:
            found = read_quota(hierarchy, group_folder(layout, hierarchy, one.cgroup, one.pid))
        except GroupError:
            continue
        if not found.is_lifted:
            yield QuotaFound(one, found)
