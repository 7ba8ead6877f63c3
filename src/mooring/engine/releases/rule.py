"""What a named rule of older kubelets is: its span of releases, and what it says.

Source: spec: releases.md sections 5 to 8.

Histories: texts that say in which releases something changed, and to what.

``1.32 alpha off, 1.33 beta on`` says nothing of 1.31, ``alpha off`` of 1.32, and ``beta on`` of 1.33 and later.
"""

from __future__ import annotations

from mooring.lazy import dataclass

RELEASE_NAMES = ("1.31", "1.32", "1.33", "1.34", "1.35", "1.36", "1.37", "1.38")
"""All known releases, the oldest first; those behind the newest that is out are previews."""


@dataclass(frozen=True, slots=True)
class ReleaseRule:
    """One rule that a range of older releases follows."""

    name: str
    """With hyphens; the field of :class:`~mooring.engine.core.release.ReleaseRules` has underscores."""
    until: str
    """The last release that follows it."""
    says: str
    """What these releases do, in one sentence."""
    instead: str
    """What the next release does."""
    source: str
    """The kubelet's component and the section of the specification."""
    since: str = RELEASE_NAMES[0]
    """The first release that follows it; the oldest known one unless the rule came later."""
    options: tuple[str, ...] = ()
    """CPU manager policy options that must be on for it to matter."""
    codes: tuple[str, ...] = ()
    """Codes of what the rule decides about; their pages name it."""
    recording: str = ""
    """A recorded scenario of its last release that fails without it; empty when no recording separates it there."""
    recording_after: str = ""
    """A recorded scenario of the next release that fails with it; empty when no recording separates it there."""

    @property
    def span(self) -> str:
        """The releases that follow it, in words: ``1.31 to 1.36``."""
        return self.until if self.since == self.until else f"{self.since} to {self.until}"

    @property
    def after(self) -> str:
        """The first release that does not follow it any more."""
        return RELEASE_NAMES[RELEASE_NAMES.index(self.until) + 1]

    @property
    def releases(self) -> tuple[str, ...]:
        """The releases that follow the rule, the oldest first."""
        return RELEASE_NAMES[RELEASE_NAMES.index(self.since) : RELEASE_NAMES.index(self.until) + 1]


def standing(history: str, release: str) -> str:
    """Return what a history says of one release; empty before its first part.

    >>> [standing("1.32 alpha off, 1.33 beta on", release) for release in ("1.31", "1.32", "1.37")]
    ['', 'alpha off', 'beta on']
    """
    minor = _minor(release)
    while history:
        history, _, last = history.rpartition(", ")
        since, _, words = last.partition(" ")
        if _minor(since) <= minor:
            return words
    return ""


def _minor(release: str) -> int:
    return int(release[2:])
