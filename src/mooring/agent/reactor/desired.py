"""What containers should have now, read off the engine's state, and what their files say of it, and when.

What a container is about to lose is not in its files from the moment at which that is decided. What it gets appears in
them when it has it, so that no program pins a thread to a CPU that is not its own yet. The proposal wants the file
first in both directions; this is a deviation from it.

Lifted is the CFS quota of containers with exclusive CPUs, and of the pod and its sandboxes around them
(:func:`~mooring.engine.node.providers.container_runs_without_quota`), unless the kubelet has ``cpuCFSQuota: false``.
The groups are written by :mod:`mooring.agent.cgroups.protocol`.

Source: KEP-6369; spec: cpu-manager.md section 11, memory-manager.md section 8, pod-level.md section 5, resize.md
section 6.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Final

from mooring.agent.effects import DropAssigned, LiftQuota, Occasion, QuotaOf, SweepAssigned, WriteAssigned, WriteCPUSet
from mooring.agent.nri.types import LinuxResources, Mount
from mooring.agent.state import HAS_CGROUP, LIVE, AgentState, Assigned, KnownContainer, Phase, Setting, claimed_cpus
from mooring.engine.core.bits import NO_NODES, NUMAMask, list_text, mask_of, members
from mooring.engine.core.config import ASSIGNED_CPUSET, MIXED_CPUS, AssignedScope
from mooring.engine.core.cpuset import CPUSet, CPUSetSyntaxError
from mooring.engine.core.pod import Container, Pod
from mooring.engine.extensions.offline import effective_pool
from mooring.engine.kubelet.kubelet import Kubelet
from mooring.engine.node import providers
from mooring.engine.node.node import numa_of_blocks

NO_QUOTA = -1
_NO_CPUS = CPUSet()


@dataclass(frozen=True, slots=True)
class DesiredSettings:
    """The engine's state as settings of containers."""

    kubelet: Kubelet
    pool: CPUSet
    """The shared pool, without CPUs that are offline; empty when it is empty, and with CPU manager policy ``none``."""
    claimed: Mapping[tuple[str, str], int] = field(default_factory=dict)
    """CPUs that containers have of claims, as masks by pod uid and container."""

    @staticmethod
    def by(kubelet: Kubelet) -> DesiredSettings:
        """Read a state of the engine, without claims."""
        managed = kubelet.settings.cpu is not None
        return DesiredSettings(kubelet, CPUSet(effective_pool(kubelet.node.cpu)) if managed else _NO_CPUS)

    @staticmethod
    def now(state: AgentState) -> DesiredSettings:
        """Read a state."""
        plain = DesiredSettings.by(state.kubelet)
        return DesiredSettings(plain.kubelet, plain.pool, claimed_cpus(state))

    def of(self, uid: str, name: str) -> Setting:
        """Return what a container should have: CPUs of its own and of its claims or else the pool, and nodes.

        A mixed one has both.
        """
        node, settings = self.kubelet.node, self.kubelet.settings
        own = node.cpu.assignments.get(uid, {}).get(name, 0)
        blocks = node.memory.assignments.get(uid, {}).get(name, ())
        quota = None
        if own and settings.config.cpu_cfs_quota:
            pod, container = self._described(uid, name)
            # It counts time on all CPUs, so that for a mixed one too the pool would throttle what polls on its own.
            if pod and container and providers.container_runs_without_quota(settings, node.providers, pod, container):
                quota = NO_QUOTA
        mems = NUMAMask(mask_of(numa_of_blocks(blocks))) if blocks else NO_NODES
        return Setting(self.cpus_with(uid, name, own), mems, quota)

    def cpus_with(self, uid: str, name: str, own: int) -> CPUSet:
        """Return the CPUs on which a container may run if these are assigned to it."""
        exclusive = own | self.claimed.get((uid, name), 0)
        if not exclusive:
            return self.pool
        usable = exclusive & ~self.kubelet.node.cpu.offline
        if usable and not self.is_mixed(uid, name):
            return CPUSet(usable)
        # Also one that has lost all CPUs of its own: the kernel lets it run somewhere, and that must be the pool.
        return CPUSet(usable | self.pool.mask)

    def is_mixed(self, uid: str, name: str) -> bool:
        """Tell whether a container may run in the shared pool besides its own CPUs."""
        pod, container = self._described(uid, name)
        if pod is None or container is None:
            return False
        own = self.kubelet.node.cpu.assignments.get(uid, {}).get(name, 0)
        return providers.is_mixed(self.kubelet.settings, pod, container, own, self.claimed.get((uid, name), 0))

    def is_exclusive(self, uid: str, name: str) -> bool:
        """Tell whether a container has CPUs without the shared pool; a mixed one may use that, and does not need it."""
        if self.claimed.get((uid, name), 0):
            return True
        return bool(self.kubelet.node.cpu.assignments.get(uid, {}).get(name, 0))

    def _described(self, uid: str, name: str) -> tuple[Pod | None, Container | None]:
        pod = self.kubelet.node.active.get(uid)
        return pod, None if pod is None else pod.container(name)


