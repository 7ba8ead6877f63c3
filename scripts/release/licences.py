"""The licences of everything that is installed with Mooring, with all extras.

    python scripts/release/licences.py            a table
    python scripts/release/licences.py --texts    with the texts, for archives that contain the packages

The packages are those of this environment that ``pyproject.toml`` names, and what they need. Exit code 1: one of them
has a licence that is not among :data:`ALLOWED`.
"""

from __future__ import annotations

import re
import sys
import tomllib
from collections.abc import Iterable, Iterator
from importlib.metadata import Distribution, distribution
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).resolve().parents[2]
ALLOWED = frozenset({
    "0BSD", "Apache-2.0", "BSD-2-Clause", "BSD-3-Clause", "CC0-1.0", "ISC", "MIT", "MIT-0", "PSF-2.0", "Zlib",
})  # fmt: skip
"""SPDX identifiers of licences that allow use and distribution without more than their text."""
_NAMES = {
    "3-Clause BSD License": "BSD-3-Clause",
    "Apache 2.0": "Apache-2.0",
    "BSD": "BSD-3-Clause",
    "BSD License": "BSD-3-Clause",
    "MIT License": "MIT",
}
"""What older packages say -> SPDX identifier; each was compared with the licence's text in the package."""


def declared() -> list[str]:
    """Return what ``pyproject.toml`` names as dependencies, those of all extras included."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    return [*project["dependencies"], *(line for lines in project["optional-dependencies"].values() for line in lines)]


def needed(requirements: Iterable[str]) -> dict[str, Distribution]:
    """Return name -> package of all that requirements install, directly or not.

    Raises:
        PackageNotFoundError: one of them is not installed.
    """
    found: dict[str, Distribution] = {}
    seen: set[tuple[str, str]] = set()
    waiting = [("", line) for line in requirements]
    while waiting:
        extra, line = waiting.pop()
        requirement = Requirement(line)
        if requirement.marker is not None and not requirement.marker.evaluate({"extra": extra}):
            continue
        name = canonicalize_name(requirement.name)
        found[name] = distribution(name)
        new = {(name, one) for one in ("", *requirement.extras)} - seen
        seen |= new
        waiting += [(one, other) for _, one in new for other in found[name].requires or ()]
    return dict(sorted(found.items()))


def licence(package: Distribution) -> str:
    """Return the licence as an SPDX expression, or as the package names it."""
    metadata = package.metadata
    classified: list[str] = [
        value.rpartition(" :: ")[2] for value in metadata.get_all("Classifier") or () if value.startswith("License ::")
    ]
    named: list[str] = [one for field in ("License-Expression", "License") for one in metadata.get_all(field) or ()]
    for said in named + classified:
        if said and len(said) < 100:
            return _NAMES.get(said.strip(), said.strip())
    return "none named"


def is_allowed(expression: str) -> bool:
    """Return whether every licence of an expression is allowed.

    >>> is_allowed("Apache-2.0 OR BSD-2-Clause"), is_allowed("MIT AND GPL-3.0-only")
    (True, False)
    """
    return all(word in ALLOWED for word in re.split(r"\s+(?:AND|OR)\s+", expression.strip("()")))


def texts(package: Distribution) -> Iterator[str]:
    """Yield the files of a package that are its licence."""
    for file in package.files or ():
        if ".dist-info/" in str(file) and re.search(r"licen[cs]e|copying|notice", file.name, re.IGNORECASE):
            yield file.read_text(encoding="utf-8").strip()


def main() -> int:
    """Print the table, and the texts where they are asked for."""
    packages = needed(declared())
    wrong = [name for name, package in packages.items() if not is_allowed(licence(package))]
    for name, package in packages.items():
        print(f"{name:40} {package.version:12} {licence(package)}")
    if "--texts" in sys.argv:
        for name, package in packages.items():
            print(f"\n{'=' * 100}\n{name} {package.version}: {licence(package)}\n")
            print("\n\n".join(texts(package)) or "The package has no text of its licence.")
    for name in wrong:
        print(f"{name}: the licence {licence(packages[name])!r} is not among those that are allowed", file=sys.stderr)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
