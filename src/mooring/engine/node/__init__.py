"""The node: configuration understood, managers built, pods admitted, removed and admitted again after a restart."""

from mooring.engine.node.decision import Decision, Readmission, Removal
from mooring.engine.node.node import Node, StartRefusedError

__all__ = ["Decision", "Node", "Readmission", "Removal", "StartRefusedError"]
