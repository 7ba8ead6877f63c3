"""Asking the engine about pods: placing, starting, ending.

A pod is decided about as a whole when its first container is created, as the kubelet does at admission. What it was not
given it is asked for again when it comes back and anything has changed.

Only the value ``true`` of the opt-out annotation opts out: a pod with another value gets CPUs of its own, and that is
reported.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from mooring.agent.effects import AgentReport, Effect, Evict, ReportKind, ResizeAnswered, warning_about
from mooring.agent.pods.resolve import with_granted
from mooring.agent.pods.source import is_static
from mooring.agent.reactor.desired import DesiredSettings
from mooring.agent.reactor.devices import can_be_placed_anew, decided_with, with_devices, with_words, without_question
from mooring.agent.state import LIVE, AgentState, DevicesFound, HeldPod
from mooring.engine.core.decision import Observer, Rejection
from mooring.engine.core.pod import Pod, with_entry
from mooring.engine.extensions.offline import effective_pool
from mooring.engine.kubelet.admit import decide
from mooring.engine.kubelet.kubelet import Kubelet
from mooring.engine.node import Node

EMPTY_POOL = Rejection("EmptySharedPool", "no CPU is left in the shared pool for containers without CPUs of their own")
ENDLESS_ADMISSION = "EndlessAdmission"
ADMISSION_CRASH = "AdmissionCrash"
STATE_UNWRITABLE = "StateUnwritable"


@dataclass(frozen=True, slots=True)
class Placed:
    """What asking for a place came to."""

    state: AgentState
    rejection: Rejection | None = None
    effects: tuple[Effect, ...] = ()


def place(
    state: AgentState,
    pod: Pod,
    container: str = "",
    observer: Observer | None = None,
    devices: DevicesFound | None = None,
) -> Placed:
    """See to it that a pod is decided about, with all of its containers.

    Args:
        state: where the pod may be known already.
        pod: as a pod source knows it, or derived from the containers seen so far.
        container: the one that is about to be; a pod that was derived grows by it.
        observer: receives the engine's facts, for metrics.
        devices: what is known of the pod's; None without the extension device-alignment, and of a pod without any.
    """
    known = state.kubelet.node.active.get(pod.uid)
    if known is not None:
        names = _names(known)
        if container not in _names(pod):
            pod = known
        elif resizes(state.kubelet):
            pod = with_granted(pod, known)
        if not {*names} <= {*_names(pod)}:
            # The order of what was decided stays.
            others = tuple(one for one in pod.containers if one.name not in names)
            pod = replace(pod, containers=known.containers + others)
        if can_be_placed_anew(state, pod.uid, devices):
            state = without_pod(state, pod.uid, observer)
        elif container in names or container not in _names(pod):
            return Placed(with_devices(state, pod.uid, devices))
    node = state.kubelet.node
    if opted_out(state, pod):
        return Placed(_admitted(state, replace(state.kubelet, node=node.adopt([pod])), pod.uid))
    held = state.held.get(pod.uid)
    if held is not None and (held.pod, held.devices) == (pod, devices) and is_as_judged(held, node):
        return Placed(state, held.rejection, _evicted_again(state, pod, held.rejection))
    kubelet, rejection = _asked(with_devices(state, pod.uid, devices), pod, observer)
    if rejection is None:
        text = f"{pod.namespace}/{pod.name}: placed after waiting"
        late = () if held is None else (AgentReport(ReportKind.PLACED_LATE, text, pod.uid),)
        placed, unknown = decided_with(_admitted(state, kubelet, pod.uid), pod, devices)
        return Placed(placed, None, (*late, *unknown))
    rejection = with_words(state, pod, rejection, devices)
    # The kubelet keeps leftovers of a refused pod until it is asked again; here they are gone at once.
    judged = HeldPod(pod, rejection, kubelet.node.cpu, kubelet.node.memory, devices)
    state = replace(state, held={**state.held, pod.uid: judged})
    news = held is None or held.pod != pod or held.rejection != rejection
    effects = (
        report_unplaced(state, pod, rejection, ReportKind.REJECTED) if news else _evicted_again(state, pod, rejection)
    )
    return Placed(state, rejection, effects)


def is_as_judged(held: HeldPod, node: Node) -> bool:
    """Tell whether a pod would be judged by the same state."""
    return held.cpu is node.cpu and held.memory is node.memory


def report_unplaced(state: AgentState, pod: Pod, rejection: Rejection, finding: ReportKind) -> tuple[Effect, ...]:
    """Return what lets the outside know of a pod that is not placed."""
    effects: list[Effect] = [
        AgentReport(finding, f"{pod.namespace}/{pod.name}: {text_of(rejection)}", pod.uid, "", rejection.reason),
        warning_about(pod, rejection.reason, rejection.message),
    ]
    if state.options.evict:
        effects.append(Evict(pod, text_of(rejection)))
    return tuple(effects)


def _evicted_again(state: AgentState, pod: Pod, rejection: Rejection) -> tuple[Effect, ...]:
    """Return the wish for an eviction at a try that brings nothing new: the earlier one may have been given up.

    Who writes to the API server leaves out what is under way or done. No eviction helps a static pod.
    """
    return (Evict(pod, text_of(rejection)),) if state.options.evict and not is_static(pod) else ()


def text_of(rejection: Rejection) -> str:
    """Return the text that the runtime's client reads."""
    return f"{rejection.reason}: {rejection.message}" if rejection.message else rejection.reason


