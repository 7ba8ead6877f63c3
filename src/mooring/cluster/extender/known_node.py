"""One node as the extender knows it: what it published, the pods that are bound to it, and the outlook on both.

A pod is bound, then named by a state of the node, then leaving, then gone; the API server and the node report each step
at a time of their own. The newest state is kept small, with the pods that it names.
"""

from __future__ import annotations

import re
import threading
import zlib
from collections.abc import Collection, Iterable
from dataclasses import dataclass, field, replace
from hashlib import blake2b

import msgspec

from mooring.cluster.extender.claims import ClaimView, Given
from mooring.cluster.extender.possible_nodes import PossibleNode
from mooring.engine.core.pod import Pod
from mooring.engine.kubelet.admit import is_plain
from mooring.published.objects import NodeState, state_document, state_of
from mooring.published.possible_kubelets import NodeKnowledge, Steps
from mooring.published.restored import NodeKind

_UID = re.compile(r'"([0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12})\\?"')
SETTLING = 60.0
"""Seconds for which a pod counts that came and went without ever being named by a state."""
_MOST_EARLY = 1000
Rank = tuple[int, int]
"""Place in the order of binding: what the API server has shown, then what only this extender knows."""


@dataclass(frozen=True, slots=True)
class PublishedState:
    """The newest state of a node."""

    packed: bytes = b""
    """Its content, compressed: thousands of them are kept."""
    mark: bytes = b""
    """Digest of the content without its sequence: a sequence alone is nothing new."""
    trouble: str = ""
    """Why it cannot be read."""
    facts: str = ""
    """Digest of the facts that the last readable state was about."""
    version: int = -1
    received: float = 0.0
    """When it was received last."""

    def kept(self, before: PublishedState) -> PublishedState:
        """Return this received state as it is kept after another one.

        What says nothing new shares its content; what cannot be read keeps the facts of the one before.
        """
        if self.trouble:
            return replace(self, facts=before.facts)
        packed = before.packed if self.mark == before.mark else zlib.compress(self.packed, 1)
        return replace(self, packed=packed)

    @property
    def is_there(self) -> bool:
        """Whether anything is published, be it readable or not."""
        return bool(self.packed or self.trouble)

    def unpacked(self, node: str, steps: Steps) -> NodeState | str | None:
        """Return the state of a node, or why it cannot be read; None when there is none."""
        return steps.of(_unpacked, self.packed, node) if self.packed else self.trouble or None

    def has_named(self, uid: str) -> bool:
        """Tell whether the state names a pod."""
        # A text holds another one, in which quotation marks are escaped.
        return bool(self.packed) and f'"{uid}"'.encode() in zlib.decompress(self.packed).replace(b"\\", b"")


def _unpacked(packed: bytes, node: str) -> NodeState:
    return replace(state_of(msgspec.json.decode(zlib.decompress(packed))), node=node)


def published(state: NodeState | str, version: int, now: float) -> PublishedState:
    """Return a received state, which :meth:`PublishedState.kept` compresses.

    Args:
        state: what it says, or why it cannot be read.
        version: of the object, which grows.
        now: when it was received.
    """
    if isinstance(state, str):
        return PublishedState(trouble=state, version=version, received=now)
    document = msgspec.json.encode(state_document(replace(state, sequence=0)))
    mark = blake2b(document, digest_size=16).digest()
    return PublishedState(document, mark, "", state.facts, version, now)


class NamedPods:
    """The pods that a state names: in its list, in a file, or as holders of devices."""

    def __init__(self, state: NodeState) -> None:
        """Search a state."""
        # A text holds another one, in which quotation marks are escaped.
        self._texts = f"{state.files.cpu} {state.files.memory}".replace("\\", "")
        listed = {key.uid for key in state.pods if key.uid}
        self.uids = listed | set(state.devices.held) | set(_UID.findall(self._texts))
        """Those that are certain without knowing the pod; in files these are uids of the usual form."""

    def __contains__(self, uid: str) -> bool:
        return uid in self.uids or f'"{uid}"' in self._texts


@dataclass(slots=True)
class BoundPod:
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
    """When it was reported as finished or deleted."""
    listed: bool = False
    """Whether it was there when the pods were listed: pods that came and went before it are not known."""
    named: bool = False
    """Whether a state of its node has ever named it."""
    current: bool = False
    """Whether the newest state names it."""
    given: Given = field(default_factory=dict)
    """What its claims gave it, kept when the claims are gone."""
    _plain: tuple[Pod, bool] | None = None
    """The pod, and whether no manager gives it anything."""

    @property
    def has_no_place(self) -> bool:
        """Whether it only adds to the sums of the node: its order, and whether it is certain, change nothing."""
        if self._plain is None or self._plain[0] is not self.pod:
            self._plain = self.pod, not self.pod.claims and is_plain(self.pod)
        return not self.named and self._plain[1]

    def is_over(self, now: float, assumed_for: float, settling: float, passed: Rank) -> bool:
        """Tell whether the node has left the pod behind for certain.

        Args:
            now: the moment, in seconds.
            assumed_for: seconds for which a bind counts that the API server does not confirm.
            settling: seconds for which a pod counts that is gone and was never named.
            passed: the last pod, in the order of binding, that a state has named.
        """
        if self.gone is None:
            return not self.confirmed and not self.certain and now - self.since > assumed_for
        # It is gone: over when it can be neither on the node any more, nor have been there between two others.
        if self.current:
            return False
        return self.named or self.rank < passed or now - self.gone > min(settling, assumed_for)


