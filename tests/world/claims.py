"""Claims of a node: Mooring's driver as a process, the scheduler that allocates, and the kubelet that has prepared."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.world.apiserver import APIServer
from tests.world.calls import Client, Server, served
from tests.world.cluster import Process, connector
from tests.world.kernel import ALL
from tests.world.node import Node, WorldLog

from mooring.agent import startup
from mooring.agent.nri.types import CLAIM_VARIABLE, LinuxResources
from mooring.agent.state import HAS_CGROUP
from mooring.cluster.dra import command, objects
from mooring.cluster.dra import plugin as driver_plugin
from mooring.cluster.dra.cdi import CDISpecs, PreparedClaim, cpus_of
from mooring.cluster.dra.devices import CAPACITY, Grouping, SlicePublisher
from mooring.cluster.dra.driver import Driver, Reconciler
from mooring.cluster.dra.objects import GROUP, ClaimObjects, ClaimsClient
from mooring.cluster.dra.plugin import DeviceHealth, DriverMetrics, Health, Plugin
from mooring.engine.core.bits import list_text
from mooring.engine.core.cpuset import CPUSet
from mooring.engine.core.errors import MooringError
from mooring.engine.extensions.owners import HeldClaim, claims_of
from mooring.service import messages
from mooring.service.grpc_client import CallError

DRIVER, NODE = "cpu.mooring.dev", "edge-7"
CLAIMS, SLICES = f"{GROUP}/resourceclaims", f"{GROUP}/resourceslices"
_PATIENCE = 45.0
"""Seconds for which the kubelet waits for an answer."""
_BACKOFF = 10.0
"""Seconds until it asks again where nothing has gone wrong for long."""


def connect() -> None:
    """Give agent and driver, for the rest of this process, the gRPC of the world."""
    setattr(startup, "GRPCSocket", Server)  # noqa: B010 - a seam
    setattr(objects, "UnaryClient", Client)  # noqa: B010 - a seam
    setattr(driver_plugin, "serve_at_once", served)  # noqa: B010 - a seam


@dataclass
class Claim:
    """A claim of one pod, as the kubelet knows it."""

    uid: str
    name: str
    count: int
    is_wanted: bool = True
    """Whether its pod is to run."""
    given: str = ""
    """The CPUs of which the kubelet was told."""
    again: bool = False
    """Whether the kubelet asks once more, as after its restart."""
    said: str = ""
    """The last error."""
    is_over: bool = False
    """Whether the driver has said that it has unprepared it."""

    @property
    def pod(self) -> str:
        """The uid of its pod."""
        return f"p-{self.uid}"

    @property
    def message(self) -> messages.ClaimMessage:
        return messages.ClaimMessage(namespace="default", uid=self.uid, name=self.name)


@dataclass
class Claims:
    """All claims of a node, and the driver's process."""

    node: Node
    server: APIServer
    specs: CDISpecs = field(init=False)
    process: Process = field(init=False)
    claims: dict[str, Claim] = field(default_factory=dict)
    named: dict[str, Claim] = field(default_factory=dict)
    """What containers of a sandbox name, by its id."""
    written: set[str] = field(default_factory=set)
    """Containers whose control groups others have written, too."""
    wrong: list[str] = field(default_factory=list)
    has_lost: bool = False
    """Whether power or the agent's state were lost: what the claims had may be another's since."""

    def __post_init__(self) -> None:
        self.folder = Path(self.node.root) / "cdi"
        self.folder.mkdir()
        self.specs = CDISpecs(self.folder, DRIVER)
        self.process = Process("driver", self._run, self.node.threads)
        self.log = WorldLog()
        Server.listening = {}

    def _run(self, process: Process) -> None:
        """Be the process, as :func:`mooring.cluster.dra.command.command` is."""
        agent = ClaimsClient(f"{self.node.root}/run/claims.sock")
        try:
            agent.node()
        except MooringError:
            return
        way = ClaimObjects(connector(self.server))
        self.specs.tidy()
        driver = Driver(agent, self.specs, SlicePublisher(DRIVER, NODE, Grouping.NUMA, way, self.log))
        devices, health = DeviceHealth(NODE, self.node.root / "sys"), Health()
        metrics = DriverMetrics(health.is_ready)
        plugin = Plugin(driver, self.node.root / "plugin", self.node.root / "registry", metrics, devices)
        try:
            command._until(process.stop, Reconciler(driver, devices), health, self.log)  # noqa: SLF001 - the process itself
        finally:
            plugin.close()
            way.close()

    # The scheduler.

    def allocate(self, claim: Claim) -> bool:
        """Allocate a claim from what the slices offer; tell whether there is room."""
        used = dict.fromkeys(("numa0", "numa1"), 0)
        for one in self.server.objects[CLAIMS].values():
            for result in one["status"]["allocation"]["devices"]["results"] if one["status"].get("allocation") else ():
                used[result["device"]] += int(result["consumedCapacity"][CAPACITY])
        for one in self.server.objects[SLICES].values():
            for device in one["spec"]["devices"]:
                name, room = device["name"], int(device["capacity"][CAPACITY]["value"])
                if used[name] + claim.count <= room:
                    stored = self.server.objects[CLAIMS][claim.name]
                    allocation = {"devices": {"results": [_result(name, claim)]}}
                    status = {"allocation": allocation, "reservedFor": [{"resource": "pods", "uid": claim.pod}]}
                    self.server.put(CLAIMS, {**stored, "status": status})
                    return True
        return False

    # The kubelet.

    def live(self, claim: Claim, is_over: Callable[[], bool]) -> None:
        """Have a claim allocated, prepared as long as its pod runs, and unprepared."""
        threads, faults = self.node.threads, self.node.faults
        numbers = faults.numbers("kubelet")
        while claim.is_wanted and not is_over() and not self.allocate(claim):
            threads.sleep(2.0)
        while claim.is_wanted and not is_over():
            claim.again = False
            if self._prepare(claim):
                threads.wait(lambda: is_over() or not claim.is_wanted or claim.again)
            else:
                threads.sleep(_BACKOFF if faults.is_quiet else numbers.choice([0.1, 1.0, 3.0]))
        if self._is_unheard(claim) and numbers.random() < 0.5:
            claim.is_over = True
        while not is_over() and not claim.is_over:
            answer = self._ask("NodeUnprepareResources", claim, messages.NodeUnprepareResourcesResponseMessage)
            claim.is_over = answer is not None and not answer.error
            threads.sleep(numbers.choice([0.1, 1.0, 3.0]))
        if claim.is_over and claim.name in self.server.objects[CLAIMS]:
            self.server.delete(CLAIMS, claim.name)

    def _prepare(self, claim: Claim) -> bool:
        boots = self.node.boots
        answer = self._ask("NodePrepareResources", claim, messages.NodePrepareResourcesResponseMessage)
        if answer is None or answer.error or boots != self.node.boots:
            claim.said = claim.said if answer is None else answer.error
            return False
        found = self.specs.read(claim.uid)
        if found is None or CPUSet.parse(cpus_of(found.given)).mask.bit_count() != claim.count:
            self.wrong.append(f"{claim.name} is said to be prepared, and its file is {found}")
        else:
            claim.given, claim.said = cpus_of(found.given), ""
            self.wrong += self._disturbed(claim)
        return True

    def _disturbed(self, claim: Claim) -> Iterator[str]:
        """Yield others on the CPUs of a claim of which the kubelet is told just now, where no write went wrong."""
        agent, cpus = self.node.agent, CPUSet.parse(claim.given).mask
        if agent is None or any(one.startswith("cgroup") for one in self.node.faults.happened):
            return
        for one in self.node.running():
            has = CPUSet.parse(one.cgroup.cpus).mask if one.cgroup.cpus else ALL
            mine = self.named.get(one.sandbox) is claim and self.node.runtime.sandboxes[one.sandbox].uid == claim.pod
            # A runtime that started again has not told which of those that it was making run.
            known = agent.holder.state.containers.get(one.id)
            is_told = known is not None and known.phase in HAS_CGROUP and one.id not in self.written
            if has & cpus and is_told and not mine:
                yield f"{one.id} still runs on {one.cgroup.cpus} when {claim.name} is said to have {claim.given}"

    def _ask(self, method: str, claim: Claim, response: Any) -> Any:
        """Return what the driver answers about a claim; None where it does not."""
        request = messages.NodePrepareResourcesRequestMessage(claims=[claim.message]).SerializeToString()
        try:
            found = Client(str(self.node.root / "plugin/dra.sock")).ask(method, request, _PATIENCE)
        except CallError:
            return None
        return response.FromString(found).claims[claim.uid]

    def _is_unheard(self, claim: Claim) -> bool:
        """Tell whether the driver has nothing of a claim, and does nothing: a kubelet may know nothing of it either."""
        is_busy = any(one.name.startswith("call") for one in self.process.program.alive)
        return not claim.given and not is_busy and not self.specs.path(claim.uid).exists()

    # The runtime.

    def create(self, sandbox: str, name: str, asked: LinuxResources) -> str | None:
        """Have a container made that names a claim, whatever has become of that; perhaps it is another pod's."""
        node, claim, file = self.node, self.named[sandbox], self.specs.read(self.named[sandbox].uid)
        uid, count, was_over = node.runtime.sandboxes[sandbox].uid, len(node.runtime.refusals), claim.is_over
        # Without the file of its devices there is what a pod's author has written.
        written = (f"{CLAIM_VARIABLE}{claim.uid.upper().replace('-', '_')}_0",)
        before = self._had(claim, uid)
        made = node.runtime.create(sandbox, name, asked, tuple(one.variable for one in file.given) if file else written)
        after = self._had(claim, uid)
        if made in node.promised and (uid != claim.pod or (was_over and not before | after)):
            self.wrong.append(f"{uid}/{name} was created with {claim.name}, which it has not")
        if made in node.promised and (before or after):
            own = self._own(uid, name)
            if node.promised[made] not in {list_text(own | one) for one in (before, after) if one}:
                self.wrong.append(f"{uid}/{name} was given {node.promised[made]} and not {claim.name}")
        said = node.runtime.refusals[count:]
        if before and before == after and any(one.startswith("Claim") for one in said):
            self.wrong.append(f"{uid}/{name} was refused, and has {claim.name}: {said}")
        return made

    def _had(self, claim: Claim, uid: str) -> int:
        """Return the CPUs that a pod may use of a claim by now, as a mask."""
        if self.node.agent is None:
            return 0
        state = self.node.agent.holder.state
        held = claims_of(state.kubelet.node.cpu).get(claim.uid)
        return held.cpus if held is not None and uid in state.claim_users.get(claim.uid, ()) else 0

    def _own(self, uid: str, name: str) -> int:
        """Return the CPUs that a container has without claims."""
        agent = self.node.agent
        return 0 if agent is None else agent.holder.state.kubelet.node.cpu.assignments.get(uid, {}).get(name, 0)

    def lose_power(self) -> None:
        """Files of claims are in memory; the kubelet has all prepared again."""
        self.process.end(1.0)
        shutil.rmtree(self.folder)
        self.folder.mkdir()
        self.has_lost = True
        for one in self.claims.values():
            one.given, one.again = "", True

    # Laws.

    def broken(self, *, may_move: bool) -> Iterator[str]:
        """Yield what does not hold at any time: what a claim was given it has."""
        yield from self.wrong
        assert self.node.agent is not None
        held = claims_of(self.node.agent.holder.state.kubelet.node.cpu)
        for one in self.claims.values():
            if one.uid in held and one.given and one.is_wanted and not may_move:
                has = str(CPUSet(held[one.uid].cpus))
                if has != one.given:
                    yield f"{one.name} was given {one.given} and has {has}"

    def problems(self, *, may_move: bool) -> Iterator[str]:
        """Yield what is not as decided once everything has come to rest."""
        assert self.node.agent is not None
        held = claims_of(self.node.agent.holder.state.kubelet.node.cpu)
        files = {one.uid: one for one in self.specs.all()}
        for one in self.claims.values():
            # What was not written may be a running pod's since; then that is said.
            is_named = any(f"{one.name}: InsufficientCPUs" in line for line in self.node.log.lines)
            if one.is_wanted and one.given and not (may_move and one.uid not in held and is_named):
                yield from _unkept(one, held.get(one.uid), files.get(one.uid))
            if one.is_wanted and not one.given and one.said and "InsufficientCPUs" not in one.said:
                yield f"{one.name} is not prepared: {one.said}"
            if not one.is_wanted and not one.is_over:
                yield f"{one.name} is not unprepared"
        yield from self._misplaced(held)
        over = [one for one in self.claims.values() if one.is_over]
        yield from (f"{one.name} is over and has {held[one.uid]}" for one in over if one.uid in held)
        kept = held.keys() | {one.uid for one in self.claims.values() if one.is_wanted and one.given}
        known = {path.name for uid in kept for path in (self.specs.path(uid), self.specs.files(uid))}
        if left := sorted({one.name for one in self.folder.iterdir()} - known):
            yield f"left of claims: {left}"

    def _misplaced(self, held: Mapping[str, HeldClaim]) -> Iterator[str]:
        """Yield containers that run beside their claims, or on those of others."""
        for one in self.node.running():
            uid = self.node.runtime.sandboxes[one.sandbox].uid
            claim, has = self.named.get(one.sandbox), CPUSet.parse(one.cgroup.cpus).mask
            mine = claim.uid if claim is not None and uid == claim.pod else ""
            if mine in held and list_text(held[mine].cpus | self._own(uid, one.name)) != one.cgroup.cpus:
                yield f"{uid}/{one.name} runs on {one.cgroup.cpus} and has {list_text(held[mine].cpus)} of {mine}"
            for other in held.keys() - {mine}:
                if held[other].cpus & has:
                    yield f"{uid}/{one.name} runs on {one.cgroup.cpus}, and {other} has {list_text(held[other].cpus)}"


def _unkept(claim: Claim, held: Any, file: PreparedClaim | None) -> Iterator[str]:
    if held is None or file is None:
        yield f"{claim.name} was prepared, and has {held} and the file {file}"
    elif str(CPUSet(held.cpus)) != cpus_of(file.given):
        yield f"{claim.name} has {CPUSet(held.cpus)}, and its file says {cpus_of(file.given)}"


def _result(device: str, claim: Claim) -> dict[str, Any]:
    return {
        "request": "cpus",
        "driver": DRIVER,
        "pool": NODE,
        "device": device,
        "shareID": f"share-{claim.uid}",
        "consumedCapacity": {CAPACITY: str(claim.count)},
    }
