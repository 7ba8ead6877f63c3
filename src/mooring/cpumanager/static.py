"""The static policy: start, allocation, removal.

Source: kubelet v1.37.1, cpumanager policy_static.go; spec: cpu-manager.md sections 2, 4 and 10.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from mooring.core.bits import list_text
from mooring.core.decision import Endless
from mooring.core.gotext import quote
from mooring.core.observer import Observer
from mooring.core.pod import Container, ContainerKind, Pod
from mooring.core.topology import Topology
from mooring.cpumanager.facts import (
    CPUsReleased,
    CPUsTaken,
    ExclusiveCPUsCounted,
    ExistingCPUsKept,
    WholeCoresChecked,
)
from mooring.cpumanager.requests import PodLevelGates, exclusive_cpus
from mooring.cpumanager.rules import TakeError, TakeRules
from mooring.cpumanager.state import CPUState
from mooring.cpumanager.take import take

STATIC = "static"
SMT_ALIGNMENT_ERROR = "SMTAlignmentError"


@dataclass(frozen=True, slots=True)
class StaticPolicy:
    """Everything that the policy knows before the first pod."""

    topology: Topology
    rules: TakeRules
    reserved: int
    """Mask of the CPUs kept for the system."""
    reserved_cores: int
    """Mask of every CPU on a core with a reserved CPU."""
    strict_reservation: bool = False
    gates: PodLevelGates = field(default_factory=PodLevelGates)

    @property
    def group_size(self) -> int:
        """CPUs per core, by average."""
        return self.topology.cpus_per_core

    @property
    def shareable(self) -> int:
        """Mask of the CPUs that the shared pool has on an empty node."""
        if self.strict_reservation:
            return self.topology.all_cpus & ~self.reserved
        return self.topology.all_cpus


@dataclass(frozen=True, slots=True)
class Reusable:
    """CPUs that ended init containers of the pod now being admitted leave to its later containers.

    Kept in memory only; admitting another pod forgets it (spec: cpu-manager.md section 4.1).
    """

    pod: str = ""
    cpus: int = 0

    def of(self, pod: str) -> int:
        """Return the mask for a pod; empty for every other."""
        return self.cpus if pod == self.pod else 0

    def after(self, pod: str, container: Container, cpus: int) -> Reusable:
        """Return the record after a container got ``cpus``: init containers add to it, all others take from it."""
        before = self.of(pod)
        return Reusable(pod, before | cpus if container.kind is ContainerKind.INIT else before & ~cpus)


@dataclass(frozen=True, slots=True)
class AllocationError:
    """Why a container is not admitted."""

    message: str
    reason: str = ""
    """The kubelet's reason where the error has a type of its own; else the topology manager wraps the text."""


@dataclass(frozen=True, slots=True)
class Allocated:
    """State and record after a container was served."""

    state: CPUState
    reusable: Reusable


def start(policy: StaticPolicy, state: CPUState) -> CPUState | str:
    """Check a state against machine and reservation.

    Returns:
        The state, filled where it is fresh, or the kubelet's error text.
    """
    default, reserved = state.default, policy.reserved
    # 1. A fresh state gets the whole pool and is not looked at further.
    if not default:
        if state.assignments:
            return "default cpuset cannot be empty"
        return replace(state, default=policy.shareable)
    # 2. Reserved CPUs lie in the shared pool, or with strict reservation outside it.
    if policy.strict_reservation:
        if reserved & default:
            return (
                f"some of strictly reserved cpus: {_quoted(reserved & default)} "
                f"are present in defaultCpuSet: {_quoted(default)}"
            )
    elif reserved & ~default:
        return f"not all reserved cpus: {_quoted(reserved)} are present in defaultCpuSet: {_quoted(default)}"
    # 3. Nothing is both shared and exclusive.
    known = default
    for pod in sorted(state.assignments):
        for container in sorted(state.assignments[pod]):
            cpus = state.assignments[pod][container]
            if cpus & default:
                return (
                    f"pod: {pod}, container: {container} cpuset: {_quoted(cpus)} "
                    f"overlaps with default cpuset {_quoted(default)}"
                )
            known |= cpus
    # 4. Nothing is missing and nothing is unknown.
    if policy.gates.managers:
        for cpus in state.pods.values():
            known |= cpus
    if known != policy.shareable:
        return (
            f"current set of available CPUs {_quoted(policy.shareable)} "
            f"doesn't match with CPUs in state {_quoted(known)}"
        )
    return state


def _quoted(cpus: int) -> str:
    return quote(list_text(cpus))


def available_cpus(policy: StaticPolicy, state: CPUState) -> int:
    """Return the mask of what exclusive allocation may use."""
    return state.default & ~policy.reserved


