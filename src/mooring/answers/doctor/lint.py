"""``mooring doctor --lint``: is "exclusive" exclusive? Who else may run on the CPUs that containers hold.

The kubelet keeps only other *pods* off them; kernel threads, interrupts, services and the containers of other tools are
the operator's business (kubernetes/kubernetes#99895). Nothing is decided here: each rule checks one kind of fact of the
machine against the assignments.

Source of what the kernel and systemd do: kernel Documentation/admin-guide (kernel-parameters, cgroup-v2),
core-api/workqueue and core-api/irq/irq-affinity; systemd-system.conf(5); irqbalance(1).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from mooring.answers.base.inputs.node import question_of
from mooring.answers.base.plan import Plan, RefusedPlan, make_plan
from mooring.answers.doctor.answer import ExclusiveHolderPart, IsolationDocument
from mooring.answers.doctor.text import lint_parts
from mooring.cli.options import NodeOptions
from mooring.cli.output import NO, YES, emit, warn
from mooring.cli.terminal import print_answer
from mooring.documents.plan import finding_parts
from mooring.engine.core.config import IRQ_AFFINITY
from mooring.engine.core.cpuset import CPUSet
from mooring.engine.core.errors import InputError
from mooring.engine.core.machine import Finding
from mooring.engine.core.topology import Topology, TopologyError, discover_topology
from mooring.engine.extensions.interrupts import (
    NEW,
    NEW_NAME,
    Interrupt,
    InterruptCPUs,
    Memory,
    Owner,
    Step,
    Why,
    balance_finding,
    closed_to_others,
    owners_of,
    steer,
    union,
)
from mooring.engine.extensions.owners import pci_addresses, state_owner
from mooring.engine.kubelet.kubelet import reserved_cpus
from mooring.explanations.phrases import cpus_text, joined, plural
from mooring.inputs.machines.isolation import ControlGroup, IsolationFacts, read_isolation
from mooring.inputs.machines.loader import LIVE
from mooring.inputs.machines.tree import open_tree


def answer_lint(options: NodeOptions, form: str, to: str) -> int:
    """Report what else may run on exclusive CPUs; the exit code is 1 when there is a warning.

    Raises:
        InputError: something cannot be read, or the machine's source has no files of a running machine.
    """
    question = question_of(options)
    source = options.machine or options.node
    try:
        tree = open_tree("/" if source in ("", LIVE) else source)
    except InputError as error:
        remedy = "give a running machine, or a node archive of mooring collect, with --machine or --node"
        raise InputError("contains no isolation settings", source=source or error.source, remedy=remedy) from None
    plan = make_plan(question)
    warn(plan.findings)
    if isinstance(plan, RefusedPlan):
        emit(f"The kubelet would not start, so no container has exclusive CPUs: {plan.refusal.message}", to)
        return NO
    assignments = assignments_of(plan)
    try:
        online = CPUSet(discover_topology(question.machine.info).all_cpus)
    except TopologyError:
        online = CPUSet()
    findings = lint(read_isolation(tree, online, "/" if tree.name == "/" else ""), assignments)
    document = isolation_document(question.machine.name, assignments, findings)
    print_answer(form, to, document, lint_parts(document))
    return NO if any(finding.severity == "warning" for finding in findings) else YES


@dataclass(frozen=True, slots=True)
class Assignments:
    """The holders of the kubelet's CPUs."""

    holders: tuple[tuple[str, Owner], ...] = ()
    """Uid and name of each container with CPUs of its own, or pod with a partition."""
    shared: CPUSet = field(default_factory=CPUSet)
    reserved: CPUSet = field(default_factory=CPUSet)
    pods: Mapping[str, str] | None = None
    """Uid -> ``namespace/name`` of the pods that were described."""
    topology: Topology | None = None
    wishes: tuple[Owner, ...] | None = None
    """What the holders want of interrupts, with the extension irq-affinity."""

    @property
    def exclusive(self) -> CPUSet:
        """All CPUs with a holder."""
        return union(holder.cpus for _, holder in self.holders)

    @property
    def owners(self) -> tuple[Owner, ...]:
        """The holders as the rule of interrupts sees them; without the extension all of them avoid interrupts."""
        return tuple(holder for _, holder in self.holders) if self.wishes is None else self.wishes

    def labels(self, cpus: CPUSet) -> list[str]:
        """Return the holders of some of these CPUs."""
        return [holder.label for _, holder in self.holders if holder.cpus & cpus]


