"""Code and specification hold together: a citation that leads nowhere and a rule without a module are reported."""

from __future__ import annotations

from pathlib import Path
from types import ModuleType

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