def write_of(container: KnownContainer, wanted: Setting, occasion: Occasion = Occasion.DECISION) -> WriteCPUSet:
    """Return what brings a container's cgroup to its setting."""
    return WriteCPUSet(container.id, container.pid, container.cgroup, wanted.cpus, wanted.mems, occasion)


def expected(state: AgentState) -> Mapping[str, Setting]:
    """Return what the kernel should show for every container that has a cgroup, by container id."""
    wanted = DesiredSettings.now(state)
    return {one.id: wanted.of(one.uid, one.name) for one in state.containers.values() if one.phase in HAS_CGROUP}


def expected_lifts(state: AgentState) -> Iterator[LiftQuota]:
    """Yield every cgroup that should have no quota: containers, sandboxes, pods."""
    wanted = DesiredSettings.now(state)
    running = [one for one in state.containers.values() if one.phase in HAS_CGROUP]
    for one in running:
        yield from lift_of_container(one, wanted.of(one.uid, one.name))
    for uid in dict.fromkeys(one.uid for one in running):
        yield from lift_of_pod(state, uid)


def lift_of_pod(state: AgentState, uid: str) -> tuple[LiftQuota, ...]:
    """Return what lifts the quota of a pod's group and of its sandboxes, where it is to be lifted."""
    node = state.kubelet.node
    pod = node.active.get(uid)
    if pod is None or not node.settings.config.cpu_cfs_quota:
        return ()
    if not providers.pod_runs_without_quota(node.settings, node.providers, pod):
        return ()
    lifts: list[LiftQuota] = []
    for sandbox in state.sandboxes.values():
        if sandbox.uid == uid:
            lifts += [
                LiftQuota(QuotaOf.POD, uid, "", sandbox.pid, sandbox.cgroup_parent),
                LiftQuota(QuotaOf.SANDBOX, uid, "", sandbox.pid, sandbox.cgroups_path),
            ]
    return tuple(lifts)


def lift_of_container(container: KnownContainer, wanted: Setting) -> tuple[LiftQuota, ...]:
    """Return what lifts a container's own quota through its cgroup, where it is to be lifted."""
    if wanted.quota is None:
        return ()
    return (LiftQuota(QuotaOf.CONTAINER, container.uid, container.id, container.pid, container.cgroup),)


def on_record(resources: LinuxResources) -> Setting:
    """Return what a runtime's message says of a container; a list that cannot be read is none."""
    quota = resources.quota
    return Setting(
        set_of(resources.cpus), node_set_of(resources.mems), quota if quota is not None and quota > 0 else NO_QUOTA
    )


def resources_of(setting: Setting) -> LinuxResources:
    """Return a setting as a message to the runtime says it.

    >>> resources_of(Setting(CPUSet.parse("0-2"), NUMAMask(0b11)))
    LinuxResources(cpus='0-2', mems='0,1', shares=None, quota=None, period=None, memory_limit=None)
    """
    return LinuxResources(list_of(setting.cpus.mask), nodes_of(setting.mems), quota=setting.quota)


# All containers of the shared pool get the same list.
@lru_cache(maxsize=64)
def list_of(mask: int) -> str:
    """Return the Linux CPU list of a mask."""
    return list_text(mask)


@lru_cache(maxsize=64)
def nodes_of(mems: NUMAMask) -> str:
    """Return NUMA nodes, ascending, separated by commas."""
    return ",".join(map(str, members(mems)))


def difference(record: Setting, wanted: Setting) -> Setting | None:
    """Return what must change, or None when what is wanted is on record."""
    # Masks are compared, several hundred at every event: two sets would be compared five times as slowly.
    cpus = _NO_CPUS if record.cpus.mask == wanted.cpus.mask else wanted.cpus
    mems = NO_NODES if record.mems == wanted.mems else wanted.mems
    quota = None if record.quota == wanted.quota else wanted.quota
    return Setting(cpus, mems, quota) if cpus.mask or mems or quota is not None else None


