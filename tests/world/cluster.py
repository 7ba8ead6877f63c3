"""A cluster of a world: kubelets that are the engine, Mooring's publishers and extenders, and their scheduler."""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any

import httpx2
from tests.scheduling.extender_cluster import facts_with, started
from tests.world.apiserver import PODS, APIServer, LeaseWay, Way
from tests.world.serving import answered
from tests.world.threads import THREADING, TIME, Program, Task, Threads, threads

from mooring.cluster.extender import run as extender_module
from mooring.cluster.extender.options import ExtenderOptions
from mooring.cluster.extender.pods import Shapes, seen_pod
from mooring.cluster.extender.run import Extender, extender_with
from mooring.cluster.extender.view import ClusterView
from mooring.engine.core.config import DEVICE_ALIGNMENT, MooringConfig
from mooring.engine.core.pod import Pod
from mooring.engine.kubelet.admit import AdmitMode, AdmitResult, admit
from mooring.engine.kubelet.events import Restart, after_event
from mooring.engine.kubelet.kubelet import Kubelet
from mooring.engine.node.resources import total_requests
from mooring.published import publisher, restored
from mooring.published.publisher import PublisherThread
from mooring.service.apiserver import ANSWER_TIME, Cluster, ClusterError
from mooring.service.lease import Election

KINDS = {
    "plain": facts_with("sockets=1 numa=2 cores=8 threads=1 memory=16Gi"),
    "aligned": facts_with("sockets=1 numa=2 cores=8 threads=1 memory=16Gi", topology_manager_policy="single-numa-node"),
    "cores": facts_with(
        "sockets=1 numa=2 cores=8 threads=2 memory=16Gi",
        topology_manager_policy="restricted",
        cpu_manager_policy_options={"full-pcpus-only": "true"},
        reserved_system_cpus="0,8",
    ),
    "devices": replace(
        facts_with("sockets=1 numa=2 cores=8 threads=1 memory=16Gi", topology_manager_policy="single-numa-node"),
        mooring=MooringConfig(extensions=frozenset({DEVICE_ALIGNMENT})),
    ),
}
LOOKS, RARE_LOOKS = 0.5, 2.0
"""Seconds between two looks at what has changed, and where nothing has gone wrong for long."""
_PAUSES = (0.1, 1.0, 4.0)
"""Seconds until the scheduler tries again for a pod that waits."""
_BACKOFF = 10.0
"""The same where nothing has gone wrong for long: most of these questions have the answer of the last one."""
_PATIENCE = 5.0
"""Seconds for which the scheduler waits for an extender."""


def shorten() -> None:
    """Set what is constant in the product, for the rest of this process, as suits a world."""
    look_every(LOOKS)
    # So small that facts are dropped before the state comes that refers to them.
    setattr(restored, "_MOST_SPARE", restored._KIND_SIZE + 20 * restored._CORE_SIZE)  # noqa: B010, SLF001 - a constant
    # The collector is this process's.
    setattr(extender_module, "settle", lambda whole: None)  # noqa: ARG005, B010 - a constant
    # A thread may stand still anywhere; here others must not go on as if it did not count yet.
    assume = ClusterView.assume
    setattr(ClusterView, "assume", lambda view, pod, node: _late(view, pod, node, assume))  # noqa: B010 - a seam


def look_every(seconds: float) -> None:
    """Set when extenders and publishers look at what has changed: most of the work where almost always nothing has."""
    setattr(extender_module, "_LOOK_PERIOD", seconds)  # noqa: B010 - a constant
    setattr(publisher, "LOOKING", seconds)  # noqa: B010 - a constant


def _late(view: ClusterView, pod: Pod, node: str, assume: Callable[[ClusterView, Pod, str], None]) -> None:
    for _ in range(20):
        threads().step()
    assume(view, pod, node)


def connector(server: APIServer) -> Callable[[], Cluster]:
    """Return what opens the way to the server."""

    def connect() -> Cluster:
        timeout = httpx2.Timeout(ANSWER_TIME)
        return Cluster(httpx2.Client(base_url="http://server/", transport=Way(server), timeout=timeout))

    return connect


