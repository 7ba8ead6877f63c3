"""One node as the extender knows it: what it published, its pods, and the outlook that follows from both."""

from __future__ import annotations

import threading
from collections.abc import Iterable
from dataclasses import dataclass, field

from mooring.publisher.restored import Kind
from mooring.scheduling.extender.bound import BoundPods, Entry
from mooring.scheduling.extender.outlook import Outlook, Situation
from mooring.scheduling.extender.published import Names, PublishedState, Received


@dataclass(slots=True)
class KnownNode:
    """What is known about a node."""

    name: str
    state: PublishedState = field(default_factory=PublishedState)
    pods: BoundPods = field(default_factory=BoundPods)
    outlook: Outlook | None = None
    """None when something has changed since it was made."""
    stamp: int = 0
    """Grows with every change."""
    binding: threading.Lock = field(default_factory=threading.Lock)
    """Held while a pod is checked for the last time and bound."""

    def changed(self) -> None:
        """Take it that the outlook is to be made anew."""
        self.outlook = None
        self.stamp += 1

    def take_state(self, new: Received, version: int, now: float, *, listed: bool) -> None:
        """Take a state; one that is older than what is known is left alone, unless a list shows it."""
        if version < self.state.version and not listed:
            return
        if self.state.take(new, version, now):
            if not isinstance(new.state, str):
                self.pods.take_names(Names(new.state))
            self.changed()

    def forget_state(self) -> None:
        """Take it that no state is published any longer."""
        self.state.forget()
        self.changed()

    def add(self, entry: Entry) -> None:
        """Take a pod that is bound to the node, or may be."""
        if self.pods.add(entry):
            entry.current = self.state.has_named(entry.pod.uid)
        self.changed()

    def remove(self, uid: str) -> None:
        """Forget a pod."""
        del self.pods.entries[uid]
        self.changed()

    @property
    def is_forgotten(self) -> bool:
        """Whether nothing is known about it and nobody is binding a pod to it."""
        return not self.state.is_there and not self.pods.entries and not self.binding.locked()

    def situation(self, kind: Kind | str | None) -> Situation:
        """Return everything that is known about the node.

        Args:
            kind: its facts, or why they cannot be used.
        """
        entries, new = self.pods.entries, self.pods.unnamed
        return Situation(
            kind,
            self.state.unpacked(self.name),
            {uid: entry.pod for uid, entry in entries.items() if entry.current or not entry.named},
            _uids(entry for entry in entries.values() if entry.leaving or not entry.certain),
            tuple(entry.pod.uid for entry in new),
            _uids(entry for entry in entries.values() if entry.gone is not None and entry.confirmed),
            _uids(entry for entry in new if entry.listed),
        )


def _uids(entries: Iterable[Entry]) -> frozenset[str]:
    return frozenset(entry.pod.uid for entry in entries)
