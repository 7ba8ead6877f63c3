"""Owners of CPUs: containers, partitions of pods, claims, and hidden threads.

The state file of the kubelet knows pods and containers only. Claims and hidden threads are in it under keys that no pod
can have as its uid, so that one table says of every CPU what owns it. Here such a key and entry become a value; nothing
else reads them.

Claims in the CPU manager's state: owners beside pods, of dynamic resource allocation.

A claim is in the state as a pod is, under an owner that no pod can have as its uid, so that one ledger says of
every CPU whose it is, and the state file in the kubelet's format keeps it. What a container is to a pod, a share is to
a claim: what one device gives to one request. The name of a share's entry tells the claim's name too, so that a state
file alone says everything about it.

>>> state = CPUState("static", 0b1, {"claim:1-2": {"shop/cpus/numa0/fast": 0b110}})
>>> claims_of(state)["1-2"].shares
{('numa0', 'fast'): 6}

Hidden threads: CPUs that nothing runs on because they share a core with a container's CPUs.

In the state they are an owner of their own beside the pod (:mod:`mooring.engine.extensions.owners`), and are released
with the container's CPUs. A kubelet that knows nothing of them releases them as those of an unknown pod.

>>> state = with_hidden(CPUState("static", 0b1100, {"uid": {"app": 0b01}}), "uid", "app", 0b100)
>>> state.default, hidden_of(state, "uid", "app")
(8, 4)
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from enum import Enum
from functools import lru_cache, reduce
from operator import or_

from mooring.engine.core.bits import NO_CPUS, CPUMask
from mooring.engine.cpumanager.state import CPUState
from mooring.engine.devicemanager.state import DeviceState
from mooring.lazy import dataclass, replace

CPU_DRIVER = "cpu.mooring.dev"
"""Name of the driver of claims to CPUs, unless it is given another."""
_CLAIM = "claim:"
_HIDDEN = "hidden:"


class OwnerKind(Enum):
    """What owns a set of CPUs."""

    CONTAINER = "container"
    PARTITION = "partition"
    """A pod as a whole (KEP-5526)."""
    CLAIM = "claim"
    """A claim of dynamic resource allocation; its entries are shares of devices."""
    HIDDEN = "hidden"
    """Threads beside a container's CPUs that nothing runs on (plugin hidden-siblings)."""


@dataclass(frozen=True, slots=True)
class StateOwner:
    """The owner of one set in the CPU manager's state."""

    kind: OwnerKind
    uid: str
    """Of the pod, or of the claim."""
    part: str = ""
    """Name of the container; of a claim its entry; empty for a partition and where the entry does not matter."""

    @property
    def is_pods(self) -> bool:
        """Tell whether a pod holds the set for its containers: it is no claim and no hidden thread."""
        return self.kind in (OwnerKind.CONTAINER, OwnerKind.PARTITION)

    @property
    def root(self) -> str:
        """Key of what the set ends with: a pod's uid, also for its hidden threads; of a claim its own key.

        >>> state_owner("hidden:1-2", "app").root, state_owner("claim:1-2").root
        ('1-2', 'claim:1-2')
        """
        return claim_key(self.uid) if self.kind is OwnerKind.CLAIM else self.uid

    def label(self, pod: str = "") -> str:
        """Return how messages name the owner.

        Args:
            pod: namespace and name of the pod where they are known; else its uid is used.

        >>> state_owner("claim:1-2", "shop/cpus/numa0/fast").label()
        'claim shop/cpus (fast)'
        >>> state_owner("hidden:1-2", "app").label("default/web")
        'default/web/app (hidden siblings)'
        >>> state_owner("1-2", "app").label(), state_owner("1-2").label()
        ('1-2/app', '1-2')
        """
        if self.kind is OwnerKind.CLAIM:
            namespace, name, _, request = parts_of(self.part)
            return f"claim {namespace}/{name} ({request})" if name else f"claim {self.uid}"
        place = f"{pod or self.uid}/{self.part}" if self.part else pod or self.uid
        return f"{place} (hidden siblings)" if self.kind is OwnerKind.HIDDEN else place


