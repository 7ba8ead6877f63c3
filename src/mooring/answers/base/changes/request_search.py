"""The search for other amounts in a pod: the largest smaller ones that work, a little more, or those of exclusive CPUs.

For exclusive CPUs the pod becomes Guaranteed, with whole CPUs, and where that is not enough the node's configuration is
another, too.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import astuple, replace
from itertools import combinations, product
from typing import Final

from mooring.answers.base.changes.change import (
    NOTHING,
    Cost,
    PlannedChange,
    PodRef,
    applied,
    asked_about,
    of_amounts,
    refs,
)
from mooring.answers.base.changes.configuration import ConfigField, FreshState
from mooring.answers.base.changes.requests import Amount, with_amount
from mooring.answers.base.changes.search import Proposal, QueueOutcome, Search, begin, followed, holding, proposal
from mooring.answers.base.plan import Question, pods_in
from mooring.engine.core.decision import StartRefusal
from mooring.engine.core.errors import InputError
from mooring.engine.core.pod import Container, ContainerKind, Pod, QoS, ResourceList
from mooring.engine.core.quantity import Quantity
from mooring.engine.cpumanager.policy import STATIC, StaticPolicy, available_cpus, exclusive_cpus, whole_cpus
from mooring.engine.kubelet.admit import admit
from mooring.engine.kubelet.events import Admit, Readmit
from mooring.engine.memorymanager.policy import is_memory
from mooring.engine.memorymanager.state import NUMANodeState
from mooring.engine.node import Decision
from mooring.engine.node.resources import allocatable, pod_requests
from mooring.inputs.pods.defaults import PodGates

MOST_NODES = 10
"""Up to so many NUMA nodes, every set of them gives an amount of memory that is tried; with more, each node and
neighbours from the first on."""
MOST_AMOUNTS = 1024
"""How many amounts of one thing are tried at most."""
MIB = 2**20
MOST_BEHIND = 16
"""With more sums of what pods behind take, the next pods are not added to them."""
MOST_TAILS = 32
"""How many amounts that admit the pod may fail for the sake of a later pod."""


def proposals(search: Search) -> Iterator[Proposal]:
    """Yield the largest smaller amount of everything the pod requests, and a little more of what may be too little."""
    for container in (*search.pod.containers, None):
        requests = _requests(search.pod, container)
        for resource, quantity in requests.items():
            if resource == "cpu":
                yield from _of_cpus(search, container, quantity)
            elif is_memory(resource):
                more = [Quantity.of_bytes(quantity.units + _least(resource))] if container is None else []
                yield from _first(search, container, resource, quantity, more)
                yield from _first(search, container, resource, quantity, _bytes(search, container, resource, quantity))
            else:
                # What an init container got is reused by later ones, so that as many devices as these have could help.
                is_init = container is not None and container.kind is ContainerKind.INIT
                later = search.pod.containers[search.pod.containers.index(container) + 1 :] if is_init else ()
                reused = {one.limits[resource].units for one in later if resource in one.limits}
                larger = sorted(count for count in reused if count > quantity.units)
                for counts in (larger, range(quantity.units - 1, 0, -1)):
                    amounts = [Quantity.parse(str(count)) for count in counts]
                    yield from _first(search, container, resource, quantity, amounts)


def _requests(pod: Pod, container: Container | None) -> ResourceList:
    if container is not None:
        return container.requests
    return pod.resources.requests if pod.resources is not None and pod.is_pod_level else {}


def _first(
    search: Search, container: Container | None, resource: str, before: Quantity, amounts: Iterable[Quantity]
) -> Iterator[Proposal]:
    """Yield the first amount that works, if there is one."""
    ref, name = search.names[search.pod.uid], container.name if container is not None else ""
    tails = 0
    for tried, amount in enumerate(amounts):
        if tried == MOST_AMOUNTS or tails == MOST_TAILS:
            return
        change = Amount(ref, name, resource, amount)
        pod = admitted_with(search, (change,))
        if pod is None:
            continue
        tails += 1
        if course := course_with(search, pod, (change,)):
            yield search.proposal((change,), cost_of(resource, before, amount), course)
            return


def admitted_with(search: Search, changes: Iterable[Amount]) -> Pod | None:
    """Return the pod with other amounts; None where the API server or the kubelet refuses it so."""
    gates, pod = PodGates.of_node(search.question.config, search.question.mooring), search.pod
    try:
        for one in changes:
            pod = with_amount(pod, one.container, one.resource, one.amount, gates)
    except InputError:
        return None
    # Defaults at pod level follow from the containers: the pod may be Guaranteed no longer, and is another pod.
    is_same = pod.qos is search.pod.qos
    return pod if is_same and admit(search.kubelet, pod, running=not search.is_new)[1].admitted else None


def course_with(search: Search, pod: Pod, changes: tuple[Amount, ...]) -> QueueOutcome | None:
    """Return the question answered with other amounts of its pod; None where another pod is not admitted then."""
    entry = Admit(pod) if search.is_new else Readmit(pod)
    return search.tried(changes, search.kubelet, (entry, *search.tail))


def cost_of(resource: str, before: Quantity, after: Quantity) -> Cost:
    """Return the cost of giving up a part of an amount."""
    given_up = before.milli - after.milli if resource == "cpu" else before.units - after.units
    return of_amounts({resource: given_up})


def _of_cpus(search: Search, container: Container | None, before: Quantity) -> Iterator[Proposal]:
    whole = exclusive(search, container)
    if whole == 0:
        # What is left on the node for a container in the shared pool; a whole number could make the CPUs exclusive.
        left = [before.milli - excess for excess in sorted(_excesses(search, "cpu"))]
        amounts = [amount for most in left for amount in (most, most - 1) if 0 < amount < before.milli]
        yield from _first(search, container, "cpu", before, map(Quantity.of_milli, amounts))
        return
    policy, node = search.settings.cpu, search.kubelet.node.settled()
    if policy is None:
        raise AssertionError("exclusive CPUs come from a policy")
    held = sum(mask.bit_count() for mask in node.cpu.assignments.get(search.pod.uid, {}).values())
    most = available_cpus(policy, node.cpu).bit_count() + held
    smaller = range(min(whole - 1, most), 0, -1)
    larger = [count for count in _larger(search.pod, container, policy) if count <= most]
    for counts in (larger, smaller):
        yield from _first(search, container, "cpu", before, [Quantity.parse(str(count)) for count in counts])


def _larger(pod: Pod, container: Container | None, policy: StaticPolicy) -> list[int]:
    """Return which larger numbers could help: up to one core more; of init containers, those of later ones too.

    What an init container leaves is reused, so that as many CPUs as an app has do not bind the app to another node
    (kubernetes/kubernetes#123816).
    """
    if container is None:
        whole = whole_cpus(pod.resources.requests) if pod.resources is not None else 0
        return list(range(whole + 1, whole + policy.group_size + 1))
    whole = exclusive_cpus(pod, container, policy.gates)
    counts = set(range(whole + 1, whole + policy.group_size + 1))
    if container.kind is ContainerKind.INIT:
        later = pod.containers[pod.containers.index(container) + 1 :]
        counts.update(exclusive_cpus(pod, one, policy.gates) for one in later)
    return sorted(count for count in counts if count > whole)


def exclusive(search: Search, container: Container | None) -> int:
    """Return how many exclusive CPUs something requests."""
    policy, pod = search.settings.cpu, search.pod
    if policy is None or policy.gates.leaves_out(pod) or pod.qos is not QoS.GUARANTEED:
        return 0
    if container is not None:
        return exclusive_cpus(pod, container, policy.gates)
    return whole_cpus(pod.resources.requests) if pod.resources is not None and policy.gates.manages(pod) else 0


def _excesses(search: Search, resource: str) -> set[int]:
    """Return how much more the pod requests than the node has left, when it is asked and after those behind it."""
    node = allocatable(search.settings.reservation)
    if resource not in node:
        return {0}
    wanted = pod_requests(search.pod).get(resource, 0)
    return {
        max(0, wanted - node[resource] + kubelet.used.get(resource, 0))
        for kubelet in (search.kubelet, search.course.after)
    }


def _bytes(search: Search, container: Container | None, resource: str, before: Quantity) -> list[Quantity]:
    """Return the amounts at which an answer can change, the largest first.

    The memory manager compares a request with what is free, and with what could be given at all, on sets of NUMA nodes,
    after the pod's other containers have taken theirs; the node resources check compares it with what is left. Pods
    behind must still find theirs: beside them fits what is free when they have been asked, or what they leave of a set
    of NUMA nodes on which they come to lie now. Where a pod has memory of its own, its containers must leave something
    of it to those that share.
    """
    # What other containers may have taken before; all sums of it where they are few
    others = [one for one in search.pod.containers if one is not container and resource in one.requests]
    taking = [one.requests[resource].units for one in others if container is not None]
    sizes = range(len(taking) + 1) if len(taking) <= 3 else (0, 1, len(taking))
    beside = {sum(chosen) for count in sizes for chosen in combinations(taking, count)}
    amounts = {before.units - excess for excess in _excesses(search, resource)}
    behind = _behind(search, resource)
    for sum_ in _sums(search.kubelet.node.settled().memory.nodes, resource):
        amounts.update(sum_ - taken - later for taken in beside for later in behind)
    for sum_ in _sums(search.course.after.node.settled().memory.nodes, resource):
        amounts.update(sum_ - taken for taken in beside)
    if container is not None and search.settings.pod_level.manages(search.pod):
        own = _requests(search.pod, None).get(resource, before).units
        amounts.update(own - taken - _least(resource) for taken in beside)
    unit = page(resource)
    whole = {amount - amount % unit for amount in amounts}
    return [Quantity.of_bytes(amount) for amount in sorted(whole, reverse=True) if 0 < amount < before.units]


def _least(resource: str) -> int:
    """Return what is left to share where anything would do: a figure that people can read."""
    return max(MIB, page(resource))


def page(resource: str) -> int:
    """Return the number of bytes of which an amount is a multiple."""
    return 1 if resource == "memory" else Quantity.parse(resource.removeprefix("hugepages-")).units


def _behind(search: Search, resource: str) -> set[int]:
    """Return the sums of what pods behind take for themselves; of the first of them where there are many."""
    sums = {0}
    for pod in pods_in(search.tail):
        if pod.uid not in search.expected or pod.qos is not QoS.GUARANTEED or len(sums) > MOST_BEHIND:
            continue
        whole = pod.resources if search.settings.pod_level.manages(pod) else None
        asking = [whole.requests] if whole is not None else [container.requests for container in pod.containers]
        for requests in asking:
            taken = requests[resource].units if resource in requests else 0
            sums |= {one + taken for one in sums}
    return sums


def _sums(nodes: Mapping[int, NUMANodeState], resource: str) -> set[int]:
    """Return what is free, and what could ever be given, on each set of NUMA nodes."""
    tables = [state.memory[resource] for _, state in sorted(nodes.items()) if resource in state.memory]
    found: set[int] = set()
    for values in ([table.free for table in tables], [table.allocatable for table in tables]):
        if len(values) <= MOST_NODES:
            sums = {0}
            for value in values:
                sums |= {one + value for one in sums}
        else:
            sums = {*values, *(sum(values[:count]) for count in range(2, len(values) + 1))}
        found |= sums
    return found


_MOST_PAIRS = 400


def two_amounts(search: Search) -> Iterator[Proposal]:
    """Yield the largest amounts of two things that a pod requests which together fit on some number of NUMA nodes.

    A policy that wants the same NUMA nodes for everything admits no change of one alone where two of three want more of
    them than the third.
    """
    ref, tried = search.names[search.pod.uid], 0
    things = [(one, resource) for one in search.pod.containers for resource in one.requests if resource != "cpu"]
    things = [*((one, "cpu") for one in search.pod.containers if exclusive(search, one)), *things]
    # Devices are given up last.
    for pair in sorted(combinations(things, 2), key=lambda two: sum("/" in resource for _, resource in two)):
        for count in range(len(search.kubelet.node.providers.memory.nodes), 0, -1):
            for amounts in product(*(_on_nodes(search, one, resource, count) for one, resource in pair)):
                made = [(one, resource, amount) for (one, resource), amount in zip(pair, amounts, strict=True)]
                changes = tuple(Amount(ref, one.name, resource, amount) for one, resource, amount in made)
                tried += 1
                pod = admitted_with(search, changes) if tried <= _MOST_PAIRS else None
                course = None if pod is None else course_with(search, pod, changes)
                if course is not None:
                    costs = [astuple(cost_of(name, one.requests[name], after)) for one, name, after in made]
                    yield search.proposal(changes, Cost(*map(sum, zip(*costs, strict=True))), course)
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
        beside = sum(exclusive(search, one) for one in others)
    elif not is_memory(resource):
        known = [one for one in devices.devices.get(resource, ()) if one.id in devices.available(resource)]
        free = [sum(one.mask >> place & 1 for one in known) for place in node.memory.nodes]
    free.sort()
    unit = page(resource) if is_memory(resource) else 1
    sums = {sum(part) - taken for part in (free[:count], free[-count:]) for taken in (0, beside)}
    found = sorted({amount - amount % unit for amount in sums}, reverse=True)
    return [Quantity.of_bytes(amount) for amount in found if 0 < amount < before.units]


_ASSUMED: Final[Mapping[str, Quantity]] = {"cpu": Quantity.parse("100m"), "memory": Quantity.parse("128Mi")}
"""What a container that names no amount gets: little, in the shared pool."""
_STATIC: Final = ConfigField("cpuManagerPolicy", "static")
_RESERVED: Final = ConfigField("reservedSystemCPUs", "0")
_GATE: Final = ConfigField("featureGates.PodLevelResourceManagers", "true")
_SCOPE: Final = ConfigField("topologyManagerScope", "pod")
_FRESH: Final = FreshState("cpu")
_OF_POD_LEVEL: Final[tuple[tuple[PlannedChange, ...], ...]] = ((_SCOPE,), (_GATE,), (_GATE, _SCOPE))
_OF_POLICY: Final[tuple[tuple[PlannedChange, ...], ...]] = (
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
    pod = next((pod for pod in asked_about(question) if pod.uid == uid), None)
    if before is None or pod is None:
        return ()
    found: list[Proposal] = []
    of_policy = () if question.config.cpu_manager_policy == STATIC else _OF_POLICY
    for of_node in ((), *(_OF_POD_LEVEL if pod.is_pod_level else ()), *of_policy):
        for of_pod in _amounts(pod, refs(question)[uid], sorted({WHOLE, least}, reverse=True)):
            changes = (*of_node, *of_pod)
            course = _course(question, changes, before, uid) if changes else None
            if course is None or any(changes == one.changes for one in found):
                continue
            others = before.decisions.keys() & course.decisions.keys() - {uid}
            touched = sum(holding(before.decisions[one]) != holding(course.decisions[one]) for one in others)
            cost = replace(Cost(restarts=1) if of_node else NOTHING, touched=touched)
            found.append(proposal(question, changes, cost, uid, course, before))
        if found:
            break
    return tuple(found[:limit])


def _course(
    question: Question, changes: tuple[PlannedChange, ...], before: QueueOutcome, uid: str
) -> QueueOutcome | None:
    """Return the question answered with changes; None where the pod has no CPUs of its own then, or another is lost."""
    expected = {one for one, decision in before.decisions.items() if decision.admitted} | {uid}
    try:
        changed = applied(question, changes)
    except InputError:
        return None
    begun = begin(changed)
    course = None if isinstance(begun, StartRefusal) else followed(*begun, changed.leaving, expected)
    return course if course is not None and is_exclusive(course.decisions.get(uid)) else None


def _amounts(pod: Pod, ref: PodRef, rounded: Sequence[int]) -> Iterator[tuple[Amount, ...]]:
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