def assignments_of(plan: Plan) -> Assignments:
    """Return the assignments after a plan; none when the kubelet would not start."""
    kubelet = plan.kubelet
    state = kubelet.node.cpu
    pods = {answer.pod.uid: f"{answer.pod.namespace}/{answer.pod.name}" for answer in plan.answers}
    holders = [(uid, Owner(pods.get(uid, uid), CPUSet(mask))) for uid, mask in state.pods.items()]
    holders += [
        (owner.root, Owner(owner.label(pods.get(owner.uid, "")), CPUSet(mask)))
        for uid, containers in state.assignments.items()
        if uid not in state.pods
        for name, mask in containers.items()
        for owner in (state_owner(uid, name),)
    ]
    wishes = None
    if IRQ_AFFINITY in kubelet.mooring.extensions:
        devices = pci_addresses(kubelet.node.providers.devices)
        wishes = owners_of(state, {answer.pod.uid: answer.pod for answer in plan.answers}, devices)
    return Assignments(
        tuple(holders), CPUSet(state.default), reserved_cpus(kubelet), pods, kubelet.settings.topology, wishes
    )


NAMED = 4
"""How many things a sentence names before it counts the rest."""


def named(things: Sequence[str]) -> str:
    """Return some names, and how many more there are.

    >>> named(["a", "b"]), named(["a", "b", "c", "d", "e", "f"])
    ('a and b', 'a, b, c, d and 2 more')
    """
    if len(things) <= NAMED:
        return joined(list(things))
    return joined([*things[:NAMED], f"{len(things) - NAMED} more"])


def lint(facts: IsolationFacts, assignments: Assignments) -> tuple[Finding, ...]:
    """Return what may run on exclusive CPUs, warnings first.

    A *warning* is what may run there, or a set-up that works against itself; *info* is what disturbs less, and what
    could not be checked.
    """
    found: list[Finding] = []
    if not assignments.exclusive:
        message = "No container holds CPUs of its own, so there is nothing to protect."
        found.append(Finding("info", "assignments", message, "MOOR-615"))
    for rule in (_siblings, _groups, _interrupts, _system):
        found += rule(facts, assignments)
    return tuple(sorted(found, key=lambda finding: finding.severity != "warning"))


def _siblings(_facts: IsolationFacts, assignments: Assignments) -> Iterator[Finding]:
    """Report cores that are divided between a holder and another owner: threads of a core slow each other down."""
    divided: dict[tuple[str, str], CPUSet] = {}
    for core in assignments.topology.cores.values() if assignments.topology is not None else ():
        cpus = CPUSet(core)
        inside = [(uid, holder) for uid, holder in assignments.holders if holder.cpus & cpus]
        for uid, holder in inside:
            rest = cpus - holder.cpus
            others = next((other.label for its, other in inside if its != uid and other.cpus & rest), "")
            if others or (rest & assignments.shared and len({its for its, _ in inside}) == 1):
                key = (holder.label, others or "the shared pool")
                divided[key] = divided.get(key, CPUSet()) | (holder.cpus & cpus)
    for (label, other), cpus in divided.items():
        message = f"{label} has {cpus_text(cpus)} on cores whose other threads belong to {other}."
        yield Finding("warning", str(cpus), message, "MOOR-601")


