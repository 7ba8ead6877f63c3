"""The changes that the text of a refusal allows for, by its code (:mod:`mooring.explain.remedies`).

Source of the texts: kubelets v1.31.14 to v1.37.1; spec: configuration.md sections 2 to 5, state-files.md section 4.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, replace

from mooring.answers.base.question import Question
from mooring.engine.core.bits import list_text, mask_of
from mooring.engine.core.config import KubeletConfig, ReservedMemory
from mooring.engine.core.cpuset import CPUSet
from mooring.engine.core.decision import StartRefusal
from mooring.engine.core.machineinfo import MachineInfo
from mooring.engine.core.quantity import Quantity
from mooring.engine.node.reservation import DEFAULT_EVICTION_HARD
from mooring.engine.releases.config_fields import CPU_OPTIONS, READ_FIELDS, TOPOLOGY_OPTIONS
from mooring.engine.releases.gate_history import ALWAYS_ON, GATE_HISTORY
from mooring.engine.releases.gates import known_gates
from mooring.engine.releases.policy_options import cpu_option_groups, topology_option_groups
from mooring.engine.topologymanager.options import MAX_ALLOWABLE, PREFER_CLOSEST
from mooring.explain.phrases import size
from mooring.explain.remedies import refusal_code
from mooring.inputs.configuration.part import RESERVATION_UNKNOWN
from mooring.inputs.decoding.fields import nearest

_THRESHOLD = "memory.available"
_RESERVED_SUM = "MOOR-251"
_TOO_MUCH_RESERVED = "MOOR-235"


@dataclass(frozen=True, slots=True)
class StartChange:
    """One change, and the question with it."""

    words: str
    """An instruction, or the name of a file that is deleted."""
    question: Question
    drains: bool = False
    """Whether it deletes a state file, for which the node has to be drained."""


def changes_for(question: Question, refusal: StartRefusal) -> Iterator[StartChange]:
    """Yield the changes that the text of a refusal allows for, the likeliest first; none that rests on a guess."""
    if not_known(question, refusal):
        return iter(())
    changes = _BY_CODE.get(refusal_code(refusal))
    return iter(()) if changes is None else changes(question, refusal.message)


def not_known(question: Question, refusal: StartRefusal) -> str:
    """Return what is only assumed of the amounts that a refusal compares; empty where they are known."""
    code, config = refusal_code(refusal), question.config
    unknown = [finding.message for finding in question.findings if finding.code == RESERVATION_UNKNOWN]
    is_share = (config.eviction_hard or {}).get("memory.available", "").endswith("%")
    compares_size = code == _TOO_MUCH_RESERVED and 'Resource "memory"' in refusal.message
    if "memory" in question.machine.origin.unknown and (is_share or compares_size):
        unknown.append("the machine's memory (assumed) is in no given file, add --machine memory=AMOUNT")
    return "; ".join(unknown) if compares_size or code == _RESERVED_SUM else ""


def _set(question: Question, field: str, value: str) -> StartChange:
    config = replace(question.config, **{READ_FIELDS[field].member: value})  # type: ignore[arg-type]
    return StartChange(f'set {field} to "{value}"', replace(question, config=config))


def _put(question: Question, field: str, name: str, value: object) -> StartChange:
    """Return the change of one entry of a field that is a mapping."""
    member = READ_FIELDS[field].member
    others: Mapping[str, object] = getattr(question.config, member) or {}
    config = replace(question.config, **{member: {**others, name: value}})  # type: ignore[arg-type]
    shown = str(value).lower() if isinstance(value, bool) else f'"{value}"'
    return StartChange(f"set {field}.{name} to {shown}", replace(question, config=config))


def _remove(question: Question, field: str, name: str) -> Iterator[StartChange]:
    """Yield the change without one entry of a field that is a mapping, where it has that entry."""
    member = READ_FIELDS[field].member
    entries: Mapping[str, object] = getattr(question.config, member) or {}
    if name in entries:
        left = {other: value for other, value in entries.items() if other != name}
        config = replace(question.config, **{member: left})  # type: ignore[arg-type]
        words = f"remove {field}.{name}" if name else f'remove the option "" from {field}'
        yield StartChange(words, replace(question, config=config))


def _close(question: Question, field: str, value: str, known: Collection[str]) -> Iterator[StartChange]:
    """Yield the change to the known value that is nearest to the one that is written."""
    close = nearest(value, frozenset(known))
    if close:
        yield _set(question, field, close)


def _group_off(question: Question, text: str) -> Iterator[StartChange]:
    """The gate of an option's group is off."""
    found = re.search(
        r'(?i:(cpu|topology) manager policy (alpha|beta)-level options) not enabled, but option "(.*)"', text
    )
    if found is None:
        return
    manager, group, option = found.groups()
    prefix = "CPU" if manager.lower() == "cpu" else "Topology"
    yield _put(question, "featureGates", f"{prefix}ManagerPolicy{group.capitalize()}Options", value=True)
    yield from _remove(question, CPU_OPTIONS if prefix == "CPU" else TOPOLOGY_OPTIONS, option)


