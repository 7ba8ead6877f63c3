"""Pages stay short, every page is in the index, and the README says first what a newcomer needs."""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path
from types import ModuleType

import pytest

from mooring.command.main import VERBS
from mooring.engine.core.config import FIXABLE_DEFECTS
from mooring.engine.core.release import MANAGER_GATES
from mooring.engine.cpumanager.options import OPTION_GROUPS
from mooring.inputs.configuration.kubelet_config import READ
from mooring.inputs.machines.loader import SHIPPED

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"
LONGEST_PAGE = 250
MARKER = re.compile(r"^(?:<{7}|>{7}) ", re.MULTILINE)


def text_of(page: str) -> str:
    return (ROOT / page).read_text(encoding="utf-8")


def test_no_page_is_longer_than_a_reader_stays_or_has_the_markers_of_a_merge() -> None:
    texts = {page: text_of(page) for page in ("README.md", "CONTRIBUTING.md", *map(str, DOCS.glob("**/*.md")))}
    assert [page for page, text in texts.items() if len(text.splitlines()) > LONGEST_PAGE] == []
    assert [page for page, text in {**texts, "changes": text_of("CHANGELOG.md")}.items() if MARKER.search(text)] == []


def test_the_index_lists_every_page() -> None:
    index = text_of("docs/README.md")
    pages = {str(page.relative_to(DOCS)) for page in DOCS.glob("**/*.md")} - {"README.md"}
    assert {page for page in pages if f"]({page})" not in index and not page.startswith("decisions/")} == set()


def test_the_readme_opens_with_a_picture_and_the_two_commands() -> None:
    lines = text_of("README.md").splitlines()
    opening = "\n".join(lines[:40])
    assert len(lines) <= 100
    assert lines[0] == "# Mooring"
    assert all(part in opening for part in ("docs/images/node.svg", "make demo", "make test"))


@pytest.mark.parametrize(
    ("page", "form", "names"),
    [
        ("reference/configuration.md", "`{}`", {*READ, *OPTION_GROUPS}),
        ("spec/configuration.md", "{}", MANAGER_GATES),
        ("reference/defects.md", "`{}`", FIXABLE_DEFECTS),
        ("reference/machines.md", "`{}`", SHIPPED),
        ("reference/command-line.md", "`mooring {}`", VERBS),
    ],
)
def test_the_reference_names_everything_that_can_be_written(page: str, form: str, names: Iterable[str]) -> None:
    text = text_of(f"docs/{page}")
    assert [name for name in names if form.format(name) not in text] == []


# Code and specification hold together: a citation that leads nowhere and a rule without a module are reported.


SECTIONS = {"cpu-manager": ["1", "4", "4.2"], "memory-manager": ["1", "2", "3"]}


def cited(specification: ModuleType, folder: Path, docstring: str) -> list[tuple[str, str]]:
    room = folder / "mooring" / "engine" / "cpumanager"
    room.mkdir(parents=True)
    (room / "static.py").write_text(f'"""{docstring}"""\n', encoding="utf-8")
    return [(one.page, one.section) for one in specification.citations(folder)]


def test_lists_and_ranges_of_several_pages_are_read(specification: ModuleType, tmp_path: Path) -> None:
    docstring = (
        "Rules; spec: cpu-manager.md sections 1 and 4.2, memory-manager.md\nsections 1 to 3. Then text.md section 9."
    )
    assert cited(specification, tmp_path, docstring) == [
        ("cpu-manager", "1"),
        ("cpu-manager", "4.2"),
        ("memory-manager", "1"),
        ("memory-manager", "2"),
        ("memory-manager", "3"),
    ]


def test_a_citation_that_leads_nowhere_is_reported(specification: ModuleType, tmp_path: Path) -> None:
    cited(specification, tmp_path, "spec: cpu-manager.md section 5, and scheduler.md section 1.")
    found = list(specification.citations(tmp_path))
    assert list(specification.unresolved(found, SECTIONS)) == [
        "mooring.engine.cpumanager.static, line 1: docs/spec/cpu-manager.md has no section 5",
        "mooring.engine.cpumanager.static, line 1: docs/spec has no page scheduler.md",
    ]


def test_a_section_without_a_module_is_reported(specification: ModuleType, tmp_path: Path) -> None:
    cited(specification, tmp_path, "spec: cpu-manager.md sections 1 and 4.2.")
    by_section = specification.modules_by_section(list(specification.citations(tmp_path)))
    assert list(specification.uncited(by_section, {"cpu-manager": ["1", "2", "4", "4.2"]})) == [
        "docs/spec/cpu-manager.md section 2: no module cites it"
    ]


def test_every_citation_of_the_house_resolves(specification: ModuleType) -> None:
    found = list(specification.citations())
    assert len(found) > 150
    assert list(specification.unresolved(found, specification.headings())) == []


# Every test that a page names exists.


NAMED = re.compile(r"`(test_[a-z0-9_]+)`")
PAGES = [page for page in sorted((ROOT / "docs").rglob("*.md")) if NAMED.search(page.read_text(encoding="utf-8"))]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_the_tests_that_a_page_names_exist(page: Path) -> None:
    defined = {
        name
        for file in (ROOT / "tests").rglob("test_*.py")
        for name in re.findall(r"^def (test_\w+)\(", file.read_text(encoding="utf-8"), re.MULTILINE)
    }
    assert set(NAMED.findall(page.read_text(encoding="utf-8"))) - defined == set()


def test_every_line_of_the_threat_model_names_a_test() -> None:
    page = (ROOT / "docs" / "explanation" / "threat-model.md").read_text(encoding="utf-8")
    text = page.partition("## Damaged input")[0]
    rows = [line for line in text.splitlines() if line.startswith("* ")]
    assert rows
    assert [row for row in rows if not NAMED.search(row)] == []
