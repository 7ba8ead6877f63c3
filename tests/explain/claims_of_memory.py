"""What is said of memory that cannot be had."""

from __future__ import annotations

import re
from itertools import combinations

from tests.explain.claims import NODES, WHO, Say, Told, about, ids, says, subject

from mooring.engine.core.bits import mask_of

AMOUNT = r"\S+(?: [KMGT]?i?B)?"
ASKS = rf"{WHO} requests (?P<asks>{AMOUNT} of (?:memory|hugepages)[^;]*?)"
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
    assert told.memory(subject(say["container"])) == {}
    if say["release"]:
        return told.after.settings.release.name == say["release"]
    held = told.after.memory.nodes
    return any(held[node].assignments and held[node].cells != tuple(ids(say["nodes"])) for node in ids(say["nodes"]))


@says(rf"{ASKS}, but no single NUMA node can provide that(?P<listed> \(.*\))?\.")
def memory_single(told: Told, say: Say) -> bool:
    name = subject(say["container"])
    grouped = {node for group in groups(told) for node in group}
    alone = [node for node in told.after.memory.nodes if node not in grouped]
    impossible = all(
        any(told.free_memory(node, resource) < amount for resource, amount in told.memory(name).items())
        for node in alone
    )
    return amounts(told, name, say["asks"]) and impossible and listed_memory(told, name, say["listed"] or "")


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
    rf"{ASKS}, which takes (?P<now>\d+) NUMA nodes now and fewer on an empty machine; "
    r"restricted rejects that(?P<groups>: .* serve other containers as (?:one group|groups))?\."
)
def memory_wider(told: Told, say: Say) -> bool:
    name = subject(say["container"])
    if say["groups"]:
        listed = {tuple(ids(text)) for text in re.findall(r"NUMA nodes ([\d,\-]*\d)", say["groups"])}
        assert listed == groups(told)
    asked, nodes = told.memory(name), told.after.memory.nodes
    empty = next(
        size
        for size in range(1, len(nodes) + 1)
        for chosen in combinations(nodes, size)
        if all(
            sum(nodes[node].memory[resource].allocatable for node in chosen if resource in nodes[node].memory) >= amount
            for resource, amount in asked.items()
        )
    )
    return amounts(told, name, say["asks"]) and empty < int(say["now"])


@says(rf"{ASKS}, but {SHORT} is free on the whole node\.")
def memory_nowhere(told: Told, say: Say) -> bool:
    name = subject(say["container"])
    free = sum(told.free_memory(node, say["resource"]) for node in told.after.memory.nodes)
    amount = say["left"].removeprefix("only ").partition(" of ")[0]
    rest = free == 0 if say["left"].startswith("no ") else about(amount, free)
    return amounts(told, name, say["asks"]) and rest and free < told.memory(name)[say["resource"]]


@says(
    rf"{ASKS}, but no set of NUMA nodes can provide that: "
    r"nodes that serve other containers cannot join a new group\."
)
def memory_groups(told: Told, say: Say) -> bool:
    name = subject(say["container"])
    used = any(state.assignments for state in told.after.memory.nodes.values())
    return amounts(told, name, say["asks"]) and enough_in_all(told, name) and used


def enough_in_all(told: Told, name: str) -> bool:
    return all(
        sum(told.free_memory(node, resource) for node in told.after.memory.nodes) >= amount
        for resource, amount in told.memory(name).items()
    )


@says(rf"{ASKS}; {NODES.format('nodes')}, chosen for it, (?:has|have) {SHORT} free, and {END}\.")
def memory_chosen(told: Told, say: Say) -> bool:
    name = subject(say["container"])
    chosen, resource = ids(say["nodes"]), say["resource"]
    free = sum(told.free_memory(node, resource) for node in chosen)
    amount = say["left"].removeprefix("only ").partition(" of ")[0]
    rest = free == 0 if say["left"].startswith("no ") else about(amount, free)
    stored = told.after.stored_hints[told.pod.uid][name]
    if say["why"]:
        assert any(state.assignments for state in told.after.memory.nodes.values())
        assert enough_in_all(told, name)
    return (
        amounts(told, name, say["asks"])
        and rest
        and free < told.memory(name)[resource]
        and stored.mask == mask_of(chosen)
    )


@says(
    rf"{ASKS}; (?:NUMA nodes? [\d,\-]+|{CHOICE}) must form a group for it, "
    r"but some of them already serve other containers outside that group\."
)
@says(rf"{ASKS}; {CHOICE} cannot provide that, and {END}\.")
@says(
    rf"{ASKS}, which takes more NUMA nodes now than on an empty machine; "
    r"the topology manager allows no more\."
)
def memory_asked(told: Told, say: Say) -> bool:
    return amounts(told, subject(say["container"]), say["asks"])


@says(rf"{WHO} already holds memory on {NODES.format('nodes')}, which [\w\-]+ rejects when the pod is admitted again\.")
def memory_held(told: Told, say: Say) -> bool:
    held = {node for placement in told.decision.containers.values() for node in placement.mems}
    return ids(say["nodes"]) == sorted(held)