@dataclass
class Process:
    """A program that a cluster starts again when it has ended."""

    name: str
    main: Callable[[Process], object]
    threads: Threads
    program: Program = field(init=False)
    task: Task | None = None
    starts_at: float = 0.0
    stop: Any = field(default_factory=THREADING.Event)
    """Set when it is to end in order."""

    def __post_init__(self) -> None:
        self.program = Program(self.name)

    def keep(self, *, even_now: bool = False) -> None:
        """Start it when it is time to."""
        if self.task is not None and self.task.is_over and not self.program.is_dead:
            self.end(1.0)
        if (self.task is None or self.program.is_dead) and (even_now or self.threads.now >= self.starts_at):
            self.stop = THREADING.Event()
            failures = self.program.failures
            self.program = Program(self.name)
            self.program.failures = failures
            self.task = self.threads.spawn(self.program, "main", lambda: self.main(self))

    def end(self, seconds: float) -> None:
        """Kill it; it starts again after some seconds."""
        self.threads.kill(self.program)
        self.starts_at = self.threads.now + seconds


@dataclass
class Replica:
    """One extender."""

    process: Process
    way: LeaseWay
    extender: Extender | None = None
    told: list[str] = field(default_factory=list)
    known: dict[str, tuple[int, int]] = field(default_factory=dict)
    """The versions of pods and states that it had heard of when it was asked to bind a pod, by uid."""
    is_open: bool = False
    """Whether its server takes requests."""
    requests: int = 0
    """That are under way."""

    def run(self, process: Process, server: APIServer, options: ExtenderOptions) -> None:
        """Be the process, as :mod:`mooring.cluster.extender.command` is."""

        def report(about: str, problem: str) -> None:
            self.told.append(f"{about}: {problem}")

        self.known, self.requests = {}, 0
        election = Election(self.way.read, self.way.write, process.name, TIME.monotonic)
        extender = self.extender = extender_with(options, connector(server), report, election=election)
        self.is_open = True
        try:
            extender.start()
            # Another replica has the Lease: this process ends, and starts again.
            with suppress(ClusterError):
                try:
                    election.take_part(lambda: extender.has_listed and not extender.hang(), process.stop, report)
                finally:
                    self.is_open = False
                    process.threads.wait(lambda: not self.requests, 5.0)
                extender.service.finish_binds()
                election.release()
        finally:
            extender.stop()

    def answer(self, path: str, body: bytes, found: list[tuple[int, bytes]]) -> None:
        """Answer a request, unless the server is closed."""
        assert self.extender is not None
        self.requests += 1
        try:
            if self.is_open:
                found.append(answered(self.extender.service.app, path, body))
        except RuntimeError:
            # A request that the server has cut off as it closed.
            if self.is_open:
                raise
        finally:
            self.requests -= 1

    @property
    def is_ready(self) -> bool:
        extender = self.extender
        return extender is not None and not self.process.program.is_dead and not extender.problem()

    @property
    def newest(self) -> tuple[int, int]:
        """The versions of the pods and of the states that it has heard of."""
        assert self.extender is not None
        *_, states, pods = self.extender.followers
        return int(pods._version or 0), int(states._version or 0)  # noqa: SLF001 - a law depends on what it can know


def counted(kubelet: Kubelet) -> Kubelet:
    """Return a kubelet after a while, with the sums of what it runs."""
    settled = kubelet.settled()
    return settled.counting(total_requests(settled.node.active.values()))


