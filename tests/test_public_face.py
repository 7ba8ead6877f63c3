"""What ``import mooring`` offers, and that every module says what it is."""

from __future__ import annotations

import ast
import sys
from importlib import import_module
from pathlib import Path
from subprocess import run

import pytest

import mooring

SOURCES = Path(mooring.__file__).resolve().parent
MODULES = sorted(SOURCES.rglob("*.py"))


def test_the_exported_names() -> None:
    assert sorted(mooring.__all__) == [
        "CPUSet",
        "Explanation",
        "KUBELET_VERSION",
        "Machine",
        "MooringError",
        "Node",
        "Pod",
        "__version__",
        "explain",
        "load_config",
        "load_machine",
        "load_pods",
        "merge_hints",
        "plan",
    ]
    assert mooring.KUBELET_VERSION == "v1.37.2"


@pytest.mark.parametrize(
    ("name", "home"),
    [
        ("CPUSet", "mooring.engine.core.cpuset"),
        ("Machine", "mooring.engine.core.machine"),
        ("MooringError", "mooring.engine.core.errors"),
        ("Node", "mooring.engine.node"),
        ("merge_hints", "mooring.engine.topologymanager"),
    ],
)
def test_each_name_is_that_of_its_room(name: str, home: str) -> None:
    assert getattr(mooring, name) is getattr(import_module(home), name)


def test_every_exported_name_exists() -> None:
    assert all(getattr(mooring, name) is not None for name in mooring.__all__)


def test_other_names_are_no_attributes() -> None:
    with pytest.raises(AttributeError, match="module 'mooring' has no attribute 'nonsense'"):
        _ = mooring.nonsense


def test_importing_the_package_loads_no_room() -> None:
    code = "import sys, mooring; print([name for name in sys.modules if name.startswith('mooring.')])"
    found = run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout.strip() == "[]"


def test_the_engine_loads_no_third_party_library() -> None:
    code = (
        "import sys; from mooring import Node, merge_hints; Node.fresh; merge_hints; "
        "print(sorted({'click', 'msgspec', 'rich', 'yaml'} & set(sys.modules)))"
    )
    found = run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout.strip() == "[]"


@pytest.mark.parametrize("path", MODULES, ids=[path.relative_to(SOURCES).as_posix() for path in MODULES])
def test_every_module_says_what_it_is(path: Path) -> None:
    documentation = ast.get_docstring(ast.parse(path.read_text(encoding="utf-8")))
    assert documentation is not None
    assert documentation.partition("\n\n")[0].endswith((".", ":", "?"))
