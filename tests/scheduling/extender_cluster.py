"""A node that admits what is bound to it, an API server that orders events, and an extender that hears of both late."""

from __future__ import annotations

import asyncio
import contextlib
import json
import ssl
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from msgspec import Raw, structs
from tests.plans import started_kubelet

from mooring.cluster.deployment import AUTHORITY, SIDES, Content, renewed
from mooring.cluster.extender.binding import Binder
from mooring.cluster.extender.deciding import Decider
from mooring.cluster.extender.options import ExtenderOptions
from mooring.cluster.extender.pods import Seen, Shapes
from mooring.cluster.extender.possible_nodes import NodeVerdict
from mooring.cluster.extender.run import Extender, extender_with
from mooring.cluster.extender.view import ClusterView
from mooring.cluster.extender.wire import BindArguments
from mooring.engine.core.config import KubeletConfig, MooringConfig
from mooring.engine.core.pod import Container, ContainerKind, Pod, QoS
from mooring.engine.core.quantity import Quantity
from mooring.engine.kubelet.admit import shape_of
from mooring.engine.kubelet.kubelet import Kubelet
from mooring.inputs.machines.compact import parse_compact
from mooring.published.facts_document import digest_of
from mooring.published.objects import NodeFacts, NodeState, PodKey
from mooring.service.apiserver import Cluster, ClusterError
from mooring.service.lease import Election
from mooring.service.logs import Traces

NODE = "node-1"


def facts_with(machine: str, **config: Any) -> NodeFacts:
    """Return facts of a described machine with static CPU policy; the first CPU is reserved."""
    fields: dict[str, Any] = {"cpu_manager_policy": "static", "reserved_system_cpus": "0", **config}
    return NodeFacts(parse_compact(machine).info, KubeletConfig(**fields), MooringConfig())


def guaranteed(uid: str, *cpus: int, memory: str = "1Gi", init: int = 0) -> Pod:
    """Return a Guaranteed pod with a container for each number of CPUs."""

    def container(name: str, count: int, kind: ContainerKind = ContainerKind.APP) -> Container:
        amounts = {"cpu": Quantity.parse(str(count)), "memory": Quantity.parse(memory)}
        return Container(name, kind, amounts, amounts)

    first = (container("first", init, ContainerKind.INIT),) if init else ()
    apps = tuple(container(f"c{number}", count) for number, count in enumerate(cpus))
    return Pod(uid, uid, containers=first + apps, qos=QoS.GUARANTEED)


def started(facts: NodeFacts) -> Kubelet:
    """Return an empty node."""
    return started_kubelet(facts.machine, facts.config, facts.mooring)


def state_of_node(facts: NodeFacts, kubelet: Kubelet, *, node: str = NODE, sequence: int = 0) -> NodeState:
    """Return what the node would publish."""
    settled = kubelet.settled()
    keys = tuple(PodKey(pod.namespace, pod.name, uid) for uid, pod in settled.node.active.items())
    return NodeState(node, digest_of(facts), settled.files, settled.node.providers.devices, keys, sequence)


def publish(view: ClusterView, facts: NodeFacts, nodes: Mapping[str, Kubelet], version: int = 1) -> ClusterView:
    """Bring facts and the states of nodes to a view."""
    view.put_facts(digest_of(facts), facts)
    for name, kubelet in nodes.items():
        view.put_state(name, version, state_of_node(facts, kubelet, node=name, sequence=version))
    return view


