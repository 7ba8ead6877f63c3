"""The node of a kubelet that runs: its files as an archive has them, and the machine itself."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from mooring.documents.machine import NodeArchiveDocument
from mooring.inputs.archive.collect import CollectRequest, kubelet_files
from mooring.inputs.archive.reader import NodeArchive, RunningKubelet
from mooring.inputs.machines.capture.process import KubeletProcess
from mooring.inputs.machines.tree import Tree


@dataclass(frozen=True, slots=True)
class OverlaidTree:
    """A tree with some files in the places that they have in an archive, which count in place of its own."""

    computer: Tree
    files: Mapping[str, bytes]

    @property
    def name(self) -> str:
        """See :class:`~mooring.inputs.machines.tree.Tree`."""
        return self.computer.name

    def read(self, path: str) -> str | None:
        """See :meth:`~mooring.inputs.machines.tree.Tree.read`."""
        data = self.files.get(path)
        return self.computer.read(path) if data is None else data.decode(errors="replace")

    def data(self, path: str) -> bytes | None:
        """See :meth:`~mooring.inputs.machines.tree.Tree.data`."""
        data = self.files.get(path)
        return self.computer.data(path) if data is None else data

    def names(self, path: str) -> tuple[str, ...]:
        """See :meth:`~mooring.inputs.machines.tree.Tree.names`."""
        return self.computer.names(path)

    def exists(self, path: str) -> bool:
        """See :meth:`~mooring.inputs.machines.tree.Tree.exists`."""
        return path in self.files or self.computer.exists(path)

    def is_dir(self, path: str) -> bool:
        """See :meth:`~mooring.inputs.machines.tree.Tree.is_dir`."""
        return self.computer.is_dir(path)

    def place(self, path: str) -> str | None:
        """See :meth:`~mooring.inputs.machines.tree.Tree.place`."""
        return path if path in self.files else self.computer.place(path)


def running_node(tree: Tree, process: KubeletProcess, request: CollectRequest) -> NodeArchive:
    """Return the node of a running kubelet as it is now.

    Args:
        tree: its computer.
        process: the kubelet.
        request: its flags, its root directory and what the cluster said.

    Raises:
        InputError: a file of the configuration cannot be understood.
    """
    files, parts = kubelet_files(tree, request, {})
    about = NodeArchiveDocument(node=request.node, kubelet=request.kubelet, parts=parts)
    return NodeArchive(OverlaidTree(tree, files), about, RunningKubelet(process.number, request.kubelet_root))