def change_of(container: KnownContainer, wanted: Setting) -> Setting | None:
    """Return what record or cgroup of a container lacks, or None when both are as wanted.

    A record that is right is no proof: a pool that grew past the runtime and then shrank again has left the record
    where it was, and the cgroup too wide.
    """
    record = difference(container.record, wanted)
    cgroup = None if container.written is None else difference(container.written, wanted)
    if record is None or cgroup is None:
        return record or cgroup
    return record.over(cgroup)


# A node has few different lists, and a runtime sends them over and over.
@lru_cache(maxsize=256)
def set_of(text: str) -> CPUSet:
    """Return the set of a runtime's list; a list that cannot be read is none."""
    try:
        return CPUSet.parse(text.strip())
    except CPUSetSyntaxError:
        return CPUSet()


def node_set_of(text: str) -> NUMAMask:
    """Return the NUMA nodes of a runtime's list; a list that cannot be read is none."""
    return NUMAMask(set_of(text).mask)


ANNOTATION: Final = "mooring/assigned"
"""A pod with this annotation and the value ``true`` requests the files."""
ENVIRONMENT: Final = ("MOORING_CPUSET", "MOORING_MEMSET")
MIXED_ENVIRONMENT: Final = ("MOORING_EXCLUSIVE_CPUS", "MOORING_SHARED_CPUS")
"""What a mixed container finds at its creation, whether it has files or not: it cannot tell its CPUs apart itself."""
MOUNT_OPTIONS: Final = ("rbind", "ro", "nosuid", "nodev", "noexec")
_NAME = re.compile(r"[0-9A-Za-z][0-9A-Za-z_.-]{0,127}", re.ASCII)
"""Ids that can be the name of a folder."""


def has_files(state: AgentState, container: KnownContainer) -> bool:
    """Tell whether a container has files that say which CPUs it has."""
    if ASSIGNED_CPUSET not in state.kubelet.mooring.extensions or not _NAME.fullmatch(container.id):
        return False
    if state.options.telling is AssignedScope.ALL:
        return True
    sandbox = state.sandboxes.get(container.sandbox_id)
    return sandbox is not None and sandbox.annotations.get(ANNOTATION, "").strip().lower() == "true"


def assigned_to(state: AgentState, uid: str, name: str, claimed: Mapping[tuple[str, str], int]) -> Assigned:
    """Return what a container has for itself alone, while a release is pending what it will have then.

    For a mixed one the shared pool is included.

    Args:
        state: with the container.
        uid: of its pod.
        name: of the container.
        claimed: what containers have of claims (:func:`claimed_cpus`).
    """
    node = state.kubelet.node
    pod = node.active.get(uid)
    container = None if pod is None else pod.container(name)
    if pod is None or container is None:
        return Assigned()
    cpus, nodes = CPUSet(), NO_NODES
    own = claimed.get((uid, name), 0)
    if providers.cpu_isolation(node.settings, node.providers, pod, container) is providers.Isolation.CONTAINER:
        pending = node.cpu.pre_assignments.get(uid, {}).get(name)
        own |= node.cpu.assignments[uid][name] if pending is None else pending.cpus
    if own:
        # No container can be pinned to a CPU that is offline.
        cpus = CPUSet(own & ~node.cpu.offline)
    if providers.memory_isolation(node.settings, node.providers, pod, container) is providers.Isolation.CONTAINER:
        nodes = NUMAMask(mask_of(numa_of_blocks(node.memory.assignments[uid][name])))
    shared = None
    if MIXED_CPUS in state.kubelet.mooring.extensions:
        wanted = DesiredSettings.now(state)
        shared = wanted.pool if wanted.is_mixed(uid, name) else None
    return Assigned(cpus, nodes, shared)


def adjustment_of(state: AgentState, container: KnownContainer) -> tuple[dict[str, str], tuple[Mount, ...]]:
    """Return environment and mounts of a container that is being created; nothing where it is not told."""
    found = assigned_to(state, container.uid, container.name, claimed_cpus(state))
    environment: dict[str, str] = {}
    if found.shared is not None:
        environment = dict(zip(MIXED_ENVIRONMENT, (str(found.cpus), str(found.shared)), strict=True))
    if not has_files(state, container):
        return environment, ()
    options = state.options
    mount = Mount(options.assigned_mount_path, f"{options.assigned_dir}/{container.id}", MOUNT_OPTIONS, "bind")
    return {**dict(zip(ENVIRONMENT, (str(found.cpus), list_text(found.mems)), strict=True)), **environment}, (mount,)


