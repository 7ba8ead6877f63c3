"""A node that a test changes, and its publisher before an API server that a test breaks."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from tests.agent.pods.fault_injector import FaultInjector

from mooring.engine.core.config import KubeletConfig, MooringConfig
from mooring.engine.core.errors import MooringError
from mooring.engine.core.machine import Finding
from mooring.engine.core.pod import Container, Pod, QoS
from mooring.engine.core.quantity import Quantity
from mooring.engine.kubelet.kubelet import Kubelet, StateTexts
from mooring.engine.kubelet.start import start_kubelet
from mooring.inputs.machines.compact import parse_compact
from mooring.published.observation import EngineObserver, Observation
from mooring.published.publisher import Publisher
from mooring.published.writing import Rhythm
from mooring.service.apiserver import Cluster, cluster_of

NODE = "node-1"
FACTS = "POST /apis/mooring.dev/v1alpha1/nodefacts"
STATE = f"PATCH /apis/mooring.dev/v1alpha1/nodestates/{NODE}"
TOPOLOGY = f"PATCH /apis/topology.node.k8s.io/v1alpha2/noderesourcetopologies/{NODE}"
CONFIG = KubeletConfig(cpu_manager_policy="static", reserved_system_cpus="0")
RHYTHM = Rhythm(gathering=0.2, least=1.0, heartbeat=300.0)
BEGAN = 1_700_000_000.0


def kubelet() -> Kubelet:
    start = start_kubelet(parse_compact("cores=8 memory=8Gi").info, CONFIG, MooringConfig(), StateTexts())
    assert isinstance(start, Kubelet)
    return start


def pinned(uid: str, cpus: int = 1) -> Pod:
    amounts = {"cpu": Quantity.parse(str(cpus))}
    return Pod(uid, uid, containers=(Container("c", requests=amounts, limits=amounts),), qos=QoS.GUARANTEED)


@dataclass
class Node:
    """A node that a test changes, a publisher of it, and a clock that stands still."""

    cluster: FaultInjector
    kubelet: Kubelet = field(default_factory=kubelet)
    observer: EngineObserver = field(default_factory=lambda: EngineObserver(NODE))
    now: float = 1000.0
    rhythm: Rhythm = RHYTHM
    told: list[Finding] = field(default_factory=list)
    problem: str = ""
    computed: float = 0.0
    """CPU seconds of the publisher's thread."""
    opened: list[Cluster] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.seen = self.observer.observe(self.kubelet)
        self.publisher = Publisher(
            lambda: self.observe(),  # noqa: PLW0108 - a test may replace it
            self.connect,
            NODE,
            rhythm=self.rhythm,
            cpu=lambda: self.computed,
            report=self.told.append,
            clock=lambda: self.now,
            today=lambda: BEGAN + self.now,
        )

    def connect(self) -> Cluster:
        self.opened.append(cluster_of(self.cluster.config()))
        return self.opened[-1]

    def observe(self) -> Observation:
        if self.problem:
            raise MooringError(self.problem)
        return self.seen

    def admit(self, uid: str) -> None:
        self.kubelet, decision = self.kubelet.admit(pinned(uid))
        assert decision.admitted
        self.seen = self.observer.observe(self.kubelet)

    def remove(self, uid: str) -> None:
        self.kubelet, _ = self.kubelet.remove(uid)
        self.seen = self.observer.observe(self.kubelet)

    def let_pass(self, seconds: float) -> None:
        """Do what the loop does for a while."""
        end = self.now + seconds
        while True:
            wait = self.publisher.step()
            if self.now + wait > end:
                self.now = end
                return
            self.now += wait

    def written(self, what: str = STATE) -> list[Any]:
        return [request.body for request in self.cluster.asked(what)]
