"""What the sentences of ``mooring.explanations.why`` claim, held against the node itself.

Every sentence must have one of the known forms, and every figure in it is counted again, from the state after the
decision and by plain enumeration, not from the facts of which the sentence was made.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations

from tests.values import not_none

from mooring.engine.core.bits import mask_of, members
from mooring.engine.core.cpuset import CPUSet
from mooring.engine.core.pod import Container, ContainerKind, Pod, guaranteed_equivalent
from mooring.engine.core.quantity import Quantity
from mooring.engine.cpumanager.policy import exclusive_cpus, exclusive_cpus_of_pod
from mooring.engine.memorymanager.policy import container_requests, pod_requests
from mooring.engine.node import Decision, Node
from mooring.engine.topologymanager.hints import Hints
from mooring.engine.topologymanager.wide import AnyHints

UNITS = {"B": 1, "KiB": 2**10, "MiB": 2**20, "GiB": 2**30, "TiB": 2**40}

Say = Mapping[str, str]
"""The parts of a sentence that its form names, empty where it lacks one; an empty container is the pod as a whole."""

Check = Callable[["Told", Say], bool]

WHO = r"(?:Container (?P<container>\S+)|The pod as a whole)"
ASKS = rf"{WHO} requests (?P<need>\d+) exclusive CPUs?"
LEFT = r"(?P<left>none is|only \d+ (?:is|are))"
NODES = r"NUMA nodes? (?P<{}>[\d,\-]*\d)"


@dataclass(frozen=True, slots=True)
class Told:
    """A sentence and what it is about."""

    text: str
    pod: Pod
    decision: Decision
    after: Node

    @property
    def cpus(self) -> Mapping[int, int]:
        """NUMA node -> mask of its CPUs."""
        assert self.after.settings.topology is not None
        return self.after.settings.topology.numa

    @property
    def reserved(self) -> int:
        return self.after.settings.cpu.reserved if self.after.settings.cpu is not None else 0

    def container(self, name: str) -> Container:
        return next(container for container in self.pod.containers if container.name == name)

    def need(self, name: str) -> int:
        """Return the exclusive CPUs of a container, or of the pod for an empty name."""
        policy = not_none(self.after.settings.cpu)
        if name:
            return exclusive_cpus(self.pod, self.container(name), policy.gates)
        return exclusive_cpus_of_pod(self.pod, policy.gates)

    def left(self) -> int:
        """Return the mask of the CPUs that nobody has: the failing container has got none."""
        return self.after.cpu.default & ~self.reserved

    def reusable(self, name: str) -> int:
        """Return the CPUs that earlier containers of the pod leave."""
        record = self.after.providers.reusable_cpus.of(self.pod.uid)
        if name:
            return record
        for cpus in self.after.cpu.assignments.get(self.pod.uid, {}).values():
            record |= cpus
        return record

    def memory(self, name: str) -> Mapping[str, int]:
        policy = not_none(self.after.settings.memory)
        if name:
            asked = container_requests(self.pod, self.container(name), policy.gates)
        else:
            asked = pod_requests(self.pod, policy.gates)
        assert not isinstance(asked, str)
        return asked

    def free_memory(self, node: int, resource: str) -> int:
        table = self.after.memory.nodes[node].memory.get(resource)
        return table.free if table is not None else 0


FORMS: list[tuple[re.Pattern[str], Check]] = []
"""All forms that a sentence may have, with what checks it."""


def says(form: str) -> Callable[[Check], Check]:
    """Register a check for the sentences of a form."""

    def register(verify: Check) -> Check:
        FORMS.append((re.compile(form), verify))
        return verify

    return register


def check(told: Told) -> None:
    """Fail unless every sentence has a known form and everything in it is true."""
    assert told.text.endswith(".")
    for sentence in re.findall(r".+?\.(?= [A-Z]|$)", told.text):
        text = sentence.strip()
        forms = [(form.fullmatch(text), verify) for form, verify in FORMS]
        matching = [(found.groupdict(""), verify) for found, verify in forms if found is not None]
        assert matching, f"no known form: {text}"
        for say, _ in matching:
            assert "need" not in say or int(say["need"]) == told.need(say["container"]), text
            assert "asks" not in say or amounts(told, say["container"], say["asks"]), text
        assert any(verify(told, say) for say, verify in matching), (text, told.decision.message)


def ids(text: str) -> list[int]:
    return list(members(CPUSet.parse(text).mask))


def number(text: str) -> int:
    """Return the number of ``none is``, ``only 1 is``, ``no CPU is`` or ``only 5 CPUs are``."""
    found = re.search(r"\d+", text)
    return int(found.group()) if found is not None else 0


def fewest(told: Told, need: int, usable: int, around: Sequence[int] = ()) -> int:
    """Return, by trying all sets, how many nodes it takes for ``need`` of the usable CPUs; 0 when all have too few."""
    home = set(around)
    for size in range(1, len(told.cpus) + 1):
        for chosen in combinations(told.cpus, size):
            if home <= set(chosen) and sum((told.cpus[node] & usable).bit_count() for node in chosen) >= need:
                return size
    return 0


def about(text: str, amount: int) -> bool:
    """Tell whether a text says an amount of bytes: exactly as a quantity, rounded to a tenth with a unit."""
    number_, _, unit = text.partition(" ")
    if not unit:
        return Quantity.parse(text).units == amount
    return abs(float(number_) * UNITS[unit] - amount) <= 0.05000001 * UNITS[unit]


# What is said of admitted pods.


POOL = "It runs in the shared pool: "


@says(rf"Its (?P<count>\d+) exclusive CPUs? comes? from {NODES.format('nodes')}(?:; (?P<remarks>.*))?\.")
def placed(told: Told, say: Say) -> bool:
    every = told.decision.pod.cpus.mask
    for placement in told.decision.containers.values():
        every |= placement.cpus.mask
    assert int(say["count"]) == every.bit_count()
    assert ids(say["nodes"]) == [node for node, mask in told.cpus.items() if mask & every]
    return all(remark(told, text) for text in filter(None, say["remarks"].split("; ")))


def remark(told: Told, text: str) -> bool:
    spread = re.fullmatch(
        r"(\S+) is spread over (\d+) NUMA nodes although (\d+) can hold it on an empty machine(.*)", text
    )
    if spread is not None:
        name, used, few, cause = spread.groups()
        cpus = told.decision.containers[name].cpus
        nodes = [node for node, mask in told.cpus.items() if mask & cpus.mask]
        assert cause in CAUSES
        assert CAUSES[cause](told)
        return int(used) == len(nodes) > int(few) == fewest(told, len(cpus), ~told.reserved)
    stranded = re.fullmatch(r"(\d+) of them (?:is|are) for init containers only and stays? allocated to the pod", text)
    if stranded is not None:
        kept = idle = 0
        for container in told.pod.containers:
            mask = told.decision.containers[container.name].cpus.mask
            if container.kind is ContainerKind.INIT:
                idle |= mask
            else:
                kept |= mask
        return int(stranded.group(1)) == (idle & ~kept).bit_count()
    shared = re.fullmatch(r"(\d+) other containers? runs? in the shared pool", text)
    assert shared is not None, text
    without = [name for name, placement in told.decision.containers.items() if not placement.cpus]
    return int(shared.group(1)) == len(without)


def distributes(told: Told) -> bool:
    return told.after.settings.cpu is not None and told.after.settings.cpu.rules.distribute


CAUSES: Mapping[str, Callable[[Told], bool]] = {
    "": lambda told: told.after.settings.topology_policy not in ("none", "best-effort"),
    ", which distribute-cpus-across-numa allows": distributes,
    ": topology manager policy none ignores NUMA nodes": lambda told: told.after.settings.topology_policy == "none",
    ": best-effort accepts any set": lambda told: told.after.settings.topology_policy == "best-effort",
}


def in_shared_pool(told: Told, say: Say) -> bool:
    del say
    return not any(placement.cpus for placement in told.decision.containers.values())


@says(rf"{POOL}its QoS class is (?P<qos>\w+)( \((?P<faults>.+)\))?, and only Guaranteed pods get exclusive CPUs\.")
def qos(told: Told, say: Say) -> bool:
    faulty = {one.name for one in told.pod.containers if not guaranteed_equivalent(one)}
    if told.after.settings.pod_level.resources and told.pod.is_pod_level:
        faulty = {"spec.resources"}
    said = {
        name
        for part in say["faults"].split("; ")
        for name in part.partition(" has ")[0].partition(" have ")[0].replace(" and ", ", ").split(", ")
    }
    # A status may name another class than the containers have.
    named = said == faulty or not say["faults"]
    return in_shared_pool(told, say) and told.pod.qos.value == say["qos"] != "Guaranteed" and named


@says(rf"{POOL}the CPU manager policy is none, so no container gets exclusive CPUs\.")
def policy_none(told: Told, say: Say) -> bool:
    return in_shared_pool(told, say) and told.after.settings.cpu is None


@says(rf"{POOL}no container requests a whole number of CPUs\.")
@says(rf"{POOL}no container requests a whole number of CPUs with requests equal to limits\.")
def fraction(told: Told, say: Say) -> bool:
    return in_shared_pool(told, say) and not any(told.need(one.name) for one in told.pod.containers)


@says(
    rf"{POOL}a cpu request exceeds 64 bits, so that the kubelet counts a negative number of CPUs and allocates none\."
)
def negative(told: Told, say: Say) -> bool:
    return in_shared_pool(told, say) and any(told.need(one.name) < 0 for one in told.pod.containers)


@says(rf"{POOL}the pod as a whole does not request a whole number of CPUs\.")
def no_whole_pod(told: Told, say: Say) -> bool:
    return in_shared_pool(told, say) and told.need("") == 0 and told.after.settings.pod_scope


@says(
    rf"{POOL}it has pod-level resources, and (the gate PodLevelResourceManagers is off"
    r"|the managers of kubelet (?P<release>\S+) leave such pods out)\."
)
def gate_off(told: Told, say: Say) -> bool:
    settings = told.after.settings
    assert say["release"] == ("" if "PodLevelResourceManagers" in settings.gates.values else settings.release.name)
    return in_shared_pool(told, say) and told.pod.is_pod_level and not settings.pod_level.managers


@says(rf"Its memory is pinned to {NODES.format('nodes')}\.")
def tied(told: Told, say: Say) -> bool:
    nodes = {node for placement in told.decision.containers.values() for node in placement.mems}
    return ids(say["nodes"]) == sorted(nodes)


# What is said of memory that cannot be had.


AMOUNT = r"\S+(?: [KMGT]?i?B)?"
ASKS_MEMORY = rf"{WHO} requests (?P<asks>{AMOUNT} of (?:memory|hugepages)[^;]*?)"
SHORT = r"(?P<left>(?:only .+? of|no) (?P<resource>[\w\-]+))"
CHOICE = r"the NUMA nodes chosen for it"
BARRED = "nodes that serve other containers cannot join a new group"
END = rf"(?:no larger set is allowed(?P<why>: {BARRED})?|a larger set exceeds what it takes on an empty machine)"


def amounts(told: Told, name: str, text: str) -> bool:
    """Tell whether ``1 GiB of memory and 2Mi of hugepages-2Mi`` is what is asked for."""
    asked = told.memory(name)
    parts = re.findall(rf"({AMOUNT}) of ([\w.\-]+)", text)
    return [resource for _, resource in parts] == list(asked) and all(
        about(amount, asked[resource]) for amount, resource in parts
    )


def groups(told: Told) -> set[tuple[int, ...]]:
    return {tuple(sorted(state.cells)) for state in told.after.memory.nodes.values() if len(state.cells) > 1}


@says(
    rf"{WHO} requests no memory, (but was given NUMA nodes (?P<nodes>[\d,\-]+), which serve other containers"
    r"|and kubelet (?P<release>\S+) finds no NUMA nodes for such a container)\."
)
def memory_of_a_container_that_requests_none(told: Told, say: Say) -> bool:
    assert told.memory(say["container"]) == {}
    if say["release"]:
        return told.after.settings.release.name == say["release"]
    held = told.after.memory.nodes
    return any(held[node].assignments and held[node].cells != tuple(ids(say["nodes"])) for node in ids(say["nodes"]))


@says(rf"{ASKS_MEMORY}, but no single NUMA node can provide that(?P<listed> \(.*\))?\.")
def memory_single(told: Told, say: Say) -> bool:
    name = say["container"]
    grouped = {node for group in groups(told) for node in group}
    alone = [node for node in told.after.memory.nodes if node not in grouped]
    impossible = all(
        any(told.free_memory(node, resource) < amount for resource, amount in told.memory(name).items())
        for node in alone
    )
    return impossible and listed_memory(told, name, say["listed"])


def listed_memory(told: Told, name: str, text: str) -> bool:
    for part in filter(None, text.strip(" ()").split("; ")):
        group = re.fullmatch(r"NUMA nodes ([\d,\-]+) serve other containers as one group", part)
        if group is not None:
            assert tuple(ids(group.group(1))) in groups(told)
            continue
        kind, _, values = part.removeprefix("free").strip().rpartition(": ")
        resource = kind.strip(": ") or "memory"
        for amount, nodes in re.findall(rf"({AMOUNT}) on NUMA nodes? ([\d,\-]*\d)", values or part):
            for node in ids(nodes):
                assert about(amount, told.free_memory(node, resource))
                assert told.free_memory(node, resource) < told.memory(name)[resource]
    return True


@says(
    rf"{ASKS_MEMORY}, which takes (?P<now>\d+) NUMA nodes now and fewer on an empty machine; "
    r"restricted rejects that(?P<groups>: .* serve other containers as (?:one group|groups))?\."
)
def memory_wider(told: Told, say: Say) -> bool:
    if say["groups"]:
        listed = {tuple(ids(text)) for text in re.findall(r"NUMA nodes ([\d,\-]*\d)", say["groups"])}
        assert listed == groups(told)
    asked, nodes = told.memory(say["container"]), told.after.memory.nodes
    empty = next(
        size
        for size in range(1, len(nodes) + 1)
        for chosen in combinations(nodes, size)
        if all(
            sum(nodes[node].memory[resource].allocatable for node in chosen if resource in nodes[node].memory) >= amount
            for resource, amount in asked.items()
        )
    )
    return empty < int(say["now"])


@says(rf"{ASKS_MEMORY}, but {SHORT} is free on the whole node\.")
def memory_nowhere(told: Told, say: Say) -> bool:
    free = sum(told.free_memory(node, say["resource"]) for node in told.after.memory.nodes)
    amount = say["left"].removeprefix("only ").partition(" of ")[0]
    rest = free == 0 if say["left"].startswith("no ") else about(amount, free)
    return rest and free < told.memory(say["container"])[say["resource"]]


@says(
    rf"{ASKS_MEMORY}, but no set of NUMA nodes can provide that: "
    r"nodes that serve other containers cannot join a new group\."
)
def memory_groups(told: Told, say: Say) -> bool:
    used = any(state.assignments for state in told.after.memory.nodes.values())
    return enough_in_all(told, say["container"]) and used


def enough_in_all(told: Told, name: str) -> bool:
    return all(
        sum(told.free_memory(node, resource) for node in told.after.memory.nodes) >= amount
        for resource, amount in told.memory(name).items()
    )


@says(rf"{ASKS_MEMORY}; {NODES.format('nodes')}, chosen for it, (?:has|have) {SHORT} free, and {END}\.")
def memory_chosen(told: Told, say: Say) -> bool:
    name = say["container"]
    chosen, resource = ids(say["nodes"]), say["resource"]
    free = sum(told.free_memory(node, resource) for node in chosen)
    amount = say["left"].removeprefix("only ").partition(" of ")[0]
    rest = free == 0 if say["left"].startswith("no ") else about(amount, free)
    stored = told.after.stored_hints[told.pod.uid][name]
    if say["why"]:
        assert any(state.assignments for state in told.after.memory.nodes.values())
        assert enough_in_all(told, name)
    return rest and free < told.memory(name)[resource] and stored.mask == mask_of(chosen)


@says(
    rf"{ASKS_MEMORY}; (?:NUMA nodes? [\d,\-]+|{CHOICE}) must form a group for it, "
    r"but some of them already serve other containers outside that group\."
)
@says(rf"{ASKS_MEMORY}; {CHOICE} cannot provide that, and {END}\.")
@says(
    rf"{ASKS_MEMORY}, which takes more NUMA nodes now than on an empty machine; "
    r"the topology manager allows no more\."
)
def memory_asked(told: Told, say: Say) -> bool:
    return bool(told.memory(say["container"]))


@says(rf"{WHO} already holds memory on {NODES.format('nodes')}, which [\w\-]+ rejects when the pod is admitted again\.")
def memory_held(told: Told, say: Say) -> bool:
    held = {node for placement in told.decision.containers.values() for node in placement.mems}
    return ids(say["nodes"]) == sorted(held)


# What is said of pods that are refused.


STAY = (
    rf"{ASKS}, and the kubelet keeps it on {NODES.format('home')}, where (?:an init container of the pod got its "
    r"CPUs|containers of the pod have CPUs)"
)
WIDER = (
    r"they take (?P<now>\d+) NUMA nodes? now and (?P<few>\d+) on an empty machine \(reserved CPUs counted\), "
    r"so restricted rejects them"
)


@says(rf"{ASKS}, but {LEFT} free on the whole node\.")
def few_left(told: Told, say: Say) -> bool:
    usable = (told.left() | told.reusable(say["container"])).bit_count()
    return int(say["need"]) > usable == number(say["left"])


@says(rf"{ASKS}, more than any NUMA node of this machine has\.")
def too_large(told: Told, say: Say) -> bool:
    return int(say["need"]) > max(cpus.bit_count() for cpus in told.cpus.values())


def listed(told: Told, text: str) -> bool:
    """Tell whether ``4 on NUMA nodes 0,2, 0 on NUMA node 1`` is what is free, of every node."""
    parts = re.findall(r"(\d+) on NUMA nodes? ([\d,\-]*\d)", text)
    found = {node: int(amount) for amount, nodes in parts for node in ids(nodes)}
    return found == {node: (cpus & told.left()).bit_count() for node, cpus in told.cpus.items()}


@says(rf"{ASKS}, but no NUMA node has that many free \(free: (?P<free>.*)\)\.")
def no_single_node(told: Told, say: Say) -> bool:
    most = max((cpus & told.left()).bit_count() for cpus in told.cpus.values())
    return listed(told, say["free"]) and most < int(say["need"])


@says(rf"{ASKS}; {WIDER} \(free: (?P<free>.*)\)\.")
def wider(told: Told, say: Say) -> bool:
    need = int(say["need"])
    return (
        listed(told, say["free"])
        and int(say["now"]) == fewest(told, need, told.left())
        and int(say["few"]) == fewest(told, need, -1) < int(say["now"])
    )


def home(told: Told, name: str) -> list[int]:
    return [node for node, cpus in told.cpus.items() if cpus & told.reusable(name)]


@says(
    rf"{STAY}; including those, (?P<there>\d+) (?:is|are) available there"
    rf"(?:, although {NODES.format('better')} (?:has|have) enough)?\."
)
def pinned_single(told: Told, say: Say) -> bool:
    name, need = say["container"], int(say["need"])
    stay = home(told, name)
    usable = told.left() | told.reusable(name)
    better = [node for node, cpus in told.cpus.items() if node not in stay and (cpus & told.left()).bit_count() >= need]
    return (
        ids(say["home"]) == stay
        and len(stay) == 1
        and int(say["there"]) == (told.cpus[stay[0]] & usable).bit_count() < need
        and ids(say["better"]) == better
    )


@says(rf"{STAY}; single-numa-node allows only one node\.")
def pinned_several(told: Told, say: Say) -> bool:
    stay = home(told, say["container"])
    return ids(say["home"]) == stay and len(stay) > 1


@says(rf"{STAY}; {WIDER}\.")
def pinned_wider(told: Told, say: Say) -> bool:
    name, need = say["container"], int(say["need"])
    stay = home(told, name)
    now = fewest(told, need, told.left() | told.reusable(name), stay)
    return ids(say["home"]) == stay and int(say["now"]) == now > int(say["few"]) == fewest(told, need, -1)


@says(
    rf"{ASKS} and already holds them on {NODES.format('nodes')}, "
    r"which [\w\-]+ rejects when the pod is admitted again\."
)
def held_already(told: Told, say: Say) -> bool:
    held = told.after.cpu.assignments[told.pod.uid]
    cpus = sum([held[say["container"]]] if say["container"] else set(held.values()))
    return ids(say["nodes"]) == [node for node, mask in told.cpus.items() if mask & cpus]


@says(
    rf"{ASKS}, but already holds (?P<holds>\d+) from its earlier admission, "
    r"and the kubelet does not change that number\."
)
@says(rf"{ASKS}, but one of its containers already holds a different number of CPUs from its earlier admission\.")
def mismatch(told: Told, say: Say) -> bool:
    held = told.after.cpu.assignments[told.pod.uid]
    if say["container"]:
        return int(say["holds"]) == held[say["container"]].bit_count() != told.need(say["container"])
    return any(cpus.bit_count() != told.need(name) for name, cpus in held.items())


@says(
    rf"{WHO} can get (?P<places>.*), but no set of NUMA nodes suits all of them, which [\w\-]+ requires"
    rf"(?:: {NODES.format('there')} lacks? free (?P<short>.*))?\."
)
def conflict(told: Told, say: Say) -> bool:
    """Every set that is named is one that the resource prefers, and no set is preferred by all of them."""
    name = say["container"]
    given = not_none((told.decision.hints or {}).get(name) if name else told.decision.pod_hints)
    single = told.after.settings.topology_policy == "single-numa-node"
    groups = [group.split(" on ", 1) for group in say["places"].split("; ")]
    named = [(label, text) for labels, text in groups for label in re.split(r", | and ", labels)]
    assert named
    preferred = {resource: wanted(hints, single=single) for resource, hints in given.items() if hints is not None}
    preferred = {resource: sets for resource, sets in preferred.items() if sets is not None}
    for label, text in named:
        sets = not_none(preferred["cpu" if label == "CPUs" else label])
        assert named_sets(text) <= sets
    for label in re.split(r", | and ", say["short"]) if say["short"] else ():
        short = not_none(preferred["cpu" if label == "CPUs" else label])
        assert not short & {1 << node for node in ids(say["there"])}
    return not set.intersection(*(sets for sets in preferred.values() if sets is not None))


def named_sets(text: str) -> set[int]:
    """Return the sets (masks) that a text such as ``node 0 or any of 2-4 or nodes 5-6 or 2 more sets`` names."""
    found: set[int] = set()
    for part in text.split(" or "):
        some = re.fullmatch(r"any (?:(\d+) )?of (?:nodes )?([\d,\-]+)", part)
        if some is not None:
            found |= {mask_of(chosen) for chosen in combinations(ids(some.group(2)), int(some.group(1) or 1))}
        elif part.startswith("nodes "):
            found.add(mask_of(ids(part.removeprefix("nodes "))))
        elif "more set" not in part:
            found.add(mask_of(ids(part.removeprefix("node "))))
    return found


def wanted(hints: AnyHints, *, single: bool) -> set[int] | None:
    """Return the sets that are preferred; None when any will do."""
    plain = hints if isinstance(hints, Hints) else hints.hints()
    if True in plain.nil:
        return None
    return {mask for mask in plain.preferred if not single or mask.bit_count() == 1}


@says(r"Its .* alone would be rejected, too\.")
def alone(told: Told, say: Say) -> bool:
    del say
    return told.decision.reason == "TopologyAffinityError"


@says(
    rf"{ASKS}, but full-pcpus-only allocates whole cores of (?P<group>\d+)"
    r"(?P<average> \(the average of this machine's cores\))?: request (?P<advice>\d+(?: or \d+)?)\."
)
def odd(told: Told, say: Say) -> bool:
    policy = not_none(told.after.settings.cpu)
    group, need = policy.group_size, int(say["need"])
    advice = [int(text) for text in re.findall(r"\d+", say["advice"])]
    uneven = any(cores.bit_count() != group for cores in policy.topology.cores.values())
    return (
        int(say["group"]) == group
        and bool(say["average"]) == uneven
        and all(number_ % group == 0 and abs(number_ - need) < group for number_ in advice)
        and all(number_ > 0 for number_ in advice)
    )


@says(
    rf"{ASKS} in whole cores, but (?P<left>no CPU is|only \d+ CPUs? (?:is|are)) in the shared pool on cores "
    r"without a reserved CPU(?P<uncounted>; the CPUs of its init containers do not count)?\."
)
def whole_cores(told: Told, say: Say) -> bool:
    policy = not_none(told.after.settings.cpu)
    usable = sum(
        (cores & told.after.cpu.default).bit_count()
        for cores in policy.topology.cores.values()
        if not cores & policy.reserved
    )
    init = [one.name for one in told.pod.containers if one.kind is ContainerKind.INIT]
    held = any(told.after.cpu.assignments.get(told.pod.uid, {}).get(name) for name in init)
    return int(say["need"]) > usable == number(say["left"]) and bool(say["uncounted"]) == held


@says(rf"{ASKS}, but {LEFT} free(?P<init>, including those of its init containers)?\.")
def few_for_taking(told: Told, say: Say) -> bool:
    reusable = told.after.providers.reusable_cpus.of(told.pod.uid) if say["container"] else 0
    usable = (told.left() | reusable).bit_count()
    return int(say["need"]) > usable == number(say["left"]) and bool(say["init"]) == bool(reusable)


@says(rf"{ASKS} and (?P<left>\d+) are available, but the kubelet's allocation fails on their layout \(.*\)\.")
def taking_fails(told: Told, say: Say) -> bool:
    usable = (told.left() | told.after.providers.reusable_cpus.of(told.pod.uid)).bit_count()
    return int(say["need"]) <= usable == int(say["left"])


@says(
    rf"{WHO} has containers with exclusive (?P<what>\S+) that use all of its \S+ "
    r"and leave none for the others to share(?:: request more in the pod's own resources)?\."
)
def shared_budget(told: Told, say: Say) -> bool:
    """The exclusive containers that stay have at least the pod's own amount, and another container has none."""
    assert told.pod.resources is not None
    resource = "cpu" if say["what"] == "CPUs" else say["what"]
    staying = [one for one in told.pod.containers if one.kind is not ContainerKind.INIT]
    if resource == "cpu":
        shares = {one.name: told.need(one.name) for one in told.pod.containers}
        budget = told.need("")
    else:
        shares = {one.name: told.memory(one.name).get(resource, 0) for one in told.pod.containers}
        budget = told.memory("")[resource]
    return sum(shares[one.name] for one in staying) >= budget and not all(shares.values())
