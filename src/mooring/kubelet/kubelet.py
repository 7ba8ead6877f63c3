"""A kubelet with its state files: what the engine decides, and what the files then hold.

The engine knows values only. Here the texts of the checkpoint files stand beside it: a file changes when the state
does, and a restart reads the texts again, through every check that the kubelet makes.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass, replace
from typing import TypeVar

from mooring.checkpoint.cpu_file import cpu_state_text
from mooring.checkpoint.cpu_load import load_cpu_state
from mooring.checkpoint.formats import Created, LoadRefusal
from mooring.checkpoint.memory_file import memory_state_text
from mooring.checkpoint.memory_load import load_memory_state
from mooring.core.config import KubeletConfig, MooringConfig
from mooring.core.decision import StartRefusal
from mooring.core.machineinfo import MachineInfo
from mooring.core.moment import Moment
from mooring.core.observer import Observer
from mooring.core.pod import Pod
from mooring.cpumanager.state import CPUState
from mooring.devicemanager.state import DeviceState
from mooring.memorymanager.state import MemoryState
from mooring.node import Decision, Node, Readmission, Removal, claims, hotplug, resizing
from mooring.node.providers import Providers
from mooring.node.resize import Resize
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
        """Admit a pod, start its containers, and write the files."""
        kubelet, decision = self.decide(pod, observer)
        return (kubelet.start_containers(pod.uid, observer) if decision.admitted else kubelet), decision

    def decide(self, pod: Pod, observer: Observer | None = None) -> tuple[Kubelet, Decision]:
        """Decide about a pod and write the files, without starting its containers."""
        node, decision = self.node.decide(pod, observer)
        return self._after(node), decision

    def start_containers(self, uid: str, observer: Observer | None = None) -> Kubelet:
        """Start the containers of an active pod and write the files."""
        return self._after(self.node.start_containers(uid, observer))

    def remove(self, uid: str, observer: Observer | None = None) -> tuple[Kubelet, Removal]:
        """Remove a pod and write the files."""
        node, removal = self.node.remove(uid, observer)
        return self._after(node), removal

    def settled(self) -> Kubelet:
        """Return the kubelet after a while: what refused pods had been given before their refusal is given back.

        A running kubelet does that within its reconcile period, or when it is asked about the next pod.
        """
        return self._after(self.node.settled())

    def readmit(self, pods: Iterable[Pod], observer: Observer | None = None) -> tuple[Kubelet, Readmission]:
        """Admit the pods that run already when the kubelet starts."""
        node, readmission = self.node.readmit(pods, observer)
        return self._after(node), readmission

    def at(self, moment: Moment) -> Kubelet:
        """Return the kubelet at another time."""
        return replace(self, node=self.node.at(moment))

    def resize(self, pod: Pod, observer: Observer | None = None) -> tuple[Kubelet, Resize]:
        """Decide about other resources for an active pod and write the files.

        Raises:
            KeyError: the pod is not active.
        """
        node, answer = resizing.resize(self.node, pod, observer)
        return self._after(node), answer

    def retry(self, observer: Observer | None = None) -> tuple[Kubelet, tuple[Resize, ...]]:
        """Try the deferred resizes again and write the files."""
        node, answers = resizing.retry(self.node, observer)
        return self._after(node), answers

    def reconcile(self, observer: Observer | None = None, spared: Collection[tuple[str, str]] = ()) -> Kubelet:
        """Give back the CPUs whose scale-down delay is over, and write the files.

        Args:
            observer: receives what was released.
            spared: pod uid and container of those whose CPUs cannot be taken back yet.
        """
        return self._after(resizing.reconcile(self.node, observer, spared))

    def offline(self, cpus: int, observer: Observer | None = None) -> tuple[Kubelet, hotplug.CPUsChanged]:
        """Take CPUs out of use and write the files.

        Raises:
            InputError: the extension cpu-hotplug is not on.
        """
        node, change = hotplug.went_offline(self.node, cpus, observer)
        return self._after(node), change

    def online(self, cpus: int, observer: Observer | None = None) -> tuple[Kubelet, hotplug.CPUsChanged]:
        """Put CPUs back into use and write the files.

        Raises:
            InputError: the extension cpu-hotplug is not on.
        """
        node, change = hotplug.came_online(self.node, cpus, observer)
        return self._after(node), change

    def replanned(self, observer: Observer | None = None) -> Kubelet:
        """Look for CPUs that could stand in for lost ones, now that others gave some back, and write the files."""
        if not self.node.cpu.offline:
            return self
        return self._after(hotplug.replanned(self.node, observer)[0])

    def claim(self, asked: claims.Claim, observer: Observer | None = None) -> tuple[Kubelet, claims.ClaimDecision]:
        """Give a claim its CPUs and write the files."""
        node, decision = claims.claim(self.node, asked, observer)
        return self._after(node), decision

    def release(self, uid: str, observer: Observer | None = None) -> Kubelet:
        """Take a claim's CPUs back and write the files."""
        return self._after(claims.release(self.node, uid, observer))

    def restarted(self, config: KubeletConfig | None = None, boot: str | None = None) -> Start:
        """Start again from the files, with the same or another configuration; running pods are not admitted yet.

        The device manager's allocations survive in its own checkpoint, which is not modelled as a text. What is kept
        in memory only is lost: resizes that wait, and releases of the node's own delay. Which CPUs are offline and whom
        others stand in for is known to whoever keeps the node; another boot begins with all CPUs online.

        Args:
            config: the configuration from here on; None leaves it as it was.
            boot: of the machine, when that starts again too; time since boot begins anew.
        """
        start = start_kubelet(self.info, config or self.settings.config, self.mooring, self.files)
        if start.kubelet is None:
            return start
        moment = self.node.moment if boot is None else Moment(0, boot)
        after = _remembering(start.kubelet.with_devices(self.node.providers.devices).at(moment), self.node.cpu)
        if boot is not None and after.node.cpu.offline:
            after, _ = after.online(after.node.cpu.offline)
        return replace(start, kubelet=after, files=after.files)

    def with_devices(self, devices: DeviceState) -> Kubelet:
        """Return the kubelet with registered devices and their holders."""
        return replace(self, node=replace(self.node, providers=replace(self.node.providers, devices=devices)))

    def _after(self, node: Node) -> Kubelet:
        before, files = self.node.providers, self.files
        after = node.providers
        # Every setter of the kubelet writes the file, and every setter here makes a new value.
        if after.cpu is not before.cpu:
            files = replace(files, cpu=_cpu_text(node.settings, after.cpu))
        if after.memory is not before.memory:
            files = replace(files, memory=_memory_text(node.settings, after.memory))
        return replace(self, node=node, files=files)


