"""Imports that stand at the top of a module and happen when the imported module is first used.

A verb's options, its help and its completion need nothing of the engine, and an answer in one format nothing of the
others. Inside ``with lazily():`` an import statement finds a module and leaves its execution to the first access to one
of its attributes. So modules are imported there, not names of modules:

    with lazily():
        from mooring.planner import plan as planning

    planning.make_plan(question)  # here the module is executed

Python 3.15 has a keyword for it (PEP 810); until then this is importlib's LazyLoader.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib.machinery import ModuleSpec, SourceFileLoader
from importlib.util import LazyLoader
from types import ModuleType


class _LazyFinder:
    """Finds modules as the other finders do, and postpones the execution of those that are Python source."""

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Return where a module is, and what executes it when it is used."""
        for finder in sys.meta_path:
            spec = None if finder is self else finder.find_spec(name, path, target)
            if spec is not None:
                if isinstance(spec.loader, SourceFileLoader):
                    spec.loader = LazyLoader(spec.loader)
                return spec
        return None


_FINDER = _LazyFinder()


@contextmanager
def lazily() -> Iterator[None]:
    """Postpone the execution of the modules that the block imports to their first use."""
    sys.meta_path.insert(0, _FINDER)
    try:
        yield
    finally:
        sys.meta_path.remove(_FINDER)
