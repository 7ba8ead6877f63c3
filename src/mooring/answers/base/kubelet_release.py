"""Which kubelet release an answer is for, and a warning where Mooring does not decide as that release.

The version comes from the first source that has one: the option, a node archive, a Node object of the API, a vendor's
file, the kubelet that is installed. Without any the newest release decides.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Final

from mooring.engine.core.errors import InputError
from mooring.engine.core.machine import Finding
from mooring.engine.core.release import NEWEST, Release
from mooring.engine.releases.catalog import NEWEST_MINOR, OLDEST_MINOR, RELEASES, minor_of, release_of
from mooring.engine.releases.rule import RELEASE_NAMES
from mooring.inputs.decoding.fields import Document
from mooring.inputs.pods.workloads import OtherObject, pod_objects

CODE: Final = "MOOR-580"


@dataclass(frozen=True, slots=True)
class KubeletVersion:
    """The version of a kubelet, as an option names it or as the kubelet reports it."""

    version: str
    """Empty where it is not known."""
    source: str
    """Where it is from, for messages."""


@dataclass(frozen=True, slots=True)
class ChosenRelease:
    """The release that decides."""

    release: Release = NEWEST
    findings: tuple[Finding, ...] = ()
    """A warning where the kubelet is of another release."""
    source: str = ""
    """Where the version is from; empty where none is known."""


def chosen_release(versions: Iterable[KubeletVersion], *, nearest: bool = False) -> ChosenRelease:
    """Return the release of the first version that is known; without one the newest.

    A version that is newer than all known releases, and one that cannot be understood, is decided as the newest.

    Args:
        versions: in order; those behind the first that is known are not read.
        nearest: whether the oldest known release decides for older ones.

    Raises:
        InputError: the version is older than all known releases.

    >>> chosen_release([KubeletVersion("v1.34.4-eks-1", "node n1")]).release.name
    '1.34'
    """
    for one in versions:
        if one.version:
            return _chosen(one, nearest=nearest)
    return ChosenRelease()


def _chosen(one: KubeletVersion, *, nearest: bool) -> ChosenRelease:
    minor = minor_of(one.version)
    if minor is None:
        return _other(one, NEWEST, "its version is not understood")
    if minor > NEWEST_MINOR:
        return _other(one, NEWEST, f"is newer than {NEWEST}, the newest known release")
    if minor >= OLDEST_MINOR:
        return ChosenRelease(release_of(one.version), source=one.source)
    oldest = RELEASES[RELEASE_NAMES[0]]
    if not nearest:
        raise InputError(
            f"kubelet {one.version} is older than all known releases ({', '.join(RELEASE_NAMES)})",
            source=one.source,
            remedy=f"add --nearest-release to decide as {oldest.name}, or name another release",
        )
    return _other(one, oldest, f"is older than {oldest}, the oldest known release")


def _other(one: KubeletVersion, release: Release, why: str) -> ChosenRelease:
    message = f"{why}: decided as {release}, and what this kubelet does otherwise is not known"
    return ChosenRelease(release, (Finding("warning", f"kubelet {one.version}", message, CODE),), one.source)


def node_versions(documents: Iterable[Document]) -> dict[str, str]:
    """Return the kubelet's version of each Node object among documents, by the name of the node.

    Source: Kubernetes API v1, Node, ``status.nodeInfo.kubeletVersion``.

    Raises:
        InputError: something in a document is no object.
    """
    return dict(_versions(documents))


def _versions(documents: Iterable[Document]) -> Iterator[tuple[str, str]]:
    for document in documents:
        try:
            for found in pod_objects(document.content):
                if isinstance(found, OtherObject) and found.kind == "Node":
                    yield found.name, _version(found.content)
        except InputError as error:
            raise error.at(document.source) from None


def _version(node: object) -> str:
    for name in ("status", "nodeInfo", "kubeletVersion"):
        node = node.get(name) if isinstance(node, dict) else None
    return node if isinstance(node, str) else ""
