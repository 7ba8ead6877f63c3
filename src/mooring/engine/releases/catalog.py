"""The releases by name, each made from the table of rules, and which of them decides for a kubelet's version.

The version comes from the first source that has one: the option, a node archive, a Node object of the API, a vendor's
file, the kubelet that is installed. Without any the newest release that is out decides, never a preview, and a warning
says where Mooring does not decide as the kubelet's own release.

Source: spec: releases.md.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Final

from mooring.engine.core.errors import InputError
from mooring.engine.core.machine import Finding
from mooring.engine.core.release import NEWEST, Release, ReleaseRules
from mooring.engine.releases.rule import RELEASE_NAMES
from mooring.engine.releases.rules import RULES
from mooring.lazy import dataclass

TAGS: Mapping[str, str] = {
    "1.31": "v1.31.14",
    "1.32": "v1.32.13",
    "1.33": "v1.33.13",
    "1.34": "v1.34.4",
    "1.35": "v1.35.4",
    "1.36": "v1.36.3",
    NEWEST.name: NEWEST.tag,
    "1.38": "v1.38.0-beta.0",
}
"""Release -> the patch release that was read and recorded."""

CODE: Final = "MOOR-580"
"""Of the warning that a kubelet is of another release."""
_VERSION = re.compile(r"v?1\.(\d{1,4})(?:\.\d+)?(?:[-+].*)?")

OLDEST_MINOR, LATEST_MINOR = (int(name.partition(".")[2]) for name in (RELEASE_NAMES[0], RELEASE_NAMES[-1]))


RESIZING: Final = frozenset[str]()
"""Releases that resize exclusive CPUs without an extension (KEP-5554)."""


def _release(name: str) -> Release:
    older = {rule.name.replace("-", "_"): name in rule.releases for rule in RULES}
    rules = ReleaseRules(**older, resizes_exclusive_cpus=name in RESIZING)
    return Release(name, TAGS[name], rules)


RELEASES: Mapping[str, Release] = {name: _release(name) for name in RELEASE_NAMES}
"""All known releases by name, the oldest first, with a preview behind :data:`~mooring.engine.core.release.NEWEST`."""


def release_of(version: str, field: str = "") -> Release:
    """Return the release of a kubelet's version; one that is newer than all known is decided as the newest that is out.

    Args:
        version: such as ``1.34``, ``v1.34.4`` or ``v1.31.9-eks-1-31-23``.
        field: or option that holds it, for messages.

    Raises:
        InputError: it is no version, or older than all known releases.

    >>> release_of("v1.34.4-eks-1234567").name, release_of("1.99").name
    ('1.34', '1.37')
    """
    minor = minor_of(version)
    known = f"known are {RELEASE_NAMES[0]} to {RELEASE_NAMES[-1]}"
    if minor is None:
        remedy = f"write v1.34.4 or 1.34; {known}"
        raise InputError(f"{version!r:.60} is not a kubelet version", field=field, remedy=remedy)
    if minor < OLDEST_MINOR:
        raise InputError(f"kubelet 1.{minor} is older than all known releases", field=field, remedy=known)
    return RELEASES.get(f"1.{minor}", NEWEST)


def minor_of(version: str) -> int | None:
    """Return the minor release of a kubelet's version; None when it is no version.

    >>> minor_of("v1.33.3+k3s1"), minor_of("2.0")
    (33, None)
    """
    found = _VERSION.fullmatch(version)
    return None if found is None else int(found[1])


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

    A version that is newer than all known releases, and one that cannot be understood, is decided as the newest release
    that is out.

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
            minor = minor_of(one.version)
            if minor is None:
                return _other(one, NEWEST, "its version is not understood")
            if minor > LATEST_MINOR:
                return _other(one, NEWEST, f"is newer than {RELEASES[RELEASE_NAMES[-1]].tag}, the newest known release")
            if minor >= OLDEST_MINOR:
                release = release_of(one.version)
                if release.is_preview and f"v{one.version.removeprefix('v')}" not in (f"v{release.name}", release.tag):
                    return _other(one, release, "is known as a preview alone")
                return ChosenRelease(release, source=one.source)
            oldest = RELEASES[RELEASE_NAMES[0]]
            if not nearest:
                raise InputError(
                    f"kubelet {one.version} is older than all known releases ({', '.join(RELEASE_NAMES)})",
                    source=one.source,
                    remedy=f"add --nearest-release to decide as {oldest.name}, or name another release",
                )
            return _other(one, oldest, f"is older than {oldest}, the oldest known release")
    return ChosenRelease()


def _other(one: KubeletVersion, release: Release, why: str) -> ChosenRelease:
    message = f"{why}: decided as {release}, and what this kubelet does otherwise is not known"
    return ChosenRelease(release, (Finding("warning", f"kubelet {one.version}", message, CODE),), one.source)
