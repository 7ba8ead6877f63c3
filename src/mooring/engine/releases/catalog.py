"""The releases by name, each made from the table of rules.

Source: spec: releases.md.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from mooring.engine.core.errors import InputError
from mooring.engine.core.release import NEWEST, Release, ReleaseRules
from mooring.engine.releases.rule import RELEASE_NAMES
from mooring.engine.releases.rules import RULES

TAGS: Mapping[str, str] = {
    "1.31": "v1.31.14",
    "1.32": "v1.32.13",
    "1.33": "v1.33.13",
    "1.34": "v1.34.4",
    "1.35": "v1.35.4",
    "1.36": "v1.36.3",
    NEWEST.name: NEWEST.tag,
}
"""Release -> the patch release that was read and recorded."""

_VERSION = re.compile(r"v?1\.(\d{1,4})(?:\.\d+)?(?:[-+].*)?")

OLDEST_MINOR, NEWEST_MINOR = (int(name.partition(".")[2]) for name in (RELEASE_NAMES[0], NEWEST.name))


def _release(name: str) -> Release:
    rules = ReleaseRules(**{rule.name.replace("-", "_"): True for rule in RULES if name in rule.releases})
    return Release(name, TAGS[name], rules)


RELEASES: Mapping[str, Release] = {name: _release(name) for name in RELEASE_NAMES}
"""All known releases by name, the oldest first; the last one is :data:`~mooring.engine.core.release.NEWEST`."""


def release_of(version: str, field: str = "") -> Release:
    """Return the release of a kubelet's version; one that is newer than all known is decided as the newest.

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
