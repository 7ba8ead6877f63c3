"""What a sentence about a decision is made from: the settings, the pod, and the facts that the engine reported."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

from mooring.core.pod import Pod
from mooring.devicemanager.state import DeviceState
from mooring.memorymanager.state import MemoryState
from mooring.node.settings import Settings
from mooring.topologymanager.facts import HintsMerged

Fact = TypeVar("Fact")


@dataclass(frozen=True, slots=True)
class Circumstances:
    """What a sentence may need besides the decision."""

    settings: Settings
    pod: Pod
    facts: Sequence[object]
    """Everything that the engine reported, in order."""
    memory: MemoryState
    """The memory manager's state after the decision."""
    devices: DeviceState = field(default_factory=DeviceState)
    """The device manager's state after the decision."""


def last(facts: Iterable[object], kind: type[Fact]) -> Fact | None:
    """Return the last fact of a kind, or None."""
    found: Fact | None = None
    for fact in facts:
        if isinstance(fact, kind):
            found = fact
    return found


def last_merge(facts: Sequence[object]) -> Sequence[object]:
    """Return the facts of the last merge of hints: from the first question to its providers to its result."""
    merges = [position for position, fact in enumerate(facts) if isinstance(fact, HintsMerged)]
    if not merges:
        return ()
    return facts[merges[-2] + 1 if len(merges) > 1 else 0 : merges[-1] + 1]
