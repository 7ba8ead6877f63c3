"""A cluster for the page's tests: nodes that published their state, some with pods, one that refused, one unknown."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import dataclass, replace
from http.client import HTTPConnection
from pathlib import Path

from tests.plans import started_kubelet

from mooring.answers.base.plan import Question
from mooring.engine.core.config import KubeletConfig, MooringConfig
from mooring.engine.core.pod import Container, Pod
from mooring.engine.core.quantity import Quantity
from mooring.engine.kubelet.admit import AdmitMode, admit
from mooring.inputs.configuration.node_configuration import load_config
from mooring.inputs.machines.compact import parse_compact
from mooring.inputs.machines.loader import load_machine
from mooring.inputs.pods.defaults import PodGates, qos_of
from mooring.inputs.pods.pod_files import load_pods
from mooring.inputs.pods.scheduling_fields import NodeObject, SchedulingFields, Taint
from mooring.monitoring.serve.access import Guard, OpenGuard
from mooring.monitoring.serve.app import LIMITS, node_application
from mooring.monitoring.serve.cluster_known import ClusterPod, KnownCluster
from mooring.monitoring.serve.node_routes import Recording
from mooring.monitoring.serve.snapshot import snapshot_of
from mooring.published.objects import NodeFacts, NodeState, PodKey
from mooring.service.http import Application, HTTPServer, listener_at
from mooring.service.options import Address

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
    kubelet = started_kubelet(MACHINE.info, CONFIG)
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
        cluster.put_node(NodeObject(name, {"zone": zone, "pool": "gpu" if number % 3 == 0 else "cpu"}))
        if number == nodes - 1:
            continue
        own = [pod(f"p{place}-{number}", 8, f"team-{'ab'[place % 2]}") for place in range(number % 4)]
        cluster.put_state(name, state(name, own))
        for one in own:
            cluster.put_pod(ClusterPod(one, name))
    cluster.put_node(NodeObject("node-0001", {"zone": "b", "pool": "cpu"}, (Taint("dedicated", "x"),)))
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


# A served page for the tests: the real server on a free port of loopback, and requests to it.


EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
HOSTILE = "<script>window.hacked=1</script>"


@dataclass(frozen=True)
class Got:
    """An answer."""

    status: int
    headers: Mapping[str, str]
    text: str


@dataclass(frozen=True)
class Site:
    """A served application."""

    port: int

    def ask(self, path: str, method: str = "GET", body: str = "", **headers: str) -> Got:
        """Make a request; names of headers have underscores."""
        with closing(HTTPConnection("127.0.0.1", self.port, timeout=60)) as connection:
            given = {name.replace("_", "-"): value for name, value in headers.items()}
            connection.request(method, path, body.encode() or None, given)
            answer = connection.getresponse()
            return Got(answer.status, dict(answer.headers), answer.read().decode())


@contextmanager
def served(app: Application) -> Iterator[Site]:
    """Serve an application; a client on a busy machine has a minute for its first request."""
    listener = listener_at(Address("127.0.0.1", 0), "")
    with closing(HTTPServer(listener, app, replace(LIMITS, first=60.0))) as server:
        yield Site(server.address[1])


def question(pods: str = "pods.yaml") -> Question:
    """Return a node with pods."""
    machine = load_machine("epyc-7763-2s-nps4")
    configuration = load_config(str(EXAMPLES / "kubelet.yaml"))
    found = load_pods([str(EXAMPLES / pods)])
    return Question(machine, configuration.kubelet, configuration.mooring, tuple(found))


def recording(asked: Question | None = None) -> Recording:
    """Return a node that is recorded from now on."""
    return Recording(snapshot_of(asked or question()))


def hostile() -> Question:
    """Return a node whose pods have names that would be scripts."""
    asked = question()
    pods = tuple(replace(pod, name=f"{HOSTILE}{place}", namespace=HOSTILE) for place, pod in enumerate(asked.pods))
    return replace(asked, pods=pods)


@contextmanager
def node_site(recorded: Recording, guard: Guard | None = None, *, loopback: bool = True) -> Iterator[Site]:
    """Serve a node."""
    with served(node_application(recorded, guard or OpenGuard(), loopback=loopback)) as site:
        yield site