def allocate(
    policy: StaticPolicy,
    state: CPUState,
    reusable: Reusable,
    pod: Pod,
    container: Container,
    affinity: int | None,
    observer: Observer | None = None,
) -> Allocated | AllocationError | Endless:
    """Serve one container of a pod that is being admitted.

    Args:
        policy: the policy.
        state: before.
        reusable: CPUs left by init containers.
        pod: the pod.
        container: one of its containers.
        affinity: mask of the NUMA nodes that the topology manager stored for it; None for no opinion.
        observer: receives what was found.

    Returns:
        The new state, the kubelet's error, or the defect that keeps the kubelet from returning.
    """
    # 1-2. Containers without a claim to exclusive CPUs stay in the shared pool.
    need = exclusive_cpus(pod, container, policy.gates)
    if observer is not None:
        observer(ExclusiveCPUsCounted(pod.uid, container.name, need))
    if need == 0 or policy.gates.leaves_out(pod):
        return Allocated(state, reusable)
    # 4. An existing assignment wins; its size is not compared (since 1.37 also before the check of whole cores).
    existing = state.assignments.get(pod.uid, {}).get(container.name, 0)
    if existing:
        if observer is not None:
            observer(ExistingCPUsKept(pod.uid, container.name, existing))
        return Allocated(state, reusable.after(pod.uid, container, existing))
    # 5. Whole cores.
    if policy.rules.whole_cores:
        refusal = _check_whole_cores(policy, state, pod, container, need, observer)
        if refusal is not None:
            return refusal
    # 6-7. CPUs from the hint's nodes first, then from anywhere.
    taken = _take_near(policy, state, reusable, pod, container, need, affinity, observer)
    if isinstance(taken, TakeError):
        return AllocationError(taken.message)
    if isinstance(taken, Endless):
        return taken
    # 8. Store.
    assigned = dict(state.assignments)
    assigned[pod.uid] = {**state.assignments.get(pod.uid, {}), container.name: taken}
    baselines = _with_baseline(state, pod.uid, container.name, taken)
    stored = replace(state, default=state.default & ~taken, assignments=assigned, baselines=baselines)
    return Allocated(stored, reusable.after(pod.uid, container, taken))


def _check_whole_cores(
    policy: StaticPolicy,
    state: CPUState,
    pod: Pod,
    container: Container,
    need: int,
    observer: Observer | None,
) -> AllocationError | None:
    """Apply full-pcpus-only. CPUs that init containers leave are not counted, half-used cores are."""
    group = policy.group_size
    available = (state.default & ~policy.reserved_cores).bit_count()
    message = ""
    if need % group:
        message = f"SMT Alignment Error: requested {need} cpus not multiple cpus per core = {group}"
    elif need > available:
        message = (
            f"SMT Alignment Error: not enough free physical CPUs: available physical CPUs = {available}, "
            f"requested CPUs = {need}, CPUs per core = {group}"
        )
    if observer is not None:
        observer(WholeCoresChecked(pod.uid, container.name, need, group, available, passed=not message))
    return AllocationError(message, SMT_ALIGNMENT_ERROR) if message else None


def _take_near(
    policy: StaticPolicy,
    state: CPUState,
    reusable: Reusable,
    pod: Pod,
    container: Container,
    need: int,
    affinity: int | None,
    observer: Observer | None,
) -> int | TakeError | Endless:
    left = reusable.of(pod.uid)
    pool = available_cpus(policy, state) | left
    near = _near(policy, pool, affinity)
    first: int | TakeError | Endless = 0
    if near:
        first = take(policy.topology, near, min(need, near.bit_count()), policy.rules)
    result: int | TakeError | Endless = first
    if isinstance(first, int):
        rest = take(policy.topology, pool & ~first, need - first.bit_count(), policy.rules)
        result = first | rest if isinstance(rest, int) else rest
    if observer is not None:
        observer(
            CPUsTaken(
                pod=pod.uid,
                container=container.name,
                need=need,
                pool=pool,
                reusable=left,
                affinity=affinity,
                near=near,
                first=first if isinstance(first, int) else 0,
                taken=result if isinstance(result, int) else 0,
                error=_error_text(result),
            )
        )
    return result


def _error_text(result: int | TakeError | Endless) -> str:
    if isinstance(result, TakeError):
        return result.message
    return result.defect if isinstance(result, Endless) else ""


def _near(policy: StaticPolicy, pool: int, affinity: int | None) -> int:
    """Return the CPUs of the pool that the hint points to: those of its nodes, with align-by-socket of its sockets."""
    if affinity is None:
        return 0
    inside = policy.topology.cpus_in_numa(affinity)
    if policy.rules.align_by_socket:
        sockets = policy.topology.sockets.values()
        inside = sum(mask for mask in sockets if mask & inside)
    return pool & inside


def _with_baseline(state: CPUState, pod: str, container: str, cpus: int) -> Mapping[str, Mapping[str, int]]:
    """Record the first assignment of a container; later ones leave it alone."""
    known = state.baselines.get(pod, {})
    if container in known:
        return state.baselines
    return {**state.baselines, pod: {**known, container: cpus}}


def remove(
    policy: StaticPolicy, state: CPUState, pod: str, container: str, observer: Observer | None = None
) -> CPUState:
    """Return the state without one container's assignment.

    CPUs that other containers of the pod still hold, such as those reused from an init container, stay with them.
    """
    containers = state.assignments.get(pod, {})
    if container not in containers:
        return state
    rest = {name: cpus for name, cpus in containers.items() if name != container}
    assignments = {uid: held for uid, held in state.assignments.items() if uid != pod}
    if rest:
        assignments[pod] = rest
    pods = state.pods
    if policy.gates.managers and pod in pods:
        released = 0 if rest else pods[pod]
        if not rest:
            pods = {uid: cpus for uid, cpus in pods.items() if uid != pod}
    else:
        released = containers[container]
        for cpus in rest.values():
            released &= ~cpus
    if observer is not None:
        observer(CPUsReleased(pod, container, released))
    return replace(
        state,
        default=state.default | released,
        assignments=assignments,
        pods=pods,
        baselines=_without_baseline(state, pod, container),
    )


def _without_baseline(state: CPUState, pod: str, container: str) -> Mapping[str, Mapping[str, int]]:
    if container not in state.baselines.get(pod, {}):
        return state.baselines
    rest = {name: cpus for name, cpus in state.baselines[pod].items() if name != container}
    others = {uid: held for uid, held in state.baselines.items() if uid != pod}
    return {**others, pod: rest} if rest else others
