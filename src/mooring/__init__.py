"""Mooring: the kubelet's node resource managers as values and functions.

The public names are gathered here lazily, so that ``import mooring`` costs next to nothing; everything else is found
in the rooms described in ``docs/architecture.md``.
"""

from __future__ import annotations

from importlib import import_module

TYPE_CHECKING = False
if TYPE_CHECKING:
    # Type checkers do not follow __getattr__; nothing is imported here when the program runs.
    from mooring.engine.core.cpuset import CPUSet
    from mooring.engine.core.errors import MooringError
    from mooring.engine.core.machine import Machine
    from mooring.engine.core.pod import Pod
    from mooring.engine.node import Node
    from mooring.engine.topologymanager import merge_hints
    from mooring.library import Explanation, explain, load_config, load_machine, load_pods, plan

__version__ = "0.1.0"

DISTRIBUTION = "kube-mooring"
"""The name by which package indexes and installers know Mooring (decision 36)."""

KUBELET_VERSION = "v1.37.2"
"""The kubelet release whose decisions Mooring reproduces."""

_HOME = {
    "CPUSet": "mooring.engine.core.cpuset",
    "Machine": "mooring.engine.core.machine",
    "MooringError": "mooring.engine.core.errors",
    "Node": "mooring.engine.node",
    "Pod": "mooring.engine.core.pod",
    "merge_hints": "mooring.engine.topologymanager",
    **dict.fromkeys(("Explanation", "explain", "load_config", "load_machine", "load_pods", "plan"), "mooring.library"),
}

__all__ = [
    "KUBELET_VERSION",
    "CPUSet",
    "Explanation",
    "Machine",
    "MooringError",
    "Node",
    "Pod",
    "__version__",
    "explain",
    "load_config",
    "load_machine",
    "load_pods",
    "merge_hints",
    "plan",
]


def __getattr__(name: str) -> object:
    """Load a public name from the room that owns it (PEP 562)."""
    if name in _HOME:
        return getattr(import_module(_HOME[name]), name)
    raise AttributeError(f"module 'mooring' has no attribute {name!r}")
