"""Who has CPUs of his own on a node, with what he wants of interrupts."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from mooring.engine.core.bits import NO_CPUS, CPUMask
from mooring.engine.core.cpuset import CPUSet
from mooring.engine.core.pod import Pod
from mooring.engine.cpumanager.state import CPUState
from mooring.engine.devicemanager.state import DeviceState
from mooring.engine.extensions.claimed import claims_of
from mooring.engine.extensions.interrupts import Owner, Wish, wish_of
from mooring.engine.extensions.owners import OwnerKind, state_owner

_ADDRESS = re.compile(r"[0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]", re.ASCII)


AddressesByPod = Mapping[str, Mapping[str, frozenset[str]]]
"""Uid -> container -> PCI addresses of what it holds."""


def pci_addresses(devices: DeviceState) -> AddressesByPod:
    """Return the PCI addresses of what pods hold.

    Only a device whose id is an address is known: that is how plugins for network and vfio devices name theirs. A GPU's
    id or a NUMA node says nothing about one interrupt.
    """
    return {
        uid: {
            container: frozenset(
                address for held in resources.values() for one in held if (address := pci_address(one))
            )
            for container, resources in containers.items()
        }
        for uid, containers in devices.held.items()
    }


def pci_address(device: str) -> str:
    """Return the PCI address that a device's id is; empty when it is none.

    >>> pci_address("0000:3B:02.1"), pci_address("GPU-5c6a")
    ('0000:3b:02.1', '')
    """
    return device.lower() if _ADDRESS.fullmatch(device.lower()) else ""


def owners_of(
    state: CPUState,
    pods: Mapping[str, Pod],
    devices: AddressesByPod,
    users: Mapping[str, frozenset[str]] | None = None,
) -> tuple[Owner, ...]:
    """Return all owners of CPUs.

    A pod is one owner, unless it wants the interrupts of its devices: then each of its containers has those of its own
    devices. A claim wants what its pods want when they agree, else it avoids interrupts.

    Args:
        state: of the CPU manager.
        pods: that are there, by uid.
        devices: PCI addresses of what they hold.
        users: uids of the pods of each claim, by its uid.
    """
    found: list[Owner] = []
    held = {
        uid: containers for uid, containers in state.assignments.items() if state_owner(uid).kind is not OwnerKind.CLAIM
    }
    for uid in dict.fromkeys((*state.pods, *held)):
        # Threads that are hidden for a pod want what it wants: an interrupt there slows the same core.
        pod = state_owner(uid).uid
        mine, wish = devices.get(pod, {}), _wish(pod, pods)
        own = {name: mask for name, mask in held.get(uid, {}).items() if mask}
        if uid not in state.pods and wish is Wish.OWN and any(mine.values()) and len(own) > 1:
            found += _containers(_label(pod, pods), own, mine)
            continue
        cpus = state.pods.get(uid, NO_CPUS)
        for mask in own.values():
            cpus |= mask
        if cpus:
            found.append(Owner(_label(pod, pods), CPUSet(cpus), wish, _together(mine)))
    for claim in claims_of(state).values():
        uids = (users or {}).get(claim.uid, frozenset())
        wishes = {_wish(uid, pods) for uid in uids}
        wish = wishes.pop() if len(wishes) == 1 else Wish.AVOID
        theirs = frozenset(address for uid in uids for address in _together(devices.get(uid, {})))
        found.append(Owner(f"claim {claim.namespace}/{claim.name}", CPUSet(claim.cpus), wish, theirs))
    return tuple(found)


def _containers(pod: str, own: Mapping[str, CPUMask], devices: Mapping[str, frozenset[str]]) -> Iterator[Owner]:
    """Yield the containers of a pod with CPUs of their own, each with its devices.

    Devices of containers without CPUs of their own are everybody's; who has none avoids interrupts.
    """
    of_all = frozenset(address for name, theirs in devices.items() if name not in own for address in theirs)
    for name, mask in own.items():
        mine = devices.get(name, frozenset()) | of_all
        yield Owner(f"{pod}/{name}", CPUSet(mask), Wish.OWN if mine else Wish.AVOID, mine)


def _together(devices: Mapping[str, frozenset[str]]) -> frozenset[str]:
    return frozenset(address for theirs in devices.values() for address in theirs)


def _wish(uid: str, pods: Mapping[str, Pod]) -> Wish:
    return (wish_of(pods[uid].annotations) or Wish.AVOID) if uid in pods else Wish.AVOID


def _label(uid: str, pods: Mapping[str, Pod]) -> str:
    return f"{pods[uid].namespace}/{pods[uid].name}" if uid in pods else uid
