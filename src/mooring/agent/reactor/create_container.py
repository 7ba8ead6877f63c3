"""CreateContainer and StartContainer: where a container is placed, the last check before its program runs, and claims.

StartContainer is where updates that the runtime has lost are repaired. A container whose creation the agent did not
see, because it was away or answered too late, is placed then.

Claims of dynamic resource allocation are prepared for pods, used by their containers, and released. When a claim is
prepared its CPUs leave the shared pool at once, so that no other container runs on them by the time at which its first
container is created.

A claim's driver gives every share of a claim a device of the Container Device Interface, and the kubelet hands each
container the devices of exactly the requests that it names. Such a device sets a variable, and by that the agent knows
what a container has of claims, whatever it can learn of the pod elsewhere. A pod's author can write such a variable
too: it counts only in pods for which the claim is reserved, and those are decided by the scheduler.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace

from mooring.agent.effects import AgentReport, Effect, Occasion, ReportKind, reported
from mooring.agent.nri.types import ContainerAdjustment, PodSandbox, RuntimeContainer
from mooring.agent.reactor import desired, placing, response
from mooring.agent.reactor.containers import first_known, recorded, with_sandbox
from mooring.agent.reactor.desired import DesiredSettings, adjustment_of, difference, resources_of, write_of
from mooring.agent.reactor.devices import UNKNOWN_CODE, why_wait
from mooring.agent.reactor.response import EventOutcome, Refused, enforced, outcome, report_refusal
from mooring.agent.reactor.update_container import resize_missed, restarted
from mooring.agent.state import AgentState, DevicesFound, Phase, claims_by_variable
from mooring.engine.core.decision import Observer, Rejection
from mooring.engine.core.moment import Moment
from mooring.engine.core.pod import Pod
from mooring.engine.extensions.owners import claims_of
from mooring.engine.node.claims import Claim
from mooring.explanations.phrases import nodes_of

CLAIM_NOT_PREPARED = "ClaimNotPrepared"
CLAIM_NOT_RESERVED = "ClaimNotReserved"


def prepare_claim(
    state: AgentState, asked: Claim, pods: Collection[str], observer: Observer | None = None
) -> EventOutcome:
    """Give a claim its CPUs; one that has them keeps them.

    Args:
        state: before.
        asked: what is allocated to it on this node.
        pods: uids of those for which it is reserved now.
        observer: receives the engine's facts, for metrics.

    Returns:
        An outcome that is :class:`Refused` when the claim gets nothing.
    """
    kubelet, refused = state.kubelet.claim(asked, observer)
    if refused is not None:
        answer = Refused.of(refused)
        text = f"claim {asked.namespace}/{asked.name}: {answer.text}"
        return outcome(state, state, answer, (AgentReport(ReportKind.CLAIM_REFUSED, text, "", "", refused.reason),))
    users = {**state.claim_users, asked.uid: frozenset(pods)}
    after, changed = enforced(state, replace(state, kubelet=kubelet, claim_users=users))
    return outcome(state, after, None, changed)


def unprepare_claim(state: AgentState, uid: str, observer: Observer | None = None) -> EventOutcome:
    """Take a claim's CPUs back; of one that has none nothing changes."""
    kubelet = state.kubelet.release(uid, observer)
    if kubelet.node is state.kubelet.node and uid not in state.claim_users:
        return outcome(state, state)
    users = {known: pods for known, pods in state.claim_users.items() if known != uid}
    placed = placing.place_waiting(replace(state, kubelet=kubelet, claim_users=users), observer)
    after, changed = enforced(state, placed.state)
    return outcome(state, after, None, (*changed, *placed.effects))


def nodes_of_claim(state: AgentState, namespace: str, name: str, device: str) -> tuple[int, ...] | None:
    """Return the NUMA nodes of the CPUs that a claim has of a device; None when it has none.

    Args:
        state: with the claims.
        namespace: of the claim.
        name: of the claim.
        device: the driver's name for what the CPUs are of.
    """
    topology, cpus = state.kubelet.settings.topology, 0
    for claim in claims_of(state.kubelet.node.cpu).values():
        if (claim.namespace, claim.name) == (namespace, name):
            for (of, _), mask in claim.shares.items():
                cpus |= mask if of == device else 0
    return tuple(nodes_of(topology, cpus)) if cpus and topology is not None else None


