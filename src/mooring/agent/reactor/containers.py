"""Sandboxes and containers on record: as events name them, and as Synchronize lists them.

containerd lists neither a sandbox in state Unknown nor a container in state UNKNOWN. These are what it calls them after
its own restart when their shim does not answer in time; their programs run on. So of what the agent knows and the list
lacks the control groups are asked: a container with processes keeps its place, and is ended when its group is gone.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import replace

from mooring.agent.effects import AgentReport, ReportKind
from mooring.agent.nri.types import ContainerState, PodSandbox, RuntimeContainer
from mooring.agent.pods.source import labelled_sandbox
from mooring.agent.reactor.desired import on_record
from mooring.agent.reactor.response import EventOutcome
from mooring.agent.state import HAS_CGROUP, AgentState, KnownContainer, Phase, Setting

_PHASES = {
    ContainerState.CREATED: Phase.CREATED,
    ContainerState.PAUSED: Phase.RUNNING,
    ContainerState.RUNNING: Phase.RUNNING,
    ContainerState.STOPPED: Phase.ENDED,
}


def with_sandbox(state: AgentState, sandbox: PodSandbox) -> AgentState:
    """Return the state with a sandbox as the runtime tells it now."""
    if state.sandboxes.get(sandbox.id) == sandbox:
        return state
    return replace(state, sandboxes={**state.sandboxes, sandbox.id: sandbox})


def without_sandbox(state: AgentState, sandbox_id: str) -> AgentState:
    """Return the state without a sandbox and its containers."""
    return _with_what_is_there(
        state,
        {known: one for known, one in state.sandboxes.items() if known != sandbox_id},
        {known: one for known, one in state.containers.items() if one.sandbox_id != sandbox_id},
    )


def _with_what_is_there(
    state: AgentState, sandboxes: Mapping[str, PodSandbox], containers: Mapping[str, KnownContainer]
) -> AgentState:
    """Return the state with these alone: a pod that comes again with its uid was refused nothing yet."""
    pods = {one.uid for one in sandboxes.values()}
    return replace(
        state,
        sandboxes=sandboxes,
        containers=containers,
        unstarted={key: why for key, why in state.unstarted.items() if key[0] in pods},
        deviating={known: told for known, told in state.deviating.items() if known in containers},
    )


def without_container(state: AgentState, container_id: str) -> AgentState:
    """Return the state without a container."""
    if container_id not in state.containers:
        return state
    return replace(state, containers={known: one for known, one in state.containers.items() if known != container_id})


def first_known(sandbox: PodSandbox, container: RuntimeContainer, phase: Phase) -> KnownContainer:
    """Return what is known of a container of which nothing was known before."""
    return KnownContainer(
        id=container.id,
        sandbox_id=sandbox.id,
        uid=sandbox.uid,
        name=container.name,
        phase=phase,
        record=on_record(container.resources),
        asked=container.resources,
        pid=container.pid,
        cgroup=container.cgroups_path,
        claims=container.claims,
    )


def recorded(state: AgentState, sandbox: PodSandbox, container: RuntimeContainer, phase: Phase) -> AgentState:
    """Return the state with what an event says of a container; one that has ended stays ended."""
    known = state.containers.get(container.id)
    if known is None:
        return state.with_container(first_known(sandbox, container, phase))
    return state.with_container(
        replace(
            known,
            phase=known.phase if known.phase is Phase.ENDED else phase,
            unlisted=known.unlisted and known.phase is not Phase.CREATING,
            record=believed(known.record, on_record(container.resources)),
            pid=container.pid or known.pid,
            cgroup=container.cgroups_path or known.cgroup,
            claims=container.claims or known.claims,
        )
    )


def believed(told: Setting, record: Setting) -> Setting:
    """Return what is on record, as far as that is known.

    A message is put together before the runtime's turn for it comes, so that it can be older than the last answer
    (containerd 2.1.9 and 2.4.2, read and seen under churn). Where the two differ the record is unknown, and the next
    reply tells the container again: to trust the older one could leave a container where it may not be any more.

    >>> from mooring.engine.core.cpuset import CPUSet
    >>> few, many = CPUSet.parse("0-3"), CPUSet.parse("0-5")
    >>> str(believed(Setting(few), Setting(few, quota=-1)).cpus), str(believed(Setting(few), Setting(many)).cpus)
    ('0-3', '')
    """
    is_same = told.cpus == record.cpus and told.mems == record.mems
    return record if is_same else Setting(quota=record.quota)


def as_requested(state: AgentState, containers: Iterable[RuntimeContainer]) -> list[RuntimeContainer]:
    """Return containers of the runtime's record with the resources that their creation requested, where that is known.

    The record has what the agent made of them: without its quota a Guaranteed container looks like a Burstable one.
    """
    known = state.containers
    return [replace(one, resources=known[one.id].asked) if one.id in known else one for one in containers]


def requested_containers(state: AgentState, sandbox_id: str) -> tuple[RuntimeContainer, ...]:
    """Return the containers of a sandbox as their creation requested them, to derive a pod from."""
    return tuple(
        RuntimeContainer(one.id, one.sandbox_id, one.name, pid=one.pid, resources=one.asked, cgroups_path=one.cgroup)
        for one in state.containers.values()
        if one.sandbox_id == sandbox_id
    )


def unlisted(
    state: AgentState, sandboxes: Sequence[PodSandbox], containers: Sequence[RuntimeContainer]
) -> dict[str, tuple[str, int]]:
    """Return the control groups of what the agent knows to have run and the runtime does not list.

    By the id of the container or sandbox: ``cgroups_path`` as the runtime gave it, and a process in it, 0 when none is
    known.
    """
    boxes, made = {one.id for one in sandboxes}, {one.id for one in containers}
    found = {
        one.id: (one.cgroup, one.pid)
        for one in _known_containers(state)
        if one.id not in made and one.cgroup and one.phase in HAS_CGROUP
    }
    known = [one for one in _known_sandboxes(state).values() if one.id not in boxes and one.cgroups_path]
    return found | {one.id: (one.cgroups_path, one.pid) for one in known}


def kept_sandboxes(
    state: AgentState,
    sandboxes: Sequence[PodSandbox],
    containers: Sequence[RuntimeContainer],
    running: AbstractSet[str],
) -> tuple[PodSandbox, ...]:
    """Return the sandboxes that are not listed and stay: with processes, or with a container that stays or is listed.

    Of one that was made while the agent was away only the labels of its containers tell.

    Args:
        state: knows them.
        sandboxes: that are listed.
        containers: that are listed.
        running: ids of those of :func:`unlisted` that have processes.
    """
    needed = {one.pod_sandbox_id for one in containers}
    needed |= {one.sandbox_id for one in kept_containers(state, containers, running)}
    ids = {one.id for one in sandboxes}
    labelled = {one.pod_sandbox_id: made for one in containers if (made := labelled_sandbox(one)) is not None}
    known = {**labelled, **_known_sandboxes(state)}
    return tuple(one for one in known.values() if one.id not in ids and (one.id in needed or one.id in running))


def listed(
    state: AgentState,
    sandboxes: Sequence[PodSandbox],
    containers: Sequence[RuntimeContainer],
    running: AbstractSet[str],
) -> EventOutcome:
    """Take over the runtime's lists, with the arguments of :func:`kept_sandboxes`.

    Containers that are just being created are on no list. Those whose creation a restart of the runtime has ended are
    on none either, and nothing reports their end: one with the same name takes the place, and no pod stays for them.
    """
    kept = kept_sandboxes(state, sandboxes, containers, running)
    boxes = {one.id: one for one in (*sandboxes, *kept)}
    known: dict[str, KnownContainer] = {}
    reports = []
    for box in kept:
        place = f"the sandbox of {box.namespace}/{box.name}"
        text = f"the runtime does not list {place}; its running containers keep their CPUs"
        reports.append(AgentReport(ReportKind.RUNS_UNLISTED, text, box.uid))
    for container in containers:
        sandbox = boxes.get(container.pod_sandbox_id)
        if sandbox is None:
            text = f"{container.name} is listed and its sandbox {container.pod_sandbox_id} is not: its pod is unknown"
            reports.append(AgentReport(ReportKind.CONTAINER_UNPLACED, text, "", container.id))
            continue
        before, phase = state.containers.get(container.id), _PHASES.get(container.state, Phase.CREATED)
        if phase is Phase.CREATED and (container.pid or (before is not None and before.phase is Phase.STARTING)):
            phase = Phase.STARTING
        found = first_known(sandbox, container, phase)
        known[container.id] = found if before is None else replace(found, asked=before.asked, shown=before.shown)
    for one in kept_containers(state, containers, running):
        # Without its sandbox no event would end it.
        if one.sandbox_id in boxes:
            known[one.id] = replace(one, unlisted=True)
            text = f"{one.name} runs and the runtime does not list it; it keeps its CPUs"
            reports.append(AgentReport(ReportKind.RUNS_UNLISTED, text, one.uid, one.id))
    names = {(one.sandbox_id, one.name) for one in known.values()}
    for one in state.containers.values():
        if one.phase is Phase.CREATING and one.sandbox_id in boxes and (one.sandbox_id, one.name) not in names:
            known[one.id] = replace(one, unlisted=True)
    return EventOutcome(_with_what_is_there(state, boxes, known), effects=tuple(reports))


def kept_containers(
    state: AgentState, containers: Sequence[RuntimeContainer], running: AbstractSet[str]
) -> Iterable[KnownContainer]:
    """Return the containers that run although they are not listed."""
    ids = {one.id for one in containers}
    return [one for one in _known_containers(state) if one.id in running and one.id not in ids]


def _known_containers(state: AgentState) -> Iterable[KnownContainer]:
    return {**state.last_seen.containers, **state.containers}.values()


def _known_sandboxes(state: AgentState) -> dict[str, PodSandbox]:
    return {**state.last_seen.sandboxes, **state.sandboxes}
