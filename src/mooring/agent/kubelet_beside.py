"""The kubelet of this node, looked for again and again: the one that manages CPUs itself may come after the agent.

The shipped unit starts the agent before the kubelet, so that at a boot there is none to ask; and a kubelet can be
restarted with other flags at any time. A look costs two small files while the kubelet is the same.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from mooring.agent.configuration import refuse_kubelet_beside
from mooring.core.errors import InputError
from mooring.discovery.capture.process import KubeletHere, KubeletProcess, kubelet_here, still_runs
from mooring.discovery.tree import Tree, open_tree
from mooring.manifest.kubelet_flags import KubeletFlags, kubelet_flags


@dataclass(frozen=True, slots=True)
class Look:
    """What a look at the kubelet came to."""

    conflict: InputError | None = None
    """Why kubelet and agent cannot go on beside each other."""
    is_told_otherwise: bool = False
    """Whether its flags say other things about the node than those with which the configuration was read."""
    embedding: str = ""
    """A program that has the kubelet in it and does not show what that was told."""


class KubeletBeside:
    """Finds the kubelet and remembers it. Its calls come from one thread."""

    def __init__(self, opened: Callable[[], Tree] = lambda: open_tree("/")) -> None:
        """Look at nothing yet.

        Args:
            opened: returns the computer's files, as they are then.
        """
        self._opened = opened
        self._process: KubeletProcess | None = None
        self._judged: KubeletProcess | None = None
        self._told: Mapping[str, Any] = {}

    def flags(self) -> KubeletFlags | None:
        """Return what decides on the command line of the kubelet that runs; None when there is none."""
        process = self._found(self._opened()).process
        flags = None if process is None else kubelet_flags(process.arguments)
        self._told = {} if flags is None else flags.fields
        return flags

    def look(self, kubelet_config: str) -> Look:
        """Look whether there is another kubelet, and whether the agent may run beside it.

        Args:
            kubelet_config: the file of the node's kubelet that was named to the agent, or an empty text.
        """
        found = self._found(self._opened())
        process = found.process
        if process is None:
            return Look(embedding=found.embedding)
        if process == self._judged:
            return Look()
        flags = kubelet_flags(process.arguments)
        try:
            refuse_kubelet_beside(kubelet_config, flags)
        except InputError as error:
            return Look(error)
        self._judged = process
        return Look(is_told_otherwise=bool(kubelet_config) and flags.fields != self._told)

    def _found(self, tree: Tree) -> KubeletHere:
        if self._process is not None and still_runs(tree, self._process):
            return KubeletHere(self._process)
        found = kubelet_here(tree)
        self._process = found.process
        return found
