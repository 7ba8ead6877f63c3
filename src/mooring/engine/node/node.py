"""The node: a frozen value that admits, removes and restarts.

Source: kubelet v1.37.1, the container manager as the managers experience it; spec: cpu-manager.md, topology-manager.md,
conformance recordings ("What a step does").
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from typing import ClassVar, Protocol

from mooring.engine.core.bits import NO_CPUS
from mooring.engine.core.config import KubeletConfig, MooringConfig
from mooring.engine.core.cpuset import CPUSet
from mooring.engine.core.decision import Endless, Observer, Placement, Rejection, StartRefusal
from mooring.engine.core.errors import MooringError
from mooring.engine.core.machine import Machine
from mooring.engine.core.machineinfo import MachineInfo
from mooring.engine.core.moment import Moment
from mooring.engine.core.pod import ContainerKind, Pod, with_entry, without_entry
from mooring.engine.cpumanager.state import CPUState
from mooring.engine.devicemanager.state import Device
from mooring.engine.extensions.owners import hidden_of_pod
from mooring.engine.memorymanager.pod_partition import refused_at_start
from mooring.engine.memorymanager.state import Block, MemoryState
from mooring.engine.memorymanager.static import remove as remove_memory
from mooring.engine.node.admission import Admission, Verdict
from mooring.engine.node.decision import NO_AFFINITY, Decision, Readmission, Removal
from mooring.engine.node.facts import KubeletStarted, PodWithdrawn
from mooring.engine.node.providers import Providers, after_removal, without_stale_devices
from mooring.engine.node.resources import Waiting
from mooring.engine.node.settings import RestoredStates, Settings, build_settings, start_managers, written
from mooring.engine.topologymanager.hints import Hint
from mooring.lazy import dataclass, field, replace

SWEPT = frozenset({"cpus", "memory"})
"""Managers whose stale state an admission drops."""


class Configured(Protocol):
    """What was said about a node: the kubelet's configuration, and Mooring's own."""

    @property
    def kubelet(self) -> KubeletConfig:
        """The kubelet's."""

    @property
    def mooring(self) -> MooringConfig:
        """Mooring's."""


@dataclass(frozen=True, slots=True)
class Swept:
    """States in which no container of an inactive pod has anything; another value is another state."""

    cpu: CPUState
    memory: MemoryState
    active: Mapping[str, Pod]
    refused: tuple[str, ...] = ()
    """Inactive pods that may have something all the same: what was given before they were refused."""


