"""The agent's shell over a simulated runtime: effects are done at once, and the process can be killed at any point."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from tests.agent.simulated_runtime import KilledError, Runtime

from mooring.agent.effects import (
    BEFORE_THE_REPLY,
    AgentReport,
    ClusterEvent,
    DropAssigned,
    Effect,
    Evict,
    LiftQuota,
    Persist,
    ResizeAnswered,
    SweepAssigned,
    Verify,
    WriteAssigned,
    WriteCPUSet,
)
from mooring.agent.journal import JournalWriter, read_journal
from mooring.agent.nri.types import (
    ContainerAdjustment,
    ContainerUpdate,
    Event,
    LinuxResources,
    PodSandbox,
    RefusalError,
    RuntimeContainer,
)
from mooring.agent.reactor.containers import requested_containers, unlisted
from mooring.agent.reactor.create_container import create_container, prepare_claim, unprepare_claim
from mooring.agent.reactor.desired import are_files_behind, expected, node_set_of, nodes_of, set_of
from mooring.agent.reactor.hotplug import cpus_changed, devices_learned, is_news, is_news_of_devices
from mooring.agent.reactor.lifecycle import (
    Compliance,
    WriteOutcome,
    correct_deviation,
    end_missing_sandboxes,
    needs_pod,
    state_change,
    stop_container,
    writes_done,
)
from mooring.agent.reactor.recovery import Stored, resume
from mooring.agent.reactor.response import Accepted, Adjusted, EventOutcome, Refused, outcome, unwritten
from mooring.agent.reactor.synchronize import synchronize, unknown_pods
from mooring.agent.reactor.update_container import is_due, reclaiming_writes, released, update_container
from mooring.agent.state import AgentState, DevicesFound, Options
from mooring.engine.core.config import KubeletConfig, MooringConfig
from mooring.engine.core.machineinfo import MachineInfo
from mooring.engine.core.moment import Moment
from mooring.engine.core.pod import ContainerKind, Pod
from mooring.engine.node.claims import Claim


@dataclass
class Disk:
    """What survives the agent."""

    journal: str = ""
    is_full: bool = False
    is_stale: bool = False
    """The newest state could not be written."""

    def stored(self) -> Stored:
        if not self.journal:
            return Stored()
        journal = read_journal(self.journal)
        return Stored(
            journal.texts,
            journal.pods,
            claim_users=journal.claim_users,
            offline=journal.offline,
            displaced=journal.displaced,
            last_seen=journal.last_seen,
        )


@dataclass(frozen=True)
class World:
    """Machine, configuration, and what pod sources know."""

    info: MachineInfo
    config: KubeletConfig
    options: Options = field(default_factory=Options)
    pods: dict[str, Pod] = field(default_factory=dict)
    without_source: set[str] = field(default_factory=set)
    """Uids of pods that must be derived from their containers."""
    mooring: MooringConfig = field(default_factory=lambda: MooringConfig(fixed_defects=frozenset({"pod-restart"})))
    devices: dict[str, DevicesFound] = field(default_factory=dict)
    """What the kubelet tells of pods' devices, by uid (extension device-alignment)."""
    clock: list[Moment] = field(default_factory=lambda: [Moment()])
    """The present moment, last."""

    @property
    def now(self) -> Moment:
        return self.clock[-1]


