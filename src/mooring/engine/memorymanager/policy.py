"""What the static policy knows before the first pod.

Source: kubelet v1.37.1, memorymanager policy_static.go; spec: memory-manager.md section 1.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from mooring.engine.core.pod import PodLevelGates
from mooring.engine.core.release import NEWEST_RULES, ReleaseRules
from mooring.engine.memorymanager.state import MemoryState, NUMANodeState

STATIC = "Static"


@dataclass(frozen=True, slots=True)
class MemoryPolicy:
    """Everything that the policy knows before the first pod."""

    default_nodes: Mapping[int, NUMANodeState]
    """The machine state of an empty node."""
    gates: PodLevelGates = field(default_factory=PodLevelGates)
    fixed_defects: frozenset[str] = frozenset()
    """Defects of v1.37.1 that are not to be reproduced (spec: README.md section 5)."""
    resizes: bool = False
    """Whether memory grows with a resize (extension exclusive-resize with its gate)."""
    older: ReleaseRules = NEWEST_RULES
    """Rules of an older release that decide in place of those of the newest."""

    def counts_as_a_whole(self, state: MemoryState, uid: str) -> bool:
        """Tell whether the machine is charged with the blocks of the pod itself, and not with its containers'.

        That is so as soon as the pod has an entry, be it an empty one; what its containers' blocks say is then never
        checked (spec: memory-manager.md sections 6 and 7).
        """
        return self.gates.managers and uid in state.pods
