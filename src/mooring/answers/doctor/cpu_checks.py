"""Does a CPU manager's state fit the machine and the configuration? And the nearest state on which the kubelet starts.

Every answer is given, not only the kubelet's first.

The nearest state keeps as many entries as go together; the rest is the shared pool.
An entry is what one container holds; where a pod has a set of its own (KEP-5526, gate on) the pod with all its
containers is one. An entry can stay when its CPUs are there and not reserved, and when it shares none with another pod.
The shared pool follows from the entries, so that nothing else ever has to be given up, but for one thing: with
strict-cpu-reservation the entries can use up the pool, on which the kubelet does not start; then a small one goes.

Source: kubelet v1.37.1, cpumanager policy_static.go (validateState); spec: cpu-manager.md section 2. Claims of dynamic
resource allocation are this project's own.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from functools import reduce
from operator import or_
from typing import TypeVar

from mooring.answers.base.plan_findings import HELD_TWICE, RESERVED_HELD
from mooring.answers.doctor.answer import DroppedEntryPart, EntryHolder, ProblemPart, problem
from mooring.answers.doctor.answer import dropped as dropped_entry
from mooring.engine.checkpoint.salvage import CPUContents
from mooring.engine.core.bits import NO_CPUS, CPUMask
from mooring.engine.core.cpuset import CPUSet
from mooring.engine.cpumanager.policy import StaticPolicy
from mooring.engine.cpumanager.state import CPUState
from mooring.engine.extensions.owners import OwnerKind, parts_of, state_owner
from mooring.engine.node.settings import CPU_FILE
from mooring.explanations.phrases import cpus_text, joined, plural

Held = TypeVar("Held")


def only(
    entries: Mapping[str, Mapping[str, Held]], stays: Callable[[str, str, Held], bool]
) -> dict[str, dict[str, Held]]:
    """Return the entries of containers that stay, by uid and name; a uid without any is left out."""
    kept = {
        uid: {name: held for name, held in containers.items() if stays(uid, name, held)}
        for uid, containers in entries.items()
    }
    return {uid: held for uid, held in kept.items() if held}


def in_order(wanted: Mapping[EntryHolder, int], active: Collection[str]) -> list[EntryHolder]:
    """Return the entries in the order in which they are kept, as far as they go together.

    Entries of active pods come first, because stale ones are dropped by the kubelet anyway. Then those that stand
    against fewer entries of other pods, so that fewer are lost; then larger ones; then the order of uids and names.

    Args:
        wanted: CPUs of each entry.
        active: uids of running pods, where they are known.

    >>> one, two, both = EntryHolder("a", "c"), EntryHolder("b", "c"), EntryHolder("c", "c")
    >>> [holder.uid for holder in in_order({one: 0b001, two: 0b100, both: 0b111}, ())]
    ['a', 'b', 'c']
    """

    def against(holder: EntryHolder) -> int:
        mask = wanted[holder]
        return sum(
            1
            for other, cpus in wanted.items()
            if cpus & mask and state_owner(other.uid).root != state_owner(holder.uid).root
        )

    return sorted(
        wanted,
        key=lambda holder: (
            state_owner(holder.uid).root not in active,
            against(holder),
            -wanted[holder].bit_count(),
            holder,
        ),
    )


def repaired_cpu(
    policy: StaticPolicy, broken: CPUState, active: Collection[str]
) -> tuple[CPUState, tuple[DroppedEntryPart, ...]]:
    """Return the state with everything that can stay, and what cannot.

    Args:
        policy: the static policy of the configuration.
        broken: what the file says.
        active: uids of running pods, where they are known.
    """

    def unit(uid: str, name: str) -> EntryHolder:
        """Return what is kept or given up as one: a container's entry, or all entries of a pod with a set."""
        return EntryHolder(uid, "" if policy.gates.managers and uid in broken.pods else name)

    units: dict[EntryHolder, int] = {}
    for uid, sets in broken.assignments.items():
        for name, mask in sets.items():
            units[unit(uid, name)] = units.get(unit(uid, name), 0) | mask
    for uid, mask in broken.pods.items() if policy.gates.managers else ():
        units[EntryHolder(uid, "")] = units.get(EntryHolder(uid, ""), 0) | mask
    units = dict(sorted(units.items()))
    dropped = {}
    for holder, cpus in units.items():
        gone, reserved = cpus & ~policy.topology.all_cpus, cpus & policy.reserved
        parts = [f"{cpus_text(gone)} {_is(gone)} not there"] if gone else []
        parts += [f"{cpus_text(reserved)} {_is(reserved)} reserved"] if reserved else []
        if parts:
            dropped[holder] = " and ".join(parts)
    fitting = {holder: cpus for holder, cpus in units.items() if holder not in dropped}
    # Fewer entries always go together where more do, so that taking up one after the other misses none.
    kept: dict[EntryHolder, int] = {}
    # A claim stays until it is released, so it is as little stale as a running pod.
    claims = {holder.uid for holder in fitting if state_owner(holder.uid).kind is OwnerKind.CLAIM}
    for holder in in_order(fitting, {*active, *claims}):
        why = _obstacle(policy, kept, holder, fitting[holder])
        if why:
            dropped[holder] = why
        else:
            kept[holder] = fitting[holder]

    def stays(uid: str, name: str, _held: object) -> bool:
        # Hidden threads go with their container.
        pod = state_owner(uid).root
        return unit(pod, name) in kept and (pod == uid or EntryHolder(uid, name) in kept)

    assignments = only(broken.assignments, stays)
    state = CPUState(
        "static",
        CPUMask(_pool(policy, kept.values())),
        assignments,
        {uid: mask for uid, mask in broken.pods.items() if EntryHolder(uid, "") in kept},
        only(broken.baselines, lambda uid, name, _: name in assignments.get(uid, {})),
        only(
            broken.pre_assignments,
            lambda uid, name, pre: pre.fits(
                CPUMask(assignments.get(uid, {}).get(name, 0)), broken.baselines.get(uid, {}).get(name, NO_CPUS)
            ),
        ),
    )
    singles = {EntryHolder(uid, name): mask for uid, sets in broken.assignments.items() for name, mask in sets.items()}
    # A set of a pod is named by itself only where none of its containers has an entry.
    singles |= {EntryHolder(uid, ""): mask for uid, mask in broken.pods.items() if not broken.assignments.get(uid)}
    return state, tuple(
        dropped_entry(holder, cpus_text(mask) if mask else "no CPUs", dropped[unit(holder.uid, holder.container)])
        for holder, mask in sorted(singles.items())
        if unit(holder.uid, holder.container) in dropped
    )


