"""CPUs for a whole pod with pod-level resources, and its partition among the containers.

Source: kubelet v1.37.1, cpumanager policy_static.go (AllocatePod), KEP-5526; spec: pod-level.md section 4.

How the CPUs of a pod-level pod are divided among its containers, and whether those that share would have any.

Source: kubelet v1.37.1, cpumanager policy_static.go (validatePodScopeResources, AllocatePod), KEP-5526; spec:
pod-level.md sections 3 and 4.

Keeping the CPUs of a pod-level pod across a restart of the kubelet.

Defect pod-restart (spec: pod-level.md section 6; kubernetes/kubernetes#140989): v1.37.1 has no way to restore the
allocation of a whole pod. It calls a pod with shared containers impossible, or takes a second set of CPUs and leaves
the first one unused. Fixed: a stored set of the pod is kept, containers that miss theirs get them when those that have
some form the beginning of the pod, and otherwise everything is released and computed again. A pod allocation that fails
half way then leaves nothing behind either; in v1.37.1 it leaves a pod set without container entries, which is never
released.

v1.38.0-beta.0 restores by rules of its own, which keep more (up to 1.37: rules pod-allocation-not-restored and
pod-allocation-not-rolled-back; spec: preview.md section 8): it compares neither the size of the pod's set with the
request nor the sizes of the containers' sets with theirs, and an error while it completes a pod takes everything away.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from enum import Enum

from mooring.engine.core.bits import NO_CPUS, CPUMask, NUMAMask
from mooring.engine.core.decision import AllocationError, Endless, Observer
from mooring.engine.core.gotext import int64
from mooring.engine.core.pod import Container, ContainerKind, Pod, PodLevelGates
from mooring.engine.cpumanager import facts
from mooring.engine.cpumanager.policy import CPUsChosen, StaticPolicy, exclusive_cpus, exclusive_cpus_of_pod
from mooring.engine.cpumanager.state import CPUState
from mooring.engine.cpumanager.static import choose, wanted_cpus, with_baselines
from mooring.engine.cpumanager.take import take
from mooring.lazy import replace


def allocate_pod(
    policy: StaticPolicy,
    state: CPUState,
    pod: Pod,
    affinity: NUMAMask | None,
    observer: Observer | None = None,
) -> tuple[CPUState, AllocationError | Endless | None]:
    """Cut a partition for the pod from the node, and the containers' sets from the partition.

    Nothing is reused from init containers; they share CPUs with each other and with the apps.

    Args:
        policy: the policy.
        state: before.
        pod: a pod that takes the path of KEP-5526.
        affinity: mask of the NUMA nodes stored for its first container; None for no opinion.
        observer: receives what was found.

    Returns:
        The state that stays behind, and what kept the pod from its CPUs: an error in the middle leaves the partition
        taken (v1.37.1 does not roll back; with defect pod-restart fixed nothing is left behind).
    """
    # 1. Without a whole number of CPUs for the pod there is nothing to do; from here on every error counts.
    need = exclusive_cpus_of_pod(pod, policy.gates)
    if need == 0:
        return state, None
    if POD_RESTART in policy.rules.fixed_defects:
        left, answer = _restored(policy, state, pod, need, affinity, observer)
    elif stored_pod(policy, state, pod) is StoredPod.KEPT:
        left, answer = _completed(policy, state, pod, affinity, observer)
    else:
        # A stored set that cannot be kept
        kind = stored_pod(policy, state, pod)
        if kind is StoredPod.NO_PREFIX:
            state = _released(state, pod.uid, observer)
        elif kind is StoredPod.OVERLAP:
            state = replace(state, pods={uid: mine for uid, mine in state.pods.items() if uid != pod.uid})
        left, answer = _partitioned(policy, state, pod, need, affinity, observer)
    if isinstance(answer, AllocationError) and observer is not None:
        observer(facts.CPUPinningFailed(pod.uid, "", answer.message))
    return left, answer


def _restored(
    policy: StaticPolicy, state: CPUState, pod: Pod, need: int, affinity: NUMAMask | None, observer: Observer | None
) -> tuple[CPUState, AllocationError | Endless | None]:
    """Keep what the pod has, complete it, or give it back and start again; an error leaves the state as it was."""
    sets = restored_sets(policy, state, pod, need)
    if sets is not None:
        if observer is not None:
            observer(facts.ExistingCPUsKept(pod.uid, "", state.pods[pod.uid]))
        complete = sets == state.assignments.get(pod.uid)
        return state if complete else _with_sets(state, pod.uid, sets), None
    without = without_pod(state, pod.uid)
    told: list[object] = []
    left, answer = _partitioned(policy, without, pod, need, affinity, told.append if observer is not None else None)
    if answer is not None:
        # What was cut before an error is not kept.
        told = [fact for fact in told if not isinstance(fact, facts.CPUsAssigned | facts.PodShareCut)]
    elif observer is not None and without is not state:
        told = [facts.CPUsReleased(pod.uid, "", without.default & ~state.default, without.held, without), *told]
    if observer is not None:
        for fact in told:
            observer(fact)
    return (left if answer is None else state), answer


class StoredPod(Enum):
    """What v1.38.0-beta.0 makes of the CPUs that the state has for a whole pod when it admits the pod."""

    NONE = "none"
    """There are none, or the release does not look at them."""
    KEPT = "kept"
    OVERLAP = "overlap"
    """They overlap the shared pool: the pod's set is dropped, those of its containers stay until they are replaced."""
    NO_PREFIX = "no prefix"
    """The containers with sets are not the first ones of the pod: all is released."""


