"""What lets a kubelet start that does not: the fewest changes of its configuration and files, each of them run.

A refusal is about one fault at a time. So the kubelet is started again with each change that the cause of the fault
allows for (spec: configuration.md sections 2 to 5), and where it then refuses for another reason, with the changes for
that one as well.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, replace

from mooring.answers.base.plan import Question
from mooring.engine.core.bits import list_text, mask_of
from mooring.engine.core.config import KubeletConfig, ReservedMemory
from mooring.engine.core.decision import Cause, Fault, StartRefusal
from mooring.engine.core.quantity import Quantity
from mooring.engine.kubelet.start import refusal_of, start_on
from mooring.engine.node.reservation import DEFAULT_EVICTION_HARD
from mooring.engine.releases.config_fields import CPU_OPTIONS, READ_FIELDS, TOPOLOGY_OPTIONS
from mooring.engine.releases.gate_history import ALWAYS_ON, GATE_HISTORY
from mooring.engine.releases.gates import cpu_option_groups, known_gates, topology_option_groups
from mooring.engine.topologymanager.merge import MAX_ALLOWABLE, PREFER_CLOSEST
from mooring.explanations.codes import remedy
from mooring.explanations.phrases import joined, size
from mooring.inputs.configuration.node_configuration import RESERVATION_UNKNOWN
from mooring.inputs.decoding.api_fields import ended_gate
from mooring.inputs.decoding.fields import nearest

_THRESHOLD = "memory.available"


@dataclass(frozen=True, slots=True)
class StartChange:
    """One change, and the question with it."""

    words: str
    """An instruction, or the name of a file that is deleted."""
    question: Question
    drains: bool = False
    """Whether it deletes a state file, for which the node has to be drained."""


def changes_for(question: Question, refusal: StartRefusal) -> Iterator[StartChange]:
    """Yield the changes that a refusal allows for, the likeliest first; none that rests on a guess."""
    if not not_known(question, refusal):
        for fault in refusal.faults:
            if fault.cause in _BY_CAUSE:
                yield from _BY_CAUSE[fault.cause](question, fault)


def not_known(question: Question, refusal: StartRefusal) -> str:
    """Return what is only assumed of the amounts that a refusal compares; empty where they are known."""
    config, faults = question.config, {fault.cause: fault for fault in refusal.faults}
    unknown = [finding.message for finding in question.findings if finding.code == RESERVATION_UNKNOWN]
    is_share = (config.eviction_hard or {}).get("memory.available", "").endswith("%")
    compares_size = Cause.OVERCOMMITTED in faults and "memory" in faults[Cause.OVERCOMMITTED].names
    if "memory" in question.machine.origin.unknown and (is_share or compares_size):
        unknown.append("the machine's memory (assumed) is in no given file, add --machine memory=AMOUNT")
    return "; ".join(unknown) if compares_size or Cause.RESERVED_SUM in faults else ""


def _with(question: Question, words: str, field: str, value: object) -> StartChange:
    """Return the change that gives a field of the KubeletConfiguration a value."""
    config = replace(question.config, **{READ_FIELDS[field].member: value})  # type: ignore[arg-type]
    return StartChange(words, replace(question, config=config))


def _set(question: Question, field: str, value: str) -> StartChange:
    return _with(question, f'set {field} to "{value}"', field, value)


def _put(question: Question, field: str, name: str, value: object) -> StartChange:
    """Return the change of one entry of a field that is a mapping."""
    others: Mapping[str, object] = getattr(question.config, READ_FIELDS[field].member) or {}
    shown = str(value).lower() if isinstance(value, bool) else f'"{value}"'
    return _with(question, f"set {field}.{name} to {shown}", field, {**others, name: value})


def _remove(question: Question, field: str, name: str) -> Iterator[StartChange]:
    """Yield the change without one entry of a field that is a mapping, where it has that entry."""
    entries: Mapping[str, object] = getattr(question.config, READ_FIELDS[field].member) or {}
    if name in entries:
        left = {other: value for other, value in entries.items() if other != name}
        words = f"remove {field}.{name}" if name else f'remove the option "" from {field}'
        yield _with(question, words, field, left)


def _option(question: Question, fault: Fault) -> Iterator[StartChange]:
    """An option has no boolean value, or the gate of its group is off; CPU manager options need the static policy."""
    if fault.cause is Cause.OPTION_VALUE:
        yield _put(question, fault.field, fault.names[0], "true")
    elif fault.cause is Cause.OPTIONS_WITHOUT_POLICY:
        yield _with(question, f"remove {CPU_OPTIONS}", CPU_OPTIONS, {})
        yield _set(question, "cpuManagerPolicy", "static")
        return
    else:
        yield _put(question, "featureGates", fault.values[0], value=True)
    yield from _remove(question, fault.field, fault.names[0])


def _unknown_option(question: Question, fault: Fault) -> Iterator[StartChange]:
    field, option = fault.field, fault.names[0]
    groups = cpu_option_groups if field == CPU_OPTIONS else topology_option_groups
    given: Mapping[str, str] = getattr(question.config, READ_FIELDS[field].member)
    close = nearest(option, frozenset(groups(question.mooring.release.name)))
    if close and close not in given:
        renamed = {close if name == option else name: value for name, value in given.items()}
        yield _with(question, f"write {field}.{close} for {option}", field, renamed)
    yield from _remove(question, field, option)


def _excluded_option(question: Question, fault: Fault) -> Iterator[StartChange]:
    for option in fault.names:
        yield from _remove(question, fault.field, option)
    if fault.cause is Cause.SOCKET_AND_POLICY:
        for policy in ("restricted", "best-effort"):
            yield _set(question, "topologyManagerPolicy", policy)


def _options_gate(question: Question, _: Fault) -> Iterator[StartChange]:
    for field, gate in ((one, READ_FIELDS[one].gate) for one in (CPU_OPTIONS, TOPOLOGY_OPTIONS)):
        yield from _remove(question, "featureGates", gate)
        if getattr(question.config, READ_FIELDS[field].member):
            yield _with(question, f"remove {field}", field, {})


def _reserve_a_core(question: Question, fault: Fault) -> Iterator[StartChange]:
    """No CPUs are reserved, or too few, or some that are not online: those that are, or the first core."""
    if fault.cause is Cause.CPUS_NOT_ONLINE and fault.values[0]:
        yield _set(question, "reservedSystemCPUs", fault.values[0])
    threads = (core.thread_ids for node in question.machine.info.topology for core in node.cores)
    core = list_text(mask_of(min(threads, key=min, default=())))
    if core:
        yield _set(question, "reservedSystemCPUs", core)


def _too_much_reserved(question: Question, fault: Fault) -> Iterator[StartChange]:
    resource = fault.names[0]
    for field in ("kubeReserved", "systemReserved"):
        yield from _remove(question, field, resource)
    yield from _remove(question, "evictionHard", f"{resource}.available")


def _nodes(question: Question, fault: Fault) -> Iterator[StartChange]:
    """``reservedMemory`` names a NUMA node that is not there, or there are more than the topology manager takes."""
    if fault.cause is Cause.RESERVED_NODE:
        entries = _without_memory(question.config, lambda one, _: one == fault.node)
        yield _memory(question, f"remove NUMA node {fault.node} from reservedMemory", entries)
    else:
        yield _put(question, TOPOLOGY_OPTIONS, MAX_ALLOWABLE, str(max(len(question.machine.info.topology), 8)))


def _reserved_sum(question: Question, fault: Fault) -> Iterator[StartChange]:
    """``reservedMemory`` does not add up to what the node reserves: the nodes that it names share that as they did."""
    (resource,), (given, amount) = fault.names, fault.values
    # The change that counts the kubelet's default threshold, where exactly that is the difference
    default = DEFAULT_EVICTION_HARD[_THRESHOLD]
    thresholds = question.config.eviction_hard
    missing = Quantity.parse(given).nano - Quantity.parse(amount).nano
    if thresholds is not None and _THRESHOLD not in thresholds and missing == Quantity.parse(default).nano:
        change = _put(question, "evictionHard", _THRESHOLD, default)
        # Without a file, and after an empty map of one, there are no thresholds.
        file = (
            f"give the kubelet's configuration file with --config too (the difference of {default} is exactly the "
            f"default of evictionHard {_THRESHOLD}, which counts with a file alone), or "
        )
        yield change if thresholds else replace(change, words=f"{file}{change.words}")
    held = {
        entry.numa_node: Quantity.parse(entry.limits[resource]).units
        for entry in question.config.reserved_memory
        if resource in entry.limits
    }
    others = _without_memory(question.config, lambda _, name: name == resource)
    if amount == "0":
        yield _memory(question, f"remove {resource} from reservedMemory", others)
        return
    shares = _shares(held, amount, 2**20 if resource == "memory" else Quantity.parse(resource[10:]).units)
    node = next(iter(held), min((one.node_id for one in question.machine.info.topology), default=0))
    for divided in (shares, {node: amount}) if len(shares) > 1 else ({node: amount},):
        # One without a unit also in its largest unit.
        words = {one: f"{one} bytes ({size(int(one))})" if one.isdecimal() else one for one in divided.values()}
        texts = [f"{words[text]} of {resource} on NUMA node {one}" for one, text in divided.items()]
        if len(divided) > 1 and len(words) == 1:
            (same,) = words.values()
            texts = [f"{same} of {resource} on each of NUMA nodes {joined([str(one) for one in divided])}"]
        entries = [*others, *((one, {resource: text}) for one, text in divided.items())]
        yield _memory(question, f"reserve {joined(texts)} in reservedMemory", entries)


def _shares(held: Mapping[int, int], amount: str, page: int) -> dict[int, str]:
    """Return an amount divided in proportion, each node's a number of pages, but for the first, which has the rest."""
    total, before = Quantity.parse(amount).units, sum(held.values())
    shares = {node: total * one // before // page * page for node, one in held.items()}
    if len(shares) < 2 or 0 in shares.values():
        return {}
    first = next(iter(shares))
    shares[first] += total - sum(shares.values())
    return {node: str(Quantity.of_bytes(one)) for node, one in shares.items()}


_Entries = list[tuple[int, Mapping[str, str]]]


def _without_memory(config: KubeletConfig, leaves: Callable[[int, str], bool]) -> _Entries:
    """Return the entries of ``reservedMemory`` without some amounts, and without entries that then have none."""
    kept: _Entries = []
    for entry in config.reserved_memory:
        limits = {name: text for name, text in entry.limits.items() if not leaves(entry.numa_node, name)}
        if limits:
            kept.append((entry.numa_node, limits))
    return kept


def _memory(question: Question, words: str, entries: _Entries) -> StartChange:
    merged: dict[int, dict[str, str]] = {}
    for node, limits in entries:
        merged.setdefault(node, {}).update(limits)
    kept = tuple(ReservedMemory(node, limits) for node, limits in merged.items())
    return StartChange(words, replace(question, config=replace(question.config, reserved_memory=kept)))


def _no_file(question: Question, fault: Fault) -> Iterator[StartChange]:
    manager = fault.names[0]
    if getattr(question.files, manager) is not None:
        files = replace(question.files, memory=None) if manager == "memory" else replace(question.files, cpu=None)
        yield StartChange(f"{manager}_manager_state", replace(question, files=files), drains=True)


def _gate(question: Question, fault: Fault) -> Iterator[StartChange]:
    if not fault.names:
        return
    (name,), is_known = fault.names, bool(fault.values)
    # A gate that another release has is no misspelling.
    is_misspelt = not is_known and name not in GATE_HISTORY and name not in ALWAYS_ON
    close = nearest(name, frozenset(known_gates(question.mooring.release.name))) if is_misspelt else ""
    if close and name in question.config.feature_gates:
        gates = {close if one == name else one: value for one, value in question.config.feature_gates.items()}
        yield _with(question, f"write featureGates.{close} for {name}", "featureGates", gates)
    ended = "" if is_known else ended_gate(name, question.mooring.release.name)
    for change in _remove(question, "featureGates", name):
        yield replace(change, words=f"{change.words} ({ended})") if ended else change


def _field(question: Question, fault: Fault) -> Iterator[StartChange]:
    """A value is none that the field can have, an amount of memory is nothing or twice, a check of the start fails."""
    for field in (fault.field, *fault.names):
        known = frozenset(READ_FIELDS[field].values) if field in READ_FIELDS else frozenset()
        value = getattr(question.config, READ_FIELDS[field].member) if known else ""
        close = nearest(value, known) if value and value not in known else ""
        if close:
            yield _set(question, field, close)
    if fault.node >= 0:
        (resource,), node = fault.names, fault.node
        entries = _without_memory(question.config, lambda one, name: (one, name) == (node, resource))
        yield _memory(question, f"remove {resource} of NUMA node {node} from reservedMemory", entries)
    yield from _checked(question, fault.names)


def _checked(question: Question, fields: Collection[str]) -> Iterator[StartChange]:
    """Yield the change without each field that nothing but a check of the start reads."""
    checked = question.config.checked
    for path in checked.values:
        if path in fields:
            kept = replace(checked, values={name: value for name, value in checked.values.items() if name != path})
            config = replace(question.config, checked=kept)
            yield StartChange(f"remove {path}", replace(question, config=config))


def _eviction(question: Question, fault: Fault) -> Iterator[StartChange]:
    if fault.field == "evictionHard":
        yield from _remove(question, fault.field, fault.names[0])
    yield from _checked(question, (fault.field,))


def _flag(question: Question, fault: Fault) -> Iterator[StartChange]:
    config = question.config
    for flag in config.checked.flags:
        if flag.written in fault.names:
            left = tuple(one for one in config.checked.flags if one is not flag)
            changed = replace(config, checked=replace(config.checked, flags=left))
            yield StartChange(f"remove {flag.written} from {flag.source}", replace(question, config=changed))


_BY_CAUSE: Mapping[Cause, Callable[[Question, Fault], Iterator[StartChange]]] = {
    Cause.GATE: _gate,
    Cause.FIELD: _field,
    Cause.RESERVATION: _eviction,
    Cause.TOPOLOGY_MANAGER: _nodes,
    Cause.CPU_MANAGER: _field,
    Cause.MEMORY_MANAGER: _field,
    Cause.FLAG: _flag,
    Cause.ALPHA_CPU_OPTION: _option,
    Cause.BETA_CPU_OPTION: _option,
    Cause.OPTIONS_WITHOUT_POLICY: _option,
    Cause.UNKNOWN_CPU_OPTION: _unknown_option,
    Cause.UNKNOWN_TOPOLOGY_OPTION: _unknown_option,
    Cause.OPTIONS_EXCLUDE: _excluded_option,
    Cause.SOCKET_AND_POLICY: _excluded_option,
    Cause.SOCKET_AND_MACHINE: _excluded_option,
    Cause.OPTION_VALUE: _option,
    Cause.OPTIONS_GATE: _options_gate,
    Cause.NO_RESERVED_CPUS: _reserve_a_core,
    Cause.TOO_FEW_CPUS: _reserve_a_core,
    Cause.CPUS_NOT_ONLINE: _reserve_a_core,
    Cause.NOT_RESERVABLE: lambda question, fault: _remove(question, fault.field, fault.names[0]),
    Cause.OVERCOMMITTED: _too_much_reserved,
    Cause.TOO_MANY_NODES: _nodes,
    Cause.NO_DISTANCES: lambda question, _: _remove(question, TOPOLOGY_OPTIONS, PREFER_CLOSEST),
    Cause.TOPOLOGY_OPTION_GROUP: _option,
    Cause.RESERVED_SUM: _reserved_sum,
    Cause.RESERVED_NODE: _nodes,
    Cause.POLICY_CHANGED: _no_file,
    Cause.FILE_DAMAGED: _no_file,
    Cause.CPUS_CHANGED: _no_file,
    Cause.FILE_CONTRADICTS: _no_file,
}


GENERAL = "In general (not run here): "
"""Before advice that was not tried."""

_MOST_FAULTS = 4
"""How many faults of one node are corrected together."""
_MOST_STARTS = 80
"""Starts after which the search ends."""


def start_advice(question: Question, refusal: StartRefusal) -> str:
    """Return what to do: changes that were run, else general advice marked as such, or nothing.

    Args:
        question: whose kubelet does not start.
        refusal: why it does not.
    """
    if found := advice_to_start(question, refusal):
        files = [change.words for change in found if change.drains]
        fields = [change.words for change in found if not change.drains]
        text = joined([*fields, *([f"drain the node and delete {joined(files)}"] if files else [])])
        return f"{text[0].upper()}{text[1:]}: the kubelet then starts (run here)."
    if unknown := not_known(question, refusal):
        return f"What decides is not known: {unknown}."
    general = remedy(refusal)
    return f"{GENERAL}{general}" if general else ""


def advice_to_start(question: Question, refusal: StartRefusal) -> tuple[StartChange, ...]:
    """Return the fewest changes with which the kubelet starts, the last with all of them; none when none are found."""
    waiting: list[tuple[tuple[StartChange, ...], Question, StartRefusal]] = [((), question, refusal)]
    starts = 0
    for made, asked, why in waiting:
        for change in changes_for(asked, why):
            if starts == _MOST_STARTS:
                return ()
            starts += 1
            changed, changes = change.question, (*made, change)
            again = refusal_of(start_on(changed.machine, changed.config, changed.mooring, changed.files))
            if again is None:
                return changes
            if again.message != why.message and len(changes) < _MOST_FAULTS:
                waiting.append((changes, changed, again))
    return ()
