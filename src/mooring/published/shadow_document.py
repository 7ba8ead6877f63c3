"""What a shadow counted as an object of the cluster, named like the node: how often the engine decided as its kubelet.

``status`` has the members of ``mooring shadow -o json``. :func:`shadow_of` reads those that a picture of the cluster
needs, :func:`agreement_by_release` sums them.

``mooring shadow -o json``: how often the engine decided as a kubelet did.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Annotated, Any, Final, Literal

import msgspec
from msgspec import field

from mooring.documents.plan import API_VERSION, APIVersion, Count, DocumentPart, learn, told
from mooring.published.objects import SHADOW, new_object, read_object


class ShadowCountPart(DocumentPart):
    """Decisions of one kind."""

    verdict: Annotated[str, told("agreed, differs or cannot tell.")]
    event: Annotated[str, told("What the kubelet did: admitted, refused, removed or restarted.")]
    cause: Annotated[str, told("What differs, or why there is no verdict; empty if the two agree.")]
    count: Count
    release: Annotated[str, told("The kubelet release by which the engine decided.")] = ""


class ShadowDecisionPart(DocumentPart):
    """A decision in which the two differ."""

    pod: Annotated[str, told("Namespace and name, the uid where they are anonymous; empty for a restart.")]
    event: str
    cause: str
    kubelet: Annotated[str, told("What the kubelet has.")]
    engine: Annotated[str, told("What the engine has.")]
    at: Annotated[str, told("When it was judged.")] = ""
    release: Annotated[str, told("The kubelet release by which the engine decided.")] = ""


class ShadowDayPart(DocumentPart):
    """Decisions of one day."""

    day: Annotated[str, told("Date, UTC.")]
    decisions: Count
    differs: Count
    refused: Annotated[Count, told("Pods that the kubelet refused.")]


class WouldBeDayPart(DocumentPart):
    """Refusals of one day, by the kubelet and with the other configuration."""

    day: Annotated[str, told("Date, UTC.")]
    refused: Annotated[Count, told("Pods that the kubelet refused.")]
    refusals: Annotated[Count, told("Pods that the other configuration would have refused.")]


class WouldBePart(DocumentPart):
    """The same pods with another configuration."""

    refusals: Count
    refused: Annotated[list[str], told("Pods that only this configuration refuses, the newest last.")]
    admitted: Annotated[list[str], told("Pods that only this configuration admits, the newest last.")]
    since: Annotated[str, told("When the comparison began.")] = ""
    days: Annotated[list[WouldBeDayPart], told("The newest last, at most 31.")] = field(default_factory=list)
    configuration: Annotated[str, told("Digest of this configuration.")] = ""


class ShadowDocument(DocumentPart, kw_only=True):
    """What mooring shadow -o json prints: how often the engine decided as a kubelet did."""

    api_version: APIVersion = API_VERSION
    kind: Literal["Shadow"] = "Shadow"
    node: str
    release: str
    since: Annotated[str, told("Time of the first observation.")]
    agreed: Count
    differs: Count
    unknown: Count
    counts: list[ShadowCountPart]
    differences: Annotated[list[ShadowDecisionPart], told("The newest last, at most 100.")]
    blind: Annotated[Count, told("Observations that failed.")]
    refused: Annotated[Count, told("Pods that the kubelet refused.")]
    would_be: WouldBePart | None = None
    days: Annotated[list[ShadowDayPart], told("The newest last, at most 31.")] = field(default_factory=list)
    observed_at: Annotated[str, told("When this was written.")] = ""
    predicted: Annotated[Count, told("Pods whose outcome was predicted and is known.")] = 0
    came_true: Annotated[Count, told("Of those, the pods whose outcome was predicted correctly.")] = 0


DIFFERENCES: Final = 20
"""Differences that are published, the newest."""
LONGEST: Final = 1000
"""Characters of a text that are published."""
_ELSEWHERE: Final = frozenset({"apiVersion", "kind", "node"})
"""Members of the document that an object has in other places."""


class ShadowCount(msgspec.Struct, frozen=True):
    """Decisions of one kind."""

    verdict: str
    """agreed, differs or cannot tell."""
    event: str
    """What the kubelet did: admitted, refused, removed or restarted."""
    count: int
    cause: str = ""
    """What differs, or why it cannot be told."""
    release: str = ""
    """Of the kubelet."""


class ShadowDifference(ShadowDecisionPart, forbid_unknown_fields=False):
    """A decision in which the two differ, perhaps from another version."""


class ShadowStatus(msgspec.Struct, frozen=True, rename="camel"):
    """What a shadow counted on one node."""

    since: str
    """Time of the first observation, as RFC 3339."""
    agreed: int
    differs: int
    unknown: int
    """Decisions of which the shadow cannot tell."""
    release: str = ""
    """Of the kubelet that runs now."""
    observed_at: str = ""
    """When it was written; a shadow that runs writes at least every five minutes."""
    counts: tuple[ShadowCount, ...] = ()
    differences: tuple[ShadowDifference, ...] = ()
    """The newest last."""
    refused: int = 0
    """Pods that the kubelet refused."""


class _Shadow(msgspec.Struct):
    status: ShadowStatus


learn(_Shadow)


def shadow_document(found: ShadowDocument, owner: str = "") -> dict[str, Any]:
    """Return the NodeShadow object: the newest differences, with texts that are not too long.

    Args:
        found: what was counted.
        owner: uid of the Node object, with which the object is to vanish; empty where it is not known.
    """
    newest = [
        msgspec.structs.replace(one, kubelet=one.kubelet[:LONGEST], engine=one.engine[:LONGEST])
        for one in found.differences[-DIFFERENCES:]
    ]
    content = msgspec.to_builtins(msgspec.structs.replace(found, differences=newest))
    made = new_object(
        SHADOW,
        found.node,
        status={name: value for name, value in content.items() if name not in _ELSEWHERE and value is not None},
    )
    if owner:
        made["metadata"]["ownerReferences"] = [{"apiVersion": "v1", "kind": "Node", "name": found.node, "uid": owner}]
    return made


def shadow_of(content: object) -> tuple[str, ShadowStatus]:
    """Return the node of a NodeShadow object, and what its shadow counted.

    Raises:
        InputError: it is none, or cannot be read.
    """
    name, found = read_object(content, SHADOW, _Shadow)
    return name, found.status


def agreement_by_release(found: Iterable[ShadowStatus]) -> dict[str, Counter[str]]:
    """Return the decisions of some nodes by the release of their kubelets, the oldest first, and by verdict.

    >>> counts = (ShadowCount("agreed", "admitted", 3, release="v1.37.1"), ShadowCount("differs", "refused", 1))
    >>> found = agreement_by_release([ShadowStatus("2026-01-01T00:00:00Z", 3, 1, 0, "v1.34.4", counts=counts)])
    >>> list(found), found["v1.37.1"]["agreed"], found["v1.34.4"]["differs"]
    (['v1.34.4', 'v1.37.1'], 3, 1)
    """
    sums: dict[str, Counter[str]] = {}
    for node in found:
        for one in node.counts:
            sums.setdefault(one.release or node.release, Counter())[one.verdict] += one.count

    def numbers(release: str) -> list[int]:
        return [int(part) for part in release.lstrip("v").split(".") if part.isdecimal()]

    return {release: sums[release] for release in sorted(sums, key=numbers)}
