"""Make an executed notebook of the library's page: build/site/notebooks/use-the-library.ipynb.

Its cells were run here and have what they return: text, and the picture where there is one. The notebook runs in the
root of a clone, like the page.
"""

from __future__ import annotations

import ast
import doctest
import json
import os
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "how-to" / "use-the-library.md"
PYTHON = re.compile(r"^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def notebook(page: Path) -> dict[str, Any]:
    """Return a page as a notebook (nbformat 4.5), run from the root of the repository."""
    cells: list[dict[str, Any]] = []
    session: dict[str, Any] = {"__name__": "__main__"}
    # Text and blocks take turns.
    for number, part in enumerate(PYTHON.split(page.read_text(encoding="utf-8"))):
        if number % 2:
            cells += _code(part, session)
        elif part.strip():
            cells.append({"cell_type": "markdown", "metadata": {}, "source": part.strip("\n")})
    for number, cell in enumerate(cells):
        cell["id"] = f"cell-{number}"
    for count, cell in enumerate((cell for cell in cells if cell["cell_type"] == "code"), 1):
        cell["execution_count"] = count
        cell["outputs"] = [one | {"execution_count": count} if "data" in one else one for one in cell["outputs"]]
    kernel = {"kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"}}
    return {"cells": cells, "metadata": kernel, "nbformat": 4, "nbformat_minor": 5}


def _code(block: str, session: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield the cells of a block: each ends where the page shows an output."""
    source = ""
    examples = doctest.DocTestParser().get_examples(block)
    for example in examples:
        source += example.source
        if example.want or example is examples[-1]:
            failed = {"tags": ["raises-exception"]} if example.exc_msg else {}
            cell = {"cell_type": "code", "execution_count": None, "metadata": failed, "source": source.rstrip("\n")}
            yield cell | {"outputs": _run(source, session)}
            source = ""


def _run(source: str, session: dict[str, Any]) -> list[dict[str, Any]]:
    """Run a cell; return what it shows of its last expression, or of the error that ends it."""
    *before, last = ast.parse(source).body
    try:
        exec(compile(ast.Module(before, []), "cell", "exec"), session)  # noqa: S102 - the examples of our own page
        if not isinstance(last, ast.Expr):
            exec(compile(ast.Module([last], []), "cell", "exec"), session)  # noqa: S102
            return []
        value = eval(compile(ast.Expression(last.value), "cell", "eval"), session)  # noqa: S307
    except Exception as error:  # noqa: BLE001 - a page shows errors too
        line = f"{type(error).__name__}: {error}"
        return [{"output_type": "error", "ename": type(error).__name__, "evalue": str(error), "traceback": [line]}]
    shown = {"text/plain": repr(value)}
    if hasattr(value, "_repr_svg_"):
        shown["image/svg+xml"] = value._repr_svg_()
    return [] if value is None else [{"output_type": "execute_result", "data": shown, "metadata": {}}]


def main() -> int:
    """Write it into the site."""
    os.chdir(ROOT)
    target = ROOT / "build" / "site" / "notebooks" / f"{PAGE.stem}.ipynb"
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_text(json.dumps(notebook(PAGE), indent=1, ensure_ascii=False), encoding="utf-8")
    print(target.relative_to(ROOT))
    return 0


if __name__ == "__main__":
    sys.exit(main())
