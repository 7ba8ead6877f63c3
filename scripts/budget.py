"""Count the house, and fail where a figure is above its budget in ``pyproject.toml``.

Usage: budget.py [--folders]

Code lines are lines without blanks, comments and docstrings.
"""

from __future__ import annotations

import ast
import io
import re
import sys
import tokenize
import tomllib
from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
SOURCE = ROOT / "src" / "mooring"
UNCOUNTED = {"e2e", "browser", "corpora", "world"}
"""Folders of the tests that are no part of the ratio to the source: real parts, whole programs, or data."""
LAYOUT = {tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, tokenize.COMMENT, tokenize.ENDMARKER}


@dataclass(frozen=True, slots=True)
class Module:
    """A Python file that was read.

    Attributes:
        name: the dotted name below the repository's ``src`` or root.
        lines: numbers of the lines that hold code.
    """

    path: Path
    name: str
    tree: ast.Module
    lines: frozenset[int]
    words: Counter[str]

    @staticmethod
    def read(path: Path, top: Path) -> Module:
        """Read a file."""
        text = path.read_text(encoding="utf-8")
        tree = ast.parse(text)
        lines: set[int] = set()
        for token in tokenize.generate_tokens(io.StringIO(text).readline):
            if token.type not in LAYOUT:
                lines.update(range(token.start[0], token.end[0] + 1))
        texts = (node for node in ast.walk(tree) if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant))
        for node in texts:
            lines.difference_update(range(node.lineno, (node.end_lineno or node.lineno) + 1))
        words = Counter(word for node in ast.walk(tree) for word in _names(node))
        name = ".".join(path.relative_to(top).with_suffix("").parts).removesuffix(".__init__")
        return Module(path, name, tree, frozenset(lines), words)

    def imported(self) -> Iterator[str]:
        """Yield the dotted names that the module imports, of modules and of what stands in them."""
        for node in ast.walk(self.tree):
            if isinstance(node, ast.Import):
                yield from (alias.name for alias in node.names)
            elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
                yield node.module
                yield from (f"{node.module}.{alias.name}" for alias in node.names)


def _names(node: ast.AST) -> Iterator[str]:
    """Yield the names that a node defines or uses itself; of texts too that are made of values."""
    for field in ("id", "attr", "name", "arg"):
        found = getattr(node, field, None)
        if isinstance(found, str):
            yield from found.split(".")


def _modules(folder: Path, top: Path) -> list[Module]:
    return [Module.read(path, top) for path in sorted(folder.rglob("*.py")) if "__pycache__" not in path.parts]


def _import_lines(module: Module) -> int:
    found = [node for node in ast.walk(module.tree) if isinstance(node, ast.Import | ast.ImportFrom)]
    return sum((node.end_lineno or node.lineno) - node.lineno + 1 for node in found)


def _private(module: Module) -> Iterator[str]:
    """Yield the names of a module's private functions and methods."""
    for node in ast.walk(module.tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and re.match("_[^_]", node.name):
            yield node.name


def _dataclasses(module: Module) -> Iterator[str]:
    for node in ast.walk(module.tree):
        if isinstance(node, ast.ClassDef) and any("dataclass" in ast.unparse(one) for one in node.decorator_list):
            yield node.name


def _folder(module: str) -> str:
    return module.rpartition(".")[0]


def figures() -> dict[str, float]:
    """Return every figure of the budget by its name."""
    source = _modules(SOURCE, SOURCE.parent)
    tests = [m for m in _modules(ROOT / "tests", ROOT) if not UNCOUNTED.intersection(m.path.relative_to(ROOT).parts)]
    code = sum(len(module.lines) for module in source)
    names = {module.name for module in source}
    importers = defaultdict(set)
    for module in source:
        for name in module.imported():
            if name in names and name != module.name:
                importers[name].add(module.name)
    single = [name for name, who in importers.items() if len(who) == 1]
    private = [module.words[name] for module in source for name in _private(module)]
    files_with: Counter[str] = Counter(word for module in source for word in module.words)
    local = [files_with[name] for module in source for name in _dataclasses(module)]
    tested = {name for module in tests for name in module.imported() if name in names}
    pages = [page for page in (ROOT / "docs").rglob("*.md") if "spec" not in page.relative_to(ROOT / "docs").parts]
    return {
        "code-lines": code,
        "files": len(source),
        "import-percent": round(100 * sum(map(_import_lines, source)) / code, 1),
        "one-caller-percent": round(100 * sum(count <= 2 for count in private) / len(private), 1),
        "local-dataclass-percent": round(100 * sum(count <= 2 for count in local) / len(local), 1),
        "one-importer-modules": sum(_folder(name) == _folder(*importers[name]) for name in single),
        "tested-modules": len(tested),
        "test-ratio": round(sum(len(module.lines) for module in tests) / code, 2),
        "docs-words": sum(len(page.read_text(encoding="utf-8").split()) for page in pages),
    }


def folders() -> Iterator[tuple[str, int, int]]:
    """Yield each top-level folder of the package with its files and code lines."""
    counts: dict[str, list[int]] = defaultdict(lambda: [0, 0])
    for module in _modules(SOURCE, SOURCE.parent):
        parts = module.path.relative_to(SOURCE).parts
        count = counts[parts[0] if len(parts) > 1 else "."]
        count[0] += 1
        count[1] += len(module.lines)
    for folder, (files, lines) in sorted(counts.items()):
        yield folder, files, lines


def main() -> int:
    """Print the figures beside the budget; return 1 where one is above it."""
    if "--folders" in sys.argv:
        for folder, files, lines in folders():
            print(f"{folder:20}{files:6}{lines:8}")
        return 0
    budget = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["mooring"]["budget"]
    counted = figures()
    for name, value in counted.items():
        print(f"{name:26}{value:>10} of {budget[name]}{'' if value <= budget[name] else '  above the budget'}")
    over = any(value > budget[name] for name, value in counted.items())
    if over:
        print("remove as much elsewhere; a figure is raised by a decision record that says what was removed")
    return over


if __name__ == "__main__":
    sys.exit(main())