def _is(cpus: int) -> str:
    return "is" if cpus.bit_count() == 1 else "are"


def _obstacle(policy: StaticPolicy, kept: Mapping[EntryHolder, int], holder: EntryHolder, cpus: int) -> str:
    """Return why an entry cannot stay beside those that are kept; empty when it can."""
    for other, held in kept.items():
        if held & cpus and state_owner(other.uid).root != state_owner(holder.uid).root:
            owner = state_owner(other.uid, other.container)
            who = owner.label() if owner.kind is OwnerKind.CLAIM else f"pod {owner.uid}"
            return f"{who} holds {cpus_text(held & cpus)} too"
    return "" if _pool(policy, [*kept.values(), cpus]) else "no CPU would be left for the shared pool"


def _pool(policy: StaticPolicy, masks: Collection[int]) -> int:
    return policy.shareable & ~reduce(or_, masks, 0)


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


def holdings(state: CPUState, *, pods: bool) -> dict[EntryHolder, int]:
    """Return the CPUs of every entry; ``pods`` says whether sets of whole pods count."""
    held = {EntryHolder(uid, name): mask for uid, sets in state.assignments.items() for name, mask in sets.items()}
    if pods:
        held |= {EntryHolder(uid, ""): mask for uid, mask in state.pods.items()}
    return dict(sorted(held.items()))


