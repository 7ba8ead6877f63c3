"""Keeping the CPUs of a pod-level pod across a restart of the kubelet.

Defect pod-restart (spec: pod-level.md section 6; kubernetes/kubernetes#140989): v1.37.1 has no way to restore the
allocation of a whole pod. It calls a pod with shared containers impossible, or takes a second set of CPUs and leaves
the first one unused. Fixed, as later kubelets have it: a stored set of the pod is kept, containers that miss theirs
get them when those that have some form the beginning of the pod, and otherwise everything is released and computed
again. A pod allocation that fails half way then leaves nothing behind either; in v1.37.1 it leaves a pod set without
container entries, which is never released.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace

from mooring.engine.core.bits import CPUMask
from mooring.engine.core.observer import Observer
from mooring.engine.core.pod import Pod
from mooring.engine.cpumanager.facts import CPUsReleased
from mooring.engine.cpumanager.pod_partition import divided
from mooring.engine.cpumanager.policy import StaticPolicy
from mooring.engine.cpumanager.state import CPUState

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
                observer(CPUsReleased(uid, "", released, state.held))
    return state
