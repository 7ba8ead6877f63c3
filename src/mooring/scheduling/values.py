"""What a node publishes so that anybody can decide as it will: facts that change rarely, and a state that changes.

Facts are shared by all nodes of one kind, so they are kept once, under the digest of their content. A state names the
facts that it belongs to, the files as the node's managers would write them, and the pods that are in it. A pod that is
bound to the node and is not named there has yet to be admitted.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from mooring.core.config import KubeletConfig, MooringConfig
from mooring.core.machineinfo import MachineInfo
from mooring.devicemanager.state import DeviceState
from mooring.kubelet.kubelet import StateTexts


@dataclass(frozen=True, slots=True)
class NodeFacts:
    """What decides and does not change while the kubelet or the agent runs."""

    machine: MachineInfo
    config: KubeletConfig
    """Of the managers that decide: the kubelet's, or the agent's."""
    mooring: MooringConfig


@dataclass(frozen=True, slots=True)
class PodKey:
    """A pod of a node's state."""

    namespace: str
    name: str
    uid: str = ""
    """Empty where the source tells none, as the kubelet's PodResources API does."""


@dataclass(frozen=True, slots=True)
class NodeState:
    """What a node has given away, at one moment."""

    node: str
    """Name in the cluster."""
    facts: str
    """Digest of the facts."""
    files: StateTexts = field(default_factory=StateTexts)
    """What the checkpoint files say; None for a manager with policy none that writes none."""
    devices: DeviceState = field(default_factory=DeviceState)
    """Devices of the plugins, and who holds them."""
    pods: tuple[PodKey, ...] = ()
    """Pods that the node has admitted, in the order of admission where it is known."""
    sequence: int = 0
    """Grows with every change that this publisher has seen."""
    offline: int = 0
    """Mask of the CPUs that are offline (extension cpu-hotplug); the files tell nothing of it."""
    displaced: Mapping[str, Mapping[int, int]] = field(default_factory=dict)
    """Uid of a pod -> a CPU that it lost, and the one that stands in for it."""
