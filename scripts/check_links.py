"""Check the links of all Markdown files: every relative target exists, every anchor is a heading there."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
LINK = re.compile(r"!?\[[^\]]*\]\(([^)\s]+)[^)]*\)")
HEADING = re.compile(r"^#+\s+(.*)$", re.MULTILINE)
FENCE = re.compile(r"^```.*?^```", re.MULTILINE | re.DOTALL)
HIDDEN = ("http://", "https://", "mailto:")


def anchor(heading: str) -> str:
    """Return the anchor that renderers of Markdown make of a heading."""
    text = re.sub(r"[`*]", "", heading.strip().lower())
    return re.sub(r"\s", "-", re.sub(r"[^\w\s-]", "", text))


def problems(page: Path) -> Iterator[str]:
    """Yield one line for each broken link of a page."""
    text = FENCE.sub("", page.read_text(encoding="utf-8"))
    for target in LINK.findall(text):
        if target.startswith(HIDDEN):
            continue
        path, _, fragment = target.partition("#")
        file = (page.parent / path).resolve() if path else page
        if not file.exists():
            yield f"{page.relative_to(ROOT)}: no such file: {target}"
        elif fragment and file.suffix == ".md":
            headings = {anchor(heading) for heading in HEADING.findall(file.read_text(encoding="utf-8"))}
            if fragment not in headings:
                yield f"{page.relative_to(ROOT)}: no such heading: {target}"


def main() -> int:
    """Check README, CHANGELOG, CONTRIBUTING and everything under docs."""
    pages = [*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"), *ROOT.glob("tests/**/*.md")]
    found = [problem for page in sorted(pages) for problem in problems(page)]
    print("\n".join(found) or f"links: {len(pages)} pages, all targets exist")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
