"""Which control groups may run on which CPUs.

Source: kernel Documentation/admin-guide/cgroup-v2.rst (cpuset), cgroup-v1/cpusets.rst; names of pod groups: kubelet
v1.37.1, cgroup manager with both drivers.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from mooring.engine.core.cpuset import CPUSet, CPUSetSyntaxError
from mooring.inputs.machines.tree import Tree

ROOT: Final = "sys/fs/cgroup"
_MOST_GROUPS: Final = 20_000
"""Groups that are read; a node with 250 pods has about 2,000."""
_POD: Final = re.compile(r"(?:^|-|/)pod(?P<uid>[0-9a-f]{8}[-_][0-9a-f-_]{27}|[0-9a-f]{32})(?:\.slice)?(?:/|$)")


@dataclass(frozen=True, slots=True)
class ControlGroup:
    """One group that has processes of its own."""

    path: str
    """Below the root of the hierarchy, such as ``system.slice/sshd.service``."""
    cpus: CPUSet
    """Where its processes may run."""

    @property
    def pod(self) -> str:
        """The uid of the pod whose group this is or lies in; empty outside of pods.

        >>> ControlGroup("kubepods.slice/kubepods-pod0a1b2c3d_0000_1111_2222_333344445555.slice", CPUSet()).pod
        '0a1b2c3d-0000-1111-2222-333344445555'
        """
        found = _POD.search(self.path)
        return found["uid"].replace("_", "-") if found is not None else ""


def read_control_groups(tree: Tree) -> tuple[ControlGroup, ...] | None:
    """Return the groups with processes, in the order of their paths; None where no cpusets can be read."""
    if tree.exists(f"{ROOT}/cgroup.controllers"):
        return tuple(_groups(tree, ROOT, ("cpuset.cpus.effective",)))
    if tree.is_dir(f"{ROOT}/cpuset"):
        return tuple(_groups(tree, f"{ROOT}/cpuset", ("cpuset.effective_cpus", "cpuset.cpus")))
    return None


def _groups(tree: Tree, root: str, names: tuple[str, ...]) -> Iterator[ControlGroup]:
    pending: list[tuple[str, CPUSet | None]] = [("", None)]
    seen = 0
    while pending and seen < _MOST_GROUPS:
        path, inherited = pending.pop()
        seen += 1
        folder = f"{root}/{path}".rstrip("/")
        # A group without the controller has no file of its own and follows its parent.
        cpus = _cpus(tree, folder, names)
        cpus = inherited if cpus is None else cpus
        if path and cpus is not None and _has_processes(tree, folder):
            yield ControlGroup(path, cpus)
        children = [name for name in tree.names(folder) if tree.is_dir(f"{folder}/{name}")]
        pending.extend((f"{path}/{name}".lstrip("/"), cpus) for name in reversed(children))


def _cpus(tree: Tree, folder: str, names: tuple[str, ...]) -> CPUSet | None:
    for name in names:
        text = tree.read(f"{folder}/{name}")
        if text is not None:
            try:
                return CPUSet.parse(text.strip())
            except CPUSetSyntaxError:
                return None
    return None


def _has_processes(tree: Tree, folder: str) -> bool:
    """Tell whether processes are in the group itself; a snapshot that does not tell is taken for yes."""
    text = tree.read(f"{folder}/cgroup.procs")
    return text is None or bool(text.strip())
