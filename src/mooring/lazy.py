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

Dataclasses whose methods are made when they are first called. The standard decorator compiles six methods for each
class, and half of what a verb took to start went into methods that it never calls. With slots, the decorator here makes
the same class: equal fields, errors and texts. A new frozen value takes two thirds of the time, because the descriptors
of the slots store its fields; ``replace`` takes less than half.
"""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import MISSING, Field, FrozenInstanceError, field
from importlib.machinery import ExtensionFileLoader, ModuleSpec
from threading import RLock
from types import ModuleType
from typing import TYPE_CHECKING, Any

__all__ = ["dataclass", "field", "lazily", "replace"]


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


def _initializing(
    fields: Sequence[Field[Any]], scope: dict[str, Any], *, is_frozen: bool
) -> tuple[list[str], list[str]]:
    """Return parameters and lines of the method that stores the fields of a new value."""
    parameters, lines = ["self"], []
    for one in fields:
        default, given = ("" if one.default is MISSING else f"={one.name}_DEFAULT"), one.name
        scope[f"{one.name}_DEFAULT"] = one.default
        if one.default_factory is not MISSING:
            scope[f"{one.name}_DEFAULT"] = one.default_factory
            default, given = "=MISSING", f"{one.name}_DEFAULT() if {one.name} is MISSING else {one.name}"
        parameters.append(one.name + default)
        lines.append(f"{one.name}_SET(self, {given})" if is_frozen else f"self.{one.name} = {given}")
    return parameters, lines


def _compiled(cls: Any, name: str) -> Callable[..., Any]:
    """Compile one of the methods that read or store the fields of a class by their names, and give it to the class."""
    fields = dataclasses.fields(cls)
    scope: dict[str, Any] = {f"{one.name}_SET": getattr(cls, one.name).__set__ for one in fields}
    scope |= {"CLASS": cls, "NEW": object.__new__, "MISSING": MISSING}
    checks = hasattr(cls, "__post_init__")
    mine = "".join([f"self.{one.name}, " for one in fields if one.compare])
    if name == "__init__":
        parameters, lines = _initializing(fields, scope, is_frozen=cls.__hash__ is not None)
        lines += ["self.__post_init__()"] if checks else []
    elif name == "__replace__":
        parameters = ["OLD", *(["*"] if fields else []), *(f"{one.name}=MISSING" for one in fields)]
        lines = ["SELF = NEW(CLASS)"]
        lines += [f"{one.name}_SET(SELF, OLD.{one.name} if {one.name} is MISSING else {one.name})" for one in fields]
        lines += ["SELF.__post_init__()", "return SELF"] if checks else ["return SELF"]
    elif name == "__eq__":
        parameters, theirs = ["self", "other"], mine.replace("self.", "other.")
        lines = [f"return ({mine}) == ({theirs}) if other.__class__ is CLASS else NotImplemented"]
    else:
        parameters, lines = ["self"], [f"return hash(({mine}))"]
    source = f"def {name}({', '.join(parameters)}):\n " + "\n ".join(lines or ["pass"])
    exec(source, scope)  # noqa: S102 - as the standard library does
    setattr(cls, name, scope[name])
    compiled: Callable[..., Any] = scope[name]
    return compiled


def _refusing(verb: str) -> Callable[..., None]:
    def refuse(_: Any, name: str, *_value: Any) -> None:
        raise FrozenInstanceError(f"cannot {verb} field {name!r}")

    return refuse


def _state(self: Any) -> list[Any]:
    return [getattr(self, one.name) for one in dataclasses.fields(self)]


def _restore(self: Any, state: list[Any]) -> None:
    for one, value in zip(dataclasses.fields(self), state, strict=True):
        object.__setattr__(self, one.name, value)


def _text(self: Any) -> str:
    shown = [f"{one.name}={getattr(self, one.name)!r}" for one in dataclasses.fields(self) if one.repr]
    return f"{self.__class__.__qualname__}({', '.join(shown)})"


_finding = RLock()


class _FieldsOf:
    """The fields of a dataclass, which the standard library finds when they are first asked for."""

    def __init__(self, written: type, made: Any) -> None:
        self.written, self.made = written, made

    def __get__(self, _: object, __: type | None = None) -> Any:
        with _finding:
            if vars(self.made)["__dataclass_fields__"] is self:
                found: Any = dataclasses.dataclass(init=False, repr=False, eq=False)(self.written)
                for name in ("__dataclass_params__", "__match_args__", "__dataclass_fields__"):
                    setattr(self.made, name, getattr(found, name))
        return self.made.__dataclass_fields__


_SHARED = {"__repr__": _text, "__getstate__": _state, "__setstate__": _restore}
_FROZEN = {"__setattr__": _refusing("assign to"), "__delattr__": _refusing("delete")}


def _dataclass(*, frozen: bool = False, slots: bool = False, **others: bool) -> Callable[[type], type]:
    """Make a dataclass; what the methods here do not know, the standard library makes."""
    if others or not slots:
        return dataclasses.dataclass(frozen=frozen, slots=slots, **others)

    def decorate(cls: type) -> type:
        own = {name for name, method in vars(cls).items() if method is not None}
        names = [name for name, kind in cls.__annotations__.items() if not kind.startswith("ClassVar")]
        named = dict.fromkeys(("__slots__", "__match_args__"), (*names,))
        space = {name: method for name, method in vars(cls).items() if name not in {"__dict__", "__weakref__", *names}}
        made: Any = type(cls)(cls.__name__, cls.__bases__, space | named)
        made.__qualname__, made.__dataclass_fields__ = cls.__qualname__, _FieldsOf(cls, made)

        def at_first_use(name: str) -> Callable[..., Any]:
            def method(self: Any, *given: Any, **named: Any) -> Any:
                return _compiled(made, name)(self, *given, **named)

            return method

        methods: dict[str, Any] = _SHARED | {name: at_first_use(name) for name in ("__init__", "__replace__", "__eq__")}
        methods |= _FROZEN | {"__hash__": at_first_use("__hash__")} if frozen else {"__hash__": None}
        for name in methods.keys() - own:
            setattr(made, name, methods[name])
        decorated: type = made
        return decorated

    return decorate


def _replace(value: Any, /, **changes: Any) -> Any:
    """Return a value with other values of some fields, also one of a dataclass of the standard library."""
    made = getattr(value, "__replace__", None)
    return made(**changes) if made is not None else dataclasses.replace(value, **changes)


if TYPE_CHECKING:
    from dataclasses import dataclass, replace
else:
    dataclass, replace = _dataclass, _replace
