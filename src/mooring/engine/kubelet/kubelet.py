"""A kubelet with its state files: what the engine decides, and what the files then hold.

The engine knows values only. Here the texts of the checkpoint files stand beside it: a file changes when the state
does, and a restart (:mod:`mooring.engine.kubelet.start`) reads the texts again, through every check that the kubelet
makes. A text is made when it is first read, so that a search through thousands of kubelets makes none.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import TYPE_CHECKING, TypeAlias

from mooring.engine.core.config import MooringConfig
from mooring.engine.core.cpuset import CPUSet
from mooring.engine.core.decision import Observer, Rejection
from mooring.engine.core.machineinfo import MachineInfo
from mooring.engine.core.moment import Moment
from mooring.engine.core.pod import Pod
from mooring.engine.cpumanager.policy import available_cpus
from mooring.engine.cpumanager.state import CPUState
from mooring.engine.devicemanager.state import DeviceState
from mooring.engine.extensions.offline import effective_pool
from mooring.engine.memorymanager.state import MemoryState
from mooring.engine.node import Decision, Node, Readmission, Removal
from mooring.engine.node.resources import pod_requests, total_requests
from mooring.engine.node.settings import Settings
from mooring.lazy import dataclass, field, lazily, replace

if TYPE_CHECKING:
    from mooring.engine.checkpoint.cpu_file import ContainerIDs
    from mooring.engine.node.resources import Resize

with lazily():
    from mooring.engine.checkpoint import cpu_file as cpu_checkpoint
    from mooring.engine.checkpoint import memory_file as memory_checkpoint
    from mooring.engine.node import claims, hotplug, resizing


@dataclass(frozen=True, slots=True)
class StateTexts:
    """The texts of the two checkpoint files; None where there is no file."""

    cpu: str | None = None
    memory: str | None = None
    containers: ContainerIDs = field(default_factory=dict, compare=False, repr=False)
    """Containers that the runtime knows, by id: the oldest format of the CPU manager's file names them so."""


class DeferredText:
    """The text of a state, made when it is first read."""

    __slots__ = ("_made", "_settings", "_state")

    def __init__(self, settings: Settings, state: CPUState | MemoryState) -> None:
        """Defer the text of a state.

        Args:
            settings: of the node.
            state: of the CPU manager or of the memory manager.
        """
        self._settings, self._state = settings, state
        self._made: str | None = None

    def read(self) -> str:
        """Return the text."""
        made = self._made  # another thread may forget it meanwhile
        if made is None:
            state, settings = self._state, self._settings
            made = cpu_text(settings, state) if isinstance(state, CPUState) else memory_text(settings, state)
            self._made = made
        return made

    def forget(self) -> None:
        """Drop the text; the next reader has it made again."""
        self._made = None

    def __eq__(self, other: object) -> bool:
        return isinstance(other, DeferredText) and self.read() == other.read()

    __hash__ = None  # type: ignore[assignment]  # equal texts would have to be made to be hashed


StateFile: TypeAlias = DeferredText | str | None
"""A checkpoint file: the text that was found, or a state that has been written since; None where there is no file."""


def read(file: StateFile) -> str | None:
    """Return the text of a checkpoint file."""
    return file.read() if isinstance(file, DeferredText) else file


@dataclass(frozen=True, slots=True)
class Requests:
    """The sums of what active pods request, and whose sums they are."""

    active: Mapping[str, Pod]
    amounts: Mapping[str, int]
    """Resource -> requests: cpu in thousandths, everything else in whole units."""


