"""Modules that are executed when they are first used."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterator
from pathlib import Path
from threading import Event, Thread

import pytest

from mooring.lazy import lazily

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
