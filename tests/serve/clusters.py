"""A cluster for the page's tests: nodes that published their state, some with pods, one that refused, one unknown."""

from __future__ import annotations

from mooring.engine.core.config import KubeletConfig, MooringConfig
from mooring.engine.core.pod import Container, Pod
from mooring.engine.core.quantity import Quantity
from mooring.engine.kubelet.admit import AdmitMode, admit
from mooring.engine.kubelet.kubelet import Kubelet, StateTexts
from mooring.engine.kubelet.start import start_on
from mooring.inputs.machines.compact import parse_compact
from mooring.inputs.pods.defaults import PodGates, qos_of
from mooring.inputs.pods.scheduling_fields import SchedulingFields, Taint
from mooring.monitoring.serve.cluster_known import ClusterNode, ClusterPod, KnownCluster
from mooring.published.objects import NodeFacts, NodeState, PodKey

CONFIG = KubeletConfig(
    cpu_manager_policy="static", topology_manager_policy="single-numa-node", reserved_system_cpus="0"
)
MACHINE = parse_compact("sockets=2 cores=32 threads=2 memory=64Gi")


def pod(name: str, cpus: int, namespace: str = "team-a") -> Pod:
    """Return a pod that asks for CPUs of its own."""
    amounts = {"cpu": Quantity.parse(str(cpus)), "memory": Quantity.parse("64Mi")}
    containers = (Container("main", requests=amounts, limits=amounts),)
    return Pod(f"uid-{namespace}-{name}", name, namespace, containers, qos=qos_of(containers, None, PodGates()))


def state(node: str, pods: list[Pod]) -> NodeState:
    """Return what a node publishes after it has admitted pods."""
    kubelet = start_on(MACHINE, CONFIG, MooringConfig(), StateTexts())
    assert isinstance(kubelet, Kubelet)
    for one in pods:
        kubelet, answer = admit(kubelet, one, AdmitMode.ADMISSION)
        assert answer.admitted
    keys = tuple(PodKey(one.namespace, one.name, one.uid) for one in pods)
    return NodeState(node, "facts", kubelet.files, pods=keys)


def known(nodes: int = 6) -> KnownCluster:
    """Return a cluster: nodes with 0, 1, 2 or 3 pods of 8 CPUs in turn, the last one unknown."""
    cluster = KnownCluster()
    cluster.put_facts("facts", NodeFacts(MACHINE.info, CONFIG, MooringConfig()))
    for number in range(nodes):
        name = f"node-{number:04}"
        zone = "ab"[number % 2]
        cluster.put_node(ClusterNode(name, {"zone": zone, "pool": "gpu" if number % 3 == 0 else "cpu"}))
        if number == nodes - 1:
            continue
        own = [pod(f"p{place}-{number}", 8, f"team-{'ab'[place % 2]}") for place in range(number % 4)]
        cluster.put_state(name, state(name, own))
        for one in own:
            cluster.put_pod(ClusterPod(one, name))
    cluster.put_node(ClusterNode("node-0001", {"zone": "b", "pool": "cpu"}, (Taint("dedicated", "x"),)))
    cluster.put_pod(
        ClusterPod(
            pod("refused", 40, "team-b"),
            "node-0002",
            finished=True,
            refusal="TopologyAffinityError",
            since=1.7e9,
            message="Resources cannot be allocated with Topology locality",
        )
    )
    cluster.put_pod(ClusterPod(pod("waits", 30), since=1.7e9))
    cluster.put_pod(ClusterPod(pod("picky", 2, "team-b"), fields=SchedulingFields((("zone", "c"),)), since=1.7e9))
    cluster.tick()
    return cluster
