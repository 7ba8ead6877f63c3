"""A container runtime as far as a plugin experiences it, with the weaknesses that were measured on containerd 2.1.9.

Updates of a container that is being made are lost without a word; of one whose task is made but whose program does not
run yet they change the record and not the cgroup. Without a plugin, or with one that dies within a request, everything
goes on unpinned. After a restart of the runtime no StopPodSandbox comes for the pods from before it, and those whose
shim did not answer in time are on no list, though they run: of such a container an update changes the record only.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import Protocol

from mooring.agent.nri.types import (
    ContainerAdjustment,
    ContainerState,
    ContainerUpdate,
    Event,
    LinuxResources,
    PodSandbox,
    RefusalError,
    RuntimeContainer,
)


class KilledError(Exception):
    """The plugin's process is gone."""


class Plugin(Protocol):
    def synchronize(
        self, pods: Sequence[PodSandbox], containers: Sequence[RuntimeContainer]
    ) -> Sequence[ContainerUpdate]: ...

    def create_container(
        self, pod: PodSandbox, container: RuntimeContainer
    ) -> tuple[ContainerAdjustment, Sequence[ContainerUpdate]]: ...

    def update_container(
        self, pod: PodSandbox, container: RuntimeContainer, resources: LinuxResources
    ) -> Sequence[ContainerUpdate]: ...

    def stop_container(self, pod: PodSandbox, container: RuntimeContainer) -> Sequence[ContainerUpdate]: ...

    def state_change(self, event: Event, pod: PodSandbox | None, container: RuntimeContainer | None) -> None: ...


class Stage(Enum):
    MAKING = "making"
    CREATED = "created"
    TASK = "task"
    """The program runs as soon as the plugin was told; PostStartContainer is still to come."""
    RUNNING = "running"
    EXITED = "exited"


@dataclass
class Process:
    """A container with its cgroup."""

    id: str
    sandbox: str
    name: str
    record: LinuxResources
    stage: Stage = Stage.MAKING
    pid: int = 0
    cgroup: LinuxResources = field(default_factory=LinuxResources)
    claims: tuple[str, ...] = ()
    """Variables that the devices of its claims set."""

    @property
    def runs(self) -> bool:
        return self.stage in (Stage.TASK, Stage.RUNNING)

    def message(self) -> RuntimeContainer:
        state = {Stage.RUNNING: ContainerState.RUNNING, Stage.MAKING: ContainerState.UNKNOWN}
        return RuntimeContainer(
            self.id,
            self.sandbox,
            self.name,
            state.get(self.stage, ContainerState.CREATED),
            self.pid,
            resources=self.record,
            cgroups_path=f"/pods/{self.id}",
            claims=self.claims,
        )


