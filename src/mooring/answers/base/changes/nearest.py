"""The kinds of changes, the search for the nearest that would admit a pod, and its price.

A proposal's price is what it costs and changes, in words and as a part of documents, with the command that shows it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import astuple, replace
from itertools import chain, combinations, product
from typing import TYPE_CHECKING, Final

from mooring.answers.base.changes import change as changing
from mooring.answers.base.changes import order, request_search, requests
from mooring.answers.base.changes import request_search as configuration_search
from mooring.answers.base.changes.configuration import ConfigField, FreshState
from mooring.answers.base.changes.requests import Amount
from mooring.answers.base.changes.search import (
    Proposal,
    QueueOutcome,
    Search,
    begin,
    begun,
    followed,
    holding,
    proposal,
)
from mooring.answers.base.plan import Question
from mooring.answers.base.plan_document import placement_part
from mooring.answers.base.start import advice_to_start
from mooring.documents.explanation import AlignmentLostPart, ChangePart, CostPart, ProposalPart
from mooring.engine.core.decision import StartRefusal
from mooring.engine.core.errors import InputError
from mooring.engine.core.pod import Container, Pod, ResourceList
from mooring.engine.core.quantity import Quantity
from mooring.engine.cpumanager.policy import STATIC, available_cpus
from mooring.engine.memorymanager.policy import is_memory
from mooring.engine.node import Decision
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


Family = Callable[[Search], Iterator[Proposal]]

_MOST_PAIRS = 400


def _two_amounts(search: Search) -> Iterator[Proposal]:
    """Yield the largest amounts of two things that a pod requests which together fit on some number of NUMA nodes.

    A policy that wants the same NUMA nodes for everything admits no change of one alone where two of three want more of
    them than the third.
    """
    ref, tried = search.names[search.pod.uid], 0
    things = [(one, resource) for one in search.pod.containers for resource in one.requests if resource != "cpu"]
    things = [*((one, "cpu") for one in search.pod.containers if request_search.exclusive(search, one)), *things]
    # Devices are given up last.
    for pair in sorted(combinations(things, 2), key=lambda two: sum("/" in resource for _, resource in two)):
        for count in range(len(search.kubelet.node.providers.memory.nodes), 0, -1):
            for amounts in product(*(_on_nodes(search, one, resource, count) for one, resource in pair)):
                made = [(one, resource, amount) for (one, resource), amount in zip(pair, amounts, strict=True)]
                changes = tuple(Amount(ref, one.name, resource, amount) for one, resource, amount in made)
                tried += 1
                pod = request_search.admitted_with(search, changes) if tried <= _MOST_PAIRS else None
                course = None if pod is None else request_search.course_with(search, pod, changes)
                if course is not None:
                    costs = [
                        astuple(request_search.cost_of(name, one.requests[name], after)) for one, name, after in made
                    ]
                    yield search.proposal(changes, changing.Cost(*map(sum, zip(*costs, strict=True))), course)
                    return


def _on_nodes(search: Search, container: Container, resource: str, count: int) -> list[Quantity]:
    """Return smaller amounts for a container that some NUMA nodes of a number have free, the largest first."""
    node, policy, before = search.kubelet.node.settled(), search.settings.cpu, container.requests[resource]
    others, devices = [one for one in search.pod.containers if one is not container], node.providers.devices
    beside = sum(one.requests[resource].units for one in others if resource in one.requests)
    states = [state.memory.get(resource) for state in node.memory.nodes.values()]
    free = [0 if table is None else table.free for table in states]
    if resource == "cpu" and policy is not None:
        available = available_cpus(policy, node.cpu)
        free = [(mask & available).bit_count() for mask in policy.topology.numa.values()]
        beside = sum(request_search.exclusive(search, one) for one in others)
    elif not is_memory(resource):
        known = [one for one in devices.devices.get(resource, ()) if one.id in devices.available(resource)]
        free = [sum(one.mask >> place & 1 for one in known) for place in node.memory.nodes]
    free.sort()
    page = request_search.page(resource) if is_memory(resource) else 1
    sums = {sum(part) - taken for part in (free[:count], free[-count:]) for taken in (0, beside)}
    found = sorted({amount - amount % page for amount in sums}, reverse=True)
    return [Quantity.of_bytes(amount) for amount in found if 0 < amount < before.units]


FAMILIES: tuple[tuple[changing.Cost, Family], ...] = (
    (changing.NOTHING, request_search.proposals),
    (changing.NOTHING, order.proposals),
    (changing.NOTHING, requests.exchanged),
    (changing.Cost(restarts=1), configuration_search.configuration_proposals),
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
        return _ranked([*configuration_search.proposals_to_start(question, uid)], limit)
    found: list[Proposal] = []
    for least, family in FAMILIES:
        best = _ranked(found, limit)
        if len(best) == limit and best[-1].cost <= least:
            break
        found.extend(family(search))
        if family is request_search.proposals and not found:
            found.extend(_two_amounts(search))
    return _ranked(found, limit)


def _ranked(found: list[Proposal], limit: int) -> tuple[Proposal, ...]:
    return tuple(sorted(found, key=lambda proposal: proposal.cost)[:limit])


_ASSUMED: Final[Mapping[str, Quantity]] = {"cpu": Quantity.parse("100m"), "memory": Quantity.parse("128Mi")}
"""What a container that names no amount gets: little, in the shared pool."""
_STATIC: Final = ConfigField("cpuManagerPolicy", "static")
_RESERVED: Final = ConfigField("reservedSystemCPUs", "0")
_GATE: Final = ConfigField("featureGates.PodLevelResourceManagers", "true")
_SCOPE: Final = ConfigField("topologyManagerScope", "pod")
_FRESH: Final = FreshState("cpu")
_OF_POD_LEVEL: Final[tuple[tuple[changing.PlannedChange, ...], ...]] = ((_SCOPE,), (_GATE,), (_GATE, _SCOPE))
_OF_POLICY: Final[tuple[tuple[changing.PlannedChange, ...], ...]] = (
    (_STATIC,),
    (_STATIC, _FRESH),
    (_STATIC, _RESERVED),
    (_STATIC, _RESERVED, _FRESH),
)
"""Changes of the node that a pod may need, the nearest first."""
WHOLE: Final = 1000
"""A container that names so many thousandths of a CPU may want CPUs of its own."""


def is_exclusive(decision: Decision | None) -> bool:
    """Tell whether a pod, or a container of it, is given CPUs of its own."""
    return decision is not None and bool(decision.pod.cpus or any(one.cpus for one in decision.containers.values()))


def exclusive_changes(question: Question, uid: str, limit: int, least: int = 0) -> tuple[Proposal, ...]:
    """Return the nearest changes with which a pod has exclusive CPUs and all admitted pods stay admitted.

    Args:
        question: the node and its pods.
        uid: of one of the pods.
        limit: how many at most.
        least: thousandths of a CPU from which a fraction may be rounded up to whole CPUs.
    """
    begun = begin(question)
    before = None if isinstance(begun, StartRefusal) else followed(*begun, question.leaving)
    pod = next((pod for pod in changing.asked_about(question) if pod.uid == uid), None)
    if before is None or pod is None:
        return ()
    found: list[Proposal] = []
    of_policy = () if question.config.cpu_manager_policy == STATIC else _OF_POLICY
    for of_node in ((), *(_OF_POD_LEVEL if pod.is_pod_level else ()), *of_policy):
        for of_pod in _amounts(pod, changing.refs(question)[uid], sorted({WHOLE, least}, reverse=True)):
            changes = (*of_node, *of_pod)
            course = _course(question, changes, before, uid) if changes else None
            if course is None or any(changes == one.changes for one in found):
                continue
            others = before.decisions.keys() & course.decisions.keys() - {uid}
            touched = sum(holding(before.decisions[one]) != holding(course.decisions[one]) for one in others)
            cost = replace(changing.Cost(restarts=1) if of_node else changing.NOTHING, touched=touched)
            found.append(proposal(question, changes, cost, uid, course, before))
        if found:
            break
    return tuple(found[:limit])


def _course(
    question: Question, changes: tuple[changing.PlannedChange, ...], before: QueueOutcome, uid: str
) -> QueueOutcome | None:
    """Return the question answered with changes; None where the pod has no CPUs of its own then, or another is lost."""
    expected = {one for one, decision in before.decisions.items() if decision.admitted} | {uid}
    try:
        changed = changing.applied(question, changes)
    except InputError:
        return None
    begun = begin(changed)
    course = None if isinstance(begun, StartRefusal) else followed(*begun, changed.leaving, expected)
    return course if course is not None and is_exclusive(course.decisions.get(uid)) else None


def _amounts(pod: Pod, ref: changing.PodRef, rounded: Sequence[int]) -> Iterator[tuple[Amount, ...]]:
    """Yield what makes a pod Guaranteed, and then the same with fractions from some thousandths on rounded up."""
    owners: list[tuple[str, ResourceList, ResourceList]]
    if pod.resources is not None and pod.is_pod_level:
        owners = [("", pod.resources.requests, pod.resources.limits)]
    else:
        owners = [(one.name, one.requests, one.limits) for one in pod.containers]
    for threshold in (None, *rounded):
        changes = []
        for owner, asked, limits in owners:
            for resource, little in _ASSUMED.items():
                given = limits.get(resource) or asked.get(resource)
                amount = given or little
                if resource == "cpu" and given and threshold is not None and threshold <= given.milli:
                    amount = Quantity.parse(str(-(-given.milli // 1000)))
                if not asked.get(resource) == limits.get(resource) == amount:
                    changes.append(Amount(ref, owner, resource, amount, both=True, assumed=given is None))
        yield tuple(changes)
