"""Refusing a container of a pod that has its place already: the pod is not held, and its other containers go on.

The kubelet tries again every few seconds, each time with another container. So a refusal is told once, until the
container starts or is refused for something else.
"""

from __future__ import annotations

from dataclasses import replace

from mooring.agent.reactor.answers import Outcome
from mooring.agent.reactor.effects import Effect, EventFor, Finding, Report
from mooring.agent.reactor.placing import text_of
from mooring.agent.reactor.values import AgentState, KnownContainer
from mooring.core.decision import Rejection


def refusal_told(
    state: AgentState, uid: str, name: str, rejection: Rejection, finding: Finding, container_id: str = ""
) -> Outcome:
    """Return the state in which a refusal was told, and what tells it: for the metrics, the log and the cluster.

    The pod is not evicted whatever ``onRejection`` says: what else it runs would go with it.

    Args:
        state: before.
        uid: of the pod.
        name: of the container.
        rejection: why.
        finding: which kind of report it is.
        container_id: of the container, which is another one at each try.
    """
    if state.unstarted.get((uid, name)) == rejection:
        return Outcome(state)
    pods = {one.uid for one in state.sandboxes.values()}
    unstarted = {key: why for key, why in state.unstarted.items() if key[0] in pods}
    pod = state.kubelet.node.active.get(uid)
    place = uid if pod is None else f"{pod.namespace}/{pod.name}"
    text = f"{place}: {name}: {text_of(rejection)}"
    effects: list[Effect] = [Report(finding, text, uid, container_id, rejection.reason)]
    if pod is not None:
        effects.append(EventFor(pod.uid, pod.namespace, pod.name, rejection.reason, rejection.message))
    return Outcome(replace(state, unstarted={**unstarted, (uid, name): rejection}), effects=tuple(effects))


def started_despite_refusal(state: AgentState, container: KnownContainer) -> tuple[Effect, ...]:
    """Return what reports a container that runs although its start was refused.

    Args:
        state: in which it runs.
        container: of it.
    """
    held = state.held.get(container.uid)
    rejection = state.unstarted.get((container.uid, container.name), held.rejection if held is not None else None)
    if rejection is None:
        return ()
    pod = state.kubelet.node.active.get(container.uid, held.pod if held is not None else None)
    place = container.uid if pod is None else f"{pod.namespace}/{pod.name}"
    text = f"{container.name} runs although its start was refused: {rejection.message or rejection.reason}"
    report = Report(Finding.STARTED_DESPITE_REFUSAL, f"{place}: {text}", container.uid, container.id, rejection.reason)
    if pod is None:
        return (report,)
    return report, EventFor(pod.uid, pod.namespace, pod.name, rejection.reason, text)


def without_refusal(state: AgentState, uid: str, name: str) -> AgentState:
    """Return the state after a container has started; the next refusal is told again."""
    if (uid, name) not in state.unstarted:
        return state
    return replace(state, unstarted={key: why for key, why in state.unstarted.items() if key != (uid, name)})