@dataclass(frozen=True, slots=True)
class Node:
    """A running kubelet, as far as its resource managers go. Every method returns a new node and an answer.

    >>> from mooring.engine.core.machineinfo import Core, MachineInfo, NUMANode
    >>> cores = tuple(Core(core, (core, core + 2), 0) for core in range(2))
    >>> info = MachineInfo(4, 1, 2**30, (NUMANode(0, 2**30, cores=cores),))
    >>> config = KubeletConfig(cpu_manager_policy="static", reserved_system_cpus="0")
    >>> node = Node.fresh(info, config)
    >>> str(node.shared_pool), str(node.settings.allocatable_cpus)
    ('0-3', '1-3')
    """

    settings: Settings
    """Configuration, machine and policies, understood."""
    providers: Providers
    """What the managers have given away."""
    stored_hints: Mapping[str, Mapping[str, Hint]] = field(default_factory=dict)
    """The topology manager's store: pod uid -> container -> merged hint."""
    active: Mapping[str, Pod] = field(default_factory=dict)
    """Pods that the kubelet runs, by uid, in the order of their admission."""
    started: Mapping[str, Pod] = field(default_factory=dict)
    """Active pods whose containers started since the kubelet did; only these lose their stored hints when they end."""

    moment: Moment = field(default_factory=Moment)
    """The time, which callers set; it does not change by itself."""
    waiting: Mapping[str, Waiting] = field(default_factory=dict)
    """Resizes that were not taken, by the pod's uid (:mod:`mooring.engine.node.resizing`)."""
    swept: Swept | None = field(default=None, compare=False, repr=False)
    """When stale state was last dropped; as long as nothing has changed there is none."""

    def __repr__(self) -> str:
        """Name what a reader of a notebook asks about; the fields are pages long."""
        return f"<Node: {len(self.active)} pods, shared pool {self.shared_pool}>"

    drawn_by: ClassVar[Callable[[Node], str] | None] = None
    """Draws a node for a notebook: what stands above the engine says how."""

    def _repr_svg_(self) -> str | None:
        """Return the picture that a notebook shows; None where nothing draws."""
        return None if Node.drawn_by is None else Node.drawn_by(self)

    @staticmethod
    def fresh(
        machine: Machine | MachineInfo, config: Configured | KubeletConfig, mooring: MooringConfig | None = None
    ) -> Node:
        """Return a node without state files and pods.

        Args:
            machine: as the loader returns it, or the kubelet's view of it.
            config: as the loader returns it, or the kubelet's alone.
            mooring: Mooring's own configuration, where ``config`` is the kubelet's alone.

        Raises:
            StartRefusedError: the kubelet would not start.
        """
        info = machine.info if isinstance(machine, Machine) else machine
        if not isinstance(info, MachineInfo):
            raise TypeError("machine: must be what load_machine returns")
        if isinstance(config, KubeletConfig):
            kubelet, own = config, MooringConfig()
        else:
            kubelet, own = config.kubelet, config.mooring
        settings = build_settings(kubelet, mooring or own, info)
        node = settings if isinstance(settings, StartRefusal) else Node.start(settings)
        if isinstance(node, StartRefusal):
            raise StartRefusedError(node)
        return node

    @staticmethod
    def start(
        settings: Settings, restored: RestoredStates | None = None, observer: Observer | None = None
    ) -> Node | StartRefusal:
        """Start a kubelet on what its checkpoint files hold, or on none."""
        cpu, memory, refusal = start_managers(settings, restored or RestoredStates(), observer)
        if refusal is not None:
            return refusal
        if cpu is None or memory is None:
            raise AssertionError("a start without a refusal has both states")
        if observer is not None:
            observer(KubeletStarted(settings, cpu))
        return Node(settings, Providers(cpu, memory))

    @property
    def shared_pool(self) -> CPUSet:
        """The default set recorded in state."""
        return CPUSet(self.providers.cpu.default)

    @property
    def cpu(self) -> CPUState:
        """The CPU manager's state."""
        return self.providers.cpu

    @property
    def memory(self) -> MemoryState:
        """The memory manager's state."""
        return self.providers.memory

    def at(self, moment: Moment) -> Node:
        """Return the node at another time."""
        return replace(self, moment=moment)

    def with_cpu(self, state: CPUState) -> Node:
        """Return the node with another state of its CPU manager."""
        return replace(self, providers=replace(self.providers, cpu=state))

    def with_devices(self, devices: Mapping[str, tuple[Device, ...]]) -> Node:
        """Return the node with devices registered; what pods hold of them stays."""
        return replace(
            self, providers=replace(self.providers, devices=replace(self.providers.devices, devices=devices))
        )

    def admit(self, pod: Pod, observer: Observer | None = None) -> tuple[Node, Decision]:
        """Decide about a new pod; the containers of an admitted one start."""
        node, decision = self.decide(pod, observer)
        return (node.start_containers(pod.uid, observer) if decision.admitted else node), decision

    def decide(self, pod: Pod, observer: Observer | None = None) -> tuple[Node, Decision]:
        """Decide about a new pod, without starting its containers. An admitted pod is active."""
        return self._decided(pod, observer, sources_ready=True)

    def start_containers(self, uid: str, observer: Observer | None = None) -> Node:
        """Start the containers of an active pod, init containers first.

        When a container is created the memory manager drops the memory of the regular init containers before it, which
        have ended (spec: memory-manager.md section 5.3). Their CPUs stay with the pod.
        """
        pod, policy = self.active[uid], self.settings.memory
        state = self.providers.memory
        if policy is not None:
            ended = [one.name for one in pod.containers[:-1] if one.kind is ContainerKind.INIT]
            for name in ended:
                state = remove_memory(policy, state, uid, name, observer)
        providers = self.providers if state is self.providers.memory else replace(self.providers, memory=state)
        return replace(self, providers=providers, started=with_entry(self.started, uid, pod))

    def adopt(self, pods: Iterable[Pod]) -> Node:
        """Return the node with pods that run already and are not decided about: their state stays and is not stale."""
        return replace(self, active={**self.active, **{pod.uid: pod for pod in pods}})

    def withdraw(self, uid: str, rejection: Rejection | None = None, observer: Observer | None = None) -> Node:
        """Return the node after something else than the managers refused a pod that they had accepted.

        The pod leaves the active list; what it was given stays until the managers are asked again.

        Args:
            uid: of the pod.
            rejection: the other's words, for the observer.
            observer: receives the rejection of an active pod.
        """
        if observer is not None and rejection is not None and uid in self.active:
            observer(PodWithdrawn(uid, self.active[uid], rejection.reason, rejection.message))
        started = without_entry(self.started, uid) if uid in self.started else self.started
        waiting = {known: one for known, one in self.waiting.items() if known != uid}
        active, suspects = without_entry(self.active, uid), self._suspects
        swept = None if suspects is None else Swept(self.cpu, self.memory, active, (*suspects, uid))
        return replace(self, active=active, started=started, waiting=waiting, swept=swept)

    def remove(self, uid: str, observer: Observer | None = None) -> tuple[Node, Removal]:
        """Stop a pod's containers, take it off the active list and drop all stale state at once."""
        active, started, stored = without_entry(self.active, uid), self.started, self.stored_hints
        if uid in started:
            started, stored = without_entry(started, uid), without_entry(stored, uid)
        before, suspects = self.providers.cpu.default, self._suspects
        suspects = None if suspects is None else {*suspects, uid}
        providers = after_removal(self.settings, self.providers, active, observer, suspects)
        node = replace(
            self,
            providers=providers,
            active=active,
            stored_hints=stored,
            started=started,
            waiting={known: one for known, one in self.waiting.items() if known != uid},
            swept=Swept(providers.cpu, providers.memory, active),
        )
        return node, Removal(uid, CPUSet(providers.cpu.default & ~before), CPUSet(providers.cpu.default))

    def settled(self, observer: Observer | None = None) -> Node:
        """Return the node after all managers dropped what no active pod holds, as they do when asked next."""
        kept = after_removal(self.settings, self.providers, self.active, observer, self._suspects)
        swept = Swept(kept.cpu, kept.memory, self.active)
        return replace(self, providers=without_stale_devices(kept, self.active), swept=swept)

    @property
    def _suspects(self) -> Collection[str] | None:
        """The pods that may have something stale; None where all may."""
        swept = self.swept
        if swept is None or swept.cpu is not self.providers.cpu or swept.memory is not self.providers.memory:
            return None
        if swept.active is self.active:
            return swept.refused
        ended = self.active.items() <= swept.active.items()
        return {*swept.refused, *(swept.active.keys() - self.active.keys())} if ended else None

    def restart(
        self, settings: Settings | StartRefusal | None = None, observer: Observer | None = None
    ) -> tuple[Node, Readmission] | StartRefusal:
        """Restart the kubelet on its own state, with the same or another configuration.

        Everything kept in memory is lost; running pods are admitted again in the order of their admission.
        """
        settings = settings or self.settings
        started = (
            settings
            if isinstance(settings, StartRefusal)
            else Node.start(settings, written(self.settings, settings, self.cpu, self.memory), observer)
        )
        if isinstance(started, StartRefusal):
            return started
        held = self.providers.devices
        kept = replace(started, providers=replace(started.providers, devices=held), moment=self.moment)
        return kept.readmit(self.active.values(), observer)

    def readmit(self, pods: Iterable[Pod], observer: Observer | None = None) -> tuple[Node, Readmission]:
        """Admit the pods that run already when the kubelet starts.

        Pod sources are not ready then, so that no stale state is removed in between. A pod that is refused leaves the
        active list. A pod whose admission would never end is left as it was and the rest is not asked about.
        """
        node = self
        decisions = []
        for pod in pods:
            node, decision = node._decided(pod, observer, sources_ready=False)
            decisions.append(decision)
            if decision.rejection is not None:
                memory = refused_at_start(node.memory, pod.uid)
                if memory is not node.memory:
                    node = replace(node, providers=replace(node.providers, memory=memory))
            if decision.endless:
                break
        return node, Readmission(tuple(decisions))

    def _decided(self, pod: Pod, observer: Observer | None, *, sources_ready: bool) -> tuple[Node, Decision]:
        active = with_entry(self.active, pod.uid, pod)
        # A pod that is not active yet makes nothing stale.
        suspects = self._suspects if sources_ready and pod.uid not in self.active else None
        admission = Admission(
            settings=self.settings,
            pod=pod,
            active=active,
            providers=self.providers,
            stored=dict(self.stored_hints.get(pod.uid, {})),
            sources_ready=sources_ready,
            observer=observer,
            now=self.moment,
            asked=set() if suspects is None or suspects else set(SWEPT),
            suspects=suspects,
        )
        verdict = admission.run()
        if isinstance(verdict, Endless):
            return self, made_decision(self.providers, pod, admission, self.stored_hints, verdict)
        if verdict is not None:
            active = without_entry(active, pod.uid)
        stored = self.stored_hints
        if admission.stored:
            stored = with_entry(stored, pod.uid, admission.stored)
        kept = admission.providers
        refused = () if verdict is None else (pod.uid,)
        swept = Swept(kept.cpu, kept.memory, active, refused) if admission.asked >= SWEPT else None
        node = replace(self, providers=kept, stored_hints=stored, active=active, swept=swept)
        return node, made_decision(node.providers, pod, admission, stored, verdict)


