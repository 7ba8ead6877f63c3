"""Whether something runs in a control group.

An empty group may stay behind when the runtime's part of a container died before it could clean up.

Source: cgroups(7); Documentation/admin-guide/cgroup-v2.rst, ``cgroup.events``.
"""

from __future__ import annotations

import os

from mooring.agent.cgroups.files import GroupError, Trouble, read
from mooring.agent.cgroups.layout import Hierarchy


def has_processes(hierarchy: Hierarchy, folder: str) -> bool:
    """Tell whether a group or one below it has a process.

    Args:
        hierarchy: of the group.
        folder: of the group.

    Raises:
        GroupError: it cannot be told.
    """
    if hierarchy.version == 2:
        return "populated 1" in read(f"{folder}/cgroup.events").splitlines()
    return bool(read(f"{folder}/cgroup.procs")) or any(_has_own(below) for below, _, _ in os.walk(folder))


def _has_own(folder: str) -> bool:
    try:
        return bool(read(f"{folder}/cgroup.procs"))
    except GroupError as error:
        # One of several below may go while they are looked at.
        return error.trouble is not Trouble.GONE