@dataclass
class Runtime:
    plugin: Plugin | None = None
    sandboxes: dict[str, PodSandbox] = field(default_factory=dict)
    stopped: set[str] = field(default_factory=set)
    silent: set[str] = field(default_factory=set)
    """Sandboxes from before a restart, of whose end nothing is told."""
    unlisted: set[str] = field(default_factory=set)
    """Sandboxes and containers that run and that Synchronize does not tell."""
    processes: dict[str, Process] = field(default_factory=dict)
    next_number: int = 1
    loses_next_update: bool = False
    """The next update of a running container fails, with a line in the log only."""
    failed: set[str] = field(default_factory=set)
    """Containers whose record is not what the plugin was led to believe."""
    refusals: list[str] = field(default_factory=list)
    ignores_refusals: bool = False
    """Whether it starts a container whose start was refused, as CRI-O does."""
    stuck: set[str] = field(default_factory=set)
    """Containers from which the kernel takes no CPUs."""
    files: dict[str, str] = field(default_factory=dict)
    """What containers are told of their CPUs, by their ids."""

    # Pods.

    def run_sandbox(self, uid: str, name: str, annotations: dict[str, str]) -> str:
        number = self._number()
        sandbox = PodSandbox(
            f"sandbox-{number}",
            uid,
            name,
            "default",
            annotations=annotations,
            cgroup_parent=f"/pods/{uid}",
            cgroups_path=f"/pods/{uid}/sandbox-{number}",
            pid=number,
        )
        self.sandboxes[sandbox.id] = sandbox
        self._tell(Event.RUN_POD_SANDBOX, sandbox.id)
        return sandbox.id

    def stop_sandbox(self, sandbox: str) -> None:
        self.stopped.add(sandbox)
        if sandbox not in self.silent:
            self._tell(Event.STOP_POD_SANDBOX, sandbox)

    def remove_sandbox(self, sandbox: str) -> None:
        if sandbox not in self.silent:
            self._tell(Event.REMOVE_POD_SANDBOX, sandbox)
        del self.sandboxes[sandbox]
        self.stopped.discard(sandbox)
        self.silent.discard(sandbox)

    def end_pod(self, sandbox: str, *, removed: bool = True) -> list[str]:
        """Stop a pod and remove what is left of it, as the kubelet does; return its containers."""
        mine = [made.id for made in self.processes.values() if made.sandbox == sandbox]
        for container in mine:
            if self.processes[container].stage is not Stage.EXITED:
                self.exit(container)
        self.stop_sandbox(sandbox)
        for container in mine:
            self.remove(container)
        if removed:
            self.remove_sandbox(sandbox)
        return mine

    # Containers.

    def bring_up(self, sandbox: str, name: str, asked: LinuxResources) -> str | None:
        """Create and start a container; return its id, or None when its creation was refused."""
        made = self.create(sandbox, name, asked)
        if made is not None:
            self.store(made)
            if self.make_task(made):
                self.started(made)
        return made

    def create(self, sandbox: str, name: str, asked: LinuxResources, claims: tuple[str, ...] = ()) -> str | None:
        made = Process(f"container-{self._number()}", sandbox, name, asked, claims=claims)
        updates: Sequence[ContainerUpdate] = ()
        if self.plugin is not None:
            try:
                adjustment, updates = self.plugin.create_container(self.sandboxes[sandbox], made.message())
                made.record = merged(made.record, adjustment.resources)
            except RefusalError as error:
                self.refusals.append(str(error))
                self._call_stop(made)
                self._tell(Event.REMOVE_CONTAINER, sandbox, made)
                return None
            except KilledError:
                self.plugin = None
        self._apply(updates)
        self.processes[made.id] = made
        return made.id

    def store(self, container: str) -> None:
        made = self.processes[container]
        made.stage = Stage.CREATED
        self._tell(Event.POST_CREATE_CONTAINER, made.sandbox, made)

    def make_task(self, container: str) -> bool:
        made = self.processes[container]
        made.pid = self._number()
        made.cgroup = made.record
        made.stage = Stage.TASK
        try:
            self._tell(Event.START_CONTAINER, made.sandbox, made)
        except RefusalError as error:
            self.refusals.append(str(error))
            if not self.ignores_refusals:
                self.exit(container)
                return False
        return True

    def started(self, container: str) -> None:
        made = self.processes[container]
        made.stage = Stage.RUNNING
        self._tell(Event.POST_START_CONTAINER, made.sandbox, made)

    def exit(self, container: str) -> None:
        made = self.processes[container]
        self._call_stop(made)
        made.stage = Stage.EXITED
        made.pid = 0

    def remove(self, container: str) -> None:
        made = self.processes.pop(container)
        self._tell(Event.REMOVE_CONTAINER, made.sandbox, made)

    def update(self, container: str, asked: LinuxResources) -> bool:
        """A client's request; the whole record is applied afterwards. Return whether it was not refused."""
        made = self.processes[container]
        updates: Sequence[ContainerUpdate] = ()
        if self.plugin is not None:
            try:
                updates = self.plugin.update_container(self.sandboxes[made.sandbox], made.message(), asked)
            except RefusalError as error:
                self.refusals.append(str(error))
                return False
            except KilledError:
                self.plugin = None
        self._apply([one for one in updates if one.container_id != container])
        # What the plugin says of the container itself becomes a part of the request.
        made.record = merged(made.record, asked)
        self._apply([one for one in updates if one.container_id == container], always=True)
        if made.runs:
            made.cgroup = made.record
        self._tell(Event.POST_UPDATE_CONTAINER, made.sandbox, made)
        return True

    # The runtime and its plugin.

    def restart(self) -> None:
        self.plugin = None
        self.silent |= self.sandboxes.keys()
        for made in [*self.processes.values()]:
            if made.stage in (Stage.MAKING, Stage.CREATED):
                del self.processes[made.id]
            elif made.stage is Stage.TASK:
                made.stage = Stage.RUNNING

    def connect(self, plugin: Plugin) -> None:
        shown = [one for one in self.processes.values() if one.stage in (Stage.CREATED, Stage.TASK, Stage.RUNNING)]
        shown = [one for one in shown if one.id not in self.unlisted]
        sandboxes = [one for one in self.sandboxes.values() if one.id not in self.unlisted]
        self.plugin = plugin
        try:
            updates = plugin.synchronize(sandboxes, [one.message() for one in shown])
        except KilledError:
            self.plugin = None
            return
        self._apply(updates, always=True)

    def deliver(self, updates: Sequence[ContainerUpdate]) -> None:
        """The updates of a reply, outside of the request that it answers."""
        self._apply(updates, always=True)

    def has_processes(self, group: str) -> bool:
        """Tell whether something runs in the control group of a container or sandbox."""
        made = self.processes.get(group)
        return made.runs if made is not None else group in self.sandboxes and group not in self.stopped

    def write_cgroup(self, container: str, cpus: str, mems: str) -> bool:
        """Somebody writes the cgroup's files; return whether they were different."""
        made = self.processes.get(container)
        if made is None or not made.runs:
            return False
        if container in self.stuck:
            return False
        after = merged(made.cgroup, LinuxResources(cpus=cpus, mems=mems))
        changed = after != made.cgroup
        made.cgroup = after
        return changed

    def _apply(self, updates: Sequence[ContainerUpdate], *, always: bool = False) -> None:
        for update in updates:
            made = self.processes.get(update.container_id)
            if made is None or made.stage in (Stage.MAKING, Stage.EXITED):
                continue
            if made.stage is Stage.RUNNING and self.loses_next_update and not always:
                self.loses_next_update = False
                self.failed.add(made.id)
                continue
            if update.resources.cpus:
                # One that names no CPUs leaves on record what an update that failed has left there.
                self.failed.discard(made.id)
            made.record = merged(made.record, update.resources)
            if made.stage is Stage.RUNNING and made.id not in self.unlisted:
                made.cgroup = merged(made.cgroup, update.resources)

    def _call_stop(self, made: Process) -> None:
        if self.plugin is None:
            return
        try:
            updates = self.plugin.stop_container(self.sandboxes[made.sandbox], made.message())
        except KilledError:
            self.plugin = None
            return
        self._apply(updates)

    def _tell(self, event: Event, sandbox: str, made: Process | None = None) -> None:
        if self.plugin is None:
            return
        try:
            self.plugin.state_change(event, self.sandboxes[sandbox], None if made is None else made.message())
        except KilledError:
            self.plugin = None

    def _number(self) -> int:
        self.next_number += 1
        return self.next_number


def merged(before: LinuxResources, change: LinuxResources) -> LinuxResources:
    """Return resources after a change; what the change does not set stays."""
    return replace(
        before,
        cpus=change.cpus or before.cpus,
        mems=change.mems or before.mems,
        quota=before.quota if change.quota is None else change.quota,
        shares=before.shares if change.shares is None else change.shares,
        memory_limit=before.memory_limit if change.memory_limit is None else change.memory_limit,
    )