@dataclass(slots=True)
class KnownNode:
    """What is known about a node."""

    name: str
    state: PublishedState = field(default_factory=PublishedState)
    pods: dict[str, BoundPod] = field(default_factory=dict)
    """By uid."""
    outlook: PossibleNode | None = None
    """None when something has changed since it was made."""
    stamp: int = 0
    """Grows with every change."""
    binding: threading.Lock = field(default_factory=threading.Lock)
    """Held while a pod is bound that managers may give something."""
    checking: threading.Lock = field(default_factory=threading.Lock)
    """Held while a pod is checked for the last time, until it counts as bound."""
    making: threading.Lock = field(default_factory=threading.Lock)
    """Held while the outlook is made."""
    _early: set[str] = field(default_factory=set)
    """Uids of pods that a state named before the API server showed them."""
    _passed: Rank = (-1, 0)
    """The last pod, in the order of binding, that a state has named."""

    def changed(self) -> None:
        """Have the outlook made again."""
        self.outlook = None
        self.stamp += 1

    @property
    def only_adds(self) -> bool:
        """Whether all pods that no state has named only add to the sums of the node."""
        return all(entry.named or entry.has_no_place for entry in self.pods.values())

    def take_state(self, new: PublishedState, state: NodeState | None, *, listed: bool) -> None:
        """Take a published state unless it is older than the known one; a listed state always counts.

        Args:
            new: the state as it was received.
            state: the same, read; None when it cannot be read.
            listed: whether it is from a list.
        """
        if new.version < self.state.version and not listed:
            return
        before = self.state
        self.state = new.kept(before)
        if state is None or before.mark != new.mark:
            if state is not None:
                self._take_names(NamedPods(state))
            self.changed()

    def _take_names(self, names: NamedPods) -> None:
        for uid, entry in self.pods.items():
            entry.current = uid in names
            entry.named = entry.named or entry.current
        self._early |= names.uids - self.pods.keys()
        if len(self._early) > _MOST_EARLY:
            # The API server will not show pods that have left the node.
            self._early &= names.uids

    def forget_state(self) -> None:
        """Take it that no state is published any longer."""
        self.state = PublishedState(facts=self.state.facts, received=self.state.received)
        self.changed()

    def add(self, entry: BoundPod) -> None:
        """Take a pod that is bound to the node, or may be."""
        uid = entry.pod.uid
        self.pods[uid] = entry
        if uid in self._early:
            self._early.discard(uid)
            entry.named = True
            entry.current = self.state.has_named(uid)
        self.changed()

    def remove(self, uid: str) -> None:
        """Forget a pod."""
        del self.pods[uid]
        self.changed()

    @property
    def is_forgotten(self) -> bool:
        """Whether nothing is known about it and no pod is being bound to it."""
        return not self.state.is_there and not self.pods and not self.binding.locked() and not self.checking.locked()

    def over(self, now: float, assumed_for: float) -> Collection[str]:
        """Return the uids of pods that the node has left behind for certain, and of binds that were never confirmed.

        Args:
            now: the moment, in seconds.
            assumed_for: seconds for which a bind counts that the API server does not confirm.
        """
        entries = self.pods.values()
        self._passed = max((entry.rank for entry in entries if entry.named and entry.confirmed), default=self._passed)
        waited_for = any(not entry.named and entry.gone is None and entry.certain for entry in entries)
        settling = assumed_for if waited_for else SETTLING
        return [uid for uid, entry in self.pods.items() if entry.is_over(now, assumed_for, settling, self._passed)]

    def situation(self, kind: NodeKind | str | None, claims: ClaimView | None, steps: Steps) -> NodeKnowledge:
        """Return everything that is known about the node.

        Args:
            kind: its facts, or why they cannot be used.
            claims: of the cluster; None where they do not count.
            steps: known from the time before.
        """
        entries = self.pods
        new = sorted((entry for entry in entries.values() if not entry.named), key=lambda entry: entry.rank)
        for entry in new:
            if claims is not None and entry.pod.claims:
                entry.given = claims.given_to(entry.pod) or entry.given
        return NodeKnowledge(
            kind,
            self.state.unpacked(self.name, steps),
            {uid: entry.pod for uid, entry in entries.items() if entry.current or not entry.named},
            _uids(entry for entry in entries.values() if entry.leaving or not entry.certain),
            tuple(entry.pod.uid for entry in new),
            _uids(entry for entry in entries.values() if entry.gone is not None and entry.confirmed),
            _uids(entry for entry in new if entry.listed),
            {entry.pod.uid: entry.given for entry in new if entry.given},
            steps,
        )


def _uids(entries: Iterable[BoundPod]) -> frozenset[str]:
    return frozenset(entry.pod.uid for entry in entries)
