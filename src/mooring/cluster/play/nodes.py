"""A played node: its kubelet is the engine's, and faults happen to it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final, TypeAlias

from mooring.cluster.play.objects import FAULT
from mooring.engine.core.errors import InputError
from mooring.engine.core.pod import Pod
from mooring.engine.kubelet.events import EventResult, Living, Offline, Online, Restart, run
from mooring.engine.kubelet.kubelet import Kubelet
from mooring.engine.node import Node
from mooring.engine.node.hotplug import check_known
from mooring.fleet.cluster import Member
from mooring.inputs.decoding.quantities import nanoseconds
from mooring.inputs.pods.defaults import PodGates
from mooring.inputs.pods.pods import cpu_list, pod_from_object

Document: TypeAlias = dict[str, Any]
FAULTS: Final = (
    "restart", "lose-state", "offline=CPUS", "online=CPUS", "unhealthy=DEVICES", "healthy=DEVICES", "slow=DURATION",
)  # fmt: skip
"""What the annotation of a node can say."""


@dataclass(slots=True)
class PlayedNode:
    """One node."""

    member: Member
    kubelet: Kubelet
    address: str
    problem: str = ""
    """Why its kubelet does not run; empty when it does."""
    waiting: dict[str, Document] = field(default_factory=dict)
    """Uid -> pod of which it will be notified when it runs again, or after :attr:`slow`."""
    slow: float = 0.0
    """Seconds after which it is notified of a pod."""
    reconciles: bool = False
    """Whether its next reconciliation is due at some time."""
    faulted: str = ""
    """What its annotation said last; that has happened."""

    @property
    def name(self) -> str:
        """Its name in the cluster."""
        return self.member.name

    def now(self) -> Node:
        """Return what it has given away."""
        return self.kubelet.node

    @property
    def period(self) -> int:
        """Nanoseconds between two reconciliations."""
        return self.kubelet.settings.config.cpu_manager_reconcile_period_ns

    def read(self, document: Mapping[str, Any]) -> Pod:
        """Return a pod as this kubelet understands it.

        Raises:
            InputError: it cannot be read.
        """
        gates = PodGates.of_node(self.kubelet.settings.config, self.kubelet.mooring)
        return pod_from_object(document, source=self.name, gates=gates)

    def happens(self, event: Living) -> EventResult:
        """Let the engine take an event."""
        happened = next(run(self.kubelet, (event,)))
        self.kubelet = happened.after
        return happened.result

    def fault(self, text: str) -> EventResult:
        """Let happen what an annotation says.

        Raises:
            InputError: it says nothing that is known.
        """
        what, _, about = text.partition("=")
        kubelet, devices = self.kubelet, self.kubelet.node.providers.devices
        if what == "restart":
            return self.happens(Restart())
        if what == "lose-state":
            emptied = kubelet.with_devices(replace(devices, held={}))
            self.kubelet = replace(emptied, cpu_file=None, memory_file=None)
            return self.happens(Restart())
        if what in ("offline", "online"):
            cpus = cpu_list(about, FAULT)
            check_known(kubelet.node, cpus, FAULT)
            return self.happens(Offline(cpus) if what == "offline" else Online(cpus))
        if what in ("unhealthy", "healthy"):
            ids = set(about.split(","))
            if unknown := ids - {one.id for known in devices.devices.values() for one in known}:
                raise InputError(f"the node has no device {min(unknown)!r:.60}", field=FAULT)
            healths = {
                resource: tuple(replace(one, healthy=what == "healthy") if one.id in ids else one for one in known)
                for resource, known in devices.devices.items()
            }
            self.kubelet = kubelet.with_devices(replace(devices, devices=healths))
            return EventResult()
        if what == "slow":
            self.slow = nanoseconds(about) / 1e9
            return EventResult()
        raise InputError(f"{text!r:.60} is not known", field=FAULT, remedy=f"write one of {', '.join(FAULTS)}")