def stored_pod(policy: StaticPolicy, state: CPUState, pod: Pod) -> StoredPod:
    """Classify the set that is stored for a pod (spec: preview.md section 8)."""
    stored, rules = state.pods.get(pod.uid, NO_CPUS), policy.rules
    looks = policy.gates.manages(pod) and POD_RESTART not in rules.fixed_defects
    if rules.older.pod_allocation_not_restored or not looks or not stored:
        return StoredPod.NONE
    if stored & state.default:
        return StoredPod.OVERLAP
    held = state.assignments.get(pod.uid, {})
    first = {container.name for container in pod.containers[: len(held)]}
    return StoredPod.KEPT if held.keys() == first else StoredPod.NO_PREFIX


def stale_cpus(policy: StaticPolicy, state: CPUState, pod: Pod) -> CPUMask:
    """Return the CPUs of a stored set of a pod that is not kept: hints and their scores count them as free."""
    is_stale = stored_pod(policy, state, pod) in (StoredPod.OVERLAP, StoredPod.NO_PREFIX)
    return CPUMask(state.pods[pod.uid]) if is_stale else NO_CPUS


def _released(state: CPUState, uid: str, observer: Observer | None) -> CPUState:
    """Give back the set of a pod, and forget those of its containers, wherever their CPUs are."""
    released = state.pods[uid]
    left = replace(without_pod(state, uid), default=state.default | released)
    if observer is not None:
        observer(facts.CPUsReleased(uid, "", released, left.held, left))
    return left


def _completed(
    policy: StaticPolicy, state: CPUState, pod: Pod, affinity: NUMAMask | None, observer: Observer | None
) -> tuple[CPUState, AllocationError | Endless | None]:
    """Keep the pod's set, and cut out of it what containers miss."""
    bubble, held = CPUMask(state.pods[pod.uid]), state.assignments.get(pod.uid, {})
    if observer is not None:
        observer(facts.ExistingCPUsKept(pod.uid, "", bubble))
    sets = divided(policy, pod, bubble, observer, stored=held, affinity=affinity)
    if isinstance(sets, Endless):
        return state, sets
    if isinstance(sets, AllocationError):
        return _released(state, pod.uid, observer), sets
    missing = {name: cpus for name, cpus in sets.items() if name not in held}
    if not missing:
        return state, None
    if observer is not None:
        observer(facts.PodPartitioned(pod.uid, bubble, missing))
    return _with_sets(state, pod.uid, sets), None


