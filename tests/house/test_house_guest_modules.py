"""A guest gets the modules that its steps import: found here in a second, not in the guest after minutes."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

from tests.e2e.guest.runner import FOLDERS, MODULES, ROOT


def imported(file: Path) -> Iterator[Path]:
    """Yield the files of modules of ``tests`` that a file imports."""
    for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
        names: list[str] = []
        if isinstance(node, ast.ImportFrom) and node.module:
            names = [node.module, *(f"{node.module}.{alias.name}" for alias in node.names)]
        elif isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        for name in names:
            found = ROOT / f"{name.replace('.', '/')}.py"
            if name.startswith("tests.") and found.exists():
                yield found


def test_a_guest_gets_every_module_that_its_steps_import() -> None:
    folders = [folder for _, folder in FOLDERS]
    waiting = [file for file in folders[0].glob("*.py") if not file.name.startswith(("test_", "conftest"))]
    reached: set[Path] = set()
    while waiting:
        file = waiting.pop()
        if file not in reached:
            reached.add(file)
            waiting += imported(file)
    beside = {str(file.relative_to(ROOT)) for file in reached if file.parent not in folders}
    assert beside == set(MODULES)
