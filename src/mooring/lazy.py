"""Imports that stand at the top of a module and happen when the imported module is first used.

A verb's options, its help and its completion need nothing of the engine, an answer in one format nothing of the others,
and a plan on a stock kubelet nothing of plugins and resizes. Inside ``with lazily():`` an import statement finds a
module and leaves its execution to the first access to one of its attributes. So modules are imported there, not names
of modules:

    with lazily():
        from mooring.answers.base import plan as planning

    planning.make_plan(question)  # here the module is executed

Python 3.15 has a keyword for it (PEP 810). importlib's LazyLoader is not safe for threads before Python 3.12.3, and
agent and extender have threads, so the module with a lock is here.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib.machinery import ExtensionFileLoader, ModuleSpec
from threading import RLock
from types import ModuleType
from typing import Any


class _PostponedModule(ModuleType):
    """A module that is executed by the first access to one of its attributes, once, whichever thread it is."""

    def __getattribute__(self, name: str) -> Any:
        # An import of a module in a package needs no more of the package than this.
        if name in {"__path__", "__spec__"} or isinstance(
            object.__getattribute__(self, "__dict__").get(name), ModuleType
        ):
            return object.__getattribute__(self, name)
        loader: _PostponingLoader = object.__getattribute__(self, "__spec__").loader_state
        with loader.lock:
            # Otherwise another thread has executed it, or this thread does just now.
            if type(self) is _PostponedModule and not loader.executing:
                loader.execute(self)
        return object.__getattribute__(self, name)


class _PostponingLoader:
    """Makes a module now and executes it later, by the loader that would have done both."""

    def __init__(self, loader: Any) -> None:
        self.loader = loader
        self.lock = RLock()
        self.executing = False

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        """Make the module as the loader does."""
        made: ModuleType | None = self.loader.create_module(spec)
        return made

    def exec_module(self, module: ModuleType) -> None:
        """Leave the execution to the first access."""
        if module.__spec__ is not None:
            module.__spec__.loader_state = self
            module.__class__ = _PostponedModule

    def __getattr__(self, name: str) -> Any:
        """Answer as the loader what tracebacks and resources ask it."""
        return getattr(self.loader, name)

    def execute(self, module: ModuleType) -> None:
        """Execute the module; one whose execution fails is executed again by the next access."""
        self.executing = True
        try:
            self.loader.exec_module(module)
            module.__class__ = ModuleType
        finally:
            self.executing = False


class _PostponingFinder:
    """Finds modules as the other finders do, and postpones the execution of those in Python, as source or bytecode."""

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Return where a module is, and what executes it when it is used."""
        for finder in sys.meta_path:
            spec = None if finder is self else finder.find_spec(name, path, target)
            if spec is not None:
                # Modules of the interpreter have classes as loaders.
                if not isinstance(spec.loader, (ExtensionFileLoader, type)) and hasattr(spec.loader, "get_source"):
                    postponing: Any = _PostponingLoader(spec.loader)
                    spec.loader = postponing
                return spec
        return None


_FINDER = _PostponingFinder()


@contextmanager
def lazily() -> Iterator[None]:
    """Postpone the execution of the modules that the block imports to their first use."""
    sys.meta_path.insert(0, _FINDER)
    try:
        yield
    finally:
        sys.meta_path.remove(_FINDER)
