"""Owners of CPUs: containers, partitions of pods, claims, and hidden threads.

The state file of the kubelet knows pods and containers only. Claims and hidden threads are in it under keys that no pod
can have as its uid, so that one table says of every CPU what owns it. Here such a key and entry become a value; nothing
else reads them.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from functools import lru_cache

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
