"""Archives of a machine and its node, as readers of their bytes."""

from __future__ import annotations

import io
import os
import tarfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from types import MappingProxyType

from mooring.inputs.archive.reader import node_of
from mooring.inputs.machines.archive import ArchiveTree, read_archive
from mooring.inputs.machines.loader import machine_of
from mooring.inputs.pods.pod_files import active_pods

NAME = "input"
_FOLDER = Path(__file__).resolve().parent.parent.parent / "examples" / "node"


@contextmanager
def in_memory(data: bytes) -> Iterator[str]:
    """Give the bytes a path, for what reads files only; the kernel keeps them in memory."""
    descriptor = os.memfd_create(NAME)
    try:
        os.write(descriptor, data)
        yield f"/proc/self/fd/{descriptor}"
    finally:
        os.close(descriptor)


def read(data: bytes) -> object:
    """A machine and a node, from the bytes of an archive."""
    with in_memory(data) as path:
        return _node(read_archive(path))


def _node(tree: ArchiveTree) -> object:
    return machine_of(tree), _described(tree)


def _described(tree: ArchiveTree) -> object:
    archive = node_of(tree)
    return (
        archive.configuration(),
        archive.state(),
        active_pods(archive.pod_documents(), archive.about.node),
        archive.findings(),
    )


def seeds() -> list[bytes]:
    """Return archives of one file each, and one of a machine."""
    machine = {path: text for path, text in _small_node().items() if path.startswith(("mooring", "sys/devices/system"))}
    return [_tar({path: text}) for path, text in list(_node_files().items())[:20]] + [_tar(machine, _LINKS)]


@cache
def _node_files() -> dict[str, bytes]:
    return {str(path.relative_to(_FOLDER)): path.read_bytes() for path in sorted(_FOLDER.rglob("*")) if path.is_file()}


def _tar(files: dict[str, bytes], links: Mapping[str, str] = MappingProxyType({})) -> bytes:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as archive:
        for name, content in files.items():
            about = tarfile.TarInfo(name)
            about.size = len(content)
            archive.addfile(about, io.BytesIO(content))
        for name, target in links.items():
            about = tarfile.TarInfo(name)
            about.type, about.linkname = tarfile.SYMTYPE, target
            archive.addfile(about)
    return out.getvalue()


_LINKS = {f"sys/devices/system/node/node{cpu // 2}/cpu{cpu}": f"../../cpu/cpu{cpu}" for cpu in range(4)}


@cache
def _small_node() -> dict[str, bytes]:
    """The example node with its first four CPUs only, two on each NUMA node."""
    files = {
        path: content
        for path, content in _node_files().items()
        if not path.startswith("sys/devices/system/cpu/cpu") or path.split("/")[4] in ("cpu0", "cpu1", "cpu2", "cpu3")
    }
    first = files["proc/cpuinfo"].split(b"\n\n")[0]
    files["proc/cpuinfo"] = b"\n\n".join(first.replace(b": 0", b": %d" % cpu, 1) for cpu in range(4))
    for cpu in range(4):
        folder = f"sys/devices/system/cpu/cpu{cpu}/topology"
        files[f"{folder}/physical_package_id"] = b"%d" % (cpu // 2)
        files[f"{folder}/core_id"] = b"%d" % (cpu % 2)
        files[f"{folder}/thread_siblings"] = b"%x" % (1 << cpu)
        files[f"{folder}/core_siblings"] = (b"3", b"c")[cpu // 2]
    for node, (mask, cpus) in enumerate(((b"3", b"0-1"), (b"c", b"2-3"))):
        files[f"sys/devices/system/node/node{node}/cpumap"] = mask
        files[f"sys/devices/system/node/node{node}/cpulist"] = cpus
    return {**files, "sys/devices/system/cpu/online": b"0-3", "sys/devices/system/cpu/possible": b"0-3"}


def read_with_file(data: bytes) -> object:
    """A node with one file replaced: which one, by number, and its new content."""
    if len(data) < 2:
        return None
    files = _small_node()
    names = sorted(files)
    name = names[int.from_bytes(data[:2], "big") % len(names)]
    tree = ArchiveTree(NAME, {**files, name: data[2:]}, _LINKS)
    return machine_of(tree) if name.startswith(("sys/", "proc/")) else _described(tree)


def file_seeds() -> list[bytes]:
    """Return every file of the node, with its number."""
    files = _small_node()
    return [number.to_bytes(2, "big") + files[name] for number, name in enumerate(sorted(files))]