def why_not_claimed(state: AgentState, sandbox: PodSandbox, container: RuntimeContainer) -> Rejection | None:
    """Return why a container that is being created cannot have what it names of claims; None when it can."""
    known = claims_by_variable(state) if container.claims else {}
    for variable in container.claims:
        claim, _ = known.get(variable, (None, 0))
        if claim is None:
            text = f"no claim with the variable {variable} is prepared on this node"
            return Rejection(CLAIM_NOT_PREPARED, text)
        if sandbox.uid not in state.claim_users.get(claim.uid, ()):
            text = f"claim {claim.namespace}/{claim.name} is not reserved for pod {sandbox.namespace}/{sandbox.name}"
            return Rejection(CLAIM_NOT_RESERVED, text)
    return None


def create_container(
    state: AgentState,
    sandbox: PodSandbox,
    container: RuntimeContainer,
    pod: Pod,
    observer: Observer | None = None,
    now: Moment | None = None,
    devices: DevicesFound | None = None,
) -> EventOutcome:
    """Answer with the container's CPUs and memory nodes, and with updates of others.

    Args:
        state: before.
        sandbox: of the pod.
        container: that is to be made.
        pod: the container's pod: the API object, the static manifest, or derived from the containers seen so far.
        observer: receives the engine's facts, for metrics.
        now: the present moment, from which a scale-down delay counts.
        devices: what is known of the pod's; None without the extension device-alignment, and of a pod without any.
    """
    before, state = state, with_sandbox(state, sandbox)
    unclaimed = why_not_claimed(state, sandbox, container)
    if unclaimed is not None:
        answer, why = Refused.of(unclaimed), unclaimed.reason
        report = AgentReport(ReportKind.CLAIM_REFUSED, answer.text, sandbox.uid, container.id, why)
        return outcome(before, state, answer, (report,))
    waits = why_wait(state, pod, devices)
    if waits is not None:
        reports = reported(pod, ReportKind.DEVICES_UNKNOWN, waits.reason, waits.message, UNKNOWN_CODE, container.id)
        return outcome(before, state, Refused.of(waits), reports)
    placed = placing.place(state, pod, container.name, observer, devices)
    unread = placing.opt_out_unread(state, pod)
    if placed.rejection is not None:
        return outcome(before, placed.state, Refused.of(placed.rejection), (*unread, *placed.effects))
    again = restarted(placed.state, container, pod, now or state.kubelet.node.moment, observer)
    state = again.state
    before_it = state.containers.get(container.id)
    # A message that comes twice does not take a container that runs out of sight.
    known = replace(
        first_known(sandbox, container, Phase.CREATING if before_it is None else before_it.phase),
        pid=0 if before_it is None else before_it.pid,
    )
    wanted = DesiredSettings.now(state.with_container(known)).of(sandbox.uid, container.name)
    if not wanted.cpus and state.kubelet.settings.cpu is not None:
        # A container that the pod's specification does not have, or one of a pod that came before the pool ran out.
        said = report_refusal(state, known, placing.EMPTY_POOL, ReportKind.REJECTED)
        return outcome(before, said.state, said.answer, (*unread, *placed.effects, *said.effects))
    state = replace(state, kubelet=placing.started(state.kubelet, sandbox.uid, container.name, observer))
    known = replace(known, record=wanted.over(known.record))
    after, updates, writes = response.refreshed(state.with_container(known), skip=container.id)
    environment, mounts = adjustment_of(state.with_container(known), known)
    adjustment = ContainerAdjustment(resources_of(wanted), environment, mounts)
    effects = (*writes, *desired.lift_of_pod(after, sandbox.uid), *unread, *placed.effects, *again.effects)
    return outcome(before, after, response.Adjusted(adjustment, updates), effects)


