"""StopContainer and RemoveContainer: a container's end, which is not yet the end of its pod.

A container that ended keeps its place: an init container by the kubelet's rules, any other because it may be started
again, with a new id. The place goes with the sandbox. After a restart of containerd no StopPodSandbox comes for pods
from before it; then the removal of the last container that is known says it.
"""

from __future__ import annotations

from dataclasses import replace

from mooring.agent.nri.types import Container, PodSandbox
from mooring.agent.reactor.answers import Accepted, Outcome
from mooring.agent.reactor.knowing import without_container
from mooring.agent.reactor.placing import ended, waiting_placed
from mooring.agent.reactor.updates import enforced, outcome, refreshed
from mooring.agent.reactor.values import AgentState, Phase
from mooring.core.observer import Observer


def stop_container(state: AgentState, container: Container) -> Outcome:
    """Learn that a container has ended, and use the reply for what the runtime was not told yet."""
    known = state.containers.get(container.id)
    after = state if known is None else state.with_container(replace(known, phase=Phase.ENDED))
    told = refreshed(after)
    return outcome(state, told.state, Accepted(told.updates), told.writes)


def remove_container(
    state: AgentState, sandbox: PodSandbox | None, container: Container, observer: Observer | None = None
) -> Outcome:
    """Forget a container. With the last one the pod ends; one that is held back stays held back."""
    known = state.containers.get(container.id)
    uid = known.uid if known is not None else sandbox.uid if sandbox is not None else ""
    after = without_container(state, container.id)
    if uid in after.kubelet.node.active and not any(one.uid == uid for one in after.containers.values()):
        placed = waiting_placed(ended(after, uid, observer), observer)
        now, changed = enforced(state, placed.state)
        return outcome(state, now, None, (*changed, *placed.effects))
    return outcome(state, after)
