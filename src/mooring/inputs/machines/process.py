"""The running kubelet of a computer, found by its name in ``/proc``."""

from __future__ import annotations

from collections.abc import Collection, Iterator

from mooring.inputs.machines.tree import Tree
from mooring.lazy import dataclass

NAME = "kubelet"
"""What the kernel calls the process. RKE2, k0s and all that run the kubelet as a program of its own are found."""

EMBEDDING = frozenset({"k3s-server", "k3s-agent", "kubelite"})
"""Processes that have the kubelet in them: k3s, which blanks its command line for the secrets in it, and MicroK8s,
which has the arguments in a file. The arguments of their kubelet are unknown."""


@dataclass(frozen=True, slots=True)
class KubeletProcess:
    """A kubelet that runs."""

    number: int
    """Process id."""
    arguments: tuple[str, ...]
    """Without its own name."""


@dataclass(frozen=True, slots=True)
class KubeletHere:
    """What a look through all processes found."""

    process: KubeletProcess | None = None
    """The kubelet as a program of its own; of several the one with the lowest process id."""
    embedding: str = ""
    """Where there is none: the name of a program that has the kubelet in it."""


def kubelet_here(tree: Tree) -> KubeletHere:
    """Look through all processes, once, for the kubelet of this computer.

    Those of a cluster inside containers, which have a process id of their own there, are no kubelets of this computer.
    """
    embedding = ""
    for number, name in processes(tree, EMBEDDING | {NAME}):
        if name == NAME:
            arguments = _arguments(tree, number)
            if arguments is not None and not _is_nested(tree, number):
                return KubeletHere(KubeletProcess(number, arguments))
        elif not embedding and not _is_nested(tree, number):
            embedding = name
    return KubeletHere(embedding=embedding)


def still_runs(tree: Tree, process: KubeletProcess) -> bool:
    """Tell whether it is there and the same, without a look at all the others."""
    return _name(tree, process.number) == NAME and _arguments(tree, process.number) == process.arguments


def kubelet_arguments(tree: Tree) -> tuple[str, ...] | None:
    """Return the arguments of the running kubelet, without its own name; None when there is none."""
    found = kubelet_here(tree).process
    return None if found is None else found.arguments


def processes(tree: Tree, names: Collection[str]) -> Iterator[tuple[int, str]]:
    """Yield process ids and names of the processes with these names, the lowest first."""
    for number in sorted(int(name) for name in tree.names("proc") if name.isascii() and name.isdigit()):
        if (name := _name(tree, number)) in names:
            yield number, name


def _name(tree: Tree, number: int) -> str:
    return (tree.read(f"proc/{number}/comm") or "").strip()


def _arguments(tree: Tree, number: int) -> tuple[str, ...] | None:
    """Return the arguments; None for a process that has ended and is still listed."""
    line = tree.read(f"proc/{number}/cmdline") or ""
    return tuple(line.removesuffix("\0").split("\0")[1:]) if line else None


def _is_nested(tree: Tree, number: int) -> bool:
    """Tell whether the process is in a process namespace below this one (Linux, proc(5): NSpid)."""
    for line in (tree.read(f"proc/{number}/status") or "").splitlines():
        if line.startswith("NSpid:"):
            return len(line.split()) > 2
    return False
