"""Phrases that several sentences share."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import groupby
from math import comb

from mooring.engine.core.bits import list_text, mask_of, members
from mooring.engine.core.cpuset import CPUSet
from mooring.engine.core.machineinfo import HIGHEST_NODE
from mooring.engine.core.quantity import Quantity
from mooring.engine.core.topology import Topology

_NAMED_SETS = 3
"""How many sets of NUMA nodes a sentence names."""

_UNITS = ("B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB")


def plural(number: int, noun: str, several: str = "") -> str:
    """Return a number with its noun; ``several`` is a plural that is not made with an s.

    >>> plural(1, "exclusive CPU"), plural(2, "NUMA node"), plural(0, "reply", "replies")
    ('1 exclusive CPU', '2 NUMA nodes', '0 replies')
    """
    return f"{number} {noun if number == 1 else several or f'{noun}s'}"


def nodes(ids: Iterable[int]) -> str:
    """Return NUMA nodes by their ids.

    >>> nodes([2]), nodes([0, 1, 2, 5]), nodes([2**60]), nodes([])
    ('NUMA node 2', 'NUMA nodes 0-2,5', 'NUMA node 1152921504606846976', 'no NUMA node')
    """
    known = sorted(set(ids))
    if not known:
        return "no NUMA node"
    # A machine without node directories can have a "node" -1, and a file can name some that no machine has.
    named = list_text(mask_of(known)) if known[0] >= 0 and known[-1] <= HIGHEST_NODE else ",".join(map(str, known))
    return f"NUMA node{'s' if len(known) > 1 else ''} {named}"


def cpus_text(cpus: CPUSet | int) -> str:
    """Return CPUs, a set or its mask, with their noun.

    >>> cpus_text(0b10), cpus_text(CPUSet.parse("2-5,9"))
    ('CPU 1', 'CPUs 2-5,9')
    """
    mask = cpus if isinstance(cpus, int) else cpus.mask
    return f"CPU{'' if mask.bit_count() == 1 else 's'} {list_text(mask)}"


def nodes_of(topology: Topology, cpus: int) -> list[int]:
    """Return the ids of the NUMA nodes of some CPUs (a mask), ascending."""
    return [node for node, mask in topology.numa.items() if mask & cpus]


def who(container: str) -> str:
    """Return the subject of a sentence; an empty name stands for the whole pod."""
    return f"Container {container}" if container else "The pod as a whole"


def per_node(amounts: Mapping[int, int], text: Callable[[int], str] = str) -> str:
    """Return an amount for each NUMA node, nodes with the same amount together, the largest first.

    >>> per_node({0: 4, 1: 8, 2: 8, 3: 8})
    '8 on NUMA nodes 1-3, 4 on NUMA node 0'
    """
    together: dict[int, list[int]] = {}
    for node, amount in amounts.items():
        together.setdefault(amount, []).append(node)
    return ", ".join(f"{text(amount)} on {nodes(ids)}" for amount, ids in sorted(together.items(), reverse=True))


def only(number: int, noun: str = "") -> str:
    """Return how little there is, with its verb.

    >>> only(0), only(1), only(5), only(3, "CPU")
    ('none is', 'only 1 is', 'only 5 are', 'only 3 CPUs are')
    """
    if number == 0:
        return f"no {noun} is" if noun else "none is"
    amount = plural(number, noun) if noun else str(number)
    return f"only {amount} {'is' if number == 1 else 'are'}"


def joined(parts: Sequence[str]) -> str:
    """Return parts as an enumeration.

    >>> joined(["a"]), joined(["a", "b", "c"])
    ('a', 'a, b and c')
    """
    return " and ".join([", ".join(parts[:-1]), parts[-1]] if len(parts) > 1 else parts)


def positions(devices: Mapping[str, int]) -> str:
    """Return where devices are, those of the same NUMA nodes together.

    Args:
        devices: id -> mask of its NUMA nodes.

    >>> positions({"gpu0": 0b1, "gpu1": 0b10, "gpu2": 0b1, "gpu3": 0})
    'gpu0 and gpu2 on NUMA node 0, gpu1 on NUMA node 1, gpu3'
    """
    together: dict[int, list[str]] = {}
    for name, mask in sorted(devices.items()):
        together.setdefault(mask, []).append(name)
    return ", ".join(
        joined(names) + (f" on {nodes(members(mask))}" if mask else "") for mask, names in together.items()
    )


def device_words(resource: str, count: int) -> str:
    """Return a number of devices; a resource that ends in ``gpu`` or ``nic`` has the field's noun, too.

    >>> device_words("nvidia.com/gpu", 2), device_words("vendor.example/fpga", 2)
    ('2 GPUs (nvidia.com/gpu)', '2 of vendor.example/fpga')
    """
    noun = _device_noun(resource)
    return f"{plural(count, noun)} ({resource})" if noun else f"{count} of {resource}"


def devices_in_words(resource: str) -> str:
    """Return the devices of a resource without a number.

    >>> devices_in_words("nvidia.com/gpu"), devices_in_words("vendor.example/fpga")
    ('GPUs', 'vendor.example/fpga')
    """
    noun = _device_noun(resource)
    return f"{noun}s" if noun else resource


def _device_noun(resource: str) -> str:
    noun = resource.rpartition("/")[2]
    return noun.upper() if noun in ("gpu", "nic") else ""


def fewest_nodes(topology: Topology, need: int, reserved: int = 0) -> int:
    """Return how many NUMA nodes it takes at least for so many CPUs; 0 when there are too few.

    The kubelet measures a hint by this number with reserved CPUs counted; what an empty machine could do leaves out
    the CPUs of the mask ``reserved``.
    """
    return fewest_elements(topology.numa.values(), need, reserved)


def fewest_elements(masks: Iterable[int], need: int, reserved: int = 0) -> int:
    """Return how many of these sets of CPUs it takes at least for so many CPUs; 0 when there are too few.

    >>> fewest_elements([0b1111, 0b110000], 5), fewest_elements([0b1111], 4, reserved=0b1)
    (2, 0)
    """
    total = 0
    amounts = sorted(((mask & ~reserved).bit_count() for mask in masks), reverse=True)
    for number, amount in enumerate(amounts, 1):
        total += amount
        if total >= need:
            return number
    return 0


def size(count: int) -> str:
    """Return a number of bytes in the largest binary unit, with at most one decimal.

    >>> size(137438953472), size(1610612736), size(0)
    ('128 GiB', '1.5 GiB', '0 B')
    """
    unit = 0
    while unit + 1 < len(_UNITS) and count >= 1024 << (10 * unit):
        unit += 1
    tenths = (count * 10 + (1 << (10 * unit)) // 2) >> (10 * unit)
    whole, tenth = divmod(tenths, 10)
    return f"{whole}.{tenth} {_UNITS[unit]}" if tenth else f"{whole} {_UNITS[unit]}"


def duration(seconds: float) -> str:
    """Return a time in the largest unit that makes it at least 1.

    >>> duration(90), duration(7200), duration(0.5)
    ('1.5 min', '2 h', '0.5 s')
    """
    for unit, name in ((86400, "d"), (3600, "h"), (60, "min")):
        if seconds >= unit:
            return f"{seconds / unit:.3g} {name}"
    return f"{seconds:.3g} s"


def sizes(*amounts: int) -> Callable[[int], str]:
    """Return how to write these amounts of bytes: shortly, but never two different ones alike.

    >>> text = sizes(2**34, 2**34 - 4096)
    >>> text(2**34), text(2**34 - 4096), sizes(2**30)(2**30)
    ('16Gi', '16777212Ki', '1 GiB')
    """
    if len({size(amount) for amount in amounts}) == len(set(amounts)):
        return size
    return lambda amount: str(Quantity.of_bytes(amount))


def amounts_text(amounts: Mapping[str, int], text: Callable[[int], str] = size) -> str:
    """Return amounts of memory by type.

    >>> amounts_text({"memory": 2**30, "hugepages-2Mi": 2**21})
    '1 GiB of memory and 2 MiB of hugepages-2Mi'
    """
    return joined([f"{text(amount)} of {resource}" for resource, amount in amounts.items()])


def requests_text(requests: Mapping[str, int]) -> str:
    """Return requests in a few words.

    >>> requests_text({"cpu": 4000, "memory": 2**30, "example.com/gpu": 1, "hugepages-2Mi": 2**21})
    '4 CPU 1 GiB 1 gpu 2 MiB hugepages-2Mi'
    """
    words = [f"{requests['cpu'] / 1000:g} CPU"] if requests.get("cpu") else []
    words += [size(requests["memory"])] if requests.get("memory") else []
    for name, amount in sorted(requests.items()):
        if amount and name.startswith("hugepages-"):
            words.append(f"{size(amount)} {name}")
        elif amount and "/" in name:
            words.append(f"{amount} {name.rpartition('/')[2]}")
    return " ".join(words) or "no requests"


def node_sets(masks: Iterable[int]) -> str:
    """Return sets of NUMA nodes (masks) as alternatives, the smallest first.

    >>> node_sets([0b110, 0b1]), node_sets([1, 2]), node_sets([1, 4, 8, 16, 32])
    ('node 0 or nodes 1-2', 'node 0 or 1', 'any of nodes 0,2-5')
    >>> node_sets([0b0011, 0b0101, 0b0110]), node_sets([0b11, 0b1100, 0b110000, 0b1001, 0b100001])
    ('any 2 of nodes 0-2', 'nodes 0-1 or nodes 0,3 or nodes 0,5 or 2 more sets')
    """
    ordered = sorted((tuple(members(mask)) for mask in masks), key=lambda ids: (len(ids), ids))
    single = [ids[0] for ids in ordered if len(ids) == 1]
    named = [f"node {' or '.join(map(str, single))}"] if single else []
    if len(single) > 2:
        named = [f"any of nodes {list_text(mask_of(single))}"]
    larger = ordered[len(single) :]
    for size, group in groupby(larger, key=len):
        sets = list(group)
        together = mask_of(node for ids in sets for node in ids)
        if len(sets) > 2 and len(sets) == comb(together.bit_count(), size):
            named.append(f"any {size} of nodes {list_text(together)}")
        else:
            named += [f"nodes {list_text(mask_of(ids))}" for ids in sets]
    more = len(named) - _NAMED_SETS
    if more > 0:
        named[_NAMED_SETS:] = [f"{more} more {'set' if more == 1 else 'sets'}"]
    return " or ".join(named)