def _with_files(state: AgentState) -> Iterator[tuple[KnownContainer, Assigned]]:
    """Yield the containers that have files, each with what is assigned to it."""
    claimed = claimed_cpus(state)
    for one in state.containers.values():
        if one.phase in LIVE and has_files(state, one):
            yield one, assigned_to(state, one.uid, one.name, claimed)


def _files_written(container: KnownContainer, says: Assigned) -> WriteAssigned:
    return WriteAssigned(container.id, says, makes=container.phase in (Phase.CREATING, Phase.CREATED))


def file_changes(
    before: AgentState, after: AgentState, on_their_way: Collection[str]
) -> tuple[AgentState, list[WriteAssigned], list[WriteCPUSet | WriteAssigned | DropAssigned]]:
    """Return the second state, in which files are as they should be once what comes with it is done.

    First that are files that lose CPUs, to be written before cgroups change; then the others, each after a check of the
    cgroup that the files speak of.

    Args:
        before: the state before an event.
        after: the state after it.
        on_their_way: ids of containers that the runtime is about to change: their files get new CPUs afterwards.
    """
    if ASSIGNED_CPUSET not in after.kubelet.mooring.extensions:
        return after, [], []
    lessened: list[WriteAssigned] = []
    rest: list[WriteCPUSet | WriteAssigned | DropAssigned] = []
    wanted = DesiredSettings.now(after)
    containers = dict(after.containers)
    for one, goal in _with_files(after):
        says = _until_then(one.shown, goal) if one.id in on_their_way else goal
        if says is None or says == one.shown:
            continue
        containers[one.id] = replace(one, shown=says)
        kept = _until_then(one.shown, says)
        if kept is not None and kept != one.shown:
            lessened.append(_files_written(one, kept))
        if kept == says:
            continue
        if one.phase in HAS_CGROUP and one.id not in on_their_way:
            # The runtime may get another request before it has carried out the last one.
            rest.append(write_of(one, wanted.of(one.uid, one.name), Occasion.CHECK))
        rest.append(_files_written(one, says))
    rest += [
        DropAssigned(one.id)
        for one in before.containers.values()
        if one.id not in after.containers and has_files(before, one)
    ]
    return replace(after, containers=containers) if lessened or rest else after, lessened, rest


def files_after_restart(state: AgentState) -> tuple[AgentState, list[WriteAssigned]]:
    """Return a state in which it is known what all files say, and the writes after which they do.

    They say what containers have on record, of what is theirs.

    After a restart it is unknown what the files say, and perhaps it is too much. The record is the runtime's, from
    before the answer that brings it up to date.
    """
    writes: list[WriteAssigned] = []
    containers = dict(state.containers)
    for one, goal in _with_files(state):
        if one.shown is not None:
            continue
        record = one.record
        # Who has nothing on record may run everywhere.
        says = Assigned(
            record.cpus & goal.cpus if record.cpus else goal.cpus,
            record.mems & goal.mems if record.mems else goal.mems,
            goal.shared if goal.shared is None or not record.cpus else record.cpus & goal.shared,
        )
        containers[one.id] = replace(one, shown=says)
        writes.append(_files_written(one, says))
    return replace(state, containers=containers) if writes else state, writes


def are_files_behind(state: AgentState) -> bool:
    """Tell whether files are behind, and nothing is awaited but the time that a runtime takes."""
    return any(one.shown != goal for one, goal in _with_files(state))


def sweep(state: AgentState) -> SweepAssigned:
    """Return what clears away files of containers that went unseen."""
    live = [one for one in state.containers.values() if one.phase in LIVE]
    known = frozenset(one.id for one in live if has_files(state, one))
    return SweepAssigned(known, frozenset(one.id for one in live) - known)


def _until_then(shown: Assigned | None, goal: Assigned) -> Assigned | None:
    """Return what files may say before the runtime has applied its answer: nothing new."""
    if shown is None:
        return None
    pool = shown.shared
    if pool != goal.shared:
        # A container that becomes mixed, or stops being it, has nothing of the pool yet.
        pool = CPUSet() if pool is None or goal.shared is None else pool & goal.shared
    return Assigned(shown.cpus & goal.cpus, shown.mems & goal.mems, pool)