def _partitioned(
    policy: StaticPolicy, state: CPUState, pod: Pod, need: int, affinity: NUMAMask | None, observer: Observer | None
) -> tuple[CPUState, AllocationError | Endless | None]:
    """Return the state that stays behind, and what kept the pod from its partition of ``need`` CPUs."""
    # 2. Somebody to use them.
    empty = shared_pool_error(pod, need, policy.gates)
    if empty:
        return state, AllocationError(empty, EMPTY_SHARED_POOL)
    # 3-5. Whole cores, the partition.
    choice = choose if policy.chooser is None else policy.chooser.choose
    chosen = choice(policy, state, wanted_cpus(policy, state, NO_CPUS, pod, "", need, affinity), observer)
    if not isinstance(chosen, CPUsChosen):
        return state, chosen
    bubble = chosen.cpus
    # 6-7. Reported and stored before it is divided.
    state = replace(state, default=state.default & ~bubble, pods={**state.pods, pod.uid: bubble})
    if observer is not None:
        observer(facts.CPUsAssigned(pod.uid, "", bubble, state.held, state))
    # 8-10. The containers' sets.
    sets = divided(policy, pod, bubble, observer, affinity=affinity)
    if isinstance(sets, AllocationError):
        if not policy.rules.older.pod_allocation_not_rolled_back:
            state = _released(state, pod.uid, observer)
        return state, sets
    if isinstance(sets, Endless):
        return state, sets
    # 11. Stored.
    stored = _with_sets(state, pod.uid, sets)
    if observer is not None:
        observer(facts.PodPartitioned(pod.uid, bubble, sets))
    return stored, None


def _with_sets(state: CPUState, uid: str, sets: Mapping[str, CPUMask]) -> CPUState:
    held = {**state.assignments.get(uid, {}), **sets}
    return replace(state, assignments={**state.assignments, uid: held}, baselines=with_baselines(state, uid, sets))


EMPTY_SHARED_POOL = "EmptyPodSharedPoolError"


def shared_pool_error(pod: Pod, budget: int, gates: PodLevelGates) -> str:
    """Return the kubelet's text when nothing is left for the sharing containers, or an empty text.

    Regular init containers never count towards what is taken for good.
    """
    taken = 0
    someone_shares = False
    for container in pod.containers:
        own = exclusive_cpus(pod, container, gates)
        if container.kind is ContainerKind.INIT:
            if own == 0 and taken >= budget:
                return "pod rejected, pod has shared init containers but no cpus available for them"
        elif own == 0:
            someone_shares = True
        else:
            taken = int64(taken + own)
    if someone_shares and taken >= budget:
        return (
            "pod rejected, sum of exclusive container cpu requests equals pod budget, "
            "leaving no cpus for shared containers"
        )
    return ""


def divided(
    policy: StaticPolicy,
    pod: Pod,
    bubble: CPUMask,
    observer: Observer | None = None,
    kept: Mapping[str, CPUMask] | None = None,
    stored: Mapping[str, CPUMask] | None = None,
    *,
    affinity: NUMAMask | None = None,
) -> dict[str, CPUMask] | AllocationError | Endless:
    """Return the CPUs of each container, in the order of the specification.

    Args:
        policy: the policy.
        pod: a pod that takes the path of KEP-5526.
        bubble: the CPUs of the pod.
        observer: receives what was found.
        kept: exclusive CPUs of containers that keep them, as far as they are of the right number and still free.
        stored: CPUs that exclusive containers and regular init containers keep, whatever their number (v1.38.0-beta.0).
        affinity: mask of the NUMA nodes stored for the pod's first container; None for no opinion.
    """
    stored = stored or {}
    sets: dict[str, CPUMask] = {}
    of_sidecars = of_apps = 0
    for container in pod.containers:
        count = exclusive_cpus(pod, container, policy.gates)
        pool = bubble & ~of_sidecars & ~of_apps
        if count:
            own = stored.get(container.name, (kept or {}).get(container.name, NO_CPUS))
            is_kept = container.name in stored or (own.bit_count() == count and not own & ~pool)
            taken = _own_cpus(policy, pod, container.name, count, own if is_kept else None, pool, affinity, observer)
            if not isinstance(taken, int):
                return taken
            sets[container.name] = taken
            if container.kind is ContainerKind.SIDECAR:
                of_sidecars |= taken
            elif container.kind is ContainerKind.APP:
                of_apps |= taken
        elif container.kind is ContainerKind.INIT:
            sets[container.name] = stored.get(container.name, pool)
        else:
            continue
        if container.name not in stored:
            _report_share(observer, pod, container, sets[container.name], exclusive=count > 0)
    rest = bubble & ~of_sidecars & ~of_apps
    for container in pod.containers:
        if container.name not in sets and container.name not in stored:
            _report_share(observer, pod, container, rest, exclusive=False)
    return {container.name: sets.get(container.name, rest) for container in pod.containers}


