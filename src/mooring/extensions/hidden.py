"""Hidden threads: CPUs that nobody gets because they share a core with somebody's CPUs.

They stand in the state as an owner of their own beside the pod's, so that one ledger says of every CPU whose it is, and
the state file in the kubelet's format keeps them, as it does claims (:mod:`mooring.extensions.claimed`). They come and
go with the container's CPUs. A kubelet that knows nothing of them gives them back as those of an unknown pod.

>>> state = with_hidden(CPUState("static", 0b1100, {"uid": {"app": 0b01}}), "uid", "app", 0b100)
>>> state.default, hidden_of(state, "uid", "app")
(8, 4)
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from mooring.core.bits import NO_CPUS, CPUMask
from mooring.cpumanager.state import CPUState

_PREFIX = "hidden:"


def is_hidden(owner: str) -> bool:
    """Tell whether an owner of the state stands for hidden threads and is no pod."""
    return owner.startswith(_PREFIX)


def pod_of(owner: str) -> str:
    """Return the uid of the pod whose hidden threads an owner stands for; of a pod its own.

    >>> pod_of("hidden:1-2"), pod_of("1-2")
    ('1-2', '1-2')
    """
    return owner.removeprefix(_PREFIX)


def hidden_name(owner: str, container: str, pod: str = "") -> str:
    """Return how to call hidden threads: after the pod's name where it is known, else its uid.

    >>> hidden_name("hidden:1-2", "app", "default/web")
    'default/web/app (hidden siblings)'
    """
    return f"{pod or pod_of(owner)}/{container} (hidden siblings)"


def hidden_of(state: CPUState, pod: str, container: str) -> CPUMask:
    """Return the mask of the threads that are hidden for a container."""
    return state.assignments.get(_PREFIX + pod, {}).get(container, NO_CPUS)


def hidden_of_pod(state: CPUState, pod: str) -> Mapping[str, CPUMask]:
    """Return the mask of the threads that are hidden for each container of a pod that has any."""
    return state.assignments.get(_PREFIX + pod, {})


def hidden_for(state: CPUState, pod: str, cpus: CPUMask) -> CPUMask:
    """Return the mask of the threads that are hidden for those containers of a pod that have some of ``cpus``.

    Without those that others of the pod have by now, or hide themselves: they came after and run.
    """
    held = state.assignments.get(pod, {})
    mask = kept = NO_CPUS
    for own in held.values():
        kept |= own & ~cpus
    for container, hidden in state.assignments.get(_PREFIX + pod, {}).items():
        if held.get(container, NO_CPUS) & cpus:
            mask |= hidden
        else:
            kept |= hidden
    return mask & ~kept


def with_hidden(state: CPUState, pod: str, container: str, hidden: CPUMask) -> CPUState:
    """Return the state with threads hidden for a container; without any, the state itself."""
    if not hidden:
        return state
    owner = _PREFIX + pod
    entries = {**state.assignments.get(owner, {}), container: hidden}
    return replace(state, default=state.default & ~hidden, assignments={**state.assignments, owner: entries})


def without_hidden(state: CPUState, pod: str, container: str) -> CPUState:
    """Return the state after a container has gone.

    Its hidden threads are the pool's again, but for those that others of the pod have or hide.
    """
    owner = _PREFIX + pod
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
