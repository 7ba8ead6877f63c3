"""Modules that are executed, and methods that are made, when they are first used."""

from __future__ import annotations

import copy
import dataclasses
import importlib
import pickle
import sys
from collections.abc import Iterator
from pathlib import Path
from threading import Event, Thread
from typing import Any

import pytest

from mooring.lazy import dataclass, field, lazily, replace

PATIENCE = 60.0
LONG_ENOUGH = 0.05
"""Seconds in which a thread that does not wait for another has its answer."""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    (tmp_path / "room").mkdir()
    (tmp_path / "room/__init__.py").write_text("raise AssertionError\n")
    monkeypatch.syspath_prepend(tmp_path)
    before = set(sys.modules)
    yield tmp_path
    for name in set(sys.modules) - before:
        del sys.modules[name]


def test_a_package_is_not_executed_for_a_module_in_it_that_nothing_uses(folder: Path) -> None:
    (folder / "room/table.py").write_text("raise AssertionError\n")
    with lazily():
        importlib.import_module("room.table")
    with pytest.raises(AssertionError):
        sys.modules["room.table"].legs  # noqa: B018 - the access executes the module


def test_a_thread_waits_for_the_thread_that_executes_the_module(folder: Path) -> None:
    gate = Event(), Event()
    (folder / "slow.py").write_text("import gate\ngate.begun.set()\nassert gate.go.wait(60)\nvalue = 7\n")
    (folder / "gate.py").write_text("begun = go = None\n")
    importlib.import_module("gate").__dict__.update(begun=gate[0], go=gate[1])
    with lazily():
        slow = importlib.import_module("slow")
    found: list[object] = []
    threads = [Thread(target=lambda: found.append(getattr(slow, "value", None))) for _ in range(2)]
    threads[0].start()
    assert gate[0].wait(PATIENCE)
    threads[1].start()
    threads[1].join(LONG_ENOUGH)
    gate[1].set()
    for thread in threads:
        thread.join(PATIENCE)
    assert found == [7, 7]


def test_a_module_that_fails_fails_again(folder: Path) -> None:
    (folder / "broken.py").write_text("1 / 0\n")
    with lazily():
        broken = importlib.import_module("broken")
    for _ in range(2):
        with pytest.raises(ZeroDivisionError):
            broken.value  # noqa: B018 - the access executes the module


def berth(decorator: Any) -> Any:
    @decorator(frozen=True, slots=True)
    class Berth:
        __qualname__ = "Berth"
        number: int
        ships: dict[str, int] = field(default_factory=dict)
        depth: float = field(default=1.5, compare=False, repr=False)

        def __post_init__(self) -> None:
            if self.number < 0:
                raise ValueError(self.number)

    return Berth


Berth, Standard = berth(dataclass), berth(dataclasses.dataclass)


@pytest.mark.parametrize(
    "ask",
    [
        lambda made: repr(made(1, {"a": 2}, 3.0)),
        lambda made: made(1) == made(number=1, depth=2.5),
        lambda made: made(1) in (made(2), made(1, {"a": 1}), 1),
        lambda made: hash(made(1, ())) == hash((1, ())),
        lambda made: made(1).ships is made(1).ships,
        lambda made: [vars(made)["__match_args__"], [one.name for one in dataclasses.fields(made)]],
        lambda made: [repr(change(made(1, depth=3.0), number=2)) for change in (replace, dataclasses.replace)],
        lambda made: [replace(made(1, depth=3.0)).depth, copy.deepcopy(made(1, depth=3.0)).depth],
        lambda made: setattr(made(1), "number", 2),
        lambda made: delattr(made(1), "number"),
        lambda made: made(-1),
        lambda made: replace(made(1), number=-1),
        lambda made: hash(made(1)),
    ],
)
def test_a_dataclass_answers_as_one_of_the_standard_library(ask: Any) -> None:
    def answer(made: Any) -> object:
        try:
            return ask(made)
        except (TypeError, ValueError, AttributeError) as error:
            return type(error), str(error)

    assert answer(Berth) == answer(Standard)


def test_a_dataclass_refuses_wrong_arguments_and_goes_through_pickle() -> None:
    for wrong in (Berth, lambda: Berth(1, size=2), lambda: replace(Berth(1), size=2)):
        with pytest.raises(TypeError):
            wrong()
    assert pickle.loads(pickle.dumps(Berth(1, {"a": 2}, 3.0))).depth == 3.0  # noqa: S301 - its own text