def _options_without_policy(question: Question, _text: str) -> Iterator[StartChange]:
    config = replace(question.config, cpu_manager_policy_options={})
    yield StartChange(f"remove {CPU_OPTIONS}", replace(question, config=config))
    yield _set(question, "cpuManagerPolicy", "static")


def _unknown_option(question: Question, text: str) -> Iterator[StartChange]:
    found = re.search(r'unknown (CPU|Topology) Manager Policy option: "(.*)"', text)
    if found is None:
        return
    manager, option = found.groups()
    field, groups = (CPU_OPTIONS, cpu_option_groups) if manager == "CPU" else (TOPOLOGY_OPTIONS, topology_option_groups)
    given: Mapping[str, str] = getattr(question.config, READ_FIELDS[field].member)
    close = nearest(option, frozenset(groups(question.mooring.release.name)))
    if close and close not in given:
        renamed = {close if name == option else name: value for name, value in given.items()}
        config = replace(question.config, **{READ_FIELDS[field].member: renamed})  # type: ignore[arg-type]
        yield StartChange(f"write {field}.{close} for {option}", replace(question, config=config))
    yield from _remove(question, field, option)


def _excluded_option(question: Question, text: str) -> Iterator[StartChange]:
    for option in (*re.findall(r"[a-z]+(?:-[a-z]+)+", text), "align-by-socket"):
        yield from _remove(question, CPU_OPTIONS, option)
    if "single-numa-node" in text:
        for policy in ("restricted", "best-effort"):
            yield _set(question, "topologyManagerPolicy", policy)


def _bad_value(question: Question, text: str) -> Iterator[StartChange]:
    found = re.search(r'bad value for option "(.*?)"', text)
    if found is not None:
        field = CPU_OPTIONS if found[1] in question.config.cpu_manager_policy_options else TOPOLOGY_OPTIONS
        yield _put(question, field, found[1], "true")
        yield from _remove(question, field, found[1])


def _options_gate(question: Question, _text: str) -> Iterator[StartChange]:
    for field, gate in ((one, READ_FIELDS[one].gate) for one in (CPU_OPTIONS, TOPOLOGY_OPTIONS)):
        yield from _remove(question, "featureGates", gate)
        if getattr(question.config, READ_FIELDS[field].member):
            config = replace(question.config, **{READ_FIELDS[field].member: {}})  # type: ignore[arg-type]
            yield StartChange(f"remove {field}", replace(question, config=config))


def _reserve_a_core(question: Question, _text: str) -> Iterator[StartChange]:
    core = _first_core(question.machine.info)
    if core:
        yield _set(question, "reservedSystemCPUs", core)


def _first_core(info: MachineInfo) -> str:
    threads = (core.thread_ids for node in info.topology for core in node.cores)
    lowest = min(threads, key=min, default=())
    return list_text(mask_of(lowest))


def _not_online(question: Question, text: str) -> Iterator[StartChange]:
    found = re.search(r"reserved-cpus: (\S+) is not a subset of online-cpus: (\S+)", text)
    if found is not None:
        there = CPUSet.parse(found[1]).mask & CPUSet.parse(found[2]).mask
        if there:
            yield _set(question, "reservedSystemCPUs", list_text(there))
    yield from _reserve_a_core(question, text)