@dataclass(frozen=True, slots=True)
class Kubelet:
    """A started kubelet."""

    info: MachineInfo
    mooring: MooringConfig
    node: Node
    cpu_file: StateFile = field(repr=False)
    memory_file: StateFile = field(repr=False)
    requests: Requests | None = field(default=None, compare=False, repr=False)
    """Carried along so that sums are not added up for each pod again; of no use once other pods are active."""
    containers: ContainerIDs = field(default_factory=dict, compare=False, repr=False)
    """See :class:`StateTexts`."""

    @property
    def settings(self) -> Settings:
        """Configuration and policies."""
        return self.node.settings

    @property
    def files(self) -> StateTexts:
        """The texts of the state files."""
        return StateTexts(read(self.cpu_file), read(self.memory_file), self.containers)

    @property
    def used(self) -> Mapping[str, int]:
        """What the active pods request together, as the node resources check counts it."""
        if self.requests is not None and self.requests.active is self.node.active:
            return self.requests.amounts
        return total_requests(self.node.active.values())

    def counting(self, amounts: Mapping[str, int]) -> Kubelet:
        """Return the kubelet with the sums of what its active pods request.

        Sums may be larger than that, of a caller that cannot know whether other pods have left yet.
        """
        requests = Requests(self.node.active, amounts)
        return Kubelet(self.info, self.mooring, self.node, self.cpu_file, self.memory_file, requests, self.containers)

    def admit(self, pod: Pod, observer: Observer | None = None) -> tuple[Kubelet, Decision]:
        """Let the managers decide about a pod, start the containers of an admitted one, and write the files."""
        node, decision = self.node.admit(pod, observer)
        return self._after(node), decision

    def decide(self, pod: Pod, observer: Observer | None = None) -> tuple[Kubelet, Decision]:
        """Let the managers decide about a pod and write the files, without starting its containers."""
        node, decision = self.node.decide(pod, observer)
        return self._after(node), decision

    def start_containers(self, uid: str, observer: Observer | None = None) -> Kubelet:
        """Start the containers of an active pod and write the files."""
        return self._after(self.node.start_containers(uid, observer))

    def remove(self, uid: str, observer: Observer | None = None) -> tuple[Kubelet, Removal]:
        """Remove a pod and write the files."""
        node, removal = self.node.remove(uid, observer)
        return self._after(node), removal

    def without(self, uids: Collection[str]) -> Kubelet:
        """Return the kubelet after some of its pods have ended and all that they had was released.

        CPUs that one of them released may replace offline ones, so that then they end one by one.

        Raises:
            KeyError: one of them is not active.
        """
        used = dict(self.used)
        for uid in uids:
            for resource, amount in pod_requests(self.node.active[uid]).items():
                used[resource] -= amount
        kubelet = self
        if self.node.cpu.offline:
            for uid in uids:
                kubelet = kubelet.remove(uid)[0].replanned()
        else:
            active, started = dict(self.node.active), dict(self.node.started)
            for uid in uids:
                active.pop(uid, None)
                started.pop(uid, None)
            kubelet = replace(self, node=replace(self.node, active=active, started=started))
        return kubelet.settled().counting(used)

    def settled(self) -> Kubelet:
        """Return the kubelet after a while: what refused pods had been given before their refusal is released.

        A running kubelet does that within its reconcile period, or when it is asked about the next pod.
        """
        return self._after(self.node.settled())

    def readmit(self, pods: Iterable[Pod], observer: Observer | None = None) -> tuple[Kubelet, Readmission]:
        """Let the managers decide about pods that run already when the kubelet starts."""
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

    def ask_managers(self, pod: Pod) -> tuple[Kubelet, Decision, Rejection | None]:
        """Decide about other resources by the managers alone and write the files."""
        node, decision, infeasible = resizing.ask_managers(self.node, pod)
        return self._after(node), decision, infeasible

    def reconcile(self, observer: Observer | None = None, spared: Collection[tuple[str, str]] = ()) -> Kubelet:
        """Release the CPUs whose scale-down delay is over, and write the files.

        Args:
            observer: receives what was released.
            spared: pod uid and container of those whose CPUs cannot be reclaimed yet.
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
        """Replace offline CPUs by released ones where the configuration lets them, and write the files."""
        if not self.node.cpu.offline:
            return self
        return self._after(hotplug.replanned(self.node, observer)[0])

    def claim(self, asked: claims.Claim, observer: Observer | None = None) -> tuple[Kubelet, Rejection | None]:
        """Give a claim its CPUs and write the files; with the reason where it gets none."""
        node, refused = claims.claim(self.node, asked, observer)
        return self._after(node), refused

    def release(self, uid: str, observer: Observer | None = None) -> Kubelet:
        """Reclaim a claim's CPUs and write the files."""
        return self._after(claims.release(self.node, uid, observer))

    def with_devices(self, devices: DeviceState) -> Kubelet:
        """Return the kubelet with registered devices and their holders."""
        return replace(self, node=replace(self.node, providers=replace(self.node.providers, devices=devices)))

    def with_cpu_state(self, cpu: CPUState) -> Kubelet:
        """Return the kubelet with another state of its CPU manager, which the file has too."""
        return self._after(self.node.with_cpu(cpu))

    def _after(self, node: Node) -> Kubelet:
        before, after = self.node.providers, node.providers
        cpu_file, memory_file = self.cpu_file, self.memory_file
        # Every setter of the kubelet writes the file, and every setter here makes a new value.
        if after.cpu is not before.cpu:
            cpu_file = DeferredText(node.settings, after.cpu)
        if after.memory is not before.memory:
            memory_file = DeferredText(node.settings, after.memory)
        return Kubelet(self.info, self.mooring, node, cpu_file, memory_file, self.requests, self.containers)


def cpu_text(settings: Settings, state: CPUState) -> str:
    """Return the text of the CPU manager's state file."""
    return cpu_checkpoint.cpu_text_of(
        settings.release.name,
        state,
        pod_level=settings.gates["PodLevelResourceManagers"],
        baselines=settings.gates["InPlacePodVerticalScalingExclusiveCPUs"],
    )


def memory_text(settings: Settings, state: MemoryState) -> str:
    """Return the text of the memory manager's state file."""
    pod_level = settings.gates["PodLevelResourceManagers"]
    return memory_checkpoint.memory_text_of(settings.release.name, state, pod_level=pod_level)


def reserved_cpus(kubelet: Kubelet) -> CPUSet:
    """Return the CPUs kept for the system; with policy ``none`` only those that are named."""
    policy = kubelet.settings.cpu
    return CPUSet(policy.reserved) if policy is not None else kubelet.settings.reservation.cpus


def shared_cpus(kubelet: Kubelet) -> CPUSet:
    """Return the CPUs on which containers of the shared pool run: those of the pool that are online."""
    return CPUSet(effective_pool(kubelet.node.cpu))


def free_cpus(kubelet: Kubelet) -> CPUSet:
    """Return the CPUs that a container could still get exclusively."""
    policy = kubelet.settings.cpu
    return CPUSet(available_cpus(policy, kubelet.node.cpu)) if policy is not None else CPUSet()
