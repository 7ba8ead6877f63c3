"""The folder of a container's, sandbox's or pod's control group.

Runtimes name the group of a container in two forms: a plain path (cgroupfs driver) or ``slice:prefix:id`` (systemd
driver, where the unit is ``prefix-id.scope`` inside of the slice). A slice names all slices above it: ``a-b.slice``
lies in ``a.slice``.

That name is looked up first. Where it leads nowhere (the runtime itself runs inside of a group), a process of the
container shows where the name hangs. A process alone is never believed: its number may be another's by now, so that its
group counts only as far as it bears the name.

crun with the systemd driver leaves the scope to systemd and puts the processes into a group of its own below it, with
a cpuset and a quota of its own. What a container may use is what both allow.

An empty group may stay behind when the runtime's part of a container died before it could clean up.

Source: OCI runtime specification, ``linux.cgroupsPath``; systemd.slice(5); measured with containerd 2.1.9; cgroups(7);
crun(1), ``run.oci.systemd.subgroup``, whose default CRI-O's own hooks go by too;
Documentation/admin-guide/cgroup-v2.rst, ``cgroup.events``.
"""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

from mooring.agent.cgroups.files import CGroupLayout, CGroupTrouble, GroupError, Hierarchy, read
from mooring.engine.core.cpuset import CPUSet
from mooring.inputs.machines.isolation import ControlGroup

_SLICE = ".slice"
_DEFAULT_SLICE = "system.slice"
"""Where the runtime puts scopes that name no slice."""

_BELOW_SCOPE = "container"
_SCOPE = ".scope"
_SETTING = {"cpuset": "cpuset.cpus", "cpu": "cpu.max"}
"""A file that a group has exactly when the controller is enabled for it."""
_ABOVE_PODS = frozenset({"kubepods", "burstable", "besteffort"})


def group_path(name: str) -> str | None:
    """Return the path of a group below the top of its hierarchy; None when ``name`` is the name of none.

    The top itself is no group of a container, so that the empty name and ``/`` are None too.

    >>> group_path("/kubepods/burstable/podb2/c3")
    'kubepods/burstable/podb2/c3'
    >>> group_path("kubepods-podb2.slice:cri-containerd:c3")
    'kubepods.slice/kubepods-podb2.slice/cri-containerd-c3.scope'
    >>> group_path("kubepods-podb2.slice")
    'kubepods.slice/kubepods-podb2.slice'
    >>> group_path("/kubepods/../init"), group_path("/")
    (None, None)
    """
    if name.count(":") == 2 and "/" not in name:
        slice_name, prefix, container = name.split(":")
        folder = expanded_slice(slice_name or _DEFAULT_SLICE)
        # A unit whose name says that it is a slice gets no prefix.
        before = f"{prefix}-" if prefix else ""
        unit = container if container.endswith(_SLICE) else f"{before}{container}{_SCOPE}"
        return None if folder is None or not container else f"{folder}/{unit}".lstrip("/")
    parts = [part for part in name.split("/") if part]
    if not parts or any(part in {".", ".."} or "\0" in part for part in parts):
        return None
    if len(parts) == 1 and parts[0].endswith(_SLICE) and not name.startswith("/"):
        return expanded_slice(parts[0]) or None
    return "/".join(parts)


def is_above_pods(name: str) -> bool:
    """Tell whether a group is the kubelet's for many pods: for all of them or for a QoS class.

    >>> is_above_pods("/kubepods/burstable"), is_above_pods("kubepods-besteffort.slice")
    (True, True)
    >>> is_above_pods("/kubepods/podb2"), is_above_pods("kubepods-burstable-podb2.slice")
    (False, False)
    """
    last = name.rstrip("/").rpartition("/")[2].removesuffix(_SLICE)
    return last.rpartition("-")[2] in _ABOVE_PODS


def expanded_slice(name: str) -> str | None:
    """Return the path of a slice; empty for the root slice, None when ``name`` is no slice.

    >>> expanded_slice("kubepods-burstable-podb2.slice")
    'kubepods.slice/kubepods-burstable.slice/kubepods-burstable-podb2.slice'
    >>> expanded_slice("-.slice"), expanded_slice("a--b.slice"), expanded_slice("a")
    ('', None, None)
    """
    if not name.endswith(_SLICE) or "/" in name:
        return None
    if name == f"-{_SLICE}":
        return ""
    words = name.removesuffix(_SLICE).split("-")
    if not all(words):
        return None
    return "/".join("-".join(words[: count + 1]) + _SLICE for count in range(len(words)))


