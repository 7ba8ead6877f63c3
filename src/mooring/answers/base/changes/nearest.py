"""The kinds of changes, the search for the nearest that would admit a pod, and its price.

A proposal's price is what it costs and changes, in words and as a part of documents, with the command that shows it.

Of another configuration: the kubelet restarts, and the whole question is asked again; one field or option is changed at
a time, with what it cannot go without: the feature gate of an option, and leaving out all options where the CPU
manager's policy becomes ``none``. Where the kubelet would not start on the state files that there are, they are deleted
as well.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import chain
from typing import TYPE_CHECKING

from mooring.answers.base.changes import change as changing
from mooring.answers.base.changes import order, request_search, requests
from mooring.answers.base.changes.configuration import GATES, ConfigField, FreshState, is_on
from mooring.answers.base.changes.search import Proposal, QueueOutcome, Search, begin, begun, followed, plus, proposal
from mooring.answers.base.plan import Question
from mooring.answers.base.plan_document import placement_part
from mooring.answers.base.start import advice_to_start
from mooring.documents.explanation import AlignmentLostPart, ChangePart, CostPart, ProposalPart
from mooring.engine.core.config import EXTENSIONS, KubeletConfig, with_defaults
from mooring.engine.core.decision import StartRefusal
from mooring.engine.core.machine import Machine
from mooring.engine.core.pod import Pod
from mooring.engine.core.release import FeatureGates, resolve_gates
from mooring.engine.cpumanager.options import GROUP_GATES
from mooring.engine.releases.config_fields import CPU_OPTIONS, TOPOLOGY_OPTIONS
from mooring.engine.releases.gates import cpu_option_groups, known_gates
from mooring.engine.topologymanager.merge import DEFAULT_MAX_ALLOWABLE, MAX_ALLOWABLE, PREFER_CLOSEST
from mooring.explanations.alignment import AlignmentLevel, level_words
from mooring.explanations.phrases import devices_in_words, joined, plural, size

if TYPE_CHECKING:
    from mooring.answers.base.inputs.node import NodeInputs


def given_up_words(proposal: Proposal) -> list[str]:
    """Return what is given up: guarantees with what then lies on several NUMA nodes, devices, CPUs, memory."""
    cost = proposal.cost
    parts = [*(f"guarantee of {one.value}" for one in proposal.guarantees), *_spread_words(proposal)]
    if cost.devices:
        parts.append(plural(cost.devices, "device"))
    if cost.cpus:
        parts.append(f"{cost.cpus / 1000:g} CPU{'' if cost.cpus == 1000 else 's'}")
    if cost.bytes:
        parts.append(size(cost.bytes))
    return parts


def _spread_words(proposal: Proposal) -> list[str]:
    """Return what lies on several NUMA nodes, such as ``GPUs on 2 NUMA nodes``, without what is alignment lost."""
    lost = proposal.alignment_lost
    return [
        f"{what if is_own else devices_in_words(what)} on {plural(count, 'NUMA node')}"
        for what, count in proposal.spread.items()
        if (AlignmentLevel.NUMA if (is_own := what in ("CPUs", "memory")) else AlignmentLevel.DEVICES) not in lost
    ]


def alignment_words(proposal: Proposal) -> list[str]:
    """Return the alignment that is lost, such as ``1 NUMA node``: more than needed, by level."""
    return [level_words(level, count) for level, count in proposal.alignment_lost.items()]


def price_words(proposal: Proposal) -> str:
    """Return a sentence about guarantees and alignment that are lost and pods that a restart moves; empty for none."""
    parts = []
    if proposal.guarantees:
        parts.append(f"gives up the guarantee of {joined([one.value for one in proposal.guarantees])}")
    if spread := _spread_words(proposal):
        parts.append(f"places {joined(spread)}")
    if proposal.alignment_lost:
        parts.append(f"spreads containers over {joined(alignment_words(proposal))} more than needed")
    if proposal.cost.restarts and proposal.cost.touched:
        parts.append(f"moves {plural(proposal.cost.touched, 'earlier pod')}")
    return f"This {joined(parts)}." if parts else ""


def change_parts(changes: Iterable[changing.PlannedChange], question: Question) -> list[ChangePart]:
    """Return changes with what they are, how they read, and the option that makes them."""
    return [ChangePart(change.kind, changing.sentence([change], question), *change.option) for change in changes]


def proposal_part(proposal: Proposal, question: Question) -> ProposalPart:
    """Return a proposal with its cost, its changes, and where the pod would be."""
    cost = proposal.cost
    part = ProposalPart(
        text=proposal.text,
        cost=CostPart(
            guarantees=cost.guarantees,
            pods_touched=cost.touched,
            restarts=cost.restarts,
            state_files=cost.state_files,
            devices_added=cost.devices_added,
            devices=cost.devices,
            milli_cpus=cost.cpus,
            bytes=cost.bytes,
        ),
        guarantees_given_up=[one.value for one in proposal.guarantees],
        alignment_lost=AlignmentLostPart(*(proposal.alignment_lost.get(level, 0) for level in AlignmentLevel)),
        changes=change_parts(proposal.changes, question),
        containers={name: placement_part(place) for name, place in proposal.decision.containers.items()},
        pod=placement_part(proposal.decision.pod),
    )
    part.given_up, part.price = tuple(given_up_words(proposal)), price_words(proposal)
    return part


def outcome_command(read: NodeInputs, changes: Sequence[tuple[str, str]], pod: Pod) -> tuple[str, ...]:
    """Return the words after ``mooring`` that show the outcome of changes.

    Args:
        read: what the options of the call gave; some pods are left out where nothing names them.
        changes: options with their values.
        pod: that they admit.
    """
    name = f"{pod.namespace}/{pod.name}"
    needs_name = pod.uid in read.named and not any(name in value for _, value in changes)
    return ("whatif", *([name] if needs_name else []), *read.options.words, *chain(*changes))


SCOPES = ("container", "pod")
POLICIES = ("single-numa-node", "restricted", "best-effort", "none")
"""Topology policies, the strictest first: of two that admit a pod the stricter one is nearer."""

DELETIONS = ((), (FreshState("cpu"),), (FreshState("memory"),), (FreshState("cpu"), FreshState("memory")))
"""Which state files go, the fewest first."""


def configuration_proposals(search: Search) -> Iterator[Proposal]:
    """Yield every single field or option that admits the pod and leaves all others admitted.

    A looser topology policy that costs no less than a stricter one, apart from the guarantees, is left out.
    """
    if not search.has_room:
        return
    stricter: changing.Cost | None = None
    for changes in candidates(search.question):
        found = _asked_again(search.question, changes, search.pod.uid, search.expected)
        if found is None:
            continue
        made, course = found
        after = course.after.settings
        cost = changing.of_settings(search.settings, after, (*search.earlier, search.pod))
        cost = plus(cost, touched=search.touched(course), **_restart(made))
        is_policy = after.topology_policy != search.settings.topology_policy
        if is_policy and stricter is not None and not cost < stricter:
            continue
        stricter = cost if is_policy else stricter
        yield search.proposal(made, cost, course)


def proposals_to_start(question: Question, uid: str) -> Iterator[Proposal]:
    """Yield what lets a kubelet start that would not, and admits the pod."""
    for changes in ((), *candidates(question)):
        found = _asked_again(question, changes, uid, frozenset({uid}))
        if found is not None:
            made, course = found
            yield proposal(question, made, plus(changing.NOTHING, **_restart(made)), uid, course)


def _restart(changes: tuple[changing.PlannedChange, ...]) -> dict[str, int]:
    return {"restarts": 1, "state_files": sum(isinstance(change, FreshState) for change in changes)}


def _asked_again(
    question: Question, changes: tuple[changing.PlannedChange, ...], uid: str, expected: frozenset[str]
) -> tuple[tuple[changing.PlannedChange, ...], QueueOutcome] | None:
    """Ask the whole question with the changes, and with as few state files deleted as the kubelet needs to start."""
    for deleted in DELETIONS:
        if any(getattr(question.files, change.manager) is None for change in deleted):
            continue
        made = (*changes, *deleted)
        changed = changing.applied(question, made)
        start = begin(changed)
        if isinstance(start, StartRefusal):
            if start.stage != "start":
                return None
            continue
        if not made:
            return None
        course = followed(*start, changed.leaving, expected)
        return (made, course) if course is not None and course.admitted(uid) else None
    return None


def candidates(question: Question) -> Iterator[tuple[changing.PlannedChange, ...]]:
    """Yield the changes of one field or option each, those that loosen least first."""
    config = with_defaults(question.config)
    for scope in SCOPES:
        if scope != config.topology_manager_scope:
            yield (ConfigField("topologyManagerScope", scope),)
    yield from _options(config, question.machine, question.mooring.release.name)
    for policy in POLICIES:
        if policy != config.topology_manager_policy:
            yield (ConfigField("topologyManagerPolicy", policy),)
    for policy in ("Static", "None"):
        if policy != config.memory_manager_policy:
            yield (ConfigField("memoryManagerPolicy", policy),)
    if config.cpu_manager_policy != "static":
        yield (ConfigField("cpuManagerPolicy", "static"),)
    if config.cpu_manager_policy != "none":
        left_out = [ConfigField(f"{CPU_OPTIONS}.{name}", "") for name in sorted(config.cpu_manager_policy_options)]
        yield (ConfigField("cpuManagerPolicy", "none"), *left_out)


def _options(config: KubeletConfig, machine: Machine, release: str) -> Iterator[tuple[changing.PlannedChange, ...]]:
    gates = resolve_gates(config.feature_gates, known_gates(release), EXTENSIONS)
    for name, group in cpu_option_groups(release).items() if config.cpu_manager_policy == "static" else ():
        if is_on(config.cpu_manager_policy_options.get(name, "")):
            yield (ConfigField(f"{CPU_OPTIONS}.{name}", "false"),)
            continue
        # With the feature gate that the option's group needs, where it is off
        gate = GROUP_GATES.get(group, "")
        is_off = isinstance(gates, FeatureGates) and bool(gate) and not gates[gate]
        needed = (ConfigField(f"{GATES}.{gate}", "true"),) if is_off else ()
        yield (*needed, ConfigField(f"{CPU_OPTIONS}.{name}", "true"))
    if config.topology_manager_policy == "none":
        return
    on = is_on(config.topology_manager_policy_options.get(PREFER_CLOSEST, ""))
    yield (ConfigField(f"{TOPOLOGY_OPTIONS}.{PREFER_CLOSEST}", "false" if on else "true"),)
    nodes = len(machine.info.topology)
    if nodes > DEFAULT_MAX_ALLOWABLE:
        wanted = str(nodes)
        if config.topology_manager_policy_options.get(MAX_ALLOWABLE, "") != wanted:
            yield (ConfigField(f"{TOPOLOGY_OPTIONS}.{MAX_ALLOWABLE}", wanted),)


Family = Callable[[Search], Iterator[Proposal]]

FAMILIES: tuple[tuple[changing.Cost, Family], ...] = (
    (changing.NOTHING, request_search.proposals),
    (changing.NOTHING, order.proposals),
    (changing.NOTHING, requests.exchanged),
    (changing.Cost(restarts=1), configuration_proposals),
    (changing.Cost(touched=1), order.moves),
    (changing.Cost(touched=1), order.removals),
    (changing.Cost(touched=2), order.pairs),
    (changing.Cost(devices_added=1), requests.added),
)
"""Families in the order of what their members cost at least. Of proposals that cost the same, the one of the earlier
family is nearer."""


def nearest_changes(question: Question, uid: str, limit: int = 3) -> tuple[Proposal, ...]:
    """Return the nearest changes that would admit a pod, the nearest first; empty when it is admitted or none is known.

    Args:
        question: the node and its pods.
        uid: of a pod of the question that is not admitted.
        limit: how many at most.
    """
    search = begun(question, uid)
    if search is None:
        return ()
    if isinstance(search, StartRefusal):
        # What lets the kubelet start is one remedy of every verb (Plan.remedy); others are for lack of it.
        advice = advice_to_start(question, search)
        if advice and not any(change.drains for change in advice):
            return ()
        return _ranked([*proposals_to_start(question, uid)], limit)
    found: list[Proposal] = []
    for least, family in FAMILIES:
        best = _ranked(found, limit)
        if len(best) == limit and best[-1].cost <= least:
            break
        found.extend(family(search))
        if family is request_search.proposals and not found:
            found.extend(request_search.two_amounts(search))
    return _ranked(found, limit)


def _ranked(found: list[Proposal], limit: int) -> tuple[Proposal, ...]:
    return tuple(sorted(found, key=lambda proposal: proposal.cost)[:limit])