def _interrupts(facts: IsolationFacts, assignments: Assignments) -> Iterator[Finding]:
    """Report interrupts that may be handled on exclusive CPUs, and where the extension would move them."""
    if facts.interrupts is None:
        if assignments.exclusive:
            yield _unchecked("interrupts", "proc/irq")
        return
    owners = assignments.owners
    beginning = [Interrupt(NEW, NEW_NAME, facts.new_interrupts, None)] if facts.new_interrupts else []
    room = InterruptCPUs(assignments.shared | assignments.exclusive | assignments.reserved, assignments.reserved)
    steps = steer([*facts.interrupts, *beginning], Memory(), owners, room)[0]
    hit = []
    for one in (step for step in steps if step.interrupt.number != NEW):
        # Where an interrupt is handled now and is not wanted
        cpus = (one.interrupt.effective or one.interrupt.allowed) & closed_to_others(owners)
        if one.why is Why.OWN and one.place is not None:
            cpus -= one.place
        hit += [(one.interrupt, cpus)] if cpus else []
    if hit:
        touched = union(cpus for _, cpus in hit)
        listed = named([_interrupt_text(one) for one, _ in hit])
        message = (
            f"{plural(len(hit), 'interrupt')} may be handled on {cpus_text(touched)}, held by "
            f"{named(assignments.labels(touched))}: {listed}."
        )
        yield Finding("warning", str(touched), message, "MOOR-602")
    fresh = (facts.new_interrupts or CPUSet()) & closed_to_others(owners)
    if fresh:
        message = f"Interrupts that are set up later begin on {cpus_text(fresh)} as well (default_smp_affinity)."
        yield Finding("info", str(fresh), message, "MOOR-603")
    if hit or fresh:
        yield from _remedy(steps, {one.number for one, _ in hit if one.managed})


def _remedy(steps: tuple[Step, ...], managed: set[int]) -> Iterator[Finding]:
    """Say what the extension would write, and what it could not."""
    writes = [step for step in steps if step.write is not None]
    if writes:
        listed = named([f"{_interrupt_text(one.interrupt)} to {cpus_text(one.write or CPUSet())}" for one in writes])
        message = f"The agent's extension irq-affinity would move {listed}."
        yield Finding("info", "proc/irq", message, "MOOR-617")
    if managed:
        listed = named([_interrupt_text(one.interrupt) for one in steps if one.interrupt.number in managed])
        message = f"The kernel places {listed} itself; {'it' if len(managed) == 1 else 'they'} cannot be moved."
        yield Finding("info", "proc/irq", message, "MOOR-623")
    stays = [step for step in steps if step.why is Why.NO_ROOM]
    if stays:
        listed = named([_interrupt_text(one.interrupt) for one in stays])
        message = f"Every CPU is exclusive, so nothing can be done about {listed}."
        yield Finding("info", "proc/irq", message, "MOOR-618")


def _interrupt_text(one: Interrupt) -> str:
    """Return an interrupt for people: number and devices.

    >>> _interrupt_text(Interrupt(24, "eth0", CPUSet(), None)), _interrupt_text(Interrupt(9, "", CPUSet(), None))
    ('24 (eth0)', '9')
    """
    if one.number == NEW:
        return one.name
    return f"{one.number} ({one.name})" if one.name else str(one.number)