@dataclass
class Machine:
    """A node: its kubelet sees the events of pods in order, sooner or later."""

    name: str
    kind: str
    server: APIServer
    threads: Threads
    slow: float = 0.0
    """Seconds that it takes at most to come to an event."""
    kubelet: Kubelet = field(init=False)
    came: dict[str, float] = field(default_factory=dict)
    """When pods were decided about, by uid."""
    refused: dict[str, str] = field(default_factory=dict)
    """Reasons by uid."""
    surprises: list[tuple[int, float]] = field(default_factory=list)
    """Versions and times of ends of pods, and of pods that others bound."""
    refusals: list[tuple[int, float]] = field(default_factory=list)
    """Versions and times at which it refused pods: nobody allows for that before it is heard of."""
    at: int = 0
    """How many events it has seen."""

    def __post_init__(self) -> None:
        self.kubelet = started(KINDS[self.kind])

    @property
    def is_done(self) -> bool:
        return self.at == len(self.server.history[PODS])

    def run(self, is_over: Callable[[], bool]) -> None:
        history, numbers = self.server.history[PODS], self.server.faults.numbers(self.name)
        while True:
            self.threads.wait(lambda: is_over() or len(history) > self.at)
            if is_over():
                return
            pod = history[self.at].object
            if pod["spec"].get("nodeName") == self.name and history[self.at].type != "DELETED":
                self.threads.sleep(numbers.random() * self.slow)
                self._take(pod)
            self.at += 1

    def _take(self, pod: dict[str, Any]) -> None:
        uid, name = pod["metadata"]["uid"], pod["metadata"]["name"]
        stored = self.server.objects[PODS].get(name)
        if stored is None or pod["status"]["phase"] in ("Failed", "Succeeded"):
            return
        if "deletionTimestamp" in pod["metadata"]:
            self.surprises.append((int(pod["metadata"]["resourceVersion"]), self.threads.now))
            if uid in self.kubelet.node.active:
                self.kubelet = counted(self.kubelet.remove(uid)[0])
            self.server.delete(PODS, name)
        elif uid not in self.came:
            self.came[uid] = self.threads.now
            kubelet, found = self.admit(pod)
            self.kubelet = counted(kubelet)
            if not found.admitted:
                self.refused[uid] = found.decision.reason
            version = self._tell(stored, "Running" if found.admitted else "Failed", found.decision.reason)
            if not found.admitted:
                self.refusals.append((version, self.threads.now))

    def admit(self, pod: dict[str, Any], mode: AdmitMode = AdmitMode.ADMISSION) -> tuple[Kubelet, AdmitResult]:
        return admit(self.kubelet, seen_pod(json.dumps(pod).encode(), Shapes()).pod, mode)

    def would_admit(self, pod: dict[str, Any]) -> bool:
        return self.admit(pod, AdmitMode.TRIAL)[1].admitted

    def restart(self) -> None:
        """Let the kubelet start again on its files, with the pods that run."""
        before = self.kubelet
        kubelet, result = after_event(before, Restart())
        assert all(one.admitted for one in result.admissions)
        assert not result.crash
        assert result.refusal is None
        self.kubelet = counted(kubelet)
        assert self.kubelet.files == before.files

    def finish(self, uid: str) -> None:
        """Let a pod end by itself."""
        self.kubelet = counted(self.kubelet.remove(uid)[0])
        stored = next(one for one in self.server.objects[PODS].values() if one["metadata"]["uid"] == uid)
        self.surprises.append((self._tell(stored, "Succeeded", ""), self.threads.now))

    def _tell(self, stored: dict[str, Any], phase: str, reason: str) -> int:
        claims = {name: known for name, known in stored["status"].items() if name == "resourceClaimStatuses"}
        return self.server.put(PODS, {**stored, "status": {**claims, "phase": phase, "reason": reason}})

    def publish(self, process: Process) -> None:
        """Be the publisher's process."""
        thread = PublisherThread(lambda: self.kubelet, connector(self.server), self.name, lambda _finding: None)
        process.stop.wait()
        thread.stop(10.0)


