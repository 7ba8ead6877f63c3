"""What is known of the pods over the observations that are judged together.

Much of it comes late: which pods were refused, and that there were any which no observation shows.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from mooring.monitoring.shadow.observed import ObservedNode, ObservedPod


@dataclass(slots=True)
class Window:
    """The pods by what became of them."""

    pods: Mapping[str, ObservedPod]
    refused: dict[str, ObservedPod]
    """By uid; those that were not decided before."""
    possible: dict[str, ObservedPod]
    """Pods that were admitted and that no observation lists, or that were gone before anything was told of them."""
    waiting: dict[str, ObservedPod]
    """Pods that the kubelet lists and has not decided about at the end, as far as is known."""
    ran: frozenset[str]
    """Uids of pods that ran before they were refused: their kubelet started again."""
    traced: Mapping[str, int] = field(default_factory=dict)
    """Number of the observation that shows first what a refused pod left behind, by uid."""
    used: set[str] = field(default_factory=set)
    """Uids of the pods that are asked about in stretches that were found."""

    def known_at(self, look: ObservedNode) -> Window:
        """Return what is known of the pods, without those that nothing was known of at an observation."""
        refused, possible = (
            {uid: one for uid, one in pods.items() if uid in look.pods} for pods in (self.refused, self.possible)
        )
        return replace(self, refused=refused, possible=possible)

    def asked_between(self, begin: int, end: int) -> Window:
        """Return what is known of the pods, without refused ones that were asked about before or later.

        What such a pod left behind is seen first by the look that follows.
        """
        others = {uid for uid, first in self.traced.items() if not begin < first <= end}
        return replace(self, used=self.used | others)


def window_of(before: ObservedNode, looks: Sequence[ObservedNode]) -> Window:
    """Return what is known of the pods after the last of the looks that follow an observation."""
    last = looks[-1]
    pods = {uid: one for look in (before, *looks) for uid, one in look.pods.items()}
    listed = frozenset().union(*(look.held - look.waiting for look in looks))
    pods |= last.pods
    decided = (before.held - before.waiting) | {uid for uid in before.pods if before.is_decided(uid)}
    new = {uid: one for uid, one in last.pods.items() if uid not in decided}
    ran = frozenset(uid for look in looks for uid, one in look.pods.items() if one.ran and not one.reason)
    new = {uid: one for uid, one in new.items() if (one.reason and uid not in ran) or uid not in listed}
    refused = {uid: one for uid, one in new.items() if one.reason}
    possible = {uid: one for uid, one in new.items() if not one.reason and (one.ran or one.leaving)}
    waiting = {uid: last.pods[uid] for uid in last.waiting if uid not in refused}
    numbered = tuple(enumerate(looks, 1))
    firsts = {uid: next((number for number, look in numbered if _is_traced(uid, look)), 0) for uid in refused}
    traced = {uid: first for uid, first in firsts.items() if first and uid not in ran}
    return Window(pods, refused, possible, waiting, ran, traced)


def _is_traced(uid: str, look: ObservedNode) -> bool:
    files = look.state.files
    return uid in look.left or any(f'"{uid}"' in text for text in (files.cpu, files.memory) if text)
