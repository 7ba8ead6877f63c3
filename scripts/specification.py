"""Hold code and specification together: every reference resolves, and every section names its modules.

A docstring or comment cites the specification as ``spec: cpu-manager.md section 4.2``, with several sections as
``sections 1, 2 and 5.1`` or ``sections 2 to 4``, and several pages separated by commas. ``make check`` resolves each
citation against the headings of docs/spec. ``make docs`` writes the other direction: below each heading of the
specification the modules that cite it, and the third column of docs/spec/sources.md.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
SPEC = ROOT / "docs" / "spec"
SOURCES = SPEC / "sources.md"
CODE = ROOT / "src"

NUMBER = r"\d+(?:\.\d+)?"
PLACE = re.compile(
    rf"([a-z][a-z-]*|README)\.md(?:\s+sections?\s+({NUMBER}(?:(?:\s*,\s*|\s+and\s+|\s+to\s+){NUMBER})*))?"
)
JOINT = re.compile(r"\s*,?\s*(?:and\s+)?")
CITATION = re.compile(r"\bspec:\s+")
HEADING = re.compile(r"^#{2,3} (\d+(?:\.\d+)?)\.? .*$", re.MULTILINE)
MODULES_LINE = re.compile(r"^Modules: .*\n", re.MULTILINE)
ROW = re.compile(r"^\| (?P<file>`[^|]+`) \| (?P<places>[^|]+) \|.*$", re.MULTILINE)
LINK = re.compile(r"\[([a-z-]+|README)\]\([^)]*\)((?:(?: |, | to )\d+(?:\.\d+)?)*)")

WITHOUT_MODULES = {
    "README": {"1", "2", "3", "4", "6", "7", "8", "9", "10"},  # about the specification itself
    "preview": None,  # the rules of the release to come, beside those of v1.37.1
    "releases": None,  # Mooring decides as v1.37.1
    "vectors": None,  # tests hold the vectors
    "pod-level": {"7"},  # examples
}
"""Page -> sections that no module implements; None for all of them."""


OTHER_MANAGER = {"cpumanager": "mooring.engine.memorymanager.", "memorymanager": "mooring.engine.cpumanager."}
"""Folder of the kubelet -> modules that a section about both managers names and that do not belong to it."""


@dataclass(frozen=True, slots=True)
class Citation:
    """One place of the specification that a module cites."""

    module: str
    line: int
    page: str
    section: str
    """Empty when the whole page is cited."""


def expanded(numbers: str) -> Iterator[str]:
    """Yield the sections of ``1, 2 and 5.1`` or ``2 to 4``.

    >>> list(expanded("1, 2 and 5.1")), list(expanded("2 to 4"))
    (['1', '2', '5.1'], ['2', '3', '4'])
    """
    words = re.split(r"\s*,\s*|\s+and\s+", numbers)
    for word in words:
        first, *last = re.split(r"\s+to\s+", word)
        if last:
            yield from map(str, range(int(first), int(last[0]) + 1))
        else:
            yield first


def citations(code: Path = CODE) -> Iterator[Citation]:
    """Yield every citation of the specification in the modules below a folder."""
    for file in sorted(code.rglob("*.py")):
        text = re.sub(r"\n\s*#", lambda found: "\n" + " " * (len(found[0]) - 1), file.read_text(encoding="utf-8"))
        module = ".".join(file.relative_to(code).with_suffix("").parts).removesuffix(".__init__")
        for start in CITATION.finditer(text):
            position = start.end()
            while (place := PLACE.match(text, position)) is not None:
                line = text.count("\n", 0, place.start()) + 1
                for section in expanded(place[2]) if place[2] else ("",):
                    yield Citation(module, line, place[1], section)
                joint = JOINT.match(text, place.end())
                position = joint.end() if joint is not None else place.end()


def headings(spec: Path = SPEC) -> dict[str, list[str]]:
    """Return the numbered sections of each page."""
    return {page.stem: HEADING.findall(page.read_text(encoding="utf-8")) for page in sorted(spec.glob("*.md"))}


def unresolved(found: list[Citation], sections: Mapping[str, list[str]]) -> Iterator[str]:
    """Yield one line for each citation that leads nowhere."""
    for one in found:
        where = f"{one.module}, line {one.line}"
        if one.page not in sections:
            yield f"{where}: docs/spec has no page {one.page}.md"
        elif one.section and one.section not in sections[one.page]:
            yield f"{where}: docs/spec/{one.page}.md has no section {one.section}"


def uncited(by_section: Mapping[tuple[str, str], list[str]], sections: Mapping[str, list[str]]) -> Iterator[str]:
    """Yield one line for each section that no module cites, itself, above or below."""
    for page, numbers in sections.items():
        exempt = WITHOUT_MODULES.get(page, set())
        for number in numbers:
            if exempt is None or number in exempt or number.split(".")[0] in exempt:
                continue
            if not any(cited == number or cited.startswith(f"{number}.") or number.startswith(f"{cited}.")
                       for name, cited in by_section if name == page and cited):  # fmt: skip
                yield f"docs/spec/{page}.md section {number}: no module cites it"


def modules_by_section(found: list[Citation]) -> dict[tuple[str, str], list[str]]:
    """Return page and section -> modules that cite it, in text order."""
    by_section: dict[tuple[str, str], set[str]] = {}
    for one in found:
        by_section.setdefault((one.page, one.section), set()).add(one.module)
    return {place: sorted(modules) for place, modules in sorted(by_section.items())}


def listed(modules: list[str]) -> str:
    """Return modules as a text of links to their files."""
    return ", ".join(f"`{module.removeprefix('mooring.')}`" for module in modules)


def page_with_modules(name: str, text: str, by_section: Mapping[tuple[str, str], list[str]]) -> str:
    """Return a page of the specification with a line of modules below each heading that is cited."""

    def with_line(heading: re.Match[str]) -> str:
        modules = by_section.get((name, heading[1]))
        return f"{heading[0]}\nModules: {listed(modules)}" if modules else heading[0]

    return HEADING.sub(with_line, MODULES_LINE.sub("", text))


def table_with_modules(text: str, by_section: Mapping[tuple[str, str], list[str]]) -> str:
    """Return the table of the kubelet's source files with the modules that cite their sections."""

    def with_modules(row: re.Match[str]) -> str:
        modules: set[str] = set()
        for page, numbers in LINK.findall(row["places"]):
            wanted = list(expanded(numbers.strip())) if numbers else [""]
            for section in wanted:
                modules.update(by_section.get((page, section), ()))
        other = OTHER_MANAGER.get(row["file"].strip("`").split("/")[0])
        modules = {module for module in modules if other is None or not module.startswith(other)}
        return f"| {row['file']} | {row['places'].strip()} | {listed(sorted(modules)) or '–'} |"

    return ROW.sub(with_modules, text)


def written(by_section: Mapping[tuple[str, str], list[str]]) -> Iterator[tuple[Path, str]]:
    """Yield each page of the specification as it must read."""
    for page in sorted(SPEC.glob("*.md")):
        text = page.read_text(encoding="utf-8")
        yield (
            page,
            (
                table_with_modules(text, by_section)
                if page == SOURCES
                else page_with_modules(page.stem, text, by_section)
            ),
        )


def main(arguments: list[str]) -> int:
    """Check both directions, or with ``--write`` write the modules into the pages."""
    found, sections = list(citations()), headings()
    by_section = modules_by_section(found)
    wrong = [*unresolved(found, sections), *uncited(by_section, sections)]
    for page, text in written(by_section):
        if text != page.read_text(encoding="utf-8"):
            if "--write" in arguments:
                page.write_text(text, encoding="utf-8")
                print(f"{page.relative_to(ROOT)}: modules written")
            else:
                wrong.append(f"{page.relative_to(ROOT)}: modules are out of date (make docs writes them)")
    print("\n".join(wrong) or f"specification: {len(found)} citations, all resolve")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
