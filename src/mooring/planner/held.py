"""What the state files say of pods that nobody describes: they count as running and keep what they have."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

from mooring.core.cpuset import CPUSet
from mooring.core.machine import Finding
from mooring.core.pod import Container, Pod
from mooring.cpumanager.claimed import is_claim
from mooring.cpumanager.hidden import is_hidden
from mooring.node import Node

NAMED = 3
"""How many uids a message names."""


@dataclass(frozen=True, slots=True)
class Held:
    """What one pod has in the state files."""

    cpus: Mapping[str, CPUSet] = field(default_factory=dict)
    """Container -> CPUs."""
    memory: Collection[str] = ()
    """Containers with memory."""

    @property
    def containers(self) -> tuple[str, ...]:
        """All containers with an entry, those with CPUs first."""
        return tuple(dict.fromkeys([*self.cpus, *self.memory]))


def held_by_others(node: Node, known: Collection[str]) -> dict[str, Held]:
    """Return what pods outside ``known`` hold, by uid; claims are no pods, and hidden threads go with theirs."""
    cpus, memory = node.cpu.assignments, node.memory.assignments
    return {
        uid: Held(
            {name: CPUSet(mask) for name, mask in cpus.get(uid, {}).items()},
            tuple(memory.get(uid, {})),
        )
        for uid in dict.fromkeys([*cpus, *memory])
        if uid not in known and not is_claim(uid) and not is_hidden(uid)
    }


def adopted(others: Mapping[str, Held], given: Mapping[str, Pod]) -> list[Pod]:
    """Return pods that keep these entries from being stale: the given ones, else stand-ins without requests."""
    return [
        given[uid] if uid in given else Pod(uid, uid, "", tuple(Container(name) for name in held.containers))
        for uid, held in others.items()
    ]


def held_findings(others: Mapping[str, Held], given: Mapping[str, Pod]) -> list[Finding]:
    """Return what a person should know about these entries."""
    strangers = sorted(uid for uid in others if uid not in given)
    known = sorted(uid for uid in others if uid in given)
    found = []
    if strangers:
        them = "it counts as running and keeps what it has, but its requests are not counted"
        if len(strangers) > 1:
            them = "they count as running and keep what they have, but their requests are not counted"
        problem = f"hold entries of {_pods(strangers)} that no --active file describes ({_named(strangers)}); {them}"
        found.append(Finding("warning", "state files", problem, "MOOR-505"))
    if known:
        problem = f"hold entries of {_pods(known)} given with -f ({_named(known)}), which therefore run already"
        found.append(Finding("warning", "state files", f"{problem}; running pods belong to --active", "MOOR-506"))
    return found


def _pods(uids: Collection[str]) -> str:
    return f"{len(uids)} pod{'' if len(uids) == 1 else 's'}"


def _named(uids: list[str]) -> str:
    return ", ".join(uids[:NAMED]) + (", ..." if len(uids) > NAMED else "")
