"""Reading off a computer what a node archive needs of it.

Only what :mod:`mooring.inputs.machines.capture.patterns` names is read, and links are followed as a :class:`Tree` does:
never out of it.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import Final

from mooring.inputs.machines.cadvisor.probe import read_problem
from mooring.inputs.machines.capture.patterns import (
    CPU_LINKS,
    GROUP_FILES,
    INITIATORS,
    ISOLATION,
    MACHINE,
    NAMES,
    PCI_DEVICES,
    PCI_FILES,
    PROCESS,
    kept,
)
from mooring.inputs.machines.cgroups import ROOT as GROUPS
from mooring.inputs.machines.files import LiveTree
from mooring.inputs.machines.hardware.cpusets import cpuset_files
from mooring.inputs.machines.tree import Tree

NOTE: Final = "proc/hwloc-nofile-info"
"""The note about a snapshot's architecture, as hwloc-gather-topology writes it."""
LARGEST_FILE: Final = 16 * 2**20
"""Larger files are no files of a kernel; ``/proc/cpuinfo`` of 4096 CPUs has about 6 MiB."""
MOST_GROUPS: Final = 20_000
"""Control groups that are read: a node with 1000 pods has about 4000."""

_BOOT: Final = "proc/sys/kernel/random/boot_id"
_POD_GROUPS: Final = ("kubepods", "kubepods.slice", "kubelet", "kubelet.slice")
_WILD: Final = frozenset("*?[")


@dataclass(slots=True)
class Capture:
    """Files, links and folders by path, and what could not be read."""

    files: dict[str, bytes] = field(default_factory=dict)
    links: dict[str, str] = field(default_factory=dict)
    folders: set[str] = field(default_factory=set)
    unread: dict[str, str] = field(default_factory=dict)
    """Path -> why it could not be read, though it is there."""


def capture_machine(tree: Tree) -> Capture:
    """Capture what :func:`mooring.inputs.machines.loader.machine_of` reads: of the copy it makes the same machine."""
    capture = Capture()
    for pattern in MACHINE:
        _take(tree, pattern, capture)
    for pattern in NAMES:
        capture.folders.update(path for path in _matches(tree, pattern) if tree.is_dir(path))
    capture.folders.update(_matches(tree, INITIATORS))
    _keep_places(tree, capture)
    for path in _matches(tree, CPU_LINKS):
        # Whatever the link says there: the kernel links nothing else under these names.
        capture.links[path] = f"../../cpu/{path.rpartition('/')[2]}"
    for path in cpuset_files(tree):
        _take_file(tree, "/".join(part for part in path.split("/") if part), capture)
    if NOTE not in capture.files and _is_this_computer(tree):
        system = f"Architecture: {os.uname().machine}\nPageSize: {os.sysconf('SC_PAGE_SIZE')}\n"
        capture.files[NOTE] = system.encode()
    return capture


def _keep_places(tree: Tree, capture: Capture) -> None:
    """Put the files of PCI devices where the kernel has them: the path of a device names its PCIe root."""
    for folder in _matches(tree, f"{PCI_DEVICES}/*"):
        place = tree.place(folder)
        if place is None or not place.startswith("sys/devices/"):
            continue
        capture.links[folder] = f"../../../{place.removeprefix('sys/')}"
        capture.folders.discard(folder)
        capture.folders.add(place)
        for name in PCI_FILES:
            data = capture.files.pop(f"{folder}/{name}", None)
            if data is not None:
                capture.files[f"{place}/{name}"] = data


def capture_isolation(tree: Tree, *, service_names: bool = True) -> Capture:
    """Capture what else may run on exclusive CPUs.

    Args:
        tree: the computer.
        service_names: with the control groups of single services; else only those of pods and of whole slices.
    """
    capture = Capture()
    for pattern in ISOLATION:
        _take(tree, pattern, capture)
    for entry in tree.names("proc"):
        if entry.isdecimal() and (tree.read(f"proc/{entry}/comm") or "").strip() == PROCESS:
            _take_file(tree, f"proc/{entry}/comm", capture)
    for group in _groups(tree, service_names=service_names):
        capture.folders.add(group)
        for name in GROUP_FILES:
            _take_file(tree, f"{group}/{name}", capture)
    return capture


def _take(tree: Tree, pattern: str, capture: Capture) -> None:
    """Take the files that a pattern names, and the folders on the way to them."""
    folder, _, name = pattern.rpartition("/")
    for place in _matches(tree, folder):
        if not tree.is_dir(place):
            continue
        capture.folders.add(place)
        names = _fnmatched(tree.names(place), name) if _WILD & set(name) else (name,)
        for found in names:
            _take_file(tree, f"{place}/{found}", capture)
    # A folder above one that is missing means something too: a CPU without topology is there, and offline.
    while _WILD & set(folder):
        folder = folder.rpartition("/")[0]
        capture.folders.update(place for place in _matches(tree, folder) if tree.is_dir(place))


def _take_file(tree: Tree, path: str, capture: Capture) -> None:
    data = tree.data(path)
    if data is not None and len(data) > LARGEST_FILE:
        capture.unread[path] = f"larger than {LARGEST_FILE} bytes"
    elif data is not None:
        capture.files[path] = kept(path, data)
    elif tree.is_dir(path):
        capture.folders.add(path)
    elif tree.exists(path):
        capture.unread[path] = read_problem(tree, path).rpartition(": ")[2]


def _matches(tree: Tree, pattern: str) -> Iterator[str]:
    """Yield the paths that a pattern names and whose folder is there, in text order."""
    parts = pattern.split("/")
    found = [""]
    for index, part in enumerate(parts):
        if _WILD & set(part):
            found = [_join(place, name) for place in found for name in _fnmatched(tree.names(place), part)]
        else:
            found = [_join(place, part) for place in found]
            if index == len(parts) - 1 or _WILD & set(parts[index + 1]):
                found = [place for place in found if tree.is_dir(place)]
    return iter(found)


def _fnmatched(names: tuple[str, ...], pattern: str) -> list[str]:
    """Return the names that a pattern of a shell fits.

    >>> _fnmatched(("cpu0", "cpu10", "cpuidle"), "cpu*[0-9]")
    ['cpu0', 'cpu10']
    """
    return [name for name in names if fnmatchcase(name, pattern)]


def _join(folder: str, name: str) -> str:
    return f"{folder}/{name}" if folder else name


def _groups(tree: Tree, *, service_names: bool) -> Iterator[str]:
    """Yield control groups, parents first: all of them, or without single services outside of the kubelet's."""
    root = GROUPS if tree.exists(f"{GROUPS}/cgroup.controllers") else f"{GROUPS}/cpuset"
    if not tree.is_dir(root):
        return
    pending = [(root, True)]
    count = 0
    while pending and count < MOST_GROUPS:
        group, inner = pending.pop()
        count += 1
        yield group
        for name in reversed(tree.names(group)) if inner else ():
            inside = f"{group}/{name}"
            if tree.is_dir(inside):
                of_pods = service_names or name in _POD_GROUPS or (group != root and inner)
                pending.append((inside, of_pods))


def _is_this_computer(tree: Tree) -> bool:
    """Tell whether the tree is the computer that runs this, seen directly or at another place (``/host``)."""
    if isinstance(tree, LiveTree):
        return True
    boot = tree.read(_BOOT)
    return boot is not None and boot == LiveTree().read(_BOOT)
