"""The pods of one node, each with what is known about how far it has come: bound, named by a state, leaving, gone."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field

from mooring.core.pod import Pod
from mooring.scheduling.extender.published import Names

SETTLING = 60.0
"""Seconds for which a pod counts that came and went without ever being named by a state."""

Rank = tuple[int, int]
"""Place in the order of binding: what the API server has shown, then what is known from here only."""

_MOST_EARLY = 1000


@dataclass(slots=True)
class Entry:
    """A pod that is bound to a node, or may be."""

    pod: Pod
    node: str
    rank: Rank
    since: float
    leaving: bool = False
    ours: bool = False
    """Whether this extender bound it."""
    confirmed: bool = False
    """Whether the API server has shown it as bound."""
    certain: bool = True
    """Whether it is bound for certain; not while the API server's answer is out."""
    gone: float | None = None
    """When it was heard that it has finished or was deleted."""
    listed: bool = False
    """Whether it was there when the pods were listed, so that nobody knows what came and went before it."""
    named: bool = False
    """Whether a state of its node has ever named it."""
    current: bool = False
    """Whether the newest state names it."""


@dataclass(slots=True)
class BoundPods:
    """The pods that are bound to one node, or may be."""

    entries: dict[str, Entry] = field(default_factory=dict)
    """By uid."""
    early: set[str] = field(default_factory=set)
    """Uids of pods that a state named and of which the API server's word has not come yet."""
    passed: Rank = (-1, 0)
    """The last pod, in the order of binding, that a state has named."""

    def add(self, entry: Entry) -> bool:
        """Take a pod; tell whether a state has named it before the API server did."""
        uid = entry.pod.uid
        self.entries[uid] = entry
        if uid not in self.early:
            return False
        self.early.discard(uid)
        entry.named = True
        return True

    def take_names(self, names: Names) -> None:
        """Remember which pods the newest state names."""
        for uid, entry in self.entries.items():
            entry.current = uid in names
            entry.named = entry.named or entry.current
        if len(self.early) < _MOST_EARLY:
            self.early |= names.uids - self.entries.keys()

    @property
    def unnamed(self) -> list[Entry]:
        """Those that no state has named, in the order of their binding."""
        return sorted((entry for entry in self.entries.values() if not entry.named), key=lambda entry: entry.rank)

    def over(self, now: float, assumed_for: float) -> Collection[str]:
        """Return the uids of those that the node has left behind for certain, and of binds that nobody confirms.

        Args:
            now: the moment, in seconds.
            assumed_for: seconds for which a bind counts that the API server does not confirm.
        """
        entries = self.entries.values()
        self.passed = max((entry.rank for entry in entries if entry.named and entry.confirmed), default=self.passed)
        waited_for = any(not entry.named and entry.gone is None and entry.certain for entry in entries)
        settling = assumed_for if waited_for else SETTLING
        return [uid for uid, entry in self.entries.items() if self._is_over(entry, now, assumed_for, settling)]

    def _is_over(self, entry: Entry, now: float, assumed_for: float, settling: float) -> bool:
        if entry.gone is None:
            return not entry.confirmed and not entry.certain and now - entry.since > assumed_for
        # It is gone: over when it can be neither on the node any more, nor have been there between two others.
        if entry.current:
            return False
        return entry.named or entry.rank < self.passed or now - entry.gone > min(settling, assumed_for)
