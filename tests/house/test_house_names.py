"""The shape of the source tree: names that are used once, folders and modules of a size to read."""

from __future__ import annotations

import ast
import re
from collections import Counter, defaultdict
from functools import cache
from pathlib import Path

import mooring

SOURCE = Path(mooring.__file__).parent
MOST_MODULES = 20
"""Modules of a folder, without its ``__init__``."""
MOST_LINES = 400
"""Lines of a module."""


def modules() -> list[Path]:
    """Return the modules of the package."""
    found = sorted(SOURCE.rglob("*.py"))
    assert found
    return found


@cache
def tree(module: Path) -> ast.Module:
    """Return a module as it was parsed, once for all tests."""
    return ast.parse(module.read_text(encoding="utf-8"))


def test_a_public_class_name_is_used_once() -> None:
    places = defaultdict(list)
    for module in modules():
        for node in ast.walk(tree(module)):
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                places[node.name].append(f"{module.relative_to(SOURCE)}:{node.lineno}")
    assert {name: found for name, found in places.items() if len(found) > 1} == {}


def test_a_module_gives_a_name_to_one_thing() -> None:
    twice = []
    for module in modules():
        names = Counter(
            name.id
            for node in tree(module).body
            if isinstance(node, ast.Assign | ast.AnnAssign)
            for target in (node.targets if isinstance(node, ast.Assign) else [node.target])
            for name in ast.walk(target)
            if isinstance(name, ast.Name) and isinstance(name.ctx, ast.Store)
        )
        twice += [f"{module.name}: {name}" for name, count in names.items() if count > 1]
    assert twice == [], "a constant of one part of the module is read by the other"


def test_no_folder_has_too_many_modules() -> None:
    counts = Counter(str(module.parent.relative_to(SOURCE)) for module in modules() if module.name != "__init__.py")
    assert {folder: count for folder, count in counts.items() if count > MOST_MODULES} == {}


def test_no_module_is_too_long() -> None:
    lines = {
        str(module.relative_to(SOURCE)): len(module.read_text(encoding="utf-8").splitlines()) for module in modules()
    }
    assert {module: count for module, count in lines.items() if count > MOST_LINES} == {}


def test_no_pattern_repeats_a_group_possessively() -> None:
    # Python 3.11.2 reads on where such a group failed, as after `u12` of a `u[0-9]{4}`.
    found = [module.name for module in modules() if re.search(r"""re\.compile\(.*?\)[*+?]\+""", module.read_text())]
    assert found == []
