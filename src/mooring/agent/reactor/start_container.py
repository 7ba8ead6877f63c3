"""StartContainer: the last moment before the program runs, and the one at which lost updates are repaired."""

from __future__ import annotations

from dataclasses import replace

from mooring.agent.nri.types import Container, PodSandbox
from mooring.agent.reactor.answers import Outcome, Refused
from mooring.agent.reactor.effects import Effect
from mooring.agent.reactor.found import found
from mooring.agent.reactor.knowing import seen, with_sandbox
from mooring.agent.reactor.placing import EMPTY_POOL_MESSAGE, EMPTY_SHARED_POOL, text_of
from mooring.agent.reactor.updates import enforced, outcome
from mooring.agent.reactor.values import AgentState, KnownContainer, Phase, Setting
from mooring.agent.reactor.wanted import Wanted, difference, lift_of_container, lift_of_pod, write_of
from mooring.core.decision import Rejection
from mooring.core.observer import Observer
from mooring.core.pod import Pod


def start_container(
    state: AgentState, sandbox: PodSandbox, container: Container, pod: Pod | None, observer: Observer | None = None
) -> Outcome:
    """See to it that the container's cgroup is what it should be now, whatever became of updates since its creation.

    Args:
        state: before.
        sandbox: of the pod.
        container: with the pid of its task and what the runtime has on record.
        pod: the container's pod, needed where the agent was away when the container was created.
        observer: hears of the engine's facts, for metrics.
    """
    before, state = state, with_sandbox(state, sandbox)
    effects: tuple[Effect, ...] = ()
    if pod is not None:
        placed = found(state, sandbox, container, pod, observer)
        if placed.rejection is not None:
            return outcome(before, placed.state, Refused(text_of(placed.rejection)), placed.effects)
        state, effects = placed.state, placed.effects
    state = seen(state, sandbox, container, Phase.STARTING)
    known = state.containers[container.id]
    wanted = Wanted.now(state).of(sandbox.uid, known.name)
    if not wanted.cpus and state.kubelet.settings.cpu is not None:
        return outcome(before, state, Refused(text_of(Rejection(EMPTY_SHARED_POOL, EMPTY_POOL_MESSAGE))), effects)
    state, changed = enforced(before, state.with_container(_written(known, wanted)))
    mine: tuple[Effect, ...] = (
        write_of(known, wanted),
        *lift_of_container(known, wanted),
        *lift_of_pod(state, sandbox.uid),
    )
    return outcome(before, state, None, (*changed, *mine, *effects))


def _written(container: KnownContainer, wanted: Setting) -> KnownContainer:
    return replace(container, written=None if difference(container.told, wanted) is None else wanted)
