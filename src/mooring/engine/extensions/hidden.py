"""Hidden threads: CPUs that nothing runs on because they share a core with a container's CPUs.

In the state they are an owner of their own beside the pod (:mod:`mooring.engine.extensions.owners`), and are released
with the container's CPUs. A kubelet that knows nothing of them releases them as those of an unknown pod.

>>> state = with_hidden(CPUState("static", 0b1100, {"uid": {"app": 0b01}}), "uid", "app", 0b100)
>>> state.default, hidden_of(state, "uid", "app")
(8, 4)
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from mooring.engine.core.bits import NO_CPUS, CPUMask
from mooring.engine.cpumanager.state import CPUState
from mooring.engine.extensions.owners import hidden_key


def hidden_of(state: CPUState, pod: str, container: str) -> CPUMask:
    """Return the mask of the threads that are hidden for a container."""
    return state.assignments.get(hidden_key(pod), {}).get(container, NO_CPUS)


def hidden_of_pod(state: CPUState, pod: str) -> Mapping[str, CPUMask]:
    """Return the mask of the threads that are hidden for each container of a pod that has any."""
    return state.assignments.get(hidden_key(pod), {})


def hidden_for(state: CPUState, pod: str, cpus: CPUMask) -> CPUMask:
    """Return the mask of the threads that are hidden for those containers of a pod that have some of ``cpus``.

    Without those that others of the pod have by now, or hide themselves: they came after and run.
    """
    held = state.assignments.get(pod, {})
    mask = kept = NO_CPUS
    for own in held.values():
        kept |= own & ~cpus
    for container, hidden in state.assignments.get(hidden_key(pod), {}).items():
        if held.get(container, NO_CPUS) & cpus:
            mask |= hidden
        else:
            kept |= hidden
    return mask & ~kept


def with_hidden(state: CPUState, pod: str, container: str, hidden: CPUMask) -> CPUState:
    """Return the state with threads hidden for a container; without any, the state itself."""
    if not hidden:
        return state
    owner = hidden_key(pod)
    entries = {**state.assignments.get(owner, {}), container: hidden}
    return replace(state, default=state.default & ~hidden, assignments={**state.assignments, owner: entries})


def without_hidden(state: CPUState, pod: str, container: str) -> CPUState:
    """Return the state after a container has gone.

    Its hidden threads are the pool's again, but for those that others of the pod have or hide.
    """
    owner = hidden_key(pod)
    entries = state.assignments.get(owner, {})
    if container not in entries:
        return state
    rest = {name: cpus for name, cpus in entries.items() if name != container}
    still = NO_CPUS
    for cpus in (*rest.values(), *state.assignments.get(pod, {}).values()):
        still |= cpus
    assignments = {known: held for known, held in state.assignments.items() if known != owner}
    if rest:
        assignments[owner] = rest
    return replace(state, default=state.default | entries[container] & ~still, assignments=assignments)