def _not_reservable(question: Question, text: str) -> Iterator[StartChange]:
    found = re.search(r'--(kube|system)-reserved .*cannot reserve "(.*)" resource', text)
    if found is not None:
        yield from _remove(question, f"{found[1]}Reserved", found[2])


def _too_much_reserved(question: Question, text: str) -> Iterator[StartChange]:
    found = re.search(r'Resource "(.*?)" has a reservation', text)
    if found is not None:
        for field in ("kubeReserved", "systemReserved"):
            yield from _remove(question, field, found[1])
        yield from _remove(question, "evictionHard", f"{found[1]}.available")


def _more_nodes(question: Question, _text: str) -> Iterator[StartChange]:
    yield _put(question, TOPOLOGY_OPTIONS, MAX_ALLOWABLE, str(max(len(question.machine.info.topology), 8)))


def _no_distances(question: Question, _text: str) -> Iterator[StartChange]:
    return _remove(question, TOPOLOGY_OPTIONS, PREFER_CLOSEST)


def _reserved_sum(question: Question, text: str) -> Iterator[StartChange]:
    """``reservedMemory`` does not add up to what the node reserves: one NUMA node gets all of it."""
    found = re.search(r'the total amount "(.*?)" of type "(.*?)" is not equal to the value "(.*?)"', text)
    if found is None:
        return
    given, resource, amount = found.groups()
    yield from _default_threshold(question, given, amount)
    holders = [entry.numa_node for entry in question.config.reserved_memory if resource in entry.limits]
    node = holders[0] if holders else min((one.node_id for one in question.machine.info.topology), default=0)
    nothing = amount == "0"
    entries = _without_memory(question.config, lambda _, name: name == resource)
    if not nothing:
        entries = [*entries, (node, {resource: amount})]
    words = f"reserve {_amount_words(amount)} of {resource} on NUMA node {node} in reservedMemory"
    yield _memory(question, f"remove {resource} from reservedMemory" if nothing else words, entries)


def _default_threshold(question: Question, given: str, amount: str) -> Iterator[StartChange]:
    """Yield the change that counts the kubelet's default threshold, where exactly that is the difference."""
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


def _amount_words(amount: str) -> str:
    """Return an amount of memory as reservedMemory takes it; one without a unit also in its largest unit."""
    return f"{amount} bytes ({size(int(amount))})" if amount.isdecimal() else amount


def _unknown_node(question: Question, text: str) -> Iterator[StartChange]:
    found = re.search(r"references a NUMA node (\d+)", text)
    if found is not None:
        node = int(found[1])
        entries = _without_memory(question.config, lambda one, _: one == node)
        yield _memory(question, f"remove NUMA node {node} from reservedMemory", entries)


def _zero_memory(question: Question, text: str) -> Iterator[StartChange]:
    """An amount of ``reservedMemory`` is nothing, or stands there twice."""
    found = re.search(r'for NUMA node (\d+) and resource "(.*?)"', text)
    if found is not None:
        node, resource = int(found[1]), found[2]
        entries = _without_memory(question.config, lambda one, name: (one, name) == (node, resource))
        yield _memory(question, f"remove {resource} of NUMA node {node} from reservedMemory", entries)


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


def _no_file(question: Question, text: str) -> Iterator[StartChange]:
    manager = "memory" if text.startswith("start memory manager") else "cpu"
    if getattr(question.files, manager) is not None:
        files = replace(question.files, memory=None) if manager == "memory" else replace(question.files, cpu=None)
        yield StartChange(f"{manager}_manager_state", replace(question, files=files), drains=True)


