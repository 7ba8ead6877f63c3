"""PostCreateContainer, PostStartContainer and PostUpdateContainer: what the runtime has done."""

from __future__ import annotations

from dataclasses import replace

from mooring.agent.nri.types import Container, PodSandbox
from mooring.agent.reactor.answers import Outcome
from mooring.agent.reactor.effects import Effect, Occasion, Verify
from mooring.agent.reactor.found import found
from mooring.agent.reactor.knowing import believed, seen, with_sandbox
from mooring.agent.reactor.refusing import started_despite_refusal
from mooring.agent.reactor.updates import enforced, outcome, with_write
from mooring.agent.reactor.values import HAS_CGROUP, AgentState, Phase
from mooring.agent.reactor.wanted import Wanted, lift_of_container, lift_of_pod, on_record, write_of
from mooring.core.observer import Observer
from mooring.core.pod import Pod


def container_created(
    state: AgentState,
    sandbox: PodSandbox,
    container: Container,
    pod: Pod | None = None,
    observer: Observer | None = None,
) -> Outcome:
    """Learn that the runtime has a container on record: from now on it takes updates.

    One whose creation nobody was asked about is placed now; a refusal comes when it starts.
    """
    before, state = state, with_sandbox(state, sandbox)
    effects: tuple[Effect, ...] = ()
    if pod is not None:
        placed = found(state, sandbox, container, pod, observer)
        state, effects = placed.state, placed.effects
    known = state.containers.get(container.id)
    # A late word does not take a container back to an earlier phase.
    phase = Phase.CREATED if known is None or known.phase is Phase.CREATING else known.phase
    state, changed = enforced(before, seen(state, sandbox, container, phase))
    return outcome(before, state, None, (*changed, *effects))


def container_started(state: AgentState, sandbox: PodSandbox, container: Container) -> Outcome:
    """Record that a container runs. For a very short one the end was reported before.

    A container that should not have been started is checked and corrected at once: CRI-O logs an error of
    StartContainer and starts the container (CRI-O 1.37.0, read and measured). The same holds where no answer was
    decided because the agent failed.
    """
    before = state.containers.get(container.id)
    after = seen(with_sandbox(state, sandbox), sandbox, container, Phase.RUNNING)
    if before is not None and before.phase in (Phase.STARTING, Phase.RUNNING, Phase.ENDED):
        return outcome(state, after)
    known = after.containers[container.id]
    wanted = Wanted.now(after).of(known.uid, known.name)
    effects: tuple[Effect, ...] = (
        write_of(known, wanted, Occasion.CHECK),
        *lift_of_container(known, wanted),
        *lift_of_pod(after, sandbox.uid),
        *(started_despite_refusal(after, known) if before is not None and before.phase is Phase.REFUSED else ()),
        Verify((container.id,)),
    )
    return outcome(state, after.with_container(with_write(known, wanted)), None, effects)


def container_updated(state: AgentState, sandbox: PodSandbox, container: Container | None = None) -> Outcome:
    """Lift the pod's quota again, which a resize of the kubelet writes anew, and see to the container's cpuset.

    Between the answer and its deed the runtime lets other events pass. Where one of them changed what the container
    should have, the answer was late: its cgroup is put right now, its record with the next reply.
    """
    known = None if container is None else state.containers.get(container.id)
    lifts = lift_of_pod(state, sandbox.uid)
    if container is None or known is None or known.phase not in HAS_CGROUP:
        return outcome(state, state, None, lifts)
    wanted = Wanted.now(state).of(known.uid, known.name)
    after = state.with_container(replace(known, told=believed(known.told, on_record(container.resources))))
    return outcome(state, after, None, (write_of(known, wanted, Occasion.CHECK), *lifts))
