"""The node: a frozen value that admits, removes and restarts.

Source: kubelet v1.37.1, the container manager as the managers experience it; spec: cpu-manager.md, topology-manager.md,
conformance recordings ("What a step does").
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from mooring.core.config import KubeletConfig, MooringConfig
from mooring.core.cpuset import CPUSet
from mooring.core.decision import Endless, Placement, Rejection, StartRefusal
from mooring.core.errors import MooringError
from mooring.core.machineinfo import MachineInfo
from mooring.core.observer import Observer
from mooring.core.pod import Pod
from mooring.cpumanager.state import CPUState
from mooring.cpumanager.static import Reusable, remove
from mooring.node.admission import Admission
from mooring.node.decision import NO_AFFINITY, Decision, Readmission, Removal
from mooring.node.facts import StaleStateRemoved
from mooring.node.settings import Settings, build_settings
from mooring.node.start import Restored, start_managers
from mooring.topologymanager.hints import Hint


@dataclass(frozen=True, slots=True)
class Node:
    """A running kubelet, as far as its resource managers go. Every method returns a new node and an answer.

    >>> from mooring.core.machineinfo import Core, MachineInfo, Node as NUMANode
    >>> cores = tuple(Core(core, (core, core + 2), 0) for core in range(2))
    >>> info = MachineInfo(4, 1, 2**30, (NUMANode(0, 2**30, cores=cores),))
    >>> config = KubeletConfig(cpu_manager_policy="static", reserved_system_cpus="0")
    >>> node = Node.fresh(info, config)
    >>> str(node.shared_pool), str(node.settings.allocatable_cpus)
    ('0-3', '1-3')
    """

    settings: Settings
    """Configuration, machine and policies, understood."""
    cpu: CPUState
    reusable: Reusable = field(default_factory=Reusable)
    stored_hints: Mapping[str, Mapping[str, Hint]] = field(default_factory=dict)
    """The topology manager's store: pod uid -> container -> merged hint."""
    active: Mapping[str, Pod] = field(default_factory=dict)
    """Pods that the kubelet runs, by uid, in the order of their admission."""
    started: frozenset[str] = frozenset()
    """Uids of active pods whose containers started since the kubelet did; only these lose their stored hints when they
    end."""

    @staticmethod
    def fresh(info: MachineInfo, config: KubeletConfig, mooring: MooringConfig | None = None) -> Node:
        """Return a node without state files and pods.

        Raises:
            StartRefusedError: the kubelet would not start.
        """
        settings = build_settings(config, mooring or MooringConfig(), info)
        node = settings if isinstance(settings, StartRefusal) else Node.start(settings)
        if isinstance(node, StartRefusal):
            raise StartRefusedError(node)
        return node

    @staticmethod
    def start(settings: Settings, restored: Restored | None = None) -> Node | StartRefusal:
        """Start a kubelet on what its checkpoint files hold, or on none."""
        started = start_managers(settings, restored or Restored())
        if started.refusal is not None:
            return started.refusal
        if started.cpu is None:
            raise AssertionError("a start without a refusal has a state")
        return Node(settings, started.cpu)

    @property
    def shared_pool(self) -> CPUSet:
        """The default set recorded in state."""
        return CPUSet(self.cpu.default)

    def admit(self, pod: Pod, observer: Observer | None = None) -> tuple[Node, Decision]:
        """Decide about a new pod. An admitted pod is active and its containers start, init containers first."""
        node, decision = self._decided(pod, observer, sources_ready=True)
        if decision.admitted:
            node = replace(node, started=node.started | {pod.uid})
        return node, decision

    def adopt(self, pods: Iterable[Pod]) -> Node:
        """Return the node with pods that run already and are not decided about: their state stays and is not stale."""
        return replace(self, active={**self.active, **{pod.uid: pod for pod in pods}})

    def withdraw(self, uid: str) -> Node:
        """Return the node after something else than the managers refused a pod that they had accepted.

        The pod leaves the active list; what it was given stays until the managers are asked again.
        """
        active = {known: pod for known, pod in self.active.items() if known != uid}
        return replace(self, active=active, started=self.started - {uid})

    def remove(self, uid: str, observer: Observer | None = None) -> tuple[Node, Removal]:
        """Stop a pod's containers, take it off the active list and drop all stale state at once."""
        active = {known: pod for known, pod in self.active.items() if known != uid}
        stored = self.stored_hints
        if uid in self.started:
            stored = {known: hints for known, hints in stored.items() if known != uid}
        before = self.cpu.default
        cpu = self._without_stale(self.cpu, active, observer)
        node = replace(self, cpu=cpu, active=active, stored_hints=stored, started=self.started - {uid})
        return node, Removal(uid, CPUSet(cpu.default & ~before), CPUSet(cpu.default))

    def restart(
        self, settings: Settings | StartRefusal | None = None, observer: Observer | None = None
    ) -> tuple[Node, Readmission] | StartRefusal:
        """Restart the kubelet on its own state, with the same or another configuration.

        Everything kept in memory is lost; running pods are admitted again in the order of their admission.
        """
        settings = settings or self.settings
        started = settings if isinstance(settings, StartRefusal) else Node.start(settings, Restored(self.cpu))
        if isinstance(started, StartRefusal):
            return started
        return started.readmit(self.active.values(), observer)

    def readmit(self, pods: Iterable[Pod], observer: Observer | None = None) -> tuple[Node, Readmission]:
        """Admit the pods that run already when the kubelet starts.

        Pod sources are not ready then, so that no stale state is removed in between. A pod that is refused leaves the
        active list. A pod whose admission would never end is left as it was and the rest is not looked at.
        """
        node = self
        decisions = []
        for pod in pods:
            node, decision = node._decided(pod, observer, sources_ready=False)
            decisions.append(decision)
            if decision.endless:
                break
        return node, Readmission(tuple(decisions))

    def _decided(self, pod: Pod, observer: Observer | None, *, sources_ready: bool) -> tuple[Node, Decision]:
        active = {**self.active, pod.uid: pod}
        cpu = self._without_stale(self.cpu, active, observer) if sources_ready and pod.containers else self.cpu
        admission = Admission(
            settings=self.settings,
            pod=pod,
            cpu=cpu,
            reusable=self.reusable,
            stored=dict(self.stored_hints.get(pod.uid, {})),
            observer=observer,
        )
        verdict = admission.run()
        if isinstance(verdict, Endless):
            return self, self._decision(self, pod, admission, verdict)
        if verdict is not None:
            active.pop(pod.uid)
        stored = {**self.stored_hints, pod.uid: admission.stored} if admission.stored else self.stored_hints
        node = replace(self, cpu=admission.cpu, reusable=admission.reusable, stored_hints=stored, active=active)
        decision = self._decision(node, pod, admission, verdict)
        return node, decision

    @staticmethod
    def _decision(node: Node, pod: Pod, admission: Admission, verdict: object) -> Decision:
        held = node.cpu.assignments.get(pod.uid, {})
        stored = node.stored_hints.get(pod.uid, {})
        return Decision(
            uid=pod.uid,
            namespace=pod.namespace,
            name=pod.name,
            admitted=verdict is None,
            rejection=verdict if isinstance(verdict, Rejection) else None,
            endless=verdict if isinstance(verdict, Endless) else None,
            containers={container.name: Placement(CPUSet(held.get(container.name, 0))) for container in pod.containers},
            pod=Placement(CPUSet(node.cpu.pods.get(pod.uid, 0))),
            affinity={container.name: stored.get(container.name, NO_AFFINITY) for container in pod.containers},
            shared_pool=node.shared_pool,
            hints=admission.hints or None,
            pod_hints=admission.pod_hints,
        )

    def _without_stale(self, cpu: CPUState, active: Mapping[str, Pod], observer: Observer | None) -> CPUState:
        """Drop every assignment whose container is not in an active pod (spec: cpu-manager.md section 11)."""
        policy = self.settings.cpu
        if policy is None:
            return cpu
        stale = [
            (uid, container)
            for uid, containers in cpu.assignments.items()
            for container in _stale_containers(containers, active.get(uid))
        ]
        for uid, container in sorted(stale):
            cpu = remove(policy, cpu, uid, container, observer)
        if stale and observer is not None:
            observer(StaleStateRemoved(tuple(sorted({uid for uid, _ in stale}))))
        return cpu


def _stale_containers(containers: Mapping[str, int], pod: Pod | None) -> Iterable[str]:
    if pod is None:
        return containers
    known = {container.name for container in pod.containers}
    return [name for name in containers if name not in known]


class StartRefusedError(MooringError):
    """A node was to be made from a configuration with which the kubelet does not start."""

    def __init__(self, refusal: StartRefusal) -> None:
        self.refusal = refusal
        super().__init__(refusal.message)
