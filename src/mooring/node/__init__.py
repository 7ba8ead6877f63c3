"""The node: configuration understood, managers built, pods admitted, removed and admitted again after a restart."""

from mooring.node.decision import Decision, Readmission, Removal
from mooring.node.node import Node, StartRefusedError

__all__ = ["Decision", "Node", "Readmission", "Removal", "StartRefusedError"]
