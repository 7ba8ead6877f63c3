"""Histories: texts that say in which releases something changed, and to what.

``1.32 alpha off, 1.33 beta on`` says nothing of 1.31, ``alpha off`` of 1.32, and ``beta on`` of 1.33 and later.
"""

from __future__ import annotations


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
