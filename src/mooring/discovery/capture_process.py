"""The running kubelet of a computer, found by its name in ``/proc``."""

from __future__ import annotations

from mooring.discovery.tree import Tree

NAME = "kubelet"
"""What the kernel calls the process; distributions that build the kubelet into another program are not found."""


def kubelet_arguments(tree: Tree) -> tuple[str, ...] | None:
    """Return the arguments of the running kubelet, without its own name; None when there is none.

    Of several, such as those of a cluster inside containers, the one with the lowest process id is meant.
    """
    for number in sorted(int(name) for name in tree.names("proc") if name.isascii() and name.isdigit()):
        if (tree.read(f"proc/{number}/comm") or "").strip() != NAME:
            continue
        line = tree.read(f"proc/{number}/cmdline") or ""
        arguments = line.removesuffix("\0").split("\0")
        return tuple(arguments[1:])
    return None
