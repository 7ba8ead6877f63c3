"""``mooring doctor --lint``: is "exclusive" exclusive? Who else may run on the CPUs that containers hold.

The kubelet keeps only other *pods* off them; kernel threads, interrupts, services and the containers of other tools are
the operator's business (kubernetes/kubernetes#99895). Nothing is decided here: each rule checks one kind of fact of the
machine against the assignments.

Source of what the kernel and systemd do: kernel Documentation/admin-guide (kernel-parameters, cgroup-v2),
core-api/workqueue and core-api/irq/irq-affinity; systemd-system.conf(5); irqbalance(1).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Literal

from msgspec import field
from rich.console import RenderableType
from rich.padding import Padding
from rich.text import Text

from mooring.answers.base.inputs.node import question_of
from mooring.answers.base.plan import RefusedPlan, make_plan
from mooring.answers.doctor.interrupts import Assignments, assignments_of, interrupt_findings, named
from mooring.cli.options import NodeOptions
from mooring.cli.output import NO, YES, emit, warn
from mooring.cli.terminal import print_answer
from mooring.documents.plan import API_VERSION, APIVersion, CPUList, DocumentPart, FindingPart, finding_parts
from mooring.engine.core.cpuset import CPUSet
from mooring.engine.core.errors import InputError, clean
from mooring.engine.core.machine import Finding
from mooring.engine.core.machineinfo import MachineInfo
from mooring.engine.core.topology import TopologyError, discover_topology
from mooring.engine.extensions.interrupts import balance_finding, closed_to_others
from mooring.explanations.phrases import cpus_text, plural
from mooring.inputs.machines.interrupts import file_modes, no_modes
from mooring.inputs.machines.isolation import ControlGroup, IsolationFacts, read_isolation
from mooring.inputs.machines.loader import LIVE
from mooring.inputs.machines.tree import Tree, open_tree


def answer_lint(options: NodeOptions, form: str, to: str) -> int:
    """Report what else may run on exclusive CPUs; the exit code is 1 when there is a warning.

    Raises:
        InputError: something cannot be read, or the machine's source has no files of a running machine.
    """
    question = question_of(options)
    tree = _tree(options.machine or options.node)
    plan = make_plan(question)
    warn(plan.findings)
    if isinstance(plan, RefusedPlan):
        emit(f"The kubelet would not start, so no container has exclusive CPUs: {plan.refusal.message}", to)
        return NO
    assignments = assignments_of(plan)
    modes = file_modes("/") if tree.name == "/" else no_modes
    findings = lint(read_isolation(tree, _online(question.machine.info), modes), assignments)
    name = question.machine.name
    print_answer(form, to, isolation_document(name, assignments, findings), _parts(name, assignments, findings))
    return NO if any(finding.severity == "warning" for finding in findings) else YES


def _tree(source: str) -> Tree:
    """Open the files of the machine.

    Raises:
        InputError: there are none, because the machine is only described.
    """
    try:
        return open_tree("/" if source in ("", LIVE) else source)
    except InputError as error:
        remedy = "give a running machine, or a node archive of mooring collect, with --machine or --node"
        raise InputError("contains no isolation settings", source=source or error.source, remedy=remedy) from None


def _online(info: MachineInfo) -> CPUSet:
    try:
        return CPUSet(discover_topology(info).all_cpus)
    except TopologyError:
        return CPUSet()


_STYLE = {"warning": "bold yellow", "info": "bold cyan"}


def _parts(machine: str, assignments: Assignments, findings: Sequence[Finding]) -> Iterator[RenderableType]:
    exclusive = assignments.exclusive
    yield Text.assemble(
        (machine, "bold"),
        f": {plural(len(assignments.holders), 'holder')} of {plural(len(exclusive), 'exclusive CPU')}"
        f"{f' ({exclusive})' if exclusive else ''}",
    )
    yield Text("")
    for finding in findings:
        yield Text.assemble((f"{finding.severity}[{finding.code}]", _STYLE[finding.severity]), f": {finding.subject}")
        yield Padding(Text(clean(finding.message)), (0, 0, 0, 2))
    if findings:
        yield Text("")
    warnings = sum(finding.severity == "warning" for finding in findings)
    if warnings:
        codes = dict.fromkeys(finding.code for finding in findings if finding.severity == "warning")
        yield Text(f"{plural(warnings, 'warning')}. What to do: mooring explain {next(iter(codes))}")
    elif exclusive:
        yield Text("According to the machine's files, nothing else runs on the exclusive CPUs.")


Rule = Callable[[IsolationFacts, Assignments], Iterator[Finding]]


def lint(facts: IsolationFacts, assignments: Assignments) -> tuple[Finding, ...]:
    """Return what may run on exclusive CPUs, warnings first.

    A *warning* is what may run there, or a set-up that works against itself; *info* is what disturbs less, and what
    could not be checked.
    """
    found = [finding for rule in _RULES for finding in rule(facts, assignments)]
    return tuple(sorted(found, key=lambda finding: finding.severity != "warning"))


def _nothing_exclusive(_facts: IsolationFacts, assignments: Assignments) -> Iterator[Finding]:
    if not assignments.exclusive:
        message = "No container holds CPUs of its own, so there is nothing to protect."
        yield Finding("info", "assignments", message, "MOOR-615")


def _siblings(_facts: IsolationFacts, assignments: Assignments) -> Iterator[Finding]:
    """Report cores that are divided between a holder and another owner: threads of a core slow each other down."""
    if assignments.topology is None:
        return
    divided: dict[tuple[str, str], CPUSet] = {}
    for core in assignments.topology.cores.values():
        cpus = CPUSet(core)
        inside = [holder for holder in assignments.holders if holder.cpus & cpus]
        uids = {holder.uid for holder in inside}
        for holder in inside:
            rest = cpus - holder.cpus
            others = next((other.label for other in inside if other.uid != holder.uid and other.cpus & rest), "")
            if others or (rest & assignments.shared and len(uids) == 1):
                key = (holder.label, others or "the shared pool")
                divided[key] = divided.get(key, CPUSet()) | (holder.cpus & cpus)
    for (label, other), cpus in divided.items():
        message = f"{label} has {cpus_text(cpus)} on cores whose other threads belong to {other}."
        yield Finding("warning", str(cpus), message, "MOOR-601")


def _interrupts(facts: IsolationFacts, assignments: Assignments) -> Iterator[Finding]:
    if facts.interrupts is None and assignments.exclusive:
        yield _unchecked("interrupts", "proc/irq")
    yield from interrupt_findings(facts, assignments)


def _balance(facts: IsolationFacts, assignments: Assignments) -> Iterator[Finding]:
    if facts.balance is None or not facts.balance.running:
        return
    finding = balance_finding(facts.balance.spared(facts.words), closed_to_others(assignments.owners))
    if finding is not None:
        yield finding


def _services(facts: IsolationFacts, assignments: Assignments) -> Iterator[Finding]:
    """Report where systemd starts services: a process that is not pinned inherits that set."""
    if facts.words is None:
        return
    open_to_all = assignments.exclusive - facts.words.isolated
    reached = open_to_all if facts.services is None else assignments.exclusive & facts.services
    message = "Services may run on {}: CPUAffinity of systemd names them."
    if facts.services is None:
        message = (
            "Services and kernel threads may run on {}: CPUAffinity of systemd is not set, and isolcpus names none of "
            "them."
        )
    yield from _about(reached, "MOOR-605", message)


def _workqueues(facts: IsolationFacts, assignments: Assignments) -> Iterator[Finding]:
    reached = (facts.workqueues or CPUSet()) & assignments.exclusive
    yield from _about(reached, "MOOR-606", "Unbound kernel work may run on {} (the cpumask of workqueues).", "info")


def _ticks(facts: IsolationFacts, assignments: Assignments) -> Iterator[Finding]:
    if facts.words is None:
        if assignments.exclusive:
            yield _unchecked("the kernel's command line", "proc/cmdline")
        return
    ticking = assignments.exclusive - facts.words.tickless
    yield from _about(ticking, "MOOR-607", "The scheduler's tick interrupts {} (nohz_full does not name them).", "info")
    calling = assignments.exclusive - facts.words.callbacks_elsewhere
    yield from _about(calling, "MOOR-608", "RCU callbacks run on {} (rcu_nocbs does not name them).", "info")


def _isolated(facts: IsolationFacts, assignments: Assignments) -> Iterator[Finding]:
    if facts.words is None or (facts.words.flags and "domain" not in facts.words.flags):
        return
    isolated = facts.words.isolated
    shared = isolated & assignments.shared
    yield from _about(
        shared,
        "MOOR-609",
        f"{{}} {'is' if len(shared) == 1 else 'are'} isolated by the kernel and in the shared pool: what runs there is "
        "never balanced to another CPU.",
    )
    message = "The system avoids {}, although reserved for it: isolcpus names what is reserved."
    yield from _about(isolated & assignments.reserved, "MOOR-610", message)


def _misunderstood(facts: IsolationFacts, _assignments: Assignments) -> Iterator[Finding]:
    for word in facts.words.misunderstood if facts.words is not None else ():
        message = f"The kernel was given {word!r:.120}, which is not a list of CPUs; the kernel ignores it too."
        yield Finding("warning", "proc/cmdline", message, "MOOR-614")


def _about(cpus: CPUSet, code: str, message: str, severity: str = "warning") -> Iterator[Finding]:
    """Yield a finding about CPUs, if there are any; they replace ``{}`` in the message."""
    if cpus:
        yield Finding(severity, str(cpus), message.format(cpus_text(cpus)), code)


def _unchecked(what: str, path: str) -> Finding:
    message = (
        f"The machine's files hold no {path}, so that {what} {'were' if what.endswith('s') else 'was'} not checked."
    )
    return Finding("info", path, message, "MOOR-616")


def _groups(facts: IsolationFacts, assignments: Assignments) -> Iterator[Finding]:
    """Compare every group that has processes with what the kubelet has given away."""
    exclusive = assignments.exclusive
    if not exclusive:
        return
    if facts.groups is None:
        message = "The machine's files hold no cpusets of control groups, so that these were not checked."
        yield Finding("info", "sys/fs/cgroup", message, "MOOR-616")
        return
    kept = facts.words.isolated if facts.words is not None else CPUSet()
    yield from _hosts([group for group in facts.groups if not group.pod], exclusive - kept, assignments)
    pods = [group for group in facts.groups if group.pod]
    yield from _strangers(pods, assignments)
    yield from _misplaced(pods, assignments)


def _hosts(groups: list[ControlGroup], exclusive: CPUSet, assignments: Assignments) -> Iterator[Finding]:
    """Report processes outside of pods that may run there. Isolated CPUs run only programs that request them."""
    hit = [group for group in groups if group.cpus & exclusive]
    if not hit:
        return
    touched = CPUSet()
    for group in hit:
        touched |= group.cpus & exclusive
    tops = list(dict.fromkeys(group.path.split("/")[0] for group in hit))
    message = (
        f"Processes of {named(tops)} ({plural(len(hit), 'control group')}) may run on "
        f"{cpus_text(touched)}, held by {named(assignments.labels(touched))}."
    )
    yield Finding("warning", str(touched), message, "MOOR-611")


def _strangers(groups: list[ControlGroup], assignments: Assignments) -> Iterator[Finding]:
    """Tell which containers of pods without these CPUs may run there; sandboxes (pause) are among them and sleep."""
    by_pod: dict[str, CPUSet] = {}
    for group in groups:
        foreign = CPUSet()
        for holder in assignments.holders:
            if holder.uid != group.pod:
                foreign |= holder.cpus
        reached = group.cpus & foreign
        if reached:
            by_pod[group.pod] = by_pod.get(group.pod, CPUSet()) | reached
    if by_pod:
        touched = CPUSet()
        for cpus in by_pod.values():
            touched |= cpus
        who = named([(assignments.pods or {}).get(uid, uid) for uid in by_pod])
        message = (
            f"Containers of {who} may run on {cpus_text(touched)}, held by {named(assignments.labels(touched))} "
            "(a pause container among them does no harm)."
        )
        yield Finding("warning", str(touched), message, "MOOR-612")


def _misplaced(groups: list[ControlGroup], assignments: Assignments) -> Iterator[Finding]:
    """Report holders without a container with exactly their CPUs: the runtime got another set, or none."""
    seen: dict[str, list[CPUSet]] = {}
    for group in groups:
        seen.setdefault(group.pod, []).append(group.cpus)
    for holder in assignments.holders:
        sets = seen.get(holder.uid)
        if sets and not any(cpus == holder.cpus for cpus in sets):
            message = (
                f"{holder.label} holds {cpus_text(holder.cpus)}, but no container of its pod is confined to them "
                f"(found: {named([str(cpus) or 'none' for cpus in sets])})."
            )
            yield Finding("warning", holder.label, message, "MOOR-613")


_RULES: Sequence[Rule] = (
    _nothing_exclusive,
    _siblings,
    _groups,
    _interrupts,
    _balance,
    _services,
    _isolated,
    _misunderstood,
    _workqueues,
    _ticks,
)


class ExclusiveHolderPart(DocumentPart):
    """A container, or a pod as a whole, that has exclusive CPUs."""

    name: str
    uid: str
    cpus: CPUList


class IsolationDocument(DocumentPart, kw_only=True):
    """What mooring doctor --lint -o json prints: what else may run on exclusive CPUs."""

    api_version: APIVersion = API_VERSION
    kind: Literal["Isolation"] = "Isolation"
    machine: str
    exclusive: CPUList = field(name="exclusiveCPUs")
    shared_pool: CPUList
    reserved: CPUList = field(name="reservedCPUs")
    holders: list[ExclusiveHolderPart]
    findings: list[FindingPart]


def isolation_document(machine: str, assignments: Assignments, findings: Sequence[Finding]) -> IsolationDocument:
    """Return the document."""
    return IsolationDocument(
        machine=machine,
        exclusive=str(assignments.exclusive),
        shared_pool=str(assignments.shared),
        reserved=str(assignments.reserved),
        holders=[ExclusiveHolderPart(holder.label, holder.uid, str(holder.cpus)) for holder in assignments.holders],
        findings=finding_parts(findings),
    )
