"""Plugins that take part in the choice of CPUs.

For authors: everything that a plugin needs is here, and what is here stays.

>>> from mooring.engine.plugins import CPURequest, hookimpl
>>> class HighestFirst:
...     @hookimpl
...     def pre_score(self, request: CPURequest) -> dict[int, float]:
...         return {cpu: float(cpu) for cpu in request.available}

A plugin is made of a mapping of settings by a class or function that an entry point of the group
``mooring.cpu_plugins`` names. It is asked at the extension points that it implements
(:mod:`mooring.engine.plugins.loading`); it sees values and gives values (:mod:`mooring.engine.plugins.values`).
Whatever it gives is checked before it counts (:mod:`mooring.engine.plugins.asking`,
:mod:`mooring.engine.plugins.host`).

Source: CPU Manager Plugin Model (proposal); spec: resize.md section 7.
"""

from __future__ import annotations

from mooring.engine.core.cpuset import CPUSet
from mooring.engine.core.errors import InputError
from mooring.engine.plugins.values import (
    AffinityRequest,
    Change,
    CPURequest,
    Holder,
    MachineView,
    NUMAChoice,
    PodView,
    Room,
    Selected,
    Withheld,
    can_hold,
    hookimpl,
    is_whole,
    kubelet_choice,
    scored_choice,
)

__all__ = [
    "AffinityRequest", "CPURequest", "CPUSet", "Change", "Holder", "InputError", "MachineView", "NUMAChoice", "PodView",
    "Room", "Selected", "Withheld", "can_hold", "hookimpl", "is_whole", "kubelet_choice", "scored_choice",
]  # fmt: skip
