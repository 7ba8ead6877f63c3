"""Starting a kubelet on the texts of its state files, at first and again; or ready to be asked, with its devices.

Source: kubelet v1.37.1, cm/container_manager_linux.go and the managers' checkpoints; spec: configuration.md section
5.1, state-files.md. Pods of the state files that nothing describes count as running and keep what they have.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, TypeAlias

from mooring.engine.core.bits import NO_CPUS
from mooring.engine.core.config import KubeletConfig, MooringConfig
from mooring.engine.core.cpuset import CPUSet
from mooring.engine.core.decision import Fault, Observer, StartRefusal
from mooring.engine.core.errors import KubeletCrashError
from mooring.engine.core.machine import Finding, Machine
from mooring.engine.core.machineinfo import MachineInfo
from mooring.engine.core.moment import Moment
from mooring.engine.core.pod import Container, Pod
from mooring.engine.core.release import Release
from mooring.engine.cpumanager.state import CPUState
from mooring.engine.devicemanager.state import DeviceState
from mooring.engine.extensions.owners import state_owner
from mooring.engine.kubelet.kubelet import DeferredText, Kubelet, StateTexts, cpu_text, memory_text
from mooring.engine.memorymanager.state import MemoryState
from mooring.engine.node import Node
from mooring.engine.node.providers import Providers
from mooring.engine.node.settings import RestoredStates, Settings, build_settings, start_managers
from mooring.lazy import dataclass, field, lazily, replace

with lazily():
    from mooring.engine.checkpoint import cpu_file, memory_file
    from mooring.engine.node import hotplug

if TYPE_CHECKING:
    from mooring.engine.node.settings import Started

BEFORE_MACHINE = frozenset({"flags", "decode", "featureGates", "validation"})
"""Stages of a start in which the kubelet has not read the machine yet."""


_NO_FILES = StateTexts()


@dataclass(frozen=True, slots=True)
class NotStarted:
    """A start that the kubelet refuses."""

    refusal: StartRefusal
    files: StateTexts = _NO_FILES
    """The files afterwards; a refused file is left as it was."""


Start: TypeAlias = Kubelet | NotStarted


def refusal_of(start: Start) -> StartRefusal | None:
    """Return why a kubelet does not start; None when it does."""
    return start.refusal if isinstance(start, NotStarted) else None


def start_on(
    machine: Machine, config: KubeletConfig, mooring: MooringConfig, files: StateTexts, observer: Observer | None = None
) -> Start:
    """Start a kubelet on a machine; a machine that cAdvisor cannot describe, and a crash, are refusals too."""
    try:
        start = start_kubelet(machine.info, config, mooring, files, observer)
    except KubeletCrashError as error:
        return NotStarted(crash_at_start(error), files)
    if not machine.info_error or (isinstance(start, NotStarted) and start.refusal.stage in BEFORE_MACHINE):
        return start
    return NotStarted(StartRefusal.of("machine", Fault(machine.info_error)), files)


def crash_at_start(error: KubeletCrashError) -> StartRefusal:
    """Return a crash at the start as a refusal."""
    return StartRefusal.of("start", Fault(f"the kubelet crashes: {error}"))


def start_kubelet(
    info: MachineInfo,
    config: KubeletConfig | Settings,
    mooring: MooringConfig,
    files: StateTexts,
    observer: Observer | None = None,
    *,
    runs: bool = False,
) -> Start:
    """Start a kubelet on the texts of its checkpoint files.

    Args:
        info: the kubelet's view of the machine.
        config: as written, or understood before, to start many nodes of one kind.
        mooring: extensions and fixed defects.
        files: texts of existing state files.
        observer: receives what the start found.
        runs: whether the kubelet runs and has written the files; then it need not be able to start on them.

    Raises:
        KubeletCrashError: the kubelet itself would crash.
    """
    settings = config if isinstance(config, Settings) else build_settings(config, mooring, info)
    if isinstance(settings, StartRefusal):
        return NotStarted(settings, files)
    read = RestoredStates(_load_cpu(settings, files), _load_memory(settings, files.memory))
    started = cpu, memory, refusal = start_managers(settings, read, observer, runs=runs)
    if refusal is not None:
        return NotStarted(refusal, _refused_files(settings, files, read, started))
    if cpu is None or memory is None:
        raise AssertionError("a start without a refusal has both states")
    # A state that is taken over as it was read does not change its file.
    texts = (
        files.cpu if cpu is read.cpu else DeferredText(settings, cpu),
        files.memory if memory is read.memory else DeferredText(settings, memory),
    )
    return Kubelet(info, mooring, Node(settings, Providers(cpu, memory)), *texts, containers=files.containers)


def _refused_files(settings: Settings, files: StateTexts, read: RestoredStates, started: Started) -> StateTexts:
    """Return the files after a refused start: a manager without a file writes an empty state before it fills it."""
    after, (cpu, memory, _), pod_level = files, started, settings.gates["PodLevelResourceManagers"]
    config, release = settings.config, settings.release.name
    if files.cpu is None:
        empty = CPUState(config.cpu_manager_policy, NO_CPUS, {})
        after = replace(after, cpu=cpu_file.cpu_text_of(release, empty, pod_level=pod_level, baselines=False))
    if cpu is None:
        return after
    if cpu is not read.cpu:
        after = replace(after, cpu=cpu_text(settings, cpu))
    # The memory manager makes its file only when it is reached.
    if read.memory is None:
        no_memory = MemoryState(config.memory_manager_policy, {}, {})
        after = replace(after, memory=memory_file.memory_text_of(release, no_memory, pod_level=pod_level))
    if memory is not None and memory is not read.memory:
        after = replace(after, memory=memory_text(settings, memory))
    return after


def restart_kubelet(
    kubelet: Kubelet, config: KubeletConfig | None = None, boot: str | None = None, release: Release | None = None
) -> Start:
    """Start a kubelet again on its files, with the same or another configuration; running pods are not admitted yet.

    The device manager's allocations survive in its own checkpoint, which is not modelled as a text. What is kept in
    memory only is lost: resizes that wait, and releases of the node's own delay. Which CPUs are offline, and which
    CPUs replace them, the files do not say: the kubelet before is asked. After another boot all CPUs are online.

    Args:
        kubelet: before.
        config: the configuration from here on; None leaves it as it was.
        boot: of the machine, when that starts again too; time since boot starts again.
        release: of the kubelet from here on, on the files of the one before; None leaves it as it was.
    """
    mooring = kubelet.mooring if release is None else replace(kubelet.mooring, release=release)
    start = start_kubelet(kubelet.info, config or kubelet.settings.config, mooring, kubelet.files)
    if isinstance(start, NotStarted):
        return start
    node = kubelet.node
    moment = node.moment if boot is None else Moment(0, boot)
    after, cpu = start.with_devices(node.providers.devices).at(moment), node.cpu
    if cpu.offline or cpu.displaced:
        after = replace(after, node=hotplug.remembered(after.node, cpu.offline, cpu.displaced))
    if boot is not None and after.node.cpu.offline:
        after, _ = after.online(after.node.cpu.offline)
    return after


def emptied(kubelet: Kubelet, offline: int = 0) -> Kubelet | None:
    """Return the kubelet of the same node without pods and without state files; None when it would not start so.

    Args:
        kubelet: of the node.
        offline: mask of the CPUs that are offline (extension cpu-hotplug).
    """
    start = start_kubelet(kubelet.info, kubelet.settings, kubelet.mooring, StateTexts())
    if isinstance(start, NotStarted):
        return None
    empty = start.with_devices(DeviceState(kubelet.node.providers.devices.devices))
    return empty.offline(offline)[0] if offline else empty


def _load_cpu(settings: Settings, files: StateTexts) -> CPUState | StartRefusal | None:
    if files.cpu is None:
        return None
    return cpu_file.load_cpu_state(
        files.cpu,
        policy=settings.config.cpu_manager_policy,
        pod_level=settings.gates["PodLevelResourceManagers"],
        baselines=settings.gates["InPlacePodVerticalScalingExclusiveCPUs"],
        releases=settings.cpu is not None and settings.cpu.delays,
        release=settings.release.name,
        containers=files.containers,
        json_v2=not settings.release.rules.json_texts_of_go_126,
    )


def _load_memory(settings: Settings, text: str | None) -> MemoryState | StartRefusal | None:
    if not settings.has_memory_manager:
        return MemoryState(settings.config.memory_manager_policy, {}, {})
    if text is None:
        return None
    return memory_file.load_memory_state(
        text,
        policy=settings.config.memory_manager_policy,
        pod_level=settings.gates["PodLevelResourceManagers"],
        release=settings.release.name,
        json_v2=not settings.release.rules.json_texts_of_go_126,
    )


NAMED = 3
"""How many uids a message names."""


@dataclass(frozen=True, slots=True)
class Held:
    """What one pod has in the state files."""

    cpus: Mapping[str, CPUSet] = field(default_factory=dict)
    """Container -> CPUs."""
    memory: Collection[str] = ()
    """Containers with memory."""

    @property
    def containers(self) -> tuple[str, ...]:
        """All containers with an entry, those with CPUs first."""
        return tuple(dict.fromkeys([*self.cpus, *self.memory]))


def opened(
    machine: Machine,
    config: KubeletConfig,
    mooring: MooringConfig,
    files: StateTexts,
    devices: DeviceState,
    *,
    active: Sequence[Pod],
    pods: Iterable[Pod],
    observer: Observer | None = None,
) -> tuple[Start, Mapping[str, Held]]:
    """Start a kubelet on its files, and adopt the pods that the files name and that do not run already.

    Args:
        machine: decisions use the kubelet's view of it.
        config: of the kubelet.
        mooring: extensions and fixed defects.
        files: texts of existing state files.
        devices: of the node, and what pods hold of them.
        active: pods that run already and are to be admitted again.
        pods: pods that are to be admitted; where the files name one of them it runs already.
        observer: receives what the start found.

    Returns:
        What the start came to, and what each pod that does not run already has in the state files, by uid. The kubelet
        has the devices and counts these pods as running.
    """
    start = start_on(machine, config, mooring, files, observer)
    if isinstance(start, NotStarted):
        return start, {}
    running = {pod.uid for pod in active}
    others = held_by_others(start.node, running)
    # What ended pods held stands in the kubelet's record until it gives the devices away again.
    held = {uid: containers for uid, containers in devices.held.items() if uid in running or uid in others}
    kubelet = start.with_devices(replace(devices, held=held))
    node = kubelet.node.adopt(adopted(others, {pod.uid: pod for pod in pods}))
    return replace(kubelet, node=node), others


def held_by_others(node: Node, known: Collection[str]) -> dict[str, Held]:
    """Return what pods outside ``known`` hold, by uid; claims are no pods, and hidden threads go with theirs."""
    cpus, memory = node.cpu.assignments, node.memory.assignments
    return {
        uid: Held({name: CPUSet(mask) for name, mask in cpus.get(uid, {}).items()}, tuple(memory.get(uid, {})))
        for uid in dict.fromkeys([*cpus, *memory])
        if uid not in known and state_owner(uid).is_pods
    }


def adopted(others: Mapping[str, Held], given: Mapping[str, Pod]) -> list[Pod]:
    """Return pods that keep these entries from being stale: the given ones, else stand-ins without requests."""
    return [
        given[uid] if uid in given else Pod(uid, uid, "", tuple(Container(name) for name in held.containers))
        for uid, held in others.items()
    ]


def held_findings(others: Mapping[str, Held], given: Mapping[str, Pod]) -> list[Finding]:
    """Return what a person should know about these entries."""
    strangers = sorted(uid for uid in others if uid not in given)
    known = sorted(uid for uid in others if uid in given)
    found = []
    if strangers:
        them = "it counts as running and keeps what it has, but its requests are not counted"
        if len(strangers) > 1:
            them = "they count as running and keep what they have, but their requests are not counted"
        problem = f"hold entries of {_pods(strangers)} that no --active file describes ({_named(strangers)}); {them}"
        found.append(Finding("warning", "state files", problem, "MOOR-505"))
    if known:
        problem = f"hold entries of {_pods(known)} given with -f ({_named(known)}), which therefore run already"
        found.append(Finding("warning", "state files", f"{problem}; running pods belong to --active", "MOOR-506"))
    return found


def _pods(uids: Collection[str]) -> str:
    return f"{len(uids)} pod{'' if len(uids) == 1 else 's'}"


def _named(uids: list[str]) -> str:
    return ", ".join(uids[:NAMED]) + (", ..." if len(uids) > NAMED else "")