def resizes(kubelet: Kubelet) -> bool:
    """Tell whether CPUs or memory of a container's own can be resized: extension and gate are on."""
    cpu, memory = kubelet.settings.cpu, kubelet.settings.memory
    return (cpu is not None and cpu.resizes) or (memory is not None and memory.resizes)


def opted_out(state: AgentState, pod: Pod) -> bool:
    """Tell whether the pod asks to share the pool, where the operator allows that."""
    name = state.options.opt_out_annotation
    return bool(name) and pod.annotations.get(name, "").strip().lower() == "true"


def started(kubelet: Kubelet, uid: str, container: str, observer: Observer | None = None) -> Kubelet:
    """Return the kubelet after a container of an active pod was created.

    The memory of the regular init containers before it goes (spec: memory-manager.md section 5.3); the engine is shown
    the pod as far as it has come.
    """
    pod = kubelet.node.active.get(uid)
    if pod is None or container not in _names(pod):
        return kubelet
    so_far = replace(pod, containers=pod.containers[: _names(pod).index(container) + 1])
    after = _with_active(kubelet, so_far).start_containers(uid, observer)
    if after.node.providers.memory is kubelet.node.memory and uid in kubelet.node.started:
        return kubelet
    return _with_active(after, pod)


def without_pod(state: AgentState, uid: str, observer: Observer | None = None) -> AgentState:
    """Return the state without a pod: what it held is free."""
    if uid in state.kubelet.node.active:
        # The topology manager forgets only pods whose containers started; this one may have been placed and no more.
        node = state.kubelet.node
        node = replace(node, started={**node.started, uid: node.active[uid]})
        kubelet, _ = replace(state.kubelet, node=node).remove(uid, observer)
        state = without_question(replace(state, kubelet=kubelet), uid)
    if uid in state.held:
        state = replace(state, held={known: one for known, one in state.held.items() if known != uid})
    return state


