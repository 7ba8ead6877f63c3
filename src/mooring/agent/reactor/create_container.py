"""CreateContainer: the first container of a pod decides about the pod; every one reads its place."""

from __future__ import annotations

from dataclasses import replace

from mooring.agent.nri.types import Container, ContainerAdjustment, LinuxResources, PodSandbox
from mooring.agent.reactor.answers import Adjusted, Outcome, Refused
from mooring.agent.reactor.assigned import adjustment_of
from mooring.agent.reactor.claimed import why_not_claimed
from mooring.agent.reactor.effects import Finding, Report
from mooring.agent.reactor.knowing import with_sandbox
from mooring.agent.reactor.opting_out import opt_out_unread
from mooring.agent.reactor.placing import EMPTY_POOL_MESSAGE, EMPTY_SHARED_POOL, place, started, text_of
from mooring.agent.reactor.refusing import refusal_told
from mooring.agent.reactor.resizing import restarted
from mooring.agent.reactor.updates import outcome, refreshed
from mooring.agent.reactor.values import AgentState, KnownContainer, Phase, Setting
from mooring.agent.reactor.wanted import Wanted, lift_of_pod, on_record
from mooring.core.decision import Rejection
from mooring.core.moment import Moment
from mooring.core.observer import Observer
from mooring.core.pod import Pod


def create_container(
    state: AgentState,
    sandbox: PodSandbox,
    container: Container,
    pod: Pod,
    observer: Observer | None = None,
    now: Moment | None = None,
) -> Outcome:
    """Answer with the container's CPUs and memory nodes, and with updates of others.

    Args:
        state: before.
        sandbox: of the pod.
        container: that is to be made.
        pod: the container's pod: the API object, the static manifest, or derived from the containers seen so far.
        observer: hears of the engine's facts, for metrics.
        now: the present moment, from which a scale-down delay counts.
    """
    before, state = state, with_sandbox(state, sandbox)
    unclaimed = why_not_claimed(state, sandbox, container)
    if unclaimed is not None:
        report = Report(Finding.CLAIM_REFUSED, text_of(unclaimed), sandbox.uid, container.id, unclaimed.reason)
        return outcome(before, state, Refused(text_of(unclaimed)), (report,))
    placed = place(state, pod, container.name, observer)
    unread = opt_out_unread(state, pod)
    if placed.rejection is not None:
        return outcome(before, placed.state, Refused(text_of(placed.rejection)), (*unread, *placed.effects))
    again = restarted(placed.state, container, pod, now or state.kubelet.node.moment, observer)
    state = again.state
    before_it = state.containers.get(container.id)
    known = KnownContainer(
        id=container.id,
        sandbox_id=sandbox.id,
        uid=sandbox.uid,
        name=container.name,
        # A message that comes twice does not take a container that runs out of sight.
        phase=Phase.CREATING if before_it is None else before_it.phase,
        told=on_record(container.resources),
        asked=container.resources,
        pid=0 if before_it is None else before_it.pid,
        cgroup=container.cgroups_path,
        claims=container.claims,
    )
    wanted = Wanted.now(state.with_container(known)).of(sandbox.uid, container.name)
    if not wanted.cpus and state.kubelet.settings.cpu is not None:
        # A container that the pod's specification does not have, or one of a pod that came before the pool ran out.
        rejection = Rejection(EMPTY_SHARED_POOL, EMPTY_POOL_MESSAGE)
        said = refusal_told(state, sandbox.uid, container.name, rejection, Finding.REJECTED, container.id)
        return outcome(before, said.state, Refused(text_of(rejection)), (*unread, *placed.effects, *said.effects))
    state = replace(state, kubelet=started(state.kubelet, sandbox.uid, container.name, observer))
    known = replace(known, told=_told(wanted, known.told))
    told = refreshed(state.with_container(known), skip=container.id)
    environment, mounts = adjustment_of(state.with_container(known), known)
    adjustment = ContainerAdjustment(
        LinuxResources(cpus=wanted.cpus, mems=wanted.mems, quota=wanted.quota), environment, mounts
    )
    effects = (*told.writes, *lift_of_pod(told.state, sandbox.uid), *unread, *placed.effects, *again.effects)
    return outcome(before, told.state, Adjusted(adjustment, told.updates), effects)


def _told(wanted: Setting, asked: Setting) -> Setting:
    return Setting(
        wanted.cpus or asked.cpus, wanted.mems or asked.mems, asked.quota if wanted.quota is None else wanted.quota
    )