class Scheduler:
    """Asks the extender that is ready about one pod after another, and binds each in a thread of its own."""

    def __init__(
        self,
        server: APIServer,
        threads: Threads,
        replicas: list[Replica],
        nodes: list[str],
        evict: Callable[[dict[str, Any]], object],
    ) -> None:
        self.evict = evict
        self._server, self._threads, self._replicas, self._nodes = server, threads, replicas, nodes
        self._numbers = server.faults.numbers("scheduling")
        self._pods: dict[str, dict[str, Any]] = {}
        """As it has seen them, sooner or later."""
        self._at = 0
        self._busy: set[str] = set()
        """Names of pods that are being bound, or were."""
        self._next: dict[str, float] = {}
        self.wrong: list[str] = []

    def run(self, is_over: Callable[[], bool]) -> None:
        history = self._server.history[PODS]
        while not is_over():
            if not self._server.faults.hit("scheduler stale"):
                for change in history[self._at :]:
                    self._pods[change.object["metadata"]["name"]] = change.object
                    if change.type == "DELETED":
                        del self._pods[change.object["metadata"]["name"]]
                self._at = len(history)
            for pod in self._pods.values():
                if not (is_over() or pod["spec"].get("nodeName") or "deletionTimestamp" in pod["metadata"]):
                    self._schedule(pod)
            self._threads.sleep(0.5)

    def _schedule(self, pod: dict[str, Any]) -> None:
        name = pod["metadata"]["name"]
        if name in self._busy or self._threads.now < self._next.get(name, 0.0):
            return
        is_quiet = self._server.faults.is_quiet
        self._next[name] = self._threads.now + (_BACKOFF if is_quiet else self._numbers.choice(_PAUSES))
        nodes = self.nodes_for(pod)
        found = self.ask("/filter", json.dumps({"Pod": pod, "NodeNames": nodes}).encode()) if nodes else None
        if not found or found["Error"]:
            return
        if not found["NodeNames"]:
            self.preempt(pod, [*found["FailedNodes"]])
            return
        scored = self.ask("/prioritize", json.dumps({"Pod": pod, "NodeNames": found["NodeNames"]}).encode())
        best = max(scored or [], key=lambda one: one["Score"], default={"Host": found["NodeNames"][0]})
        if not self.reserve(pod, best["Host"]):
            return
        self._busy.add(name)
        body = {"PodName": name, "PodNamespace": "default", "PodUID": pod["metadata"]["uid"], "Node": best["Host"]}
        self._threads.spawn(self._threads.outside, f"bind {name}", lambda: self._bind(name, body))

    def nodes_for(self, _pod: dict[str, Any]) -> list[str]:
        """Return the nodes on which a pod can be as far as others than the extender are concerned."""
        return self._nodes

    def reserve(self, _pod: dict[str, Any], _node: str) -> bool:
        """Do what comes between filter and bind; tell whether the pod is to be bound."""
        return True

    def preempt(self, pod: dict[str, Any], nodes: list[str]) -> None:
        """Let pods of lower priority make room, as the scheduler proposes them and the extender adds to them."""
        lower = {node: [one for one in self._pods.values() if _may_leave(one, node, pod)] for node in nodes}
        asked: dict[str, Any] = {
            node: {"Pods": [{"UID": one["metadata"]["uid"]} for one in victims[:1]], "NumPDBViolations": 0}
            for node, victims in lower.items()
            if victims
        }
        nominated = pod["status"].get("nominatedNodeName")
        if any(_leaves(one, nominated) for one in self._pods.values()):
            return
        body = json.dumps({"Pod": pod, "NodeNameToMetaVictims": asked}).encode()
        answer: dict[str, Any] = (self.ask("/preempt", body) or {}) if asked else {}
        found = answer.get("NodeNameToMetaVictims")
        chosen: str = next(iter(found or ()), "")
        stored = {one["metadata"]["uid"]: one for one in self._server.objects[PODS].values()}
        uids = {one["UID"] for one in found[chosen]["Pods"]} if found else set()
        if chosen and not {one["UID"] for one in asked[chosen]["Pods"]} <= uids:
            self.wrong.append(
                f"{pod['metadata']['name']} has victims {sorted(uids)} on {chosen}, and not the asked ones"
            )
        for uid in sorted(uids & stored.keys()):
            if stored[uid]["spec"]["priority"] >= pod["spec"]["priority"]:
                self.wrong.append(f"{uid} is a victim of {pod['metadata']['name']}, and has no lower priority")
            self.evict(stored[uid])
        now = stored.get(pod["metadata"]["uid"])
        if now is not None and chosen != (nominated or "") and not now["spec"].get("nodeName"):
            self._server.put(PODS, {**now, "status": {**now["status"], "nominatedNodeName": chosen}})

    def _bind(self, name: str, body: dict[str, str]) -> None:
        # Others go first: binds come together.
        self._threads.sleep(self._numbers.choice([0.0, 0.01, 0.01, 0.5]))
        answer = self.ask("/bind", json.dumps(body).encode(), body["PodUID"])
        if answer is not None and not answer["Error"]:
            stored = self._server.objects[PODS].get(name)
            if stored is not None and stored["spec"].get("nodeName") != body["Node"]:
                self.wrong.append(f"{name} is said to be bound to {body['Node']}, and is not")
            return
        self._next[name] = self._threads.now + self._numbers.choice(_PAUSES)
        self._busy.discard(name)

    def ask(self, path: str, body: bytes, uid: str = "") -> Any:
        """Return what the extender answers; None where it does not."""
        faults, numbers = self._server.faults, self._server.faults.numbers("asking")
        ready = [one for one in self._replicas if one.is_ready]
        if faults.hit("wrong replica"):
            ready = [one for one in self._replicas if one.extender is not None]
        if not ready:
            return None
        replica = numbers.choice(ready)
        if faults.hit("question late"):
            self._threads.sleep(numbers.choice([0.01, 0.3, 3.0]))
        first = self._answer(replica, path, body, uid)
        if faults.hit("question twice"):
            first = self._answer(replica, path, body, uid)
        self._threads.wait(lambda: bool(first), _PATIENCE)
        if faults.hit("reply lost") or not first or first[0][0] != 200:
            return None
        return json.loads(first[0][1])

    def _answer(self, replica: Replica, path: str, body: bytes, uid: str) -> list[tuple[int, bytes]]:
        found: list[tuple[int, bytes]] = []
        program = replica.process.program
        if replica.extender is None or program.is_dead:
            return found
        if uid:
            replica.known.setdefault(uid, replica.newest)
        self._threads.spawn(program, f"asked {path}", lambda: replica.answer(path, body, found))
        return found


