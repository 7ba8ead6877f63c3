"""Print the notes of a version, from CHANGELOG.md.

    python scripts/release/notes.py 0.1.0         the section of that version
    python scripts/release/notes.py Unreleased    what the next one will have

Exit code 2: there is no such section, it is empty, or it is not that of the version of this clone.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

from mooring import __version__

CHANGELOG = Path(__file__).resolve().parents[2] / "CHANGELOG.md"
UNRELEASED = "Unreleased"


class NoNotesError(Exception):
    """There are no notes for a version; the text says why and what to do."""


def notes(changelog: str, version: str) -> str:
    r"""Return the section of a version without its heading.

    Raises:
        NoNotesError: there is none, or it is empty.

    >>> print(notes("# Changelog\n\n## 1.0.0 - 2026-01-02\n\n- New.\n\n## 0.9.0\n\n- Old.\n", "1.0.0"))
    - New.
    """
    parts = re.split(r"^## +\[?([^\]\s]+)\]?.*$", changelog, flags=re.MULTILINE)
    sections = dict(zip(parts[1::2], parts[2::2], strict=True))
    if version not in sections:
        raise NoNotesError(f"CHANGELOG.md has no section ## {version}; it has {', '.join(sections) or 'none'}")
    text = sections[version].strip()
    if not text:
        raise NoNotesError(f"CHANGELOG.md: the section ## {version} is empty")
    return text


def main(version: str) -> int:
    """Print them."""
    name = version.removeprefix("v")
    if name not in {UNRELEASED, __version__}:
        print(f"notes: this clone is version {__version__}, not {version}: check out its tag", file=sys.stderr)
        return 2
    try:
        print(notes(CHANGELOG.read_text(encoding="utf-8"), name))
    except NoNotesError as error:
        print(f"notes: {error}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
