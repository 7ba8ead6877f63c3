"""The question of a plan: everything that decides its answer, as one value.

Whoever asks "and if it were otherwise?" takes a question, changes one thing, and asks again.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from mooring.core.config import KubeletConfig, MooringConfig
from mooring.core.cpuset import CPUSet
from mooring.core.machine import Finding, Machine
from mooring.core.pod import Pod
from mooring.devicemanager.state import Device
from mooring.kubelet.kubelet import StateTexts
from mooring.planner.plan import Plan, make_plan


@dataclass(frozen=True, slots=True)
class Question:
    """What would this node do with these pods?"""

    machine: Machine
    config: KubeletConfig
    mooring: MooringConfig = field(default_factory=MooringConfig)
    pods: tuple[Pod, ...] = ()
    """To be admitted, in order."""
    active: tuple[Pod, ...] = ()
    """Pods that run already."""
    files: StateTexts = field(default_factory=StateTexts)
    devices: Mapping[str, tuple[Device, ...]] = field(default_factory=dict)
    """Resource -> devices of the node's device plugins."""
    findings: tuple[Finding, ...] = ()
    """What was noticed while the question was read."""
    leaving: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """Uid of one of ``pods`` -> uids of pods that end just before it is asked; under the empty text those that end when
    all were asked."""
    offline: CPUSet = CPUSet()  # noqa: RUF009 - frozen
    """CPUs that go offline when the running pods are back and no other has been asked (extension cpu-hotplug)."""

    def plan(self) -> Plan:
        """Answer it."""
        return make_plan(
            self.machine,
            self.config,
            self.mooring,
            self.pods,
            files=self.files,
            active=self.active,
            devices=self.devices,
            findings=self.findings,
            leaving=self.leaving,
            offline=self.offline,
        )