def place_waiting(state: AgentState, observer: Observer | None = None) -> Placed:
    """Retry containers that run although they could not be placed; the kubelet will not ask about them.

    These are all of a pod that was refused, or those that joined a placed pod while the agent was away. Before them
    come containers that lost offline CPUs: free CPUs may replace them. Only the agent asks again for the
    eviction of a pod that runs and has to wait on. Resizes that were missed and refused for lack of room are asked for
    again first.
    """
    effects: list[Effect] = []
    state = replace(state, kubelet=state.kubelet.replanned(observer))
    for uid in sorted(state.missed & state.kubelet.node.waiting.keys()):
        pod = state.kubelet.node.waiting[uid].pod
        kubelet, answer = state.kubelet.resize(pod, observer)
        if answer.rejection is None and not pool_is_missed(state, kubelet, pod):
            state = replace(state, kubelet=kubelet, missed=state.missed - {uid})
            text = f"{pod.namespace}/{pod.name}: resized, as its containers were while the agent was disconnected"
            effects.append(ResizeAnswered("accepted", text, uid))
    # As they came, or as plugins say
    plugins, waiting = state.kubelet.settings.plugins, [held.pod for held in state.held.values()]
    for pod in waiting if plugins is None else plugins.ordered(waiting, observer):
        uid, held = pod.uid, state.held[pod.uid]
        known = state.kubelet.node.active.get(uid)
        placed_names = () if known is None else _names(known)
        missed = [one.name for one in state.containers_of(uid) if one.name not in placed_names]
        if not missed:
            continue
        placed = place(state, held.pod, missed[0], observer, held.devices)
        state = placed.state
        if placed.rejection is not None:
            effects += [effect for effect in placed.effects if isinstance(effect, Evict)]
            continue
        effects += placed.effects
        for name in missed:
            state = replace(state, kubelet=started(state.kubelet, uid, name, observer))
    return Placed(state, None, tuple(effects))


def _asked(state: AgentState, pod: Pod, observer: Observer | None) -> tuple[Kubelet, Rejection | None]:
    """Ask the engine; the second part is None when the pod is admitted, else the first is what it was judged by."""
    before = state.kubelet
    result = decide(before, pod, observer=observer)
    after, decision = result.decided, result.decision
    if result.crash:
        return before, Rejection(ADMISSION_CRASH, result.crash)
    if decision.endless is not None:
        text = f"the admission would never end (defect {decision.endless.defect})"
        return before, Rejection(ENDLESS_ADMISSION, text)
    if decision.rejection is not None:
        return before, decision.rejection
    if pool_is_missed(state, after, pod):
        # Judged by the state that it would have made: it differs from the present one when the pod itself empties the
        # pool, so that the pod is asked about again at every try; its sharers may be gone then.
        return after, EMPTY_POOL
    return after, None


def pool_is_missed(state: AgentState, after: Kubelet, pod: Pod) -> bool:
    """Tell whether the shared pool is empty after a decision about a pod, although a container needs it."""
    if after.settings.cpu is None or effective_pool(after.node.cpu):
        return False
    if after.settings.cpu.resizes:
        # The engine does not start on a state without a pool, which has the pending releases and the baselines.
        return True
    wanted = DesiredSettings.now(replace(state, kubelet=after))
    if any(not wanted.is_exclusive(pod.uid, one.name) for one in pod.containers):
        return True
    return any(one.phase in LIVE and not wanted.is_exclusive(one.uid, one.name) for one in state.containers.values())


def _admitted(state: AgentState, kubelet: Kubelet, uid: str) -> AgentState:
    held = state.held
    if uid in held:
        held = {known: one for known, one in held.items() if known != uid}
    return replace(state, kubelet=kubelet, held=held)


def _with_active(kubelet: Kubelet, pod: Pod) -> Kubelet:
    node = kubelet.node
    return replace(kubelet, node=replace(node, active=with_entry(node.active, pod.uid, pod)))


def _names(pod: Pod) -> list[str]:
    return [one.name for one in pod.containers]


_READ = frozenset({"true", "false"})


def opt_out_unread(state: AgentState, pod: Pod) -> tuple[Effect, ...]:
    """Return what tells of an opt-out annotation with another value than ``true`` or ``false``, when a pod is new.

    Args:
        state: before the pod was decided about.
        pod: that is to be.
    """
    name = state.options.opt_out_annotation
    value = pod.annotations.get(name) if name else None
    if value is None or value.strip().lower() in _READ:
        return ()
    if pod.uid in state.kubelet.node.active or pod.uid in state.held:
        return ()
    text = f"annotation {name}: {value!r:.60} is neither true nor false and counts as false"
    return (
        AgentReport(ReportKind.OPT_OUT_UNREAD, f"{pod.namespace}/{pod.name}: {text}", pod.uid),
        warning_about(pod, "OptOutUnread", text),
    )
