"""CPUs that came back after they had been offline, for the groups above containers.

Version 1 takes a CPU that goes offline out of ``cpuset.cpus`` of every group and gives it back to the top alone. Nobody
else does: the kubelet writes its groups when it starts. So here, and only here, groups above pods are widened too, by
nothing but such CPUs. In version 2 there is nothing to do.

Source: kernel cgroup/cpuset-v1.c, hotplug; Documentation/admin-guide/cgroup-v1/cpusets.rst.
"""

from __future__ import annotations

from collections.abc import Iterable

from mooring.agent.cgroups.cpuset import CPUS, parsed
from mooring.agent.cgroups.files import GroupError, Trouble, read, write
from mooring.agent.cgroups.layout import Hierarchy
from mooring.core.cpuset import CPUSet, CPUSetSyntaxError


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
    for group in _above(hierarchy, folders):
        try:
            has = parsed(read(f"{group}/{CPUS}"))
            if not cpus <= has:
                write(f"{group}/{CPUS}", str(has | cpus))
        except (GroupError, CPUSetSyntaxError) as error:
            if not isinstance(error, GroupError) or error.trouble is not Trouble.GONE:
                problem = problem or str(error)
    return problem


def _above(hierarchy: Hierarchy, folders: Iterable[str]) -> list[str]:
    """Return the groups above, each once and after the one above it; the top is not among them."""
    top = hierarchy.mount.rstrip("/")
    found: dict[str, None] = {}
    for folder in folders:
        above = folder.rpartition("/")[0]
        while above.startswith(f"{top}/"):
            found[above] = None
            above = above.rpartition("/")[0]
    return sorted(found, key=lambda group: (group.count("/"), group))