def _may_leave(one: dict[str, Any], node: str, pod: dict[str, Any]) -> bool:
    is_there = one["spec"].get("nodeName") == node and one["status"]["phase"] == "Running"
    return bool(is_there and one["spec"]["priority"] < pod["spec"]["priority"])


def _leaves(one: dict[str, Any], node: str | None) -> bool:
    return bool(node) and one["spec"].get("nodeName") == node and "deletionTimestamp" in one["metadata"]


RATES = {
    "scheduler stale": (0.3, 0.8),
    "wrong replica": (0.02, 0.1),
    "question late": (0.02, 0.1),
    "question twice": (0.02, 0.1),
    "reply lost": (0.02, 0.1),
}


def pod_object(number: int, cpus: list[str], memory: str, priority: int = 0) -> dict[str, Any]:
    """Return a pod whose containers have so many CPUs."""
    amounts = [{"cpu": one, "memory": memory} for one in cpus]
    containers = [{"name": f"c{at}", "resources": {"requests": one, "limits": one}} for at, one in enumerate(amounts)]
    uid = f"{number:08x}-0000-4000-8000-000000000000"
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": f"pod-{number}", "namespace": "default", "uid": uid},
        "spec": {"containers": containers, "priority": priority},
        "status": {"phase": "Pending", "qosClass": "Guaranteed"},
    }


def node_object(name: str) -> dict[str, Any]:
    return {"metadata": {"name": name, "uid": f"uid-{name}"}, "status": {"nodeInfo": {"kubeletVersion": "v1.37.0"}}}