def group_folder(layout: CGroupLayout, hierarchy: Hierarchy, name: str, pid: int = 0) -> str:
    """Return the folder of the group that a runtime calls ``name``.

    Args:
        layout: of the machine.
        hierarchy: in which the group is wanted.
        name: ``cgroups_path`` of a container or sandbox, ``cgroup_parent`` for the group of a pod.
        pid: a process in the group or below it; 0 when none is known.

    Raises:
        GroupError: when there is none.
    """
    path = group_path(name)
    if path is None:
        raise GroupError(CGroupTrouble.GONE, name or "no name", "this names no group")
    folder = hierarchy.folder(path)
    if folder is not None and os.path.isdir(folder):  # noqa: PTH112 - one per container: texts are ten times cheaper
        return folder
    # The group of its process, or one above that, where it has the name
    name, parts = path.rpartition("/")[2], (process_path(layout, hierarchy, pid) or "").strip("/").split("/")
    found = hierarchy.folder("/".join(parts[: parts.index(name) + 1])) if name in parts else None
    if found is None or not Path(found).is_dir():
        raise GroupError(CGroupTrouble.GONE, folder or f"{hierarchy.mount}/{path}")
    return found


def groups_of_container(layout: CGroupLayout, hierarchy: Hierarchy, name: str, pid: int = 0) -> tuple[str, ...]:
    """Return the folders of the groups that the runtime made for a container, from the top.

    The processes are in or below the last one. Arguments and errors are those of :func:`group_folder`.
    """
    folder = group_folder(layout, hierarchy, name, pid)
    below = f"{folder}/{_BELOW_SCOPE}"
    if hierarchy.version != 2 or not folder.endswith(_SCOPE):
        return (folder,)
    has_own = os.path.exists(f"{below}/{_SETTING[hierarchy.controller]}")  # noqa: PTH110 - one per container and check
    return (folder, below) if has_own else (folder,)


def missing(layout: CGroupLayout, hierarchy: Hierarchy, name: str, pid: int) -> CGroupTrouble:
    """Tell of a group that is not there whether it went with its processes, or is somewhere else.

    A process that lives is in some group. Where not even the topmost group of the name is there, neither groups nor
    processes of the node may be in sight, for example from inside of a container, and nothing is known.

    Args:
        layout: of the machine.
        hierarchy: in which the group is wanted.
        name: as for :func:`group_folder`.
        pid: a process in the group; 0 when none is known.
    """
    with suppress(OSError):
        text = Path(f"{layout.root}/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
        # One that has ended and was not waited for is no process.
        if pid > 0 and text.rpartition(")")[2].split()[:1] not in (["Z"], ["X"]):
            return CGroupTrouble.NOT_FOUND
    parts = (group_path(name) or "").split("/")
    # A group right below the top leaves nothing behind when it goes.
    above = hierarchy.folder(parts[0] if len(parts) > 1 else "")
    return CGroupTrouble.GONE if parts[0] and above is not None and Path(above).is_dir() else CGroupTrouble.NOT_FOUND


def process_path(layout: CGroupLayout, hierarchy: Hierarchy, pid: int) -> str | None:
    """Return the path of the group of a process, from the top of the hierarchy; None when there is no such process.

    Also None for a group outside of what this process may see, which the kernel shows with ``..``.
    """
    try:
        text = Path(f"{layout.root}/proc/{pid}/cgroup").read_text(encoding="utf-8", errors="surrogateescape")
    except OSError:
        return None
    return path_in(text, hierarchy)


def path_in(text: str, hierarchy: Hierarchy) -> str | None:
    r"""Read ``/proc/PID/cgroup``.

    >>> path_in("3:cpuset:/a\n2:cpu,cpuacct:/b:c\n0::/d\n", Hierarchy(1, "/x", "cpu"))
    '/b:c'
    >>> path_in("0::/d\n", Hierarchy(2, "/x", "cpu")), path_in("0::/../d\n", Hierarchy(2, "/x", "cpu"))
    ('/d', None)
    """
    for line in text.splitlines():
        number, _, rest = line.partition(":")
        controllers, _, path = rest.partition(":")
        is_it = number == "0" if hierarchy.version == 2 else hierarchy.controller in controllers.split(",")
        if is_it:
            path = path.removesuffix(" (deleted)")
            return path if path.startswith("/") and ".." not in path.split("/") else None
    return None


def groups_of_pod_above(hierarchy: Hierarchy, folder: str) -> tuple[str, ...]:
    """Return the groups above ``folder`` that belong to its pod, the pod's own first; none outside of pods."""
    found: list[str] = []
    above = folder.rpartition("/")[0]
    while ControlGroup(hierarchy.path(above), CPUSet()).pod:
        found.insert(0, above)
        above = above.rpartition("/")[0]
    return tuple(found)


def has_processes(hierarchy: Hierarchy, folder: str) -> bool:
    """Tell whether a group or one below it has a process.

    Raises:
        GroupError: it cannot be told.
    """
    if hierarchy.version == 2:
        return "populated 1" in read(f"{folder}/cgroup.events").splitlines()
    if read(f"{folder}/cgroup.procs"):
        return True
    for below, _, _ in os.walk(folder):
        try:
            if read(f"{below}/cgroup.procs"):
                return True
        except GroupError as error:
            # One of several below may go while they are read.
            if error.trouble is not CGroupTrouble.GONE:
                return True
    return False
