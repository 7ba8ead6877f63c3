"""Claims in the CPU manager's state: owners beside pods, of dynamic resource allocation.

A claim is in the state as a pod is, under an owner that no pod can have as its uid, so that one ledger says of
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

from mooring.engine.core.bits import CPUMask
from mooring.engine.cpumanager.state import CPUState
from mooring.engine.extensions.owners import OwnerKind, claim_key, parts_of, state_owner


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


def claims_of(state: CPUState) -> dict[str, HeldClaim]:
    """Return the claims of a state by uid, in the state's order."""
    return {
        owner.uid: _claim(owner.uid, entries)
        for key, entries in state.assignments.items()
        if (owner := state_owner(key)).kind is OwnerKind.CLAIM and entries
    }


def claim_of(state: CPUState, uid: str) -> HeldClaim | None:
    """Return a claim; None when it has nothing."""
    entries = state.assignments.get(claim_key(uid))
    return _claim(uid, entries) if entries else None


def _claim(uid: str, entries: Mapping[str, CPUMask]) -> HeldClaim:
    shares = []
    for entry in sorted(entries, key=parts_of):
        namespace, name, device, request = parts_of(entry)
        shares.append(HeldShare(request, device, entries[entry]))
    return HeldClaim(uid, namespace, name, tuple(shares))
