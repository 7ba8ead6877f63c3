"""UpdateContainer: the kubelet changes sizes.

With the extension exclusive-resize that is a resize, which the engine decides about; without it the CPUs stay as they
are. The runtime takes what its client sends where no plugin answers, so that CPUs and nodes are answered where the
client names some; and where the record lacks them, which corrects a record that an update has missed. Else they are
left out: containerd does what is answered here after it has let the next event pass, so that a list could come after a
newer one and bring back CPUs that another container has by then (2.1.9 and 2.4.2, seen under churn).
"""

from __future__ import annotations

from dataclasses import replace

from mooring.agent.nri.types import ContainerState, ContainerUpdate, LinuxResources, PodSandbox, RuntimeContainer
from mooring.agent.pods.resized import resized
from mooring.agent.reactor.desired import DesiredSettings, lift_of_pod, node_set_of, resources_of, set_of
from mooring.agent.reactor.effects import Effect
from mooring.agent.reactor.outcomes import Accepted, EventOutcome, Refused
from mooring.agent.reactor.placing import resizes
from mooring.agent.reactor.records import recorded, with_sandbox
from mooring.agent.reactor.resizing import Resized, asked
from mooring.agent.reactor.updates import outcome, refreshed
from mooring.agent.reactor.values import AgentState, Phase, Setting
from mooring.engine.core.bits import NO_NODES
from mooring.engine.core.cpuset import CPUSet
from mooring.engine.core.moment import Moment
from mooring.engine.core.observer import Observer
from mooring.engine.core.pod import Pod

_PHASES = {ContainerState.CREATED: Phase.CREATED, ContainerState.STOPPED: Phase.ENDED}


def update_container(
    state: AgentState,
    sandbox: PodSandbox,
    container: RuntimeContainer,
    resources: LinuxResources,
    target: Pod | None = None,
    now: Moment | None = None,
    observer: Observer | None = None,
) -> EventOutcome:
    """Answer a request to update a container.

    Args:
        state: before.
        sandbox: of the pod.
        container: as it is before the update.
        resources: what the client requests. A CFS quota in it is overruled where it is lifted.
        target: the pod with the resources that it is to have, as the API server knows it.
        now: the present moment, from which a scale-down delay counts.
        observer: receives the engine's facts, for metrics.
    """
    before, state = state, with_sandbox(state, sandbox)
    known = state.containers.get(container.id)
    state = recorded(state, sandbox, container, _phase(container) if known is None else known.phase)
    found = _resized(state, sandbox, container, resources, target, now, observer)
    if found.refusal:
        return outcome(before, found.state, Refused(found.refusal), found.effects)
    state = found.state
    known = state.containers[container.id]
    wanted = DesiredSettings.now(state).of(sandbox.uid, known.name)
    kept = replace(resources, cpus="", mems="") if resources.shares or resources.quota else known.asked
    asked = Setting(set_of(resources.cpus), node_set_of(resources.mems), resources.quota or None)
    record = wanted.over(asked).over(known.record)
    rest = refreshed(state.with_container(replace(known, asked=kept, record=record, written=None)), skip=container.id)
    answer = Setting(
        wanted.cpus if resources.cpus or known.record.cpus != wanted.cpus else CPUSet(),
        wanted.mems if resources.mems or known.record.mems != wanted.mems else NO_NODES,
        wanted.quota,
    )
    mine = ContainerUpdate(container.id, resources_of(answer), ignore_failure=False)
    answered = (mine,) if answer != Setting() else ()
    effects: tuple[Effect, ...] = (*rest.writes, *lift_of_pod(rest.state, sandbox.uid), *found.effects)
    return outcome(before, rest.state, Accepted((*answered, *rest.updates)), effects)


def _phase(container: RuntimeContainer) -> Phase:
    """Return the phase of an unknown container; clients may update one that has ended long ago."""
    return _PHASES.get(container.state, Phase.RUNNING)


def _resized(
    state: AgentState,
    sandbox: PodSandbox,
    container: RuntimeContainer,
    resources: LinuxResources,
    target: Pod | None,
    now: Moment | None,
    observer: Observer | None,
) -> Resized:
    pod = state.kubelet.node.active.get(sandbox.uid)
    if pod is None or not resizes(state.kubelet):
        return Resized(state)
    now = now or state.kubelet.node.moment
    after = resized(pod, container.name, resources, target)
    if after is None and sandbox.uid in state.kubelet.node.waiting:
        # Back to what it has: the request that was refused is withdrawn.
        after = pod
    return Resized(state) if after is None else asked(state, after, now, container.id, observer)
