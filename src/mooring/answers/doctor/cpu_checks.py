"""Does a CPU manager's state fit the machine and the configuration? Every answer, not only the kubelet's first.

Source: kubelet v1.37.1, cpumanager policy_static.go (validateState); spec: cpu-manager.md section 2. Claims of dynamic
resource allocation are this project's own.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from mooring.answers.base.plan_findings import HELD_TWICE, RESERVED_HELD
from mooring.answers.doctor.cpu_repair import EntryHolder, Problem, Severity
from mooring.engine.checkpoint.contents import CPUContents
from mooring.engine.core.bits import CPUMask
from mooring.engine.core.cpuset import CPUSet
from mooring.engine.cpumanager.policy import StaticPolicy
from mooring.engine.cpumanager.state import CPUState
from mooring.engine.extensions.owners import OwnerKind, parts_of, state_owner
from mooring.engine.node.start import CPU_FILE
from mooring.explanations.phrases import cpus_text, joined, plural

BAD_CLAIM = "MOOR-323"


def _check_claims(policy: StaticPolicy, state: CPUState) -> Iterator[Problem]:
    """Yield one problem for each claim with entries that no claim is given."""
    for owner, entries in sorted(state.assignments.items()):
        faults = list(_faults(policy, entries)) if state_owner(owner).kind is OwnerKind.CLAIM else []
        if faults:
            yield Problem(
                BAD_CLAIM,
                "warning",
                CPU_FILE,
                f"{_named(owner, entries)} {joined(faults)}; claims never get such CPUs.",
                tuple(EntryHolder(owner, entry) for entry in sorted(entries)),
                CPUSet(CPUMask(_all(entries))),
            )


def _named(owner: str, entries: Mapping[str, int]) -> str:
    names = {parts_of(entry)[:2] for entry in entries}
    namespace, name = names.pop() if len(names) == 1 else ("", "")
    return f"Claim {namespace}/{name}" if name else f"Claim {owner.partition(':')[2]}"


def _faults(policy: StaticPolicy, entries: Mapping[str, int]) -> Iterator[str]:
    seen = twice = 0
    for entry, cpus in sorted(entries.items()):
        _, name, device, request = parts_of(entry)
        place = f"for request {request} of {device}"
        if not name:
            yield f"has an entry whose name has no device ({entry:.60})"
        elif not cpus:
            yield f"has no CPU {place}"
        elif policy.rules.whole_cores and policy.topology.core_siblings(CPUMask(cpus)) != cpus:
            yield f"has parts of cores {place} ({CPUSet(CPUMask(cpus))}) under full-pcpus-only"
        twice |= seen & cpus
        seen |= cpus
    if len({parts_of(entry)[:2] for entry in entries}) > 1:
        yield "has entries of more than one name"
    if twice:
        yield f"has {cpus_text(twice)} for more than one of its requests"


def _all(entries: Mapping[str, int]) -> int:
    cpus = 0
    for mask in entries.values():
        cpus |= mask
    return cpus


EMPTY_POOL = "MOOR-310"
OVERLAPS_POOL = "MOOR-311"
STRICT_ON = "MOOR-314"
STRICT_OFF = "MOOR-315"
CPUS_GONE = "MOOR-316"
CPUS_UNACCOUNTED = "MOOR-317"
POOL_RESERVED_ONLY = "MOOR-318"
CPUS_OFFLINE = "MOOR-319"


def holdings(state: CPUState, *, pods: bool) -> dict[EntryHolder, int]:
    """Return the CPUs of every entry; ``pods`` says whether sets of whole pods count."""
    held = {EntryHolder(uid, name): mask for uid, sets in state.assignments.items() for name, mask in sets.items()}
    if pods:
        held |= {EntryHolder(uid, ""): mask for uid, mask in state.pods.items()}
    return dict(sorted(held.items()))


def check_cpu_state(policy: StaticPolicy, contents: CPUContents, offline: int = 0) -> Iterator[Problem]:
    """Yield what is wrong with the state under the static policy, in the kubelet's order.

    Args:
        policy: of the machine as it is now.
        contents: of the file.
        offline: mask of the CPUs that the machine has, and has offline.
    """
    state, held = contents.state, holdings(contents.state, pods=policy.gates.managers)
    used = 0
    for mask in held.values():
        used |= mask
    everything = policy.topology.all_cpus
    if contents.has_pool:
        if state.default:
            yield from _pool_problems(policy, state.default, held, used)
        elif state.assignments:
            yield _about(
                EMPTY_POOL,
                f"The shared pool is empty while {plural(len(state.assignments), 'pod')} "
                f"{'has' if len(state.assignments) == 1 else 'have'} entries; the kubelet takes an empty pool only "
                "from a file without entries.",
                0,
            )
        elif policy.resizes and state.baselines:
            yield _about(EMPTY_POOL, "The shared pool is empty while there are baselines and no entries.", 0)
    reserved = used & policy.reserved
    if reserved:
        yield _about(
            RESERVED_HELD,
            f"Containers hold {cpus_text(reserved)}, which the configuration reserves.",
            reserved,
            _with(held, reserved),
        )
    gone = (used | state.default) & ~everything
    if gone & offline:
        yield _lost(CPUS_OFFLINE, gone & offline, held, state.default)
    if gone & ~offline:
        yield _lost(CPUS_GONE, gone & ~offline, held, state.default)
    yield from _shared_entries(held)
    yield from _check_claims(policy, state)


def _lost(code: str, gone: int, held: dict[EntryHolder, int], pool: int) -> Problem:
    """Report holders of CPUs that the machine does not have."""
    who = _with(held, gone)
    whose = f"{plural(len(who), 'container')} and the shared pool" if gone & pool else ""
    whose = (whose or plural(len(who), "container")) if who else "the shared pool"
    if code == CPUS_OFFLINE:
        have = f"This machine has {cpus_text(gone)} offline; the file gives {_them(gone)} to {whose}. "
        return _about(
            code, f"{have}The kubelet refuses it at its next start, unless {_they(gone)} online by then.", gone, who
        )
    return _about(code, f"This machine has no online {cpus_text(gone)}; the file gives them to {whose}.", gone, who)


def _them(cpus: int) -> str:
    return "it" if cpus.bit_count() == 1 else "them"


def _they(cpus: int) -> str:
    return "it is" if cpus.bit_count() == 1 else "they are"


def _pool_problems(policy: StaticPolicy, pool: int, held: dict[EntryHolder, int], used: int) -> Iterator[Problem]:
    overlap = pool & used
    if overlap:
        stops = any(mask & pool for holder, mask in held.items() if holder.container)
        yield _about(
            OVERLAPS_POOL,
            f"The shared pool and containers both have {cpus_text(overlap)}"
            + ("." if stops else "; the kubelet does not check sets of whole pods and starts."),
            overlap,
            _with(held, overlap),
        )
    reserved, left_out = policy.reserved, policy.topology.all_cpus & ~pool & ~used
    if policy.strict_reservation:
        if pool & reserved:
            yield _about(
                STRICT_ON,
                f"The shared pool has the reserved {cpus_text(pool & reserved)}, which strict-cpu-reservation keeps "
                "out of it; the file was written without that option.",
                pool & reserved,
            )
        left_out &= ~reserved
    elif left_out & reserved:
        yield _about(
            STRICT_OFF,
            f"The shared pool lacks the reserved {cpus_text(left_out & reserved)}; a kubelet with "
            "strict-cpu-reservation writes it that way.",
            left_out & reserved,
        )
        left_out &= ~reserved
    if left_out:
        yield _about(
            CPUS_UNACCOUNTED,
            f"Neither the shared pool nor a container has {cpus_text(left_out)}: more came online, or a write was cut "
            "short.",
            left_out,
        )
    if not policy.strict_reservation and pool and not pool & ~reserved and reserved & pool == reserved:
        yield _about(
            POOL_RESERVED_ONLY,
            f"The shared pool has only the reserved {cpus_text(pool)}: every container without exclusive CPUs "
            "runs there, beside the system.",
            pool,
            severity="warning",
        )


def _shared_entries(held: dict[EntryHolder, int]) -> Iterator[Problem]:
    """Find CPUs of more than one pod. Containers of one pod may share: an init container leaves its CPUs to the app."""
    of_pod: dict[str, int] = {}
    for holder, mask in held.items():
        pod = state_owner(holder.uid).root
        of_pod[pod] = of_pod.get(pod, 0) | mask
    seen = twice = 0
    for mask in of_pod.values():
        twice |= seen & mask
        seen |= mask
    if twice:
        who = _with(held, twice)
        owner = "pod or claim" if any(state_owner(holder.uid).kind is OwnerKind.CLAIM for holder in who) else "pod"
        yield _about(
            HELD_TWICE,
            f"More than one {owner} holds {cpus_text(twice)}. The kubelet does not check this and starts; none of "
            "them has these CPUs to itself.",
            twice,
            who,
        )


def _with(held: dict[EntryHolder, int], cpus: int) -> tuple[EntryHolder, ...]:
    return tuple(holder for holder, mask in held.items() if mask & cpus)


def _about(
    code: str, message: str, cpus: int, holders: tuple[EntryHolder, ...] = (), severity: Severity = "error"
) -> Problem:
    return Problem(code, severity, CPU_FILE, message, holders, CPUSet(CPUMask(cpus)))
