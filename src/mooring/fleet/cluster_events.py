"""What happens to nodes and pods of a cluster beside its work: drains, restarts, upgrades, CPUs offline, taints."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import TypeAlias

from mooring.engine.core.config import KubeletConfig
from mooring.engine.core.cpuset import CPUSet
from mooring.engine.core.release import Release
from mooring.engine.kubelet.events import Resizing
from mooring.inputs.pods.taints import Taint


class NodeAction(Enum):
    """What happens to a node without any detail; the value is the word in a file."""

    CORDON = "cordon"
    UNCORDON = "uncordon"
    DRAIN = "drain"
    """It is cordoned, and its pods are evicted."""
    REMOVE = "remove"
    """It leaves the cluster with its pods."""
    ADD = "add"
    """It joins the cluster; until then it is not there."""


@dataclass(frozen=True, slots=True)
class NodeRestart:
    """The kubelet of a node restarts on its state files; running pods are admitted again."""

    config: KubeletConfig | None = None
    """From here on; None leaves it as it was."""
    release: Release | None = None
    """From here on; None leaves it as it was."""


@dataclass(frozen=True, slots=True)
class NodeTaints:
    """A node has other taints from here on; ``NoExecute`` evicts the pods that do not tolerate them."""

    taints: tuple[Taint, ...]


@dataclass(frozen=True, slots=True)
class CPUsOffline:
    """CPUs of a node go offline (extension cpu-hotplug)."""

    cpus: CPUSet


@dataclass(frozen=True, slots=True)
class CPUsOnline:
    """CPUs of a node come online (extension cpu-hotplug)."""

    cpus: CPUSet


NodeChange: TypeAlias = NodeAction | NodeRestart | NodeTaints | CPUsOffline | CPUsOnline


@dataclass(frozen=True, slots=True)
class NodeEvent:
    """Something happens to one node."""

    at: float
    """Seconds since the beginning."""
    node: str
    change: NodeChange


@dataclass(frozen=True, slots=True)
class PodResize:
    """A pod wants other resources."""

    at: float
    """Seconds since the beginning."""
    pod: str
    """``namespace/name``."""
    wanted: Resizing


ClusterEvent: TypeAlias = NodeEvent | PodResize