def _gate(question: Question, text: str) -> Iterator[StartChange]:
    found = re.search(r"unrecognized feature gate: (\w+)|cannot set feature gate (\w+)|(\w+) is set to true", text)
    if found is None:
        return
    name = next(group for group in found.groups() if group)
    # A gate that another release has is no misspelling.
    unknown = bool(found[1]) and name not in GATE_HISTORY and name not in ALWAYS_ON
    close = nearest(name, frozenset(known_gates(question.mooring.release.name).gates)) if unknown else ""
    if close and name in question.config.feature_gates:
        gates = {close if one == name else one: value for one, value in question.config.feature_gates.items()}
        config = replace(question.config, feature_gates=gates)
        yield StartChange(f"write featureGates.{close} for {name}", replace(question, config=config))
    since = ALWAYS_ON.get(name) if found[1] else None
    for change in _remove(question, "featureGates", name):
        yield replace(change, words=f"{change.words} (always on since {since})") if since else change


def _validation(question: Question, text: str) -> Iterator[StartChange]:
    found = re.search(r'(\w+) \(--[\w-]+\) "(.*?)" must be one of: (.*)', text)
    if found is not None and found[1] in READ_FIELDS:
        yield from _close(question, found[1], found[2], re.findall(r'"(.*?)"', found[3]))
    yield from _zero_memory(question, text)
    yield from _checked_field(question, text)


def _checked_field(question: Question, text: str) -> Iterator[StartChange]:
    """Yield the change without each field that nothing but a check of the start reads, where the text names it."""
    checked = question.config.checked
    for path in checked.values:
        if path.rpartition(".")[2].lower() in text.lower():
            kept = replace(checked, values={name: value for name, value in checked.values.items() if name != path})
            config = replace(question.config, checked=kept)
            yield StartChange(f"remove {path}", replace(question, config=config))


def _unknown_policy(field: str) -> Callable[[Question, str], Iterator[StartChange]]:
    def changes(question: Question, text: str) -> Iterator[StartChange]:
        found = re.search(r'policy:? "(.*?)"', text)
        if found is not None:
            yield from _close(question, field, found[1], READ_FIELDS[field].values)

    return changes


def _eviction(question: Question, text: str) -> Iterator[StartChange]:
    found = re.search(r"threshold (\S+) must", text)
    if found is not None:
        yield from _remove(question, "evictionHard", found[1])
    if "soft eviction" in text:
        yield from _checked_field(question, "evictionSoft")


def _flag(question: Question, text: str) -> Iterator[StartChange]:
    config = question.config
    for flag in config.checked.flags:
        if text.endswith(f" {flag.written}"):
            left = tuple(one for one in config.checked.flags if one is not flag)
            changed = replace(config, checked=replace(config.checked, flags=left))
            yield StartChange(f"remove {flag.written} from {flag.source}", replace(question, config=changed))


_BY_CODE: Mapping[str, Callable[[Question, str], Iterator[StartChange]]] = {
    "MOOR-202": _gate,
    "MOOR-203": _validation,
    "MOOR-204": _eviction,
    "MOOR-206": _more_nodes,
    "MOOR-208": _unknown_policy("cpuManagerPolicy"),
    "MOOR-209": _unknown_policy("memoryManagerPolicy"),
    "MOOR-210": _flag,
    "MOOR-211": _group_off,
    "MOOR-212": _group_off,
    "MOOR-213": _options_without_policy,
    "MOOR-214": _unknown_option,
    "MOOR-215": _unknown_option,
    "MOOR-216": _excluded_option,
    "MOOR-217": _excluded_option,
    "MOOR-218": _excluded_option,
    "MOOR-219": _bad_value,
    "MOOR-220": _options_gate,
    "MOOR-231": _reserve_a_core,
    "MOOR-232": _reserve_a_core,
    "MOOR-233": _not_online,
    "MOOR-234": _not_reservable,
    _TOO_MUCH_RESERVED: _too_much_reserved,
    "MOOR-241": _more_nodes,
    "MOOR-242": _no_distances,
    "MOOR-243": _group_off,
    _RESERVED_SUM: _reserved_sum,
    "MOOR-252": _unknown_node,
    "MOOR-253": _zero_memory,
    "MOOR-261": _no_file,
    "MOOR-262": _no_file,
    "MOOR-263": _no_file,
    "MOOR-264": _no_file,
}
