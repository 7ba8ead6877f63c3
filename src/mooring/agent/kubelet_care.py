"""What becomes of the agent when the kubelet of its node is another one: it goes on, reads its files anew, or ends."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from mooring.agent.kubelet_beside import KubeletBeside
from mooring.agent.options import AgentOptions
from mooring.agent.pods.events import Happening
from mooring.agent.pods.outward import Outward, about_node
from mooring.core.errors import InputError

PERIOD = 10.0
"""Seconds between two looks."""
REASON = "KubeletManagesCPUs"
"""Reason of the event about a node on which the agent ends."""


class KubeletCare:
    """Looks at the kubelet while the agent runs.

    Beside a kubelet that manages CPUs itself the agent ends, as it does not begin beside one: each would undo every ten
    seconds what the other writes, and neither knows to whom the other gave a CPU. Who came first must not matter,
    because the shipped unit starts the agent before the kubelet.
    """

    def __init__(
        self, beside: KubeletBeside, outward: Outward, node: str, log: Any, told: Callable[[], object]
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

    def look(self, now: float, options: AgentOptions) -> None:
        """Look when it is time to.

        Args:
            now: seconds that only go forward.
            options: in force.
        """
        if now < self._next:
            return
        self._next = now + PERIOD
        found = self._beside.look(options.kubelet_config)
        if found.conflict is not None and self.conflict is None:
            self.conflict = found.conflict
            self._log.error("the agent ends: the kubelet manages CPUs or memory itself", why=str(found.conflict))
            self._outward.event(Happening(about_node(self._node), REASON, f"the agent ends: {found.conflict}"))
        if found.is_told_otherwise:
            self._told()
        if found.embedding and found.embedding != self._embedding:
            self._embedding = found.embedding
            self._log.warning(
                "a program has the kubelet in it and does not show what that was told; its policies must be none and "
                "None",
                program=found.embedding,
            )
