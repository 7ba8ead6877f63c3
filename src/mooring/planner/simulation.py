"""A kubelet with its state files: what the engine decides, and what the files then hold.

The engine knows values only. Here the texts of the checkpoint files stand beside it: a file changes when the state
does, and a restart reads the texts again, through every check that the kubelet makes.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from mooring.checkpoint.cpu_file import cpu_state_text
from mooring.checkpoint.cpu_load import load_cpu_state
from mooring.checkpoint.memory_load import load_memory_state
from mooring.checkpoint.outcome import Created, LoadRefusal
from mooring.core.config import KubeletConfig, MooringConfig
from mooring.core.decision import StartRefusal
from mooring.core.machineinfo import MachineInfo
from mooring.core.observer import Observer
from mooring.core.pod import Pod
from mooring.cpumanager.state import CPUState
from mooring.node import Decision, Node, Readmission, Removal
from mooring.node.settings import Settings, build_settings
from mooring.node.start import Restored, start_managers


@dataclass(frozen=True, slots=True)
class StateTexts:
    """The texts of the two checkpoint files; None where there is no file."""

    cpu: str | None = None
    memory: str | None = None


@dataclass(frozen=True, slots=True)
class Kubelet:
    """A started kubelet."""

    info: MachineInfo
    mooring: MooringConfig
    node: Node
    files: StateTexts

    @property
    def settings(self) -> Settings:
        """Configuration and policies."""
        return self.node.settings

    def admit(self, pod: Pod, observer: Observer | None = None) -> tuple[Kubelet, Decision]:
        """Admit a pod and write the files."""
        node, decision = self.node.admit(pod, observer)
        return self._after(node), decision

    def remove(self, uid: str, observer: Observer | None = None) -> tuple[Kubelet, Removal]:
        """Remove a pod and write the files."""
        node, removal = self.node.remove(uid, observer)
        return self._after(node), removal

    def readmit(self, pods: Iterable[Pod], observer: Observer | None = None) -> tuple[Kubelet, Readmission]:
        """Admit the pods that run already when the kubelet starts."""
        node, readmission = self.node.readmit(pods, observer)
        return self._after(node), readmission

    def restarted(self, config: KubeletConfig | None = None) -> Start:
        """Start again from the files, with the same or another configuration; running pods are not admitted yet."""
        return start_kubelet(self.info, config or self.settings.config, self.mooring, self.files)

    def _after(self, node: Node) -> Kubelet:
        if node.cpu is self.node.cpu or node.cpu == self.node.cpu:
            return replace(self, node=node)
        return replace(self, node=node, files=replace(self.files, cpu=_cpu_text(node.settings, node.cpu)))


@dataclass(frozen=True, slots=True)
class Start:
    """What a start came to."""

    kubelet: Kubelet | None
    refusal: StartRefusal | None
    files: StateTexts
    """The files afterwards; a refused file is left as it was."""


def start_kubelet(info: MachineInfo, config: KubeletConfig, mooring: MooringConfig, files: StateTexts) -> Start:
    """Start a kubelet on the texts of its checkpoint files."""
    settings = build_settings(config, mooring, info)
    if isinstance(settings, StartRefusal):
        return Start(None, settings, files)
    cpu = _load_cpu(settings, files.cpu)
    memory = load_memory_state(
        files.memory,
        policy=settings.config.memory_manager_policy,
        pod_level=settings.gates["PodLevelResourceManagers"],
    )
    started = start_managers(
        settings,
        Restored(
            cpu=None if isinstance(cpu, Created) else _refused(cpu) if isinstance(cpu, LoadRefusal) else cpu,
            memory=_refused(memory) if isinstance(memory, LoadRefusal) else None,
        ),
    )
    after = files
    if isinstance(cpu, Created):
        after = replace(after, cpu=cpu.text)
    if started.cpu is not None and (started.cpu != cpu or _filled(settings, cpu)):
        after = replace(after, cpu=_cpu_text(settings, started.cpu))
    if isinstance(memory, Created) and started.memory_reached:
        after = replace(after, memory=memory.text)
    if started.refusal is not None or started.cpu is None:
        return Start(None, started.refusal, after)
    return Start(Kubelet(info, mooring, Node(settings, started.cpu), after), None, after)


def _filled(settings: Settings, loaded: CPUState | Created | LoadRefusal) -> bool:
    """Tell whether the static policy stored a default set where it found none.

    The file is written then even when no CPU is left to share, and loses what is not kept in memory (such as the pod
    entries without PodLevelResourceManagers).
    """
    return settings.cpu is not None and isinstance(loaded, CPUState) and not loaded.default


def _load_cpu(settings: Settings, text: str | None) -> CPUState | Created | LoadRefusal:
    return load_cpu_state(
        text,
        policy=settings.config.cpu_manager_policy,
        pod_level=settings.gates["PodLevelResourceManagers"],
        baselines=settings.gates["InPlacePodVerticalScalingExclusiveCPUs"],
    )


def _refused(refusal: LoadRefusal) -> StartRefusal:
    return StartRefusal("start", refusal.kubelet_text())


def _cpu_text(settings: Settings, state: CPUState) -> str:
    return cpu_state_text(
        state,
        pod_level=settings.gates["PodLevelResourceManagers"],
        baselines=settings.gates["InPlacePodVerticalScalingExclusiveCPUs"],
    )