def _system(facts: IsolationFacts, assignments: Assignments) -> Iterator[Finding]:
    """Report where the balancing of interrupts, services, unbound kernel work and the kernel's own ticks run.

    Services inherit CPUAffinity of systemd; everything else follows from the kernel's command line.
    """
    if facts.spared is not None:
        unspared = balance_finding(facts.spared, closed_to_others(assignments.owners))
        yield from [] if unspared is None else [unspared]
    exclusive, words = assignments.exclusive, facts.words
    if words is not None:
        if facts.services is None:
            message = (
                "Services and kernel threads may run on {}: CPUAffinity of systemd is not set, and isolcpus names none "
                "of them."
            )
            yield from _about(exclusive - words.isolated, "MOOR-605", message)
        else:
            message = "Services may run on {}: CPUAffinity of systemd names them."
            yield from _about(exclusive & facts.services, "MOOR-605", message)
        if not words.flags or "domain" in words.flags:
            shared = words.isolated & assignments.shared
            message = (
                f"{{}} {'is' if len(shared) == 1 else 'are'} isolated by the kernel and in the shared pool: what runs "
                "there is never balanced to another CPU."
            )
            yield from _about(shared, "MOOR-609", message)
            message = "The system avoids {}, although reserved for it: isolcpus names what is reserved."
            yield from _about(words.isolated & assignments.reserved, "MOOR-610", message)
        for word in words.misunderstood:
            message = f"The kernel was given {word!r:.120}, which is not a list of CPUs; the kernel ignores it too."
            yield Finding("warning", "proc/cmdline", message, "MOOR-614")
    message = "Unbound kernel work may run on {} (the cpumask of workqueues)."
    yield from _about((facts.workqueues or CPUSet()) & exclusive, "MOOR-606", message, "info")
    if words is not None:
        message = "The scheduler's tick interrupts {} (nohz_full does not name them)."
        yield from _about(exclusive - words.tickless, "MOOR-607", message, "info")
        message = "RCU callbacks run on {} (rcu_nocbs does not name them)."
        yield from _about(exclusive - words.callbacks_elsewhere, "MOOR-608", message, "info")
    elif exclusive:
        yield _unchecked("the kernel's command line", "proc/cmdline")


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
    # Isolated CPUs run only programs that request them.
    open_to_all = exclusive - facts.words.isolated if facts.words is not None else exclusive
    hosts = [group for group in facts.groups if not group.pod and group.cpus & open_to_all]
    if hosts:
        touched = union(group.cpus for group in hosts) & open_to_all
        tops = list(dict.fromkeys(group.path.split("/")[0] for group in hosts))
        message = (
            f"Processes of {named(tops)} ({plural(len(hosts), 'control group')}) may run on "
            f"{cpus_text(touched)}, held by {named(assignments.labels(touched))}."
        )
        yield Finding("warning", str(touched), message, "MOOR-611")
    pods = [group for group in facts.groups if group.pod]
    yield from _strangers(pods, assignments)
    yield from _misplaced(pods, assignments)


def _strangers(groups: list[ControlGroup], assignments: Assignments) -> Iterator[Finding]:
    """Tell which containers of pods without these CPUs may run there; sandboxes (pause) are among them and sleep."""
    by_pod: dict[str, CPUSet] = {}
    for group in groups:
        others = (holder.cpus for uid, holder in assignments.holders if uid != group.pod)
        reached = group.cpus & union(others)
        if reached:
            by_pod[group.pod] = by_pod.get(group.pod, CPUSet()) | reached
    if by_pod:
        touched = union(by_pod.values())
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
    for uid, holder in assignments.holders:
        sets = seen.get(uid)
        if sets and not any(cpus == holder.cpus for cpus in sets):
            message = (
                f"{holder.label} holds {cpus_text(holder.cpus)}, but no container of its pod is confined to them "
                f"(found: {named([str(cpus) or 'none' for cpus in sets])})."
            )
            yield Finding("warning", holder.label, message, "MOOR-613")


def isolation_document(machine: str, assignments: Assignments, findings: Sequence[Finding]) -> IsolationDocument:
    """Return the document."""
    return IsolationDocument(
        machine=machine,
        exclusive=str(assignments.exclusive),
        shared_pool=str(assignments.shared),
        reserved=str(assignments.reserved),
        holders=[ExclusiveHolderPart(holder.label, uid, str(holder.cpus)) for uid, holder in assignments.holders],
        findings=finding_parts(findings),
    )
