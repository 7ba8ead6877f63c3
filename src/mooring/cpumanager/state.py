"""The CPU manager's state: who owns which CPUs, as the state file records it.

Source: kubelet cpumanager/state, v1.37.1. The texts of ``cpu_manager_state`` are made and read in
``mooring.checkpoint``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class CPUState:
    """One state of the CPU manager. CPU sets are masks: bit *i* is CPU *i* of the operating system.

    >>> CPUState("static", 0b1001, {"pod-uid": {"main": 0b0110}}).assignments["pod-uid"]["main"]
    6
    """

    policy: str
    """Name of the policy that wrote the state: ``none`` or ``static``."""

    default: int
    """The shared pool (the kubelet's default set) as a mask. Empty under the policy ``none``."""

    assignments: Mapping[str, Mapping[str, int]]
    """Exclusive CPUs as masks: pod uid, then container name. A pod without containers counts too."""

    pods: Mapping[str, int] = field(default_factory=dict)
    """CPUs of whole pods as masks, by pod uid (KEP-5526, gate PodLevelResourceManagers)."""

    baselines: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    """What each container got at first, as masks (gate InPlacePodVerticalScalingExclusiveCPUs)."""

    @property
    def held(self) -> int:
        """CPUs in the sets of all containers, as one mask; CPUs that only a pod's partition holds are not among them.

        >>> CPUState("static", 0b1, {"one": {"main": 0b10}, "two": {"main": 0b1100}}).held
        14
        """
        cpus = 0
        for containers in self.assignments.values():
            for mask in containers.values():
                cpus |= mask
        return cpus