@lru_cache(maxsize=8192)
def state_owner(key: str, part: str = "") -> StateOwner:
    """Return the owner of an entry of the state.

    Args:
        key: under which the state has it: uid of a pod, or the key of a claim or of hidden threads.
        part: name of the entry; empty for a partition.

    >>> state_owner("claim:1-2").kind, state_owner("8d9ca6bb").kind
    (<OwnerKind.CLAIM: 'claim'>, <OwnerKind.PARTITION: 'partition'>)
    """
    if key.startswith(_CLAIM):
        return StateOwner(OwnerKind.CLAIM, key.removeprefix(_CLAIM), part)
    if key.startswith(_HIDDEN):
        return StateOwner(OwnerKind.HIDDEN, key.removeprefix(_HIDDEN), part)
    return StateOwner(OwnerKind.CONTAINER if part else OwnerKind.PARTITION, key, part)


def claim_key(uid: str) -> str:
    """Return the key of a claim in the state."""
    return f"{_CLAIM}{uid}"


def hidden_key(pod: str) -> str:
    """Return the key of a pod's hidden threads in the state."""
    return f"{_HIDDEN}{pod}"


def entry_of(namespace: str, name: str, device: str, request: str) -> str:
    """Return the name of a claim's entry; only a request can have a slash of its own."""
    return f"{namespace}/{name}/{device}/{request}"


def parts_of(entry: str) -> tuple[str, str, str, str]:
    """Return namespace, name, device and request; of an entry that Mooring did not write: all of it as the request."""
    parts = entry.split("/", 3)
    return (parts[0], parts[1], parts[2], parts[3]) if len(parts) == 4 else ("", "", "", entry)


@dataclass(frozen=True, slots=True)
class HeldClaim:
    """A claim that has CPUs."""

    uid: str
    namespace: str
    name: str
    shares: Mapping[tuple[str, str], CPUMask]
    """What each request has of each device, by device and request, and in their order; with ``firstAvailable`` the
    name of a request is also that of the choice, after a slash."""

    @property
    def cpus(self) -> CPUMask:
        """Mask of all its CPUs."""
        return CPUMask(reduce(or_, self.shares.values(), 0))


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
    shares: dict[tuple[str, str], CPUMask] = {}
    for entry in sorted(entries, key=parts_of):
        namespace, name, device, request = parts_of(entry)
        shares[device, request] = shares.get((device, request), NO_CPUS) | entries[entry]
    return HeldClaim(uid, namespace, name, shares)


def hidden_of(state: CPUState, pod: str, container: str) -> CPUMask:
    """Return the mask of the threads that are hidden for a container."""
    return state.assignments.get(hidden_key(pod), {}).get(container, NO_CPUS)


def hidden_of_pod(state: CPUState, pod: str) -> Mapping[str, CPUMask]:
    """Return the mask of the threads that are hidden for each container of a pod that has any."""
    return state.assignments.get(hidden_key(pod), {})


def hidden_for(state: CPUState, pod: str, cpus: CPUMask) -> CPUMask:
    """Return the mask of the threads that are hidden for those containers of a pod that have some of ``cpus``.

    Without those that others of the pod have by now, or hide themselves: they came after and run.
    """
    held = state.assignments.get(pod, {})
    mask = kept = NO_CPUS
    for own in held.values():
        kept |= own & ~cpus
    for container, hidden in state.assignments.get(hidden_key(pod), {}).items():
        if held.get(container, NO_CPUS) & cpus:
            mask |= hidden
        else:
            kept |= hidden
    return mask & ~kept


def with_hidden(state: CPUState, pod: str, container: str, hidden: CPUMask) -> CPUState:
    """Return the state with threads hidden for a container; without any, the state itself."""
    if not hidden:
        return state
    owner = hidden_key(pod)
    entries = {**state.assignments.get(owner, {}), container: hidden}
    return replace(state, default=state.default & ~hidden, assignments={**state.assignments, owner: entries})


def without_hidden(state: CPUState, pod: str, container: str) -> CPUState:
    """Return the state after a container has gone.

    Its hidden threads are the pool's again, but for those that others of the pod have or hide.
    """
    owner = hidden_key(pod)
    entries = state.assignments.get(owner, {})
    if container not in entries:
        return state
    rest = {name: cpus for name, cpus in entries.items() if name != container}
    still = reduce(or_, (*rest.values(), *state.assignments.get(pod, {}).values()), NO_CPUS)
    assignments = {known: held for known, held in state.assignments.items() if known != owner}
    if rest:
        assignments[owner] = rest
    return replace(state, default=state.default | entries[container] & ~still, assignments=assignments)


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