def made_decision(
    providers: Providers,
    pod: Pod,
    admission: Admission | None,
    stored: Mapping[str, Mapping[str, Hint]],
    verdict: Verdict,
) -> Decision:
    """Return the decision with what the pod holds now; without an admission no hints."""
    containers, whole = placements_of(providers, pod)
    hints, held, known = stored.get(pod.uid, {}), providers.devices.held.get(pod.uid, {}), providers.devices.devices
    by_id = {resource: {one.id: one for one in devices} for resource, devices in known.items()} if held else {}
    return Decision(
        uid=pod.uid,
        namespace=pod.namespace,
        name=pod.name,
        admitted=verdict is None,
        rejection=verdict if isinstance(verdict, Rejection) else None,
        endless=verdict if isinstance(verdict, Endless) else None,
        containers=containers,
        pod=whole,
        affinity={container.name: hints.get(container.name, NO_AFFINITY) for container in pod.containers},
        shared_pool=CPUSet(providers.cpu.default),
        devices={
            container: {
                resource: tuple(by_id[resource][name] for name in sorted(ids) if name in by_id.get(resource, {}))
                for resource, ids in resources.items()
            }
            for container, resources in held.items()
            if resources
        },
        hints=admission.hints or None if admission else None,
        pod_hints=admission.pod_hints if admission else None,
        asked=admission.scored if admission and not admission.settings.release.rules.hints_without_score else None,
        plugin_failures=tuple(dict.fromkeys(admission.failures if admission else ())),
        hidden={name: CPUSet(mask) for name, mask in hidden_of_pod(providers.cpu, pod.uid).items()},
    )