def _own_cpus(
    policy: StaticPolicy,
    pod: Pod,
    container: str,
    count: int,
    own: CPUMask | None,
    pool: CPUMask,
    affinity: NUMAMask | None,
    observer: Observer | None,
) -> CPUMask | AllocationError | Endless:
    """Return the CPUs of a container that has a claim to some: those that it keeps, or ``count`` out of the pool."""
    if observer is not None:
        observer(facts.CPUPinningRequested(pod.uid, container))
    if own is not None:
        return own
    if observer is not None:
        observer(facts.TakeBegun(pod.uid, container, count, pool, "partition"))
    width = 0 if affinity is None else affinity.bit_count()
    return take(policy.topology, pool, count, policy.rules, observer, width=width)


def _report_share(observer: Observer | None, pod: Pod, container: Container, cpus: CPUMask, *, exclusive: bool) -> None:
    if observer is not None:
        observer(facts.PodShareCut(pod.uid, container.name, cpus, exclusive))


POD_RESTART = "pod-restart"


def restored_sets(policy: StaticPolicy, state: CPUState, pod: Pod, need: int) -> dict[str, CPUMask] | None:
    """Return the CPUs of all containers when what is stored can stay, else None.

    Args:
        policy: the policy.
        state: with or without a set of the pod.
        pod: a pod that takes the path of KEP-5526.
        need: exclusive CPUs of the whole pod; not 0.
    """
    bubble = state.pods.get(pod.uid, 0)
    if bubble.bit_count() != need:
        return None
    held = state.assignments.get(pod.uid, {})
    has_set = [container.name in held for container in pod.containers]
    if has_set != sorted(has_set, reverse=True):
        return None
    sets = divided(policy, pod, CPUMask(bubble), kept=held)
    if not isinstance(sets, dict) or any(sets[name] != cpus for name, cpus in held.items() if name in sets):
        return None
    return sets


def without_pod(state: CPUState, uid: str) -> CPUState:
    """Return the state as if the pod had never been served."""
    held = state.assignments.get(uid, {})
    if not held and uid not in state.pods:
        return state
    cpus = state.pods.get(uid, 0)
    for mine in held.values():
        cpus |= mine
    return replace(
        state,
        default=state.default | cpus,
        assignments={pod: mine for pod, mine in state.assignments.items() if pod != uid},
        pods={pod: mine for pod, mine in state.pods.items() if pod != uid},
        baselines={pod: mine for pod, mine in state.baselines.items() if pod != uid},
        displaced={pod: pairs for pod, pairs in state.displaced.items() if pod != uid},
    )


def without_orphans(
    policy: StaticPolicy, state: CPUState, active: Collection[str], observer: Observer | None = None
) -> CPUState:
    """Return the state with the CPUs released of pods that are not active and have no container entries.

    v1.37.1 looks at container entries only and never gives them back (defect pod-restart).
    """
    if not policy.gates.managers or POD_RESTART not in policy.rules.fixed_defects:
        return state
    for uid in sorted(state.pods):
        if uid not in active and uid not in state.assignments:
            released = state.pods[uid]
            state = without_pod(state, uid)
            if observer is not None:
                observer(facts.CPUsReleased(uid, "", released, state.held, state))
    return state
