"""Claims in the CPU manager's state: owners beside pods, of dynamic resource allocation.

A claim stands in the state as a pod does, under an owner that no pod can have as its uid, so that one ledger says of
every CPU whose it is, and the state file in the kubelet's format keeps it. What a container is to a pod, a share is to
a claim: what one device gives to one request. The name of a share's entry tells the claim's name too, so that a state
file alone says everything about it.

>>> state = CPUState("static", 0b1, {"claim:1-2": {"shop/cpus/numa0/fast": 0b110}})
>>> claims_of(state)["1-2"].shares
(HeldShare(request='fast', device='numa0', cpus=6),)
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import reduce
from operator import or_

from mooring.core.bits import CPUMask
from mooring.cpumanager.state import CPUState

_PREFIX = "claim:"


@dataclass(frozen=True, slots=True, order=True)
class HeldShare:
    """What one request of a claim has of one device."""

    request: str
    """Name of the request; with ``firstAvailable`` also that of the choice, after a slash."""
    device: str
    cpus: CPUMask
    """Mask."""


@dataclass(frozen=True, slots=True)
class HeldClaim:
    """A claim that has CPUs."""

    uid: str
    namespace: str
    name: str
    shares: tuple[HeldShare, ...]
    """In the order of device and request, whatever wrote them."""

    @property
    def cpus(self) -> CPUMask:
        """Mask of all its CPUs."""
        return CPUMask(reduce(or_, (share.cpus for share in self.shares), 0))


def owner_of(uid: str) -> str:
    """Return the owner under which a claim stands in the state."""
    return f"{_PREFIX}{uid}"


def is_claim(owner: str) -> bool:
    """Tell whether an owner is a claim and no pod.

    >>> is_claim(owner_of("1-2")), is_claim("8d9ca6bb-72a7-4a5f-8d85-38a0c7b6b4a9")
    (True, False)
    """
    return owner.startswith(_PREFIX)


def entry_of(namespace: str, name: str, device: str, request: str) -> str:
    """Return the name of a share's entry; only a request can have a slash of its own."""
    return f"{namespace}/{name}/{device}/{request}"


def claims_of(state: CPUState) -> dict[str, HeldClaim]:
    """Return the claims of a state by uid, in the state's order."""
    return {
        owner.removeprefix(_PREFIX): _claim(owner.removeprefix(_PREFIX), entries)
        for owner, entries in state.assignments.items()
        if is_claim(owner) and entries
    }


def claim_of(state: CPUState, uid: str) -> HeldClaim | None:
    """Return a claim; None when it has nothing."""
    entries = state.assignments.get(owner_of(uid))
    return _claim(uid, entries) if entries else None


def holder_name(owner: str, entry: str) -> str:
    """Return how people are told who holds CPUs for a claim's share.

    >>> holder_name("claim:1-2", "shop/cpus/numa0/fast")
    'claim shop/cpus (fast)'
    """
    namespace, name, _, request = parts_of(entry)
    if not name:
        return f"claim {owner.removeprefix(_PREFIX)}"
    return f"claim {namespace}/{name} ({request})"


def _claim(uid: str, entries: Mapping[str, CPUMask]) -> HeldClaim:
    shares = []
    for entry in sorted(entries, key=parts_of):
        namespace, name, device, request = parts_of(entry)
        shares.append(HeldShare(request, device, entries[entry]))
    return HeldClaim(uid, namespace, name, tuple(shares))


def parts_of(entry: str) -> tuple[str, str, str, str]:
    """Return namespace, name, device and request; of an entry that nobody here wrote: all of it as the request."""
    parts = entry.split("/", 3)
    return (parts[0], parts[1], parts[2], parts[3]) if len(parts) == 4 else ("", "", "", entry)
