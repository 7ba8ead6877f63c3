"""The newest state of a node as the extender keeps it, small, and the pods that a state names."""

from __future__ import annotations

import re
import zlib
from dataclasses import dataclass, replace
from hashlib import blake2b

import msgspec

from mooring.publisher.objects import NodeState
from mooring.publisher.state_document import state_document, state_of

_UID = re.compile(r'"([0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12})\\?"')


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
    heard: float = 0.0
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

    def unpacked(self, node: str) -> NodeState | str | None:
        """Return the state of a node, or why it cannot be read; None when there is none."""
        if not self.packed:
            return self.trouble or None
        return replace(state_of(msgspec.json.decode(zlib.decompress(self.packed))), node=node)

    def has_named(self, uid: str) -> bool:
        """Tell whether the state names a pod."""
        # A text holds another one, in which quotation marks are escaped.
        return bool(self.packed) and f'"{uid}"'.encode() in zlib.decompress(self.packed).replace(b"\\", b"")


def published(state: NodeState | str, version: int, now: float) -> PublishedState:
    """Return a received state, which :meth:`PublishedState.kept` compresses.

    Args:
        state: what it says, or why it cannot be read.
        version: of the object, which grows.
        now: when it was received.
    """
    if isinstance(state, str):
        return PublishedState(trouble=state, version=version, heard=now)
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
