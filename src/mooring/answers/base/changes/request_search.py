"""The search for another amount of one thing, and for another configuration.

Of an amount: the largest smaller amount that works, or a little more. Of a configuration: the kubelet restarts, and the
whole question is asked again; one field or option is changed at a time, with what it cannot go without: the feature
gate of an option, and leaving out all options where the CPU manager's policy becomes ``none``. Where the kubelet would
not start on the state files that there are, they are deleted as well.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from itertools import combinations

from mooring.answers.base.changes.change import NOTHING, Cost, PlannedChange, applied, of_amounts, of_settings
from mooring.answers.base.changes.configuration import GATES, ConfigField, FreshState, is_on
from mooring.answers.base.changes.requests import Amount, with_amount
from mooring.answers.base.changes.search import Proposal, QueueOutcome, Search, begin, followed, plus, proposal
from mooring.answers.base.plan import Question, pods_in
from mooring.engine.core.config import EXTENSIONS, KubeletConfig, with_defaults
from mooring.engine.core.decision import StartRefusal
from mooring.engine.core.errors import InputError
from mooring.engine.core.machine import Machine
from mooring.engine.core.pod import Container, ContainerKind, Pod, QoS, ResourceList
from mooring.engine.core.quantity import Quantity
from mooring.engine.core.release import FeatureGates, resolve_gates
from mooring.engine.cpumanager.options import GROUP_GATES
from mooring.engine.cpumanager.policy import StaticPolicy, available_cpus, exclusive_cpus, whole_cpus
from mooring.engine.kubelet.admit import admit
from mooring.engine.kubelet.events import Admit, Readmit
from mooring.engine.memorymanager.policy import is_memory
from mooring.engine.memorymanager.state import NUMANodeState
from mooring.engine.node.resources import allocatable, pod_requests
from mooring.engine.releases.config_fields import CPU_OPTIONS, TOPOLOGY_OPTIONS
from mooring.engine.releases.gates import cpu_option_groups, known_gates
from mooring.engine.topologymanager.merge import DEFAULT_MAX_ALLOWABLE, MAX_ALLOWABLE, PREFER_CLOSEST
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
    beside = _beside(search.pod, container, resource)
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


def _beside(pod: Pod, container: Container | None, resource: str) -> set[int]:
    """Return the sums of what other containers may have taken before; all of them where they are few."""
    if container is None:
        return {0}
    others = [
        one.requests[resource].units for one in pod.containers if one is not container and resource in one.requests
    ]
    sizes = range(len(others) + 1) if len(others) <= 3 else (0, 1, len(others))
    return {sum(chosen) for size in sizes for chosen in combinations(others, size)}


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
    stricter: Cost | None = None
    for changes in candidates(search.question):
        found = _asked_again(search.question, changes, search.pod.uid, search.expected)
        if found is None:
            continue
        made, course = found
        after = course.after.settings
        cost = of_settings(search.settings, after, (*search.earlier, search.pod))
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
            yield proposal(question, made, plus(NOTHING, **_restart(made)), uid, course)


def _restart(changes: tuple[PlannedChange, ...]) -> dict[str, int]:
    return {"restarts": 1, "state_files": sum(isinstance(change, FreshState) for change in changes)}


def _asked_again(
    question: Question, changes: tuple[PlannedChange, ...], uid: str, expected: frozenset[str]
) -> tuple[tuple[PlannedChange, ...], QueueOutcome] | None:
    """Ask the whole question with the changes, and with as few state files deleted as the kubelet needs to start."""
    for deleted in DELETIONS:
        if any(getattr(question.files, change.manager) is None for change in deleted):
            continue
        made = (*changes, *deleted)
        changed = applied(question, made)
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


def candidates(question: Question) -> Iterator[tuple[PlannedChange, ...]]:
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


def _options(config: KubeletConfig, machine: Machine, release: str) -> Iterator[tuple[PlannedChange, ...]]:
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
