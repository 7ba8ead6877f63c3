"""What is said of pods that are refused."""

from __future__ import annotations

import re
from itertools import combinations

from tests.explain.claims import ASKS, LEFT, NODES, WHO, Say, Told, fewest, ids, number, says, subject

from mooring.engine.core.bits import mask_of
from mooring.engine.core.pod import ContainerKind
from mooring.engine.topologymanager.hints import Hints
from mooring.engine.topologymanager.wide import AnyHints

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
    name = subject(say["container"])
    usable = (told.left() | told.reusable(name)).bit_count()
    return int(say["need"]) == told.need(name) > usable == number(say["left"])


@says(rf"{ASKS}, more than any NUMA node of this machine has\.")
def too_large(told: Told, say: Say) -> bool:
    need = told.need(subject(say["container"]))
    return int(say["need"]) == need > max(cpus.bit_count() for cpus in told.cpus.values())


def listed(told: Told, text: str) -> bool:
    """Tell whether ``4 on NUMA nodes 0,2, 0 on NUMA node 1`` is what is free, of every node."""
    parts = re.findall(r"(\d+) on NUMA nodes? ([\d,\-]*\d)", text)
    found = {node: int(amount) for amount, nodes in parts for node in ids(nodes)}
    return found == {node: (cpus & told.left()).bit_count() for node, cpus in told.cpus.items()}


@says(rf"{ASKS}, but no NUMA node has that many free \(free: (?P<free>.*)\)\.")
def no_single_node(told: Told, say: Say) -> bool:
    need = told.need(subject(say["container"]))
    return (
        int(say["need"]) == need
        and listed(told, say["free"])
        and all((cpus & told.left()).bit_count() < need for cpus in told.cpus.values())
    )


@says(rf"{ASKS}; {WIDER} \(free: (?P<free>.*)\)\.")
def wider(told: Told, say: Say) -> bool:
    name = subject(say["container"])
    need = told.need(name)
    return (
        int(say["need"]) == need
        and listed(told, say["free"])
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
    name = subject(say["container"])
    need, stay = told.need(name), home(told, name)
    usable = told.left() | told.reusable(name)
    better = [node for node, cpus in told.cpus.items() if node not in stay and (cpus & told.left()).bit_count() >= need]
    return (
        int(say["need"]) == need
        and ids(say["home"]) == stay
        and len(stay) == 1
        and int(say["there"]) == (told.cpus[stay[0]] & usable).bit_count() < need
        and (ids(say["better"]) if say["better"] else []) == better
    )


@says(rf"{STAY}; single-numa-node allows only one node\.")
def pinned_several(told: Told, say: Say) -> bool:
    stay = home(told, subject(say["container"]))
    return ids(say["home"]) == stay and len(stay) > 1


@says(rf"{STAY}; {WIDER}\.")
def pinned_wider(told: Told, say: Say) -> bool:
    name = subject(say["container"])
    need, stay = told.need(name), home(told, name)
    now = fewest(told, need, told.left() | told.reusable(name), stay)
    return ids(say["home"]) == stay and int(say["now"]) == now > int(say["few"]) == fewest(told, need, -1)


@says(
    rf"{ASKS} and already holds them on {NODES.format('nodes')}, "
    r"which [\w\-]+ rejects when the pod is admitted again\."
)
def held_already(told: Told, say: Say) -> bool:
    name = subject(say["container"])
    held = told.after.cpu.assignments[told.pod.uid]
    cpus = sum(mask for mask in ([held[name]] if name else set(held.values())))
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
    name = subject(say["container"])
    given = (told.decision.hints or {}).get(name) if name else told.decision.pod_hints
    assert given is not None
    single = told.after.settings.topology_policy == "single-numa-node"
    groups = [group.split(" on ", 1) for group in say["places"].split("; ")]
    named = [(label, text) for labels, text in groups for label in re.split(r", | and ", labels)]
    assert named
    preferred = {resource: wanted(hints, single=single) for resource, hints in given.items() if hints is not None}
    preferred = {resource: sets for resource, sets in preferred.items() if sets is not None}
    for label, text in named:
        sets = preferred["cpu" if label == "CPUs" else label]
        assert sets is not None
        assert named_sets(text) <= sets
    for label in re.split(r", | and ", say["short"]) if say["short"] else ():
        short = preferred["cpu" if label == "CPUs" else label]
        assert short is not None
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
    policy = told.after.settings.cpu
    assert policy is not None
    group, need = policy.group_size, told.need(subject(say["container"]))
    advice = [int(text) for text in re.findall(r"\d+", say["advice"])]
    uneven = any(cores.bit_count() != group for cores in policy.topology.cores.values())
    return (
        int(say["need"]) == need
        and int(say["group"]) == group
        and bool(say["average"]) == uneven
        and all(number_ % group == 0 and abs(number_ - need) < group for number_ in advice)
        and all(number_ > 0 for number_ in advice)
    )


@says(
    rf"{ASKS} in whole cores, but (?P<left>no CPU is|only \d+ CPUs? (?:is|are)) in the shared pool on cores "
    r"without a reserved CPU(?P<uncounted>; the CPUs of its init containers do not count)?\."
)
def whole_cores(told: Told, say: Say) -> bool:
    policy = told.after.settings.cpu
    assert policy is not None
    need = told.need(subject(say["container"]))
    usable = sum(
        (cores & told.after.cpu.default).bit_count()
        for cores in policy.topology.cores.values()
        if not cores & policy.reserved
    )
    init = [one.name for one in told.pod.containers if one.kind is ContainerKind.INIT]
    held = any(told.after.cpu.assignments.get(told.pod.uid, {}).get(name) for name in init)
    return int(say["need"]) == need > usable == number(say["left"]) and bool(say["uncounted"]) == held


@says(rf"{ASKS}, but {LEFT} free(?P<init>, including those of its init containers)?\.")
def few_for_taking(told: Told, say: Say) -> bool:
    name = subject(say["container"])
    reusable = told.after.providers.reusable_cpus.of(told.pod.uid) if name else 0
    usable = (told.left() | reusable).bit_count()
    return int(say["need"]) == told.need(name) > usable == number(say["left"]) and bool(say["init"]) == bool(reusable)


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