def pod_json(seen: Seen) -> bytes:
    """Return a pod of :func:`guaranteed` as the API server stores it."""
    containers: dict[ContainerKind, list[dict[str, Any]]] = {kind: [] for kind in ContainerKind}
    for one in seen.pod.containers:
        amounts = {name: str(amount) for name, amount in one.limits.items()}
        resources = {"requests": amounts, "limits": amounts}
        containers[one.kind].append({"name": one.name, "resources": resources})
    spec = {
        "nodeName": seen.node,
        "initContainers": containers[ContainerKind.INIT],
        "containers": containers[ContainerKind.APP],
    }
    metadata: dict[str, Any] = {"name": seen.pod.name, "namespace": "default", "uid": seen.pod.uid}
    if seen.leaving:
        metadata["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    status = {"phase": "Succeeded" if seen.finished else "Pending"}
    return json.dumps({"metadata": metadata, "spec": spec, "status": status}).encode()


@dataclass
class World:
    """Everything at one moment."""

    facts: NodeFacts
    kubelet: Kubelet
    events: list[Seen | str] = field(default_factory=list)
    """What the API server tells in order: a pod, or the uid of one that is deleted."""
    stored: dict[str, Seen] = field(default_factory=dict)
    waiting: dict[str, Pod] = field(default_factory=dict)
    """Pods that the API server stores unbound."""
    asked: set[str] = field(default_factory=set)
    """Uids of all pods whose bind the scheduler has asked for."""
    states: list[NodeState] = field(default_factory=list)
    at_node: int = 0
    """How many events the node has seen."""
    at_extender: int = 0
    newest: int = 0
    """Version of the newest state that the extender of this life has seen."""
    now: float = 0.0
    departures: int = 0
    """How many events there were when a pod was last said to leave."""
    rejected: list[str] = field(default_factory=list)
    view: ClusterView = field(init=False)
    binder: Binder = field(init=False)
    decider: Decider = field(default_factory=Decider)

    def __post_init__(self) -> None:
        self.begin()
        self.publish()
        self.deliver(0)

    def begin(self) -> None:
        """Start the extender with an empty cache."""
        self.view = ClusterView(lambda: self.now)
        self.view.put_facts(digest_of(self.facts), self.facts)
        self.view.replace_pods(list(self.stored.values()))
        self.binder = Binder(self.view, WorldServer(self), Shapes(), lambda pod, _node: self.verdict(pod))
        self.at_extender = len(self.events)
        self.newest = 0

    def publish(self) -> None:
        self.states.append(state_of_node(self.facts, self.kubelet, sequence=len(self.states)))

    def deliver(self, which: int) -> None:
        """Bring a published state to the extender, old or new."""
        self.view.put_state(NODE, which + 1, self.states[which])

    def tell(self, what: Seen | str) -> None:
        self.events.append(what)
        if isinstance(what, str) or what.leaving or what.finished:
            self.departures = len(self.events)
        if isinstance(what, str):
            self.stored.pop(what, None)
        else:
            self.stored[what.pod.uid] = what

    def hear(self, until: int | None = None) -> None:
        """Let the extender hear one event, or all up to a place."""
        goal = self.at_extender + 1 if until is None else until
        while self.at_extender < min(goal, len(self.events)):
            event = self.events[self.at_extender]
            self.at_extender += 1
            if isinstance(event, str):
                self.view.drop_pod(event)
            else:
                self.view.put_pod(event)

    def step_node(self) -> None:
        """Let the node see one event."""
        if self.at_node >= len(self.events):
            return
        event = self.events[self.at_node]
        self.at_node += 1
        if isinstance(event, str) or event.node != NODE or event.finished:
            return
        uid = event.pod.uid
        if event.leaving:
            self.end(uid)
            if uid in self.stored:
                self.tell(uid)
        elif uid not in self.kubelet.node.active and uid in self.stored and not self.stored[uid].leaving:
            self.kubelet, decision = self.kubelet.admit(event.pod)
            if not decision.admitted:
                self.rejected.append(f"{uid}: {decision.reason}")

    def end(self, uid: str) -> None:
        if uid in self.kubelet.node.active:
            self.kubelet, _ = self.kubelet.remove(uid)

    def finish(self, uid: str) -> None:
        """Let a pod of the node end by itself, when the node has seen everything.

        A pod that ends between the bind of another and its admission changes what nobody can know of beforehand.
        """
        while self.at_node < len(self.events):
            self.step_node()
        if uid in self.kubelet.node.active and uid in self.stored:
            self.end(uid)
            self.tell(Seen(self.stored[uid].pod, NODE, finished=True))

    def read(self, steps: int, events: int) -> None:
        """Let the extender list the pods of the node; before the answer the node and the extender see some events."""

        def listed() -> list[Seen]:
            found = list(self.stored.values())
            for _ in range(steps):
                self.step_node()
            self.hear(self.at_extender + events)
            return found

        self.view.read_pods(listed)

    def verdict(self, pod: Pod) -> NodeVerdict:
        return self.decider.verdict(self.view.outlook(NODE, pod), shape_of(pod))

    def wants(self, pod: Pod) -> bool:
        """Ask the extender."""
        return not self.verdict(pod).reason

    def bind(self, pod: Pod, *, arrives: bool = True, answered: bool = True) -> bool:
        """Have the scheduler ask for a bind where the extender wants the pod; the request or its answer may be lost."""
        if not self.wants(pod):
            return False
        if pod.uid not in self.asked:
            self.asked.add(pod.uid)
            self.waiting[pod.uid] = pod
        self.binder = replace(self.binder, server=WorldServer(self, arrives=arrives, answered=answered))
        self.binder.bind(BindArguments(pod.name, "default", pod.uid, NODE))
        return True


@dataclass
class Recorder:
    """Takes binds in the place of an API server."""

    error: ClusterError | None = None
    bound: list[tuple[str, str]] = field(default_factory=list)
    pod: bytes = b""
    claims: dict[str, bytes] = field(default_factory=dict)

    def close(self) -> None:
        """Nothing is open."""

    def read_pod(self, namespace: str, name: str) -> bytes:
        if not self.pod:
            raise ClusterError(f"status 404: pods {namespace}/{name} not found", code=404)
        return self.pod

    def read_claim(self, namespace: str, name: str) -> bytes:
        if name not in self.claims or namespace != "default":
            raise ClusterError(f"status 404: resourceclaims {namespace}/{name} not found", code=404)
        return self.claims[name]

    def pods_on(self, node: str) -> list[Raw]:
        raise ClusterError(f"the pods of {node} are read by one of several replicas only")

    def bind(self, asked: BindArguments) -> None:
        if self.error is not None:
            raise self.error
        self.bound.append((asked.PodUID, asked.Node))


class WorldServer(Recorder):
    """The API server as the extender binds a pod through it; the request or its answer may be lost."""

    def __init__(self, world: World, *, arrives: bool = True, answered: bool = True) -> None:
        super().__init__()
        self.world, self.arrives, self.answered = world, arrives, answered

    def read_pod(self, _namespace: str, name: str) -> bytes:
        world = self.world
        if name not in world.stored and name not in world.waiting:
            raise ClusterError("not found", code=404)
        return pod_json(world.stored[name] if name in world.stored else Seen(world.waiting[name]))

    def bind(self, asked: BindArguments) -> None:
        if self.arrives:
            if asked.PodUID in self.world.stored:
                raise ClusterError("already assigned", code=409)
            self.world.tell(Seen(self.world.waiting.pop(asked.PodUID), NODE))
        if not self.answered:
            raise ClusterError("timed out")
        if not self.arrives:
            raise ClusterError("forbidden", code=403)


# Asking an extender's service without a socket.


PATIENT = 60.0
"""Seconds for a request, on a machine that may stand still for some of them."""


def no_cluster() -> Cluster:
    raise ClusterError("there is no API server")


def ready_extender(
    options: ExtenderOptions | None = None,
    server: Recorder | None = None,
    traces: Traces | None = None,
    report: Callable[[str, str], object] = lambda _about, _problem: None,
    election: Election | None = None,
) -> Extender:
    """Return an extender that believes to have listed everything; it has time to answer unless the options say less."""
    usual = ExtenderOptions()
    options = options or usual
    if options.request_time == usual.request_time:
        options = structs.replace(options, request_time=PATIENT)
    made = extender_with(options, no_cluster, report, server or Recorder(), election, traces)
    for follower in made.followers:
        follower.has_listed.set()
    return made


def pod_body(
    uid: str, cpus: str, memory: str = "1Gi", *, node: str = "", claims: Sequence[str] = (), **spec: Any
) -> dict[str, Any]:
    """Return a Guaranteed pod as the API server has it."""
    amounts = {"cpu": cpus, "memory": memory}
    resources = {"requests": amounts, "limits": amounts, "claims": [{"name": one} for one in claims]}
    spec |= {"resourceClaims": [{"name": one, "resourceClaimName": one} for one in claims]} if claims else {}
    return {
        "metadata": {"name": uid, "namespace": "default", "uid": uid},
        "spec": {"nodeName": node, "containers": [{"name": "a", "resources": resources}], **spec},
        "status": {"qosClass": "Guaranteed", "phase": "Pending"},
    }


def question(cpus: str, memory: str = "1Gi", uid: str = "asked", priority: int = 0, **more: Any) -> bytes:
    """Return what the scheduler asks about a pod."""
    return json.dumps({"Pod": pod_body(uid, cpus, memory, priority=priority), **more}).encode()


def bind(extender: Extender, uid: str, node: str) -> str:
    """Return why a pod is not bound; nothing when it is."""
    asked = {"PodName": uid, "PodNamespace": "default", "PodUID": uid, "Node": node}
    status, answer = ask(extender, "/bind", json.dumps(asked).encode())
    assert status == 200
    return str(answer["Error"])


def ask(extender: Extender, path: str, body: bytes | Sequence[bytes], method: str = "POST") -> tuple[int, Any]:
    """Return status and content of an answer."""
    return asyncio.run(asking(extender, path, body, method))


async def asking(extender: Extender, path: str, body: bytes | Sequence[bytes], method: str = "POST") -> tuple[int, Any]:
    """Return status and content of an answer, beside other requests."""
    parts = [body] if isinstance(body, bytes) else list(body)
    sent: list[dict[str, Any]] = []

    async def receive() -> dict[str, Any]:
        return {"type": "http.request", "body": parts.pop(0), "more_body": bool(parts)}

    async def send(message: Any) -> None:
        sent.append(message)

    scope = {"type": "http", "method": method, "path": path, "query_string": b"", "headers": [], "asgi": {}}
    app = extender.service.webhook if path.startswith("/validate") else extender.service.app
    await app(scope, receive, send)
    content = b"".join(message.get("body", b"") for message in sent)
    is_json = content[:1] in (b"{", b"[")
    return sent[0]["status"], json.loads(content) if is_json else content.decode()


# Certificates for tests.


def certificates(folder: Path) -> Path:
    """Write the Secrets of extender and scheduler as the chart's job makes them, under an authority of their own."""
    empty: dict[str, Content] = {AUTHORITY: {}, **{f"{side}-tls": {} for side in SIDES}}
    for name, content in renewed(empty, "mooring", datetime.now(UTC)).items():
        (folder / name).mkdir(parents=True)
        for file, data in content.items():
            (folder / name / file).write_bytes(data)
    return folder


def shake_hands(server: ssl.SSLContext, client: ssl.SSLContext, name: str | None = None) -> bool:
    """Connect in memory, to a server of that name, and tell whether both sides are done.

    Raises:
        ssl.SSLError: one side does not accept the other.
    """
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    sides = [
        server.wrap_bio(to_server, to_client, server_side=True),
        client.wrap_bio(to_client, to_server, server_hostname=name),
    ]
    for _ in range(10):
        for side in list(sides):
            with contextlib.suppress(ssl.SSLWantReadError):
                side.do_handshake()
                sides.remove(side)
    return not sides
