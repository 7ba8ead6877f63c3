"""Write what the examples of the Markdown pages print now into the pages: ``make docs``.

Outputs that still fit what a page shows, its three dots included, stay as they are. Look at the difference before you
keep it: an output that changed is an answer that changed.
"""

from __future__ import annotations

import sys
from pathlib import Path

from documented import ROOT, pages, run_page


def main(names: list[str]) -> int:
    """Refresh the named pages, or all of them."""
    for page in [Path(name).resolve() for name in names] or pages():
        text, mismatches = run_page(page)
        if mismatches:
            page.write_text(text, encoding="utf-8")
            print(f"{page.relative_to(ROOT)}: {len(mismatches)} blocks written")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