def check_cpu_state(policy: StaticPolicy, contents: CPUContents, offline: int = 0) -> Iterator[ProblemPart]:
    """Yield what is wrong with the state under the static policy, in the kubelet's order.

    Args:
        policy: of the machine as it is now.
        contents: of the file.
        offline: mask of the CPUs that the machine has, and has offline.
    """
    state, held = contents.state, holdings(contents.state, pods=policy.gates.managers)
    used, everything = reduce(or_, held.values(), 0), policy.topology.all_cpus
    if contents.has_pool:
        if state.default:
            yield from _pool_problems(policy, state.default, held, used)
        elif state.assignments:
            pods, have = plural(len(state.assignments), "pod"), "has" if len(state.assignments) == 1 else "have"
            yield problem("MOOR-310", CPU_FILE, pods=pods, have=have)
        elif policy.resizes and state.baselines:
            yield problem("MOOR-310 baselines", CPU_FILE)
    reserved = used & policy.reserved
    if reserved:
        yield problem(RESERVED_HELD, CPU_FILE, _with(held, reserved), reserved)
    gone = (used | state.default) & ~everything
    for lost, code in ((gone & offline, "MOOR-319"), (gone & ~offline, "MOOR-316")):
        if lost:
            who = _with(held, lost)
            containers = plural(len(who), "container")
            whose = f"{containers} and the shared pool" if lost & state.default and who else containers
            them, they = ("it", "it is") if lost.bit_count() == 1 else ("them", "they are")
            yield problem(code, CPU_FILE, who, lost, whose=whose if who else "the shared pool", them=them, they=they)
    yield from _shared_entries(held)
    # One problem for each claim with entries that no claim is given
    for owner, entries in sorted(state.assignments.items()):
        faults = list(_faults(policy, entries)) if state_owner(owner).kind is OwnerKind.CLAIM else []
        if faults:
            holders, mask = (EntryHolder(owner, entry) for entry in sorted(entries)), reduce(or_, entries.values(), 0)
            names = {parts_of(entry)[:2] for entry in entries}
            namespace, name = names.pop() if len(names) == 1 else ("", "")
            claim = f"Claim {namespace}/{name}" if name else f"Claim {owner.partition(':')[2]}"
            yield problem("MOOR-323", CPU_FILE, holders, mask, claim=claim, faults=joined(faults))


def _pool_problems(policy: StaticPolicy, pool: int, held: dict[EntryHolder, int], used: int) -> Iterator[ProblemPart]:
    overlap = pool & used
    if overlap:
        stops = any(mask & pool for holder, mask in held.items() if holder.container)
        then = "." if stops else "; the kubelet does not check sets of whole pods and starts."
        yield problem("MOOR-311", CPU_FILE, _with(held, overlap), overlap, and_then=then)
    reserved, left_out = policy.reserved, policy.topology.all_cpus & ~pool & ~used
    if policy.strict_reservation:
        if pool & reserved:
            yield problem("MOOR-314", CPU_FILE, mask=pool & reserved)
    elif left_out & reserved:
        yield problem("MOOR-315", CPU_FILE, mask=left_out & reserved)
    left_out &= ~reserved
    if left_out:
        yield problem("MOOR-317", CPU_FILE, mask=left_out)
    if not policy.strict_reservation and pool and not pool & ~reserved and reserved & pool == reserved:
        yield problem("MOOR-318", CPU_FILE, mask=pool)


def _shared_entries(held: dict[EntryHolder, int]) -> Iterator[ProblemPart]:
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
        yield problem(HELD_TWICE, CPU_FILE, who, twice, owner=owner)


def _with(held: dict[EntryHolder, int], cpus: int) -> tuple[EntryHolder, ...]:
    return tuple(holder for holder, mask in held.items() if mask & cpus)