class SimulatedAgent:
    def __init__(self, world: World, runtime: Runtime, disk: Disk) -> None:
        self.world, self.runtime, self.disk = world, runtime, disk
        self.writer = JournalWriter()
        resumed = resume(world.info, world.config, world.mooring, disk.stored(), world.options)
        self.state: AgentState = resumed.state
        self.reports: list[AgentReport] = [one for one in resumed.effects if isinstance(one, AgentReport)]
        self.counts: Counter[str] = Counter()
        self.lifts: list[LiftQuota] = []
        self.steps_to_live: int | None = None
        self._had: dict[str, str] = {}
        """Containers whose cgroup was just changed, and in words what they had."""

    # Calls of the runtime.

    def synchronize(
        self, pods: Sequence[PodSandbox], containers: Sequence[RuntimeContainer]
    ) -> Sequence[ContainerUpdate]:
        asked = unlisted(self.state, pods, containers)
        running = {one for one in asked if self.runtime.has_processes(one)}
        missing = unknown_pods(self.state, pods, containers, running)
        specs = {one.uid: self._pod(one, [c for c in containers if c.pod_sandbox_id == one.id]) for one in missing}
        now = self.world.now
        devices = self.world.devices
        found = synchronize(self.state, pods, containers, specs, None, now, running, devices)
        return self._updates(self._done(found, ""))

    def create_container(
        self, pod: PodSandbox, container: RuntimeContainer
    ) -> tuple[ContainerAdjustment, Sequence[ContainerUpdate]]:
        spec = self._pod(pod, [*requested_containers(self.state, pod.id), container])
        devices = self.world.devices.get(pod.uid)
        answer = self._done(create_container(self.state, pod, container, spec, devices=devices), pod.uid).answer
        assert isinstance(answer, Adjusted)
        return answer.adjustment, answer.updates

    def update_container(
        self, pod: PodSandbox, container: RuntimeContainer, resources: LinuxResources
    ) -> Sequence[ContainerUpdate]:
        found = update_container(self.state, pod, container, resources, None, self.world.now)
        return self._updates(self._done(found, pod.uid))

    def stop_container(self, pod: PodSandbox, container: RuntimeContainer) -> Sequence[ContainerUpdate]:
        return self._updates(self._done(stop_container(self.state, container), pod.uid))

    def state_change(self, event: Event, pod: PodSandbox | None, container: RuntimeContainer | None) -> None:
        spec = None
        if pod is not None and container is not None and needs_pod(self.state, event, pod, container):
            spec = self._pod(pod, [*requested_containers(self.state, pod.id), container])
        devices = None if pod is None else self.world.devices.get(pod.uid)
        self._done(state_change(self.state, event, pod, container, spec, None, devices), "" if pod is None else pod.uid)

    def next_reply(self) -> None:
        """Answer a request about a container that nobody knows: any reply brings the runtime's record up to date."""
        self.runtime.deliver(
            self._updates(self._done(stop_container(self.state, RuntimeContainer("nobody", "", "")), ""))
        )

    def see_online(self, online: int) -> None:
        """Learn which CPUs are online."""
        if is_news(self.state, online):
            self._done(cpus_changed(self.state, online), "")

    def reconcile(self) -> None:
        """Take back CPUs whose delay is over, and tell what containers got since; as the agent does twice a second."""
        now = self.world.now
        if is_due(self.state, now):
            spared = {
                owner
                for owner, writes in reclaiming_writes(self.state, now).items()
                if any(one.container_id in self.runtime.stuck for one in writes)
            }
            for owner, writes in reclaiming_writes(self.state, now).items():
                for one in writes if owner not in spared else ():
                    self.runtime.write_cgroup(one.container_id, str(one.cpus), nodes_of(one.mems))
                    self._step()
            self._done(released(self.state, now, spared), "")
        if are_files_behind(self.state):
            self._done(outcome(self.state, self.state), "")

    def prepare(self, claim: Claim, pods: Sequence[str]) -> None:
        """Give a claim its CPUs; raises RefusalError."""
        self._done(prepare_claim(self.state, claim, pods), "")

    def unprepare(self, uid: str) -> None:
        """Take a claim's CPUs back."""
        self._done(unprepare_claim(self.state, uid), "")

    def look_at_devices(self) -> None:
        """Learn what the kubelet tells of all pods now, as the agent does every few seconds."""
        if is_news_of_devices(self.state, self.world.devices):
            self._done(devices_learned(self.state, self.world.devices), "")

    def verify_all(self) -> None:
        self._verify(tuple(expected(self.state)))

    def verify_sandboxes(self) -> None:
        """End the sandboxes of which nothing is left."""
        runtime = self.runtime
        alive = {made.sandbox for made in runtime.processes.values() if made.runs}
        gone = [one for one in self.state.sandboxes if one not in alive and not runtime.has_processes(one)]
        self._done(end_missing_sandboxes(self.state, gone), "")

    def _done(self, outcome: EventOutcome, uid: str) -> EventOutcome:
        self._step()
        before = self.state
        if self.disk.is_full and any(isinstance(effect, Persist) for effect in outcome.effects):
            outcome = unwritten(before, outcome, uid, "the disk is full")
            self.disk.is_stale = True
        self.state = outcome.state
        later = [effect for effect in outcome.effects if not isinstance(effect, BEFORE_THE_REPLY)]
        written = []
        for effect in outcome.effects:
            if isinstance(effect, BEFORE_THE_REPLY):
                self._do(effect)
                if isinstance(effect, WriteCPUSet) and (effect.cpus or effect.mems):
                    written.append(self._written(effect))
                self._step()
        concluded = writes_done(outcome, written)
        self.state = concluded.state
        outcome = replace(outcome, state=concluded.state, answer=concluded.answer)
        for effect in (*later, *concluded.effects):
            self._do(effect)
        if isinstance(outcome.answer, Refused):
            raise RefusalError(outcome.answer.text)
        return outcome

    def _written(self, effect: WriteCPUSet) -> WriteOutcome:
        made = self.runtime.processes.get(effect.container_id)
        if made is None or not made.runs:
            return WriteOutcome(effect, Compliance.ENDED)
        is_right = set_of(made.cgroup.cpus) == effect.cpus or not effect.cpus
        if is_right:
            return WriteOutcome(effect, Compliance.RIGHT, self._had.pop(effect.container_id, ""))
        return WriteOutcome(effect, Compliance.BEYOND, problem=f"has CPUs {made.cgroup.cpus}")

    def _do(self, effect: Effect) -> None:
        self.counts[type(effect).__name__] += 1
        match effect:
            case Persist():
                self.disk.journal = self.writer.text(effect.state)
                self.disk.is_stale = False
            case WriteCPUSet():
                if self.runtime.write_cgroup(effect.container_id, str(effect.cpus), nodes_of(effect.mems)):
                    self._had[effect.container_id] = "something else"
            case LiftQuota():
                self.lifts = [*self.lifts[-50:], effect]
            case Verify():
                self._verify(effect.container_ids)
            case AgentReport():
                self.reports = [*self.reports[-50:], effect]
                self.counts[effect.finding.value] += 1
            case WriteAssigned() | DropAssigned() | SweepAssigned():
                self._tell(effect)
            case ResizeAnswered():
                self.counts[effect.result] += 1
            case ClusterEvent() | Evict():
                pass

    def _tell(self, effect: WriteAssigned | DropAssigned | SweepAssigned) -> None:
        files = self.runtime.files
        match effect:
            case WriteAssigned():
                if effect.makes or effect.container_id in files:
                    files[effect.container_id] = str(effect.assigned.cpus)
            case DropAssigned():
                files.pop(effect.container_id, None)
            case SweepAssigned():
                for one in files.keys() - effect.told:
                    del files[one]

    def _verify(self, ids: Sequence[str]) -> None:
        wanted = expected(self.state)
        for container in ids:
            made = self.runtime.processes.get(container)
            if made is None or not made.runs or container not in wanted:
                continue
            setting = wanted[container]
            if set_of(made.cgroup.cpus) != setting.cpus or (
                setting.mems and node_set_of(made.cgroup.mems) != setting.mems
            ):
                self._done(
                    correct_deviation(self.state, container, set_of(made.cgroup.cpus), node_set_of(made.cgroup.mems)),
                    "",
                )

    def _updates(self, outcome: EventOutcome) -> Sequence[ContainerUpdate]:
        assert isinstance(outcome.answer, Accepted)
        return outcome.answer.updates

    def _step(self) -> None:
        if self.steps_to_live is not None:
            self.steps_to_live -= 1
            if self.steps_to_live < 0:
                raise KilledError

    def _pod(self, sandbox: PodSandbox, seen: Sequence[RuntimeContainer]) -> Pod:
        pod = self.world.pods[sandbox.uid]
        if sandbox.uid not in self.world.without_source:
            return pod
        return as_derived(pod, {one.name: None for one in seen})


def as_derived(pod: Pod, names: Mapping[str, None]) -> Pod:
    """Return what can be known of a pod by some of its containers: all look like apps, and none is known before."""
    specs = {one.name: one for one in pod.containers}
    return replace(
        pod, containers=tuple(replace(specs[name], kind=ContainerKind.APP) for name in names if name in specs)
    )
