"""Pack what the playground loads: run by the Python of Pyodide, whose bytecode it is (scripts/build_playground.py).

Only modules that the planner may import are packed, compiled, so that a browser neither fetches nor compiles more.
"""

from __future__ import annotations

import ast
import io
import marshal
import zipfile
from importlib.util import MAGIC_NUMBER
from pathlib import Path

ROOTS = (
    "planner", "mooring.library", "pyodide", "_pyodide", "site", "importlib.metadata",
    "encodings.ascii", "encodings.cp437", "encodings.latin_1", "encodings.utf_8", "encodings.utf_8_sig",
)  # fmt: skip
"""Where the search begins, with the modules below: the planner, and what the interpreter imports by itself."""
NEVER = (
    "_pyrepl", "argparse", "ctypes", "doctest", "http", "multiprocessing", "pdb", "plistlib", "pydoc", "sysconfig",
    "unittest", "urllib.request", "xmlrpc",
)  # fmt: skip
"""What the standard library imports to test, debug and describe itself, or for networks and processes."""
UNCHECKED = MAGIC_NUMBER + (1).to_bytes(4, "little") + bytes(8)
"""The head of bytecode that is never compared with its source."""

Sources = dict[str, tuple[str, bytes]]
"""Module -> path and text."""


def sources_of(files: dict[str, bytes]) -> Sources:
    """Return the modules among files."""
    texts = {path: text for path, text in files.items() if path.endswith(".py")}
    return {path[:-3].replace("/", ".").removesuffix(".__init__"): (path, text) for path, text in texts.items()}


def imported(name: str, path: str, text: bytes) -> list[str]:
    """Return the names that a module imports anywhere in it; names of values are among them."""
    package = name.split(".") if path.endswith("/__init__.py") else name.split(".")[:-1]
    found = [name.rpartition(".")[0]]
    typed: set[ast.AST] = set()
    for node in ast.walk(ast.parse(text)):
        match node:
            case ast.If(test=ast.Name(id="TYPE_CHECKING")):
                typed.update(inner for statement in node.body for inner in ast.walk(statement))
            case ast.Import() if node not in typed:
                found += [alias.name for alias in node.names]
            case ast.ImportFrom() if node not in typed:
                above = package[: len(package) + 1 - node.level] if node.level else []
                base = ".".join([*above, *([node.module] if node.module else [])])
                found += [base, *(f"{base}.{alias.name}" for alias in node.names)]
    return found


def needed(modules: Sources, roots: tuple[str, ...]) -> set[str]:
    """Return the modules that the roots import, directly or not."""
    found: set[str] = set()
    waiting = [name for name in modules if f"{name}.".startswith(tuple(f"{root}." for root in roots))]
    while waiting:
        name = waiting.pop()
        if name in modules and name not in found and not f"{name}.".startswith(tuple(f"{one}." for one in NEVER)):
            found.add(name)
            waiting += imported(name, *modules[name])
    return found


def packed(files: dict[str, bytes]) -> bytes:
    """Return an archive of files with the modules compiled, the same bytes for the same files."""
    archive = io.BytesIO()
    with zipfile.ZipFile(archive, "w") as written:
        for path, content in sorted(files.items()):
            compiled = path.endswith(".py")
            code = compile(content, path, "exec", dont_inherit=True, optimize=2) if compiled else None
            data = UNCHECKED + marshal.dumps(code) if compiled else content
            written.writestr(zipfile.ZipInfo(f"{path}c" if compiled else path), data)
    return archive.getvalue()


def pack(library: str, pyodide: str, site: str) -> None:
    """Write two archives into the site: the standard library, and the planner with its packages."""
    with zipfile.ZipFile(Path(pyodide, "python_stdlib.zip")) as archive:
        standard = {name: archive.read(name) for name in archive.namelist() if not name.endswith("/")}
    own = {str(path.relative_to(library)): path.read_bytes() for path in Path(library).rglob("*") if path.is_file()}
    wanted = needed(sources_of(own) | sources_of(standard), ROOTS)
    for target, files in ((Path(site, "pyodide", "python_stdlib.zip"), standard), (Path(site, "planner.zip"), own)):
        paths = {path for name, (path, _) in sources_of(files).items() if name in wanted}
        folders = {path.rpartition("/")[0] for path in paths}
        folders |= {path.rpartition("/")[0] for path in files if path.endswith("/entry_points.txt")}
        paths |= {path for path in files if not path.endswith(".py") and path.rpartition("/")[0] in folders}
        target.write_bytes(packed({path: files[path] for path in paths}))
