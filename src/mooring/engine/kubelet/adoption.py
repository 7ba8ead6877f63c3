"""A kubelet ready to be asked: started, with its devices, and with the pods of its state files that nothing describes.

These count as running and keep what they have.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence

from mooring.engine.core.config import KubeletConfig, MooringConfig
from mooring.engine.core.cpuset import CPUSet
from mooring.engine.core.machine import Finding, Machine
from mooring.engine.core.observer import Observer
from mooring.engine.core.pod import Container, Pod
from mooring.engine.devicemanager.state import DeviceState
from mooring.engine.extensions.owners import state_owner
from mooring.engine.kubelet.kubelet import StateTexts
from mooring.engine.kubelet.start import NotStarted, Start, start_on
from mooring.engine.node import Node
from mooring.lazy import dataclass, field, replace

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


@dataclass(frozen=True, slots=True)
class Opened:
    """What a start came to, and which pods were adopted."""

    start: Start
    """The kubelet has the devices and counts the adopted pods as running."""
    others: Mapping[str, Held] = field(default_factory=dict)
    """Uid -> what a pod that does not run already has in the state files."""


def opened(
    machine: Machine,
    config: KubeletConfig,
    mooring: MooringConfig,
    files: StateTexts,
    devices: DeviceState,
    *,
    active: Sequence[Pod],
    pods: Iterable[Pod],
    observer: Observer | None = None,
) -> Opened:
    """Start a kubelet on its files, and adopt the pods that the files name and that do not run already.

    Args:
        machine: decisions use the kubelet's view of it.
        config: of the kubelet.
        mooring: extensions and fixed defects.
        files: texts of existing state files.
        devices: of the node, and what pods hold of them.
        active: pods that run already and are to be admitted again.
        pods: pods that are to be admitted; where the files name one of them it runs already.
        observer: receives what the start found.
    """
    start = start_on(machine, config, mooring, files, observer)
    if isinstance(start, NotStarted):
        return Opened(start)
    running = {pod.uid for pod in active}
    others = held_by_others(start.node, running)
    # What ended pods held stands in the kubelet's record until it gives the devices away again.
    held = {uid: containers for uid, containers in devices.held.items() if uid in running or uid in others}
    kubelet = start.with_devices(replace(devices, held=held))
    node = kubelet.node.adopt(adopted(others, {pod.uid: pod for pod in pods}))
    return Opened(replace(kubelet, node=node), others)


def held_by_others(node: Node, known: Collection[str]) -> dict[str, Held]:
    """Return what pods outside ``known`` hold, by uid; claims are no pods, and hidden threads go with theirs."""
    cpus, memory = node.cpu.assignments, node.memory.assignments
    return {
        uid: Held({name: CPUSet(mask) for name, mask in cpus.get(uid, {}).items()}, tuple(memory.get(uid, {})))
        for uid in dict.fromkeys([*cpus, *memory])
        if uid not in known and state_owner(uid).is_pods
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
