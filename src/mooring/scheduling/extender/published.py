"""What nodes have published: the newest state of each, kept small, and the facts that states are about."""

from __future__ import annotations

import re
import zlib
from collections.abc import Collection
from dataclasses import dataclass, replace
from hashlib import blake2b

import msgspec

from mooring.publisher.objects import NodeFacts, NodeState
from mooring.publisher.restored import Kind, kind_of
from mooring.publisher.state_document import state_document, state_of

_UID = re.compile(r'"([0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12})\\?"')


class FactsByDigest:
    """The facts that are known, understood."""

    def __init__(self) -> None:
        """Begin without any."""
        self._kinds: dict[str, Kind | str] = {}

    def has_understood(self, digest: str) -> bool:
        """Tell whether facts need not be taken again: they never change."""
        return isinstance(self._kinds.get(digest), Kind)

    def put(self, digest: str, kind: Kind | str) -> None:
        """Take facts, or the reason why they cannot be used."""
        self._kinds[digest] = kind

    def keep(self, digests: Collection[str]) -> None:
        """Forget all but these."""
        self._kinds = {digest: kind for digest, kind in self._kinds.items() if digest in digests}

    def of(self, state: PublishedState) -> Kind | str | None:
        """Return the facts of a state, or why they cannot be used; None when they are not known."""
        return self._kinds.get(state.facts) if state.facts else None


def understood(digest: str, facts: NodeFacts | str) -> Kind | str:
    """Return what decides about the nodes with these facts, or the reason why they cannot be used."""
    return facts if isinstance(facts, str) else kind_of(digest, facts)


@dataclass(frozen=True, slots=True)
class Received:
    """A state as it was received, or the reason why it cannot be read."""

    state: NodeState | str
    document: bytes
    mark: bytes
    """Digest of the content."""


def received(state: NodeState | str) -> Received:
    """Return a state with what tells whether anything in it is new: the sequence alone is nothing new."""
    document = b"" if isinstance(state, str) else msgspec.json.encode(state_document(replace(state, sequence=0)))
    return Received(state, document, blake2b(document, digest_size=16).digest())


@dataclass(slots=True)
class PublishedState:
    """The newest state of a node."""

    packed: bytes = b""
    """Its content, compressed: thousands of them are kept."""
    mark: bytes = b""
    """Digest of the content."""
    trouble: str = ""
    """Why it cannot be read."""
    facts: str = ""
    """Digest of the facts that the last readable state was about."""
    version: int = -1
    heard: float = 0.0
    """When it was last heard of."""

    def take(self, new: Received, version: int, now: float) -> bool:
        """Take a state that is newer; tell whether it says anything new."""
        self.version, self.heard = version, now
        if isinstance(new.state, str):
            self.packed, self.trouble, self.mark = b"", new.state, b""
            return True
        if self.mark == new.mark:
            return False
        self.packed, self.trouble, self.mark = zlib.compress(new.document, 1), "", new.mark
        self.facts = new.state.facts
        return True

    def forget(self) -> None:
        """Take it that no state is published any longer."""
        self.packed, self.trouble, self.mark, self.version = b"", "", b"", -1

    @property
    def is_there(self) -> bool:
        """Whether anything is published, be it readable or not."""
        return bool(self.packed or self.trouble)

    def unpacked(self, node: str) -> NodeState | str | None:
        """Return the state of a node, or why it cannot be read; None when there is none."""
        if not self.packed:
            return self.trouble or None
        return replace(state_of(msgspec.json.decode(zlib.decompress(self.packed))), node=node)

    def has_named(self, uid: str) -> bool:
        """Tell whether the state names a pod."""
        # A text holds another one, in which quotation marks are escaped.
        return bool(self.packed) and f'"{uid}"'.encode() in zlib.decompress(self.packed).replace(b"\\", b"")


class Names:
    """The pods that a state names, be it in its list, in a file or as holders of devices."""

    def __init__(self, state: NodeState) -> None:
        """Look through a state."""
        # A text holds another one, in which quotation marks are escaped.
        self._texts = f"{state.files.cpu} {state.files.memory}".replace("\\", "")
        listed = {key.uid for key in state.pods if key.uid}
        self.uids = listed | set(state.devices.held) | set(_UID.findall(self._texts))
        """Those that can be told without knowing the pod; in files these are uids of the usual form."""

    def __contains__(self, uid: str) -> bool:
        return uid in self.uids or f'"{uid}"' in self._texts
