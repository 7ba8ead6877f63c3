"""UpdateContainer: the kubelet changes sizes, the CPUs stay ours.

The runtime takes what its client sends where nobody answers, so that the container's whole setting is answered always;
this also corrects a record that an update has missed.
"""

from __future__ import annotations

from dataclasses import replace

from mooring.agent.nri.types import Container, ContainerUpdate, LinuxResources, PodSandbox
from mooring.agent.reactor.answers import Accepted, Outcome
from mooring.agent.reactor.effects import Effect
from mooring.agent.reactor.knowing import seen, with_sandbox
from mooring.agent.reactor.updates import outcome, refreshed
from mooring.agent.reactor.values import AgentState, Phase
from mooring.agent.reactor.wanted import Wanted, lift_of_pod


def update_container(
    state: AgentState, sandbox: PodSandbox, container: Container, resources: LinuxResources
) -> Outcome:
    """Answer a request to update a container.

    Args:
        state: before.
        sandbox: of the pod.
        container: as it is before the update.
        resources: what the client asks for. A CFS quota in it is overruled where it is lifted.
    """
    before, state = state, with_sandbox(state, sandbox)
    known = state.containers.get(container.id)
    state = seen(state, sandbox, container, Phase.RUNNING if known is None else known.phase)
    known = state.containers[container.id]
    wanted = Wanted.by(state.kubelet).of(sandbox.uid, known.name)
    asked = replace(resources, cpus="", mems="") if resources.shares or resources.quota else known.asked
    told = replace(
        known.told,
        cpus=wanted.cpus or resources.cpus or known.told.cpus,
        mems=wanted.mems or resources.mems or known.told.mems,
        quota=wanted.quota if wanted.quota is not None else resources.quota or known.told.quota,
    )
    rest = refreshed(state.with_container(replace(known, asked=asked, told=told, written=None)), skip=container.id)
    mine = ContainerUpdate(
        container.id, LinuxResources(cpus=wanted.cpus, mems=wanted.mems, quota=wanted.quota), ignore_failure=False
    )
    answered = (mine,) if wanted.cpus or wanted.mems or wanted.quota is not None else ()
    effects: tuple[Effect, ...] = (*rest.writes, *lift_of_pod(rest.state, sandbox.uid))
    return outcome(before, rest.state, Accepted((*answered, *rest.updates)), effects)