def start_container(
    state: AgentState,
    sandbox: PodSandbox,
    container: RuntimeContainer,
    pod: Pod | None,
    observer: Observer | None = None,
    devices: DevicesFound | None = None,
    now: Moment | None = None,
) -> EventOutcome:
    """See to it that the container's cgroup is what it should be now, whatever became of updates since its creation.

    Where that fails it is not started: :func:`mooring.agent.reactor.lifecycle.writes_done` says when.

    Args:
        state: before.
        sandbox: of the pod.
        container: with the pid of its task and what the runtime has on record.
        pod: the container's pod, needed where the agent was away when the container was created.
        observer: receives the engine's facts, for metrics.
        devices: what is known of the pod's, where it was decided about without them: it may be placed anew.
        now: the present moment, from which a scale-down delay counts.
    """
    before, state = state, with_sandbox(state, sandbox)
    effects: tuple[Effect, ...] = ()
    if pod is None and devices is not None:
        pod = state.kubelet.node.active.get(sandbox.uid)
    if pod is not None:
        placed = place_existing(state, sandbox, container, pod, observer, devices, now)
        unread = placing.opt_out_unread(state, pod)
        if placed.rejection is not None:
            # It stays off the CPUs of others on a runtime that starts it nevertheless.
            refused = recorded(placed.state, sandbox, container, Phase.REFUSED)
            known = refused.containers[container.id]
            wanted = DesiredSettings.now(refused).of(known.uid, known.name)
            refused = refused.with_container(response.with_write(known, wanted))
            effects = (write_of(known, wanted), *unread, *placed.effects)
            return outcome(before, refused, Refused.of(placed.rejection), effects)
        state, effects = placed.state, (*unread, *placed.effects)
    state = recorded(state, sandbox, container, Phase.STARTING)
    known = state.containers[container.id]
    wanted = DesiredSettings.now(state).of(sandbox.uid, known.name)
    if not wanted.cpus and state.kubelet.settings.cpu is not None:
        said = report_refusal(state, known, placing.EMPTY_POOL, ReportKind.START_REFUSED)
        refused = said.state.with_container(replace(known, phase=Phase.REFUSED))
        return outcome(before, refused, said.answer, (*effects, *said.effects))
    state, changed = enforced(before, state.with_container(response.with_write(known, wanted)))
    had = before.containers.get(container.id)
    # Else the runtime could not know it yet: the agent did not see the creation, or has decided since its last reply
    is_lost = had is not None and difference(had.missed or had.record, wanted) is None
    mine: tuple[Effect, ...] = (
        write_of(known, wanted, Occasion.CHECK if is_lost else Occasion.DECISION),
        *desired.lift_of_container(known, wanted),
        *desired.lift_of_pod(state, sandbox.uid),
    )
    return replace(outcome(before, state, None, (*changed, *mine, *effects)), starts=container.id)


def place_existing(
    state: AgentState,
    sandbox: PodSandbox,
    container: RuntimeContainer,
    pod: Pod,
    observer: Observer | None = None,
    devices: DevicesFound | None = None,
    now: Moment | None = None,
) -> placing.Placed:
    """Place the pod of a container that is there already, and report it; it may have been made with other sizes."""
    placed = placing.place(state, pod, container.name, observer, devices)
    if placed.rejection is not None:
        return placed
    after = replace(placed.state, kubelet=placing.started(placed.state.kubelet, sandbox.uid, container.name, observer))
    if container.id in state.containers:
        return placing.Placed(after, None, placed.effects)
    text = f"{sandbox.namespace}/{sandbox.name}: {container.name} was created while the agent was disconnected"
    report = AgentReport(ReportKind.FOUND_RUNNING, text, sandbox.uid, container.id)
    missed = resize_missed(after, sandbox.uid, container, now or after.kubelet.node.moment, observer)
    return placing.Placed(missed.state, None, (*placed.effects, report, *missed.effects))
