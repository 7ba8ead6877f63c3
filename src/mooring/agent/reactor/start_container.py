"""StartContainer: the last moment before the program runs, and the one at which lost updates are repaired."""

from __future__ import annotations

from dataclasses import replace

from mooring.agent.nri.types import Container, PodSandbox
from mooring.agent.reactor.answers import Outcome, Refused
from mooring.agent.reactor.effects import Effect, Finding, Occasion
from mooring.agent.reactor.found import found
from mooring.agent.reactor.knowing import seen, with_sandbox
from mooring.agent.reactor.opting_out import opt_out_unread
from mooring.agent.reactor.placing import EMPTY_POOL_MESSAGE, EMPTY_SHARED_POOL, text_of
from mooring.agent.reactor.refusing import refusal_told
from mooring.agent.reactor.updates import enforced, outcome, with_write
from mooring.agent.reactor.values import AgentState, KnownContainer, Phase, Setting
from mooring.agent.reactor.wanted import Wanted, difference, lift_of_container, lift_of_pod, write_of
from mooring.core.decision import Rejection
from mooring.core.observer import Observer
from mooring.core.pod import Pod


def start_container(
    state: AgentState, sandbox: PodSandbox, container: Container, pod: Pod | None, observer: Observer | None = None
) -> Outcome:
    """See to it that the container's cgroup is what it should be now, whatever became of updates since its creation.

    Where that fails it is not started: :func:`mooring.agent.reactor.written.write_done` says when.

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
        unread = opt_out_unread(state, pod)
        if placed.rejection is not None:
            refused, write = _kept_in_pool(seen(placed.state, sandbox, container, Phase.REFUSED), container.id)
            return outcome(before, refused, Refused(text_of(placed.rejection)), (*write, *unread, *placed.effects))
        state, effects = placed.state, (*unread, *placed.effects)
    state = seen(state, sandbox, container, Phase.STARTING)
    known = state.containers[container.id]
    wanted = Wanted.now(state).of(sandbox.uid, known.name)
    if not wanted.cpus and state.kubelet.settings.cpu is not None:
        rejection = Rejection(EMPTY_SHARED_POOL, EMPTY_POOL_MESSAGE)
        told = refusal_told(state, sandbox.uid, known.name, rejection, Finding.START_REFUSED, known.id)
        refused = told.state.with_container(replace(known, phase=Phase.REFUSED))
        return outcome(before, refused, Refused(text_of(rejection)), (*effects, *told.effects))
    state, changed = enforced(before, state.with_container(with_write(known, wanted)))
    mine: tuple[Effect, ...] = (
        write_of(known, wanted, _occasion(before.containers.get(container.id), wanted)),
        *lift_of_container(known, wanted),
        *lift_of_pod(state, sandbox.uid),
    )
    return replace(outcome(before, state, None, (*changed, *mine, *effects)), starts=container.id)


def _kept_in_pool(state: AgentState, container_id: str) -> tuple[AgentState, tuple[Effect, ...]]:
    """Return what keeps a refused container off the CPUs of others on a runtime that starts it nevertheless."""
    known = state.containers[container_id]
    wanted = Wanted.now(state).of(known.uid, known.name)
    return state.with_container(with_write(known, wanted)), (write_of(known, wanted),)


def _occasion(before: KnownContainer | None, wanted: Setting) -> Occasion:
    """Tell a lost update from what nobody has told the runtime yet.

    The second is a container of whose creation nobody was told, or one for which something was decided since the last
    reply that could have said so.
    """
    if before is None or difference(before.missed or before.told, wanted) is not None:
        return Occasion.DECISION
    return Occasion.CHECK
