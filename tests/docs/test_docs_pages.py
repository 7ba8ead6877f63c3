"""Pages stay short, every page is in the index, and the README says first what a newcomer needs."""

from __future__ import annotations

import re
from pathlib import Path

from mooring.command.main import VERBS
from mooring.engine.core.config import FIXABLE_DEFECTS
from mooring.engine.core.release import MANAGER_GATES
from mooring.engine.cpumanager.options import OPTION_GROUPS
from mooring.inputs.configuration.kubelet_config import READ
from mooring.inputs.machines.shipped import SHIPPED

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"
LONGEST_PAGE = 250
MARKER = re.compile(r"^(?:<{7}|>{7}) ", re.MULTILINE)


def text_of(page: str) -> str:
    return (ROOT / page).read_text(encoding="utf-8")


def test_no_page_is_longer_than_a_reader_stays() -> None:
    pages = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *DOCS.glob("**/*.md")]
    long = {str(page.relative_to(ROOT)) for page in pages if len(page.read_text("utf-8").splitlines()) > LONGEST_PAGE}
    assert long == set()


def test_no_page_has_the_markers_of_a_merge() -> None:
    pages = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", ROOT / "CHANGELOG.md", *DOCS.glob("**/*.md")]
    marked = {str(page.relative_to(ROOT)) for page in pages if MARKER.search(page.read_text("utf-8"))}
    assert marked == set()


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


def test_the_reference_names_everything_that_can_be_written() -> None:
    configuration = text_of("docs/reference/configuration.md")
    written = {*READ, *OPTION_GROUPS}
    assert {name for name in written if f"`{name}`" not in configuration} == set()
    gates = text_of("docs/spec/configuration.md")
    assert {name for name in MANAGER_GATES if name not in gates} == set()
    defects = text_of("docs/reference/defects.md")
    assert {name for name in FIXABLE_DEFECTS if f"`{name}`" not in defects} == set()
    machines = text_of("docs/reference/machines.md")
    assert {name for name in SHIPPED if f"`{name}`" not in machines} == set()
    commands = text_of("docs/reference/command-line.md")
    assert {verb for verb in VERBS if f"`mooring {verb}`" not in commands} == set()
