"""Claims and slices in documents, as kubectl prints them: alone, in lists, beside pods."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from mooring.engine.core.dynamic import ResourceClaim
from mooring.engine.core.errors import InputError
from mooring.inputs.decoding.documents import located
from mooring.inputs.decoding.fields import Document, inside
from mooring.inputs.pods.claims import CLAIM, SLICE, ResourceSlice, claim_of, slice_of

KINDS: Final = frozenset({CLAIM, SLICE})
_DEEPEST: Final = 8
"""Lists inside lists."""


@dataclass(frozen=True, slots=True)
class DynamicObjects:
    """What is known of dynamic resource allocation."""

    claims: tuple[ResourceClaim, ...] = ()
    slices: tuple[ResourceSlice, ...] = ()


def dynamic_objects(documents: Iterable[Document]) -> DynamicObjects:
    """Return the claims and slices of documents; other objects are passed over.

    Raises:
        InputError: one of them cannot be understood.
    """
    claims: list[ResourceClaim] = []
    slices: list[ResourceSlice] = []
    for document in documents:
        with located(document):
            for place, content in objects_of(document.content, KINDS):
                try:
                    if content.get("kind") == CLAIM:
                        claims.append(claim_of(content, source=document.source))
                    else:
                        slices.append(slice_of(content, source=document.source))
                except InputError as error:
                    raise inside(error, place) if place else error from None
    return DynamicObjects(tuple(claims), tuple(slices))


def objects_of(
    content: object, kinds: Collection[str], place: str = "", depth: int = 0
) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Yield place and content of the objects of some kinds; what is no object is passed over."""
    if not isinstance(content, dict) or depth > _DEEPEST:
        return
    kind = content.get("kind")
    if not isinstance(kind, str):
        return
    if kind in kinds:
        yield place, content
    elif kind.endswith("List"):
        items = content.get("items")
        single = kind.removesuffix("List")
        for index, item in enumerate(items if isinstance(items, list) else ()):
            # The items of a ResourceClaimList need not name their kind.
            named = {"kind": single, **item} if single and isinstance(item, dict) else item
            yield from objects_of(named, kinds, f"{place}.items[{index}]".lstrip("."), depth + 1)
