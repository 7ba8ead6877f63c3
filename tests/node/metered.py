"""Small nodes whose metrics are counted: machines, pods, and what an action changed in the numbers."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from tests.cpumanager.pods import amounts
from tests.node.nodes import GIB
from tests.node.podlevel_nodes import whole

from mooring.engine.core.config import KubeletConfig, MooringConfig, ReservedMemory
from mooring.engine.core.decision import Observer
from mooring.engine.core.machineinfo import Cache, Core, HugePages, MachineInfo, NUMANode
from mooring.engine.core.pod import Container, ContainerKind, Pod
from mooring.engine.core.quantity import Quantity
from mooring.engine.core.release import NEWEST, Release
from mooring.engine.node import Decision, Node
from mooring.engine.node.metric_names import samples
from mooring.engine.node.metrics import Metrics

PAGES = "hugepages-2Mi"

Numbers = dict[str, int]
"""Series in text form without the kubelet's prefix -> value; see :func:`numbers`."""


class MetricsObserver:
    """An observer that counts what it hears and passes it on.

    One observer may hear a kubelet through restarts: with ``KubeletStarted`` all numbers begin anew.
    """

    def __init__(self, metrics: Metrics, onward: Observer | None = None) -> None:
        self.metrics = metrics
        """The numbers so far."""
        self._onward = onward

    def __call__(self, fact: object, /) -> None:
        """Count one fact and pass it on."""
        self.metrics = self.metrics.after(fact)
        if self._onward is not None:
            self._onward(fact)


def machine() -> MachineInfo:
    """Return two nodes of four cores with two threads each; two cores share an uncore cache; one socket per node.

    CPU 8n+2c and the next one are the threads of core c of node n. Each node has 8 GiB, of which 1 GiB in pages of
    2 MiB.
    """
    return MachineInfo(
        num_cores=16,
        num_sockets=2,
        memory_capacity=16 * GIB,
        topology=tuple(
            NUMANode(
                node,
                8 * GIB,
                hugepages=(HugePages(2048, 512),),
                cores=tuple(
                    Core(
                        core,
                        (8 * node + 2 * core, 8 * node + 2 * core + 1),
                        node,
                        uncore_caches=(Cache(2 * node + core // 2, 0, "Unified", 3),),
                    )
                    for core in range(4)
                ),
            )
            for node in (0, 1)
        ),
    )


def config(
    *,
    cpu: str = "static",
    memory: str = "None",
    policy: str = "none",
    scope: str = "container",
    options: tuple[str, ...] = (),
    gates: Mapping[str, bool] | None = None,
) -> KubeletConfig:
    """Return a configuration that keeps CPUs 0 and 1, and 1 GiB of node 0."""
    reserved = (ReservedMemory(0, {"memory": "1Gi"}),) if memory == "Static" else ()
    return KubeletConfig(
        cpu_manager_policy=cpu,
        cpu_manager_policy_options=dict.fromkeys(options, "true"),
        memory_manager_policy=memory,
        reserved_memory=reserved,
        topology_manager_policy=policy,
        topology_manager_scope=scope,
        reserved_system_cpus="0-1",
        kube_reserved={"memory": "1Gi"},
        eviction_hard={},
        feature_gates=gates or {},
    )


def container(
    name: str, cpu: str = "2", memory: str = "1Gi", pages: str = "", kind: ContainerKind = ContainerKind.APP
) -> Container:
    """Return a container whose requests equal its limits."""
    wanted = {**amounts(cpu, memory), **({PAGES: Quantity.parse(pages)} if pages else {})}
    return Container(name, kind, wanted, wanted)


def init(name: str, cpu: str = "2", memory: str = "1Gi") -> Container:
    """Return a regular init container."""
    return container(name, cpu, memory, kind=ContainerKind.INIT)


def pod_level(uid: str, cpu: str, memory: str, *containers: Container) -> Pod:
    """Return a Guaranteed pod with pod-level resources."""
    return whole(cpu, *containers, memory=memory, uid=uid)


def numbers(metrics: Metrics) -> Numbers:
    """Return every sample by its text, as in ``admission_rejections_total{reason="Other"}``; no histograms."""
    found = {}
    for name, labels, value in samples(metrics):
        if "_duration_" not in name:
            inside = ",".join(f'{label}="{text}"' for label, text in labels)
            found[name.removeprefix("kubelet_") + (f"{{{inside}}}" if inside else "")] = value
    return found


class Metered:
    """A node beside its numbers."""

    def __init__(self, kubelet: KubeletConfig, *, fixed: tuple[str, ...] = (), release: Release = NEWEST) -> None:
        self.node = Node.fresh(machine(), kubelet, MooringConfig(fixed_defects=frozenset(fixed), release=release))
        self.observer = MetricsObserver(Metrics.initial(self.node.settings, self.node.cpu))

    @property
    def numbers(self) -> Numbers:
        """All numbers now."""
        return numbers(self.observer.metrics)

    def admit(self, asked: Pod) -> Decision:
        """Admit a pod and start its containers."""
        self.node, decision = self.node.admit(asked, self.observer)
        return decision

    def remove(self, uid: str) -> None:
        """Remove a pod."""
        self.node, _ = self.node.remove(uid, self.observer)

    def change(self, asked: Pod) -> Numbers:
        """Admit a pod and return by how much each number changed."""
        return self.changed_by(lambda: self.admit(asked))

    def change_of_removal(self, uid: str) -> Numbers:
        """Remove a pod and return by how much each number changed."""
        return self.changed_by(lambda: self.remove(uid))

    def changed_by(self, action: Callable[[], object]) -> Numbers:
        """Do something and return by how much each number changed; a new series counts from 0."""
        before = self.numbers
        action()
        after = self.numbers
        assert before.keys() <= after.keys()
        return {series: value - before.get(series, 0) for series, value in after.items() if value != before.get(series)}
