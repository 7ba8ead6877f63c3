"""What containers should have now, read off the engine's state.

Source: spec: cpu-manager.md section 11, memory-manager.md section 8, pod-level.md section 5.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import lru_cache

from mooring.agent.effects import LiftQuota, Occasion, WriteCPUSet
from mooring.agent.nri.types import LinuxResources
from mooring.agent.quota import NO_QUOTA, lift_of_container, lift_of_pod
from mooring.agent.state import HAS_CGROUP, AgentState, KnownContainer, Setting, claimed_cpus
from mooring.engine.core.bits import NO_NODES, NUMAMask, list_text, mask_of, members
from mooring.engine.core.cpuset import CPUSet, CPUSetSyntaxError
from mooring.engine.core.pod import Container, Pod
from mooring.engine.extensions.offline import effective_pool
from mooring.engine.kubelet.kubelet import Kubelet
from mooring.engine.node.isolation import container_runs_without_quota, is_mixed
from mooring.engine.node.node import numa_of_blocks

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
        node = self.kubelet.node
        own = node.cpu.assignments.get(uid, {}).get(name, 0)
        blocks = node.memory.assignments.get(uid, {}).get(name, ())
        return Setting(
            self.cpus_with(uid, name, own),
            NUMAMask(mask_of(numa_of_blocks(blocks))) if blocks else NO_NODES,
            NO_QUOTA if own and self._is_lifted(uid, name) else None,
        )

    def cpus_with(self, uid: str, name: str, own: int) -> CPUSet:
        """Return the CPUs on which a container may run if these are assigned to it.

        Args:
            uid: of its pod.
            name: of the container.
            own: mask of the CPUs; a release that is due leaves fewer than the state says.
        """
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
        return is_mixed(self.kubelet.settings, pod, container, own, self.claimed.get((uid, name), 0))

    def is_exclusive(self, uid: str, name: str) -> bool:
        """Tell whether a container has CPUs without the shared pool; a mixed one may use that, and does not need it."""
        if self.claimed.get((uid, name), 0):
            return True
        return bool(self.kubelet.node.cpu.assignments.get(uid, {}).get(name, 0))

    def _is_lifted(self, uid: str, name: str) -> bool:
        node = self.kubelet.node
        pod, container = self._described(uid, name)
        if pod is None or container is None:
            return False
        # A quota counts time on all CPUs, so that for a mixed one too the pool would throttle what polls on its own.
        return node.settings.config.cpu_cfs_quota and container_runs_without_quota(
            node.settings, node.providers, pod, container
        )

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


def expected_lifts(state: AgentState) -> tuple[LiftQuota, ...]:
    """Return every cgroup that should have no quota: containers, sandboxes, pods."""
    return tuple(_lifts(state))


def _lifts(state: AgentState) -> Iterator[LiftQuota]:
    wanted = DesiredSettings.now(state)
    for one in state.containers.values():
        if one.phase in HAS_CGROUP:
            yield from lift_of_container(one, wanted.of(one.uid, one.name))
    for uid in dict.fromkeys(one.uid for one in state.containers.values() if one.phase in HAS_CGROUP):
        yield from lift_of_pod(state, uid)


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
    return LinuxResources(list_of(setting.cpus), nodes_of(setting.mems), quota=setting.quota)


def list_of(cpus: CPUSet) -> str:
    """Return a Linux CPU list."""
    return _list(cpus.mask)


# All containers of the shared pool get the same list.
@lru_cache(maxsize=64)
def _list(mask: int) -> str:
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