def _remembering(kubelet: Kubelet, before: CPUState) -> Kubelet:
    """Return a kubelet with what the state file does not tell of CPUs that are offline."""
    if not before.offline and not before.displaced:
        return kubelet
    return replace(kubelet, node=hotplug.remembered(kubelet.node, before.offline, before.displaced))


@dataclass(frozen=True, slots=True)
class Start:
    """What a start came to."""

    kubelet: Kubelet | None
    refusal: StartRefusal | None
    files: StateTexts
    """The files afterwards; a refused file is left as it was."""


def start_kubelet(
    info: MachineInfo,
    config: KubeletConfig,
    mooring: MooringConfig,
    files: StateTexts,
    observer: Observer | None = None,
) -> Start:
    """Start a kubelet on the texts of its checkpoint files."""
    settings = build_settings(config, mooring, info)
    if isinstance(settings, StartRefusal):
        return Start(None, settings, files)
    return start_understood(info, settings, mooring, files, observer)


def start_understood(
    info: MachineInfo,
    settings: Settings,
    mooring: MooringConfig,
    files: StateTexts,
    observer: Observer | None = None,
) -> Start:
    """Do the same with a configuration that was understood before, for who starts many nodes of one kind."""
    cpu, memory = _load_cpu(settings, files.cpu), _load_memory(settings, files.memory)
    started = start_managers(settings, Restored(_restored(cpu), _restored(memory)), observer)
    after = files
    if isinstance(cpu, Created):
        after = replace(after, cpu=cpu.text)
    if started.cpu is not None:
        if started.cpu is not cpu:
            after = replace(after, cpu=_cpu_text(settings, started.cpu))
        # The memory manager makes its file only when it is reached.
        if isinstance(memory, Created):
            after = replace(after, memory=memory.text)
    if started.memory is not None and started.memory is not memory:
        after = replace(after, memory=_memory_text(settings, started.memory))
    if started.refusal is not None or started.cpu is None or started.memory is None:
        return Start(None, started.refusal, after)
    node = Node(settings, Providers(started.cpu, started.memory))
    return Start(Kubelet(info, mooring, node, after), None, after)


State = TypeVar("State", CPUState, MemoryState)


def _restored(loaded: State | Created | LoadRefusal) -> State | StartRefusal | None:
    if isinstance(loaded, Created):
        return None
    return StartRefusal("start", loaded.kubelet_text()) if isinstance(loaded, LoadRefusal) else loaded


def _load_cpu(settings: Settings, text: str | None) -> CPUState | Created | LoadRefusal:
    return load_cpu_state(
        text,
        policy=settings.config.cpu_manager_policy,
        pod_level=settings.gates["PodLevelResourceManagers"],
        baselines=settings.gates["InPlacePodVerticalScalingExclusiveCPUs"],
        releases=settings.cpu is not None and settings.cpu.scale_down.is_on,
    )


def _load_memory(settings: Settings, text: str | None) -> MemoryState | Created | LoadRefusal:
    return load_memory_state(
        text, policy=settings.config.memory_manager_policy, pod_level=settings.gates["PodLevelResourceManagers"]
    )


def _cpu_text(settings: Settings, state: CPUState) -> str:
    return cpu_state_text(
        state,
        pod_level=settings.gates["PodLevelResourceManagers"],
        baselines=settings.gates["InPlacePodVerticalScalingExclusiveCPUs"],
    )


def _memory_text(settings: Settings, state: MemoryState) -> str:
    return memory_state_text(state, pod_level=settings.gates["PodLevelResourceManagers"])
