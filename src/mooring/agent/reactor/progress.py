"""PostCreateContainer, PostStartContainer and PostUpdateContainer: what the runtime has done."""

from __future__ import annotations

from dataclasses import replace

from mooring.agent.nri.types import Container, PodSandbox
from mooring.agent.reactor.answers import Outcome
from mooring.agent.reactor.effects import Effect, Occasion
from mooring.agent.reactor.found import found
from mooring.agent.reactor.knowing import believed, seen, with_sandbox
from mooring.agent.reactor.updates import enforced, outcome
from mooring.agent.reactor.values import HAS_CGROUP, AgentState, Phase
from mooring.agent.reactor.wanted import Wanted, lift_of_pod, on_record, write_of
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
    """Learn that a container's program runs. Of a very short one its end was told before."""
    after = seen(with_sandbox(state, sandbox), sandbox, container, Phase.RUNNING)
    return outcome(state, after)


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
