"""What must hold between the runtime's world and the agent's state."""

from __future__ import annotations

from collections.abc import Iterator

from tests.agent.simulated_agent import SimulatedAgent
from tests.agent.simulated_runtime import Process, Runtime, Stage

from mooring.agent.reactor.desired import DesiredSettings, node_set_of, nodes_of, set_of
from mooring.agent.state import AgentState, claimed_cpus
from mooring.engine.core.bits import list_text
from mooring.engine.core.cpuset import CPUSet
from mooring.engine.core.pod import Container, ContainerKind
from mooring.engine.node.providers import Isolation, cpu_isolation


def overlaps(runtime: Runtime, state: AgentState, all_cpus: int) -> Iterator[str]:
    """Yield every pair of running programs of which one has exclusive CPUs that the other may use too."""
    running, claimed = [made for made in runtime.processes.values() if made.runs], claimed_cpus(state)
    for number, one in enumerate(running):
        for other in running[number + 1 :]:
            common = _cpus(one, all_cpus) & _cpus(other, all_cpus)
            if _meets(runtime, state, one) and _meets(runtime, state, other):
                common &= ~state.kubelet.node.cpu.default
            # Containers that name one claim share its CPUs.
            both = [claimed.get((_uid(runtime, made), made.name), 0) for made in (one, other)]
            common &= ~(both[0] & both[1])
            if common and not _may_share(runtime, state, one, other):
                yield f"{_name(runtime, one)} and {_name(runtime, other)} both may use CPUs {list_text(common)}"


def differences(runtime: Runtime, agent: SimulatedAgent, online: int = -1) -> Iterator[str]:
    """Yield what runtime, cgroups and state do not agree about. Meant for quiet moments.

    Args:
        runtime: has containers and their groups.
        agent: has the state.
        online: CPUs that are; of a group only these are in effect.
    """
    state = agent.state
    wanted = DesiredSettings.now(state)
    for made in runtime.processes.values():
        if made.stage not in (Stage.CREATED, Stage.RUNNING):
            continue
        known = state.containers.get(made.id)
        if known is None:
            yield f"{_name(runtime, made)} is not known"
            continue
        setting = wanted.of(known.uid, known.name)
        # Of a failed update only the cgroup can be known, and put right.
        places = [] if made.id in runtime.failed else [("record", made.record)]
        places += [("cgroup", made.cgroup)] if made.runs else []
        for place, found in places:
            in_effect = set_of(found.cpus).mask & (online if place == "cgroup" else -1)
            if setting.cpus and in_effect != setting.cpus.mask:
                yield f"{_name(runtime, made)}: {place} has CPUs {found.cpus!r} instead of {setting.cpus}"
            if setting.mems and node_set_of(found.mems) != setting.mems:
                yield f"{_name(runtime, made)}: {place} has nodes {found.mems!r} instead of {nodes_of(setting.mems)}"
            if place == "record" and setting.quota is not None and (found.quota or -1) != setting.quota:
                yield f"{_name(runtime, made)}: {place} has quota {found.quota} instead of {setting.quota}"


def _meets(runtime: Runtime, state: AgentState, made: Process) -> bool:
    """Tell whether a container may meet others in the shared pool: a mixed one may, and who has nothing else online."""
    wanted, uid, cpu = DesiredSettings.now(state), _uid(runtime, made), state.kubelet.node.cpu
    usable = cpu.assignments.get(uid, {}).get(made.name, 0) & ~cpu.offline
    return wanted.is_mixed(uid, made.name) or not usable


def _may_share(runtime: Runtime, state: AgentState, one: Process, other: Process) -> bool:
    """Tell whether two containers may use the same CPUs."""
    mine, theirs = _uid(runtime, one), _uid(runtime, other)
    wanted = DesiredSettings.now(state)
    if any(not wanted.of(uid, made.name).cpus for uid, made in ((mine, one), (theirs, other))):
        # Reported: it runs although there is no CPU for it.
        return True
    if mine == theirs and one.name == other.name:
        return True
    if mine != theirs:
        return not wanted.is_exclusive(mine, one.name) and not wanted.is_exclusive(theirs, other.name)
    kinds = (_spec(state, mine, one), _spec(state, theirs, other))
    if any(spec is not None and spec.kind is ContainerKind.INIT for spec in kinds):
        return True
    return not any(
        spec is not None and _isolation(state, uid, spec) is Isolation.CONTAINER
        for uid, spec in ((mine, kinds[0]), (theirs, kinds[1]))
    )


def _isolation(state: AgentState, uid: str, spec: Container) -> Isolation:
    node = state.kubelet.node
    return cpu_isolation(node.settings, node.providers, node.active[uid], spec)


def _spec(state: AgentState, uid: str, made: Process) -> Container | None:
    pod = state.kubelet.node.active.get(uid)
    return next((one for one in pod.containers if one.name == made.name), None) if pod is not None else None


def _cpus(made: Process, all_cpus: int) -> int:
    return CPUSet.parse(made.cgroup.cpus).mask if made.cgroup.cpus else all_cpus


def _uid(runtime: Runtime, made: Process) -> str:
    return runtime.sandboxes[made.sandbox].uid


def _name(runtime: Runtime, made: Process) -> str:
    return f"{_uid(runtime, made)}/{made.name} ({made.id}, {made.stage.value})"
