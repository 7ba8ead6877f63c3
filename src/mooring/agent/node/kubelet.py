"""The kubelet of this node, checked again and again: one that manages CPUs itself may start after the agent.

The shipped unit starts the agent before the kubelet, so that at a boot there is no kubelet to ask; and a kubelet can be
restarted with other flags at any time. The agent then goes on, reads its files anew, or ends. A check costs two small
files while the kubelet is the same.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from mooring.agent.configuration import refuse_kubelet_beside
from mooring.agent.options import AgentOptions
from mooring.agent.pods.cluster import ClusterReporter, about_node
from mooring.agent.pods.events import ClusterEvent
from mooring.core.errors import InputError
from mooring.discovery.capture.process import KubeletHere, KubeletProcess, kubelet_here, still_runs
from mooring.discovery.files import open_tree
from mooring.discovery.tree import Tree
from mooring.manifest.kubelet_flags import KubeletFlags, kubelet_flags
from mooring.service.logs import Log


@dataclass(frozen=True, slots=True)
class KubeletCheck:
    """Result of a check of the kubelet."""

    conflict: InputError | None = None
    """Why kubelet and agent cannot go on beside each other."""
    is_told_otherwise: bool = False
    """Whether its flags say other things about the node than those with which the configuration was read."""
    embedding: str = ""
    """A program that has the kubelet in it and does not show what that was told."""


class KubeletFinder:
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

    def check(self, kubelet_config: str) -> KubeletCheck:
        """Look whether there is another kubelet, and whether the agent may run beside it.

        Args:
            kubelet_config: the file of the node's kubelet that was named to the agent, or an empty text.
        """
        found = self._found(self._opened())
        process = found.process
        if process is None:
            return KubeletCheck(embedding=found.embedding)
        if process == self._judged:
            return KubeletCheck()
        flags = kubelet_flags(process.arguments)
        try:
            refuse_kubelet_beside(kubelet_config, flags)
        except InputError as error:
            return KubeletCheck(error)
        self._judged = process
        return KubeletCheck(is_told_otherwise=bool(kubelet_config) and flags.fields != self._told)

    def _found(self, tree: Tree) -> KubeletHere:
        if self._process is not None and still_runs(tree, self._process):
            return KubeletHere(self._process)
        found = kubelet_here(tree)
        self._process = found.process
        return found


PERIOD = 10.0
"""Seconds between two checks."""
REASON = "KubeletManagesCPUs"
"""Reason of the event about a node on which the agent ends."""


class KubeletWatch:
    """Looks at the kubelet while the agent runs.

    Beside a kubelet that manages CPUs itself the agent ends, as it does not begin beside one: each would undo every ten
    seconds what the other writes, and neither knows to whom the other gave a CPU. Who came first must not matter,
    because the shipped unit starts the agent before the kubelet.
    """

    def __init__(
        self, beside: KubeletFinder, outward: ClusterReporter, node: str, log: Log, told: Callable[[], object]
    ) -> None:
        """Look at nothing yet.

        Args:
            beside: finds the kubelet.
            outward: tells the cluster.
            node: name of the node in it.
            log: of the agent.
            told: called when the kubelet's flags say other things about the node than before.
        """
        self._beside, self._outward, self._node, self._log, self._told = beside, outward, node, log, told
        self._next = -math.inf
        self._embedding = ""
        self.conflict: InputError | None = None
        """Why the agent must end."""

    def ask(self) -> None:
        """Look at the next call, whether it is time to or not."""
        self._next = -math.inf

    def check(self, now: float, options: AgentOptions) -> None:
        """Look when it is time to.

        Args:
            now: seconds that only go forward.
            options: in force.
        """
        if now < self._next:
            return
        self._next = now + PERIOD
        found = self._beside.check(options.kubelet_config)
        if found.conflict is not None and self.conflict is None:
            self.conflict = found.conflict
            self._log.error("the agent stops: the kubelet manages CPUs or memory itself", why=str(found.conflict))
            self._outward.event(ClusterEvent(about_node(self._node), REASON, f"the agent ends: {found.conflict}"))
        if found.is_told_otherwise:
            self._told()
        if found.embedding and found.embedding != self._embedding:
            self._embedding = found.embedding
            self._log.warning(
                "a program embeds the kubelet and does not show its flags; its policies must be none and None",
                program=found.embedding,
            )