def placements_of(providers: Providers, pod: Pod) -> tuple[dict[str, Placement], Placement]:
    """Return what each container of a pod holds, in the order of the specification, and what the whole pod holds."""
    cpus = providers.cpu.assignments.get(pod.uid, {})
    blocks = providers.memory.assignments.get(pod.uid, {})
    containers = {
        one.name: Placement(CPUSet(cpus.get(one.name, NO_CPUS)), numa_of_blocks(blocks.get(one.name, ())))
        for one in pod.containers
    }
    cpus_of_pod, blocks_of_pod = providers.cpu.pods.get(pod.uid, NO_CPUS), providers.memory.pods.get(pod.uid, ())
    return containers, Placement(
        CPUSet(cpus_of_pod), numa_of_blocks(blocks_of_pod)
    ) if cpus_of_pod or blocks_of_pod else NOTHING


NOTHING = Placement()
"""What a pod without a partition holds as a whole."""


def numa_of_blocks(blocks: Iterable[Block]) -> tuple[int, ...]:
    """Return the NUMA nodes of memory blocks, those of size 0 included, as they become ``cpuset.mems``."""
    return tuple(sorted({node for block in blocks for node in block.numa}))


class StartRefusedError(MooringError):
    """A node was to be made from a configuration with which the kubelet does not start."""

    def __init__(self, refusal: StartRefusal) -> None:
        self.refusal = refusal
        super().__init__(refusal.message)
