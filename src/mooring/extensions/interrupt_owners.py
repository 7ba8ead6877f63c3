"""Who has CPUs of his own on a node, with what he wants of interrupts."""

from __future__ import annotations

import re
from collections.abc import Mapping

from mooring.core.bits import NO_CPUS
from mooring.core.cpuset import CPUSet
from mooring.core.pod import Pod
from mooring.cpumanager.state import CPUState
from mooring.devicemanager.state import DeviceState
from mooring.extensions.claimed import claims_of
from mooring.extensions.interrupts import Owner, Wish, wish_of
from mooring.extensions.owners import OwnerKind, state_owner

_ADDRESS = re.compile(r"[0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]", re.ASCII)


def pci_addresses(devices: DeviceState) -> dict[str, frozenset[str]]:
    """Return the PCI addresses of what pods hold, by uid.

    Only a device whose id is an address is known: that is how plugins for network and vfio devices name theirs. A GPU's
    id or a NUMA node says nothing about one interrupt.
    """
    found: dict[str, frozenset[str]] = {}
    for uid, containers in devices.held.items():
        ids = (one for resources in containers.values() for held in resources.values() for one in held)
        found[uid] = frozenset(address for one in ids if (address := pci_address(one)))
    return found


def pci_address(device: str) -> str:
    """Return the PCI address that a device's id is; empty when it is none.

    >>> pci_address("0000:3B:02.1"), pci_address("GPU-5c6a")
    ('0000:3b:02.1', '')
    """
    return device.lower() if _ADDRESS.fullmatch(device.lower()) else ""


def owners_of(
    state: CPUState,
    pods: Mapping[str, Pod],
    devices: Mapping[str, frozenset[str]],
    users: Mapping[str, frozenset[str]] | None = None,
) -> tuple[Owner, ...]:
    """Return all owners of CPUs.

    A claim wants what its pods want when they agree, else it avoids interrupts.

    Args:
        state: of the CPU manager.
        pods: that are there, by uid.
        devices: PCI addresses of what they hold, by uid.
        users: uids of the pods of each claim, by its uid.
    """
    found: list[Owner] = []
    held = {
        uid: containers for uid, containers in state.assignments.items() if state_owner(uid).kind is not OwnerKind.CLAIM
    }
    for uid in dict.fromkeys((*state.pods, *held)):
        cpus = state.pods.get(uid, NO_CPUS)
        for mask in held.get(uid, {}).values():
            cpus |= mask
        if cpus:
            # Threads that are hidden for a pod want what it wants: an interrupt there slows the same core.
            pod = state_owner(uid).uid
            found.append(Owner(_label(pod, pods), CPUSet(cpus), _wish(pod, pods), devices.get(pod, frozenset())))
    for claim in claims_of(state).values():
        uids = (users or {}).get(claim.uid, frozenset())
        wishes = {_wish(uid, pods) for uid in uids}
        wish = wishes.pop() if len(wishes) == 1 else Wish.AVOID
        theirs = frozenset(address for uid in uids for address in devices.get(uid, frozenset()))
        found.append(Owner(f"claim {claim.namespace}/{claim.name}", CPUSet(claim.cpus), wish, theirs))
    return tuple(found)


def _wish(uid: str, pods: Mapping[str, Pod]) -> Wish:
    return (wish_of(pods[uid].annotations) or Wish.AVOID) if uid in pods else Wish.AVOID


def _label(uid: str, pods: Mapping[str, Pod]) -> str:
    return f"{pods[uid].namespace}/{pods[uid].name}" if uid in pods else uid
