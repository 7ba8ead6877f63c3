"""What is installed with Mooring: licences, and one version in every lock file."""

from __future__ import annotations

import re
from importlib.metadata import PackageNotFoundError
from pathlib import Path
from types import ModuleType

import pytest
from tests.packaging.conftest import ROOT


def locked(name: str) -> dict[str, set[str]]:
    """Return package -> versions of a lock file."""
    found: dict[str, set[str]] = {}
    for name_, version in re.findall(r"^([a-z0-9-]+)==(\S+)", (ROOT / name).read_text(encoding="utf-8"), re.MULTILINE):
        found.setdefault(name_, set()).add(version)
    return found


def installed(folder: Path, name: str, *fields: str) -> None:
    info = folder / f"{name}-1.0.dist-info"
    info.mkdir()
    text = "\n".join(["Metadata-Version: 2.4", f"Name: {name}", "Version: 1.0", *fields, ""])
    (info / "METADATA").write_text(text, encoding="utf-8")


def test_every_dependency_has_a_licence_that_is_allowed(licences: ModuleType) -> None:
    found = {name: licences.licence(package) for name, package in licences.needed(licences.declared()).items()}
    assert len(found) > 20
    assert {name: text for name, text in found.items() if not licences.is_allowed(text)} == {}, (
        "read the licence; one that is allowed goes into ALLOWED of scripts/release/licences.py"
    )


def test_a_dependency_of_a_dependency_with_another_licence_is_found(
    licences: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    installed(tmp_path, "outer", "License: MIT", "Provides-Extra: more", "Requires-Dist: middle[part]; extra == 'more'")
    installed(
        tmp_path, "middle", "License-Expression: MIT", "Provides-Extra: part", "Requires-Dist: inner; extra == 'part'"
    )
    installed(tmp_path, "inner", "License: GPLv3")
    monkeypatch.syspath_prepend(tmp_path)
    found = licences.needed(["outer[more]"])
    assert {name: licences.is_allowed(licences.licence(one)) for name, one in found.items()} == {
        "inner": False,
        "middle": True,
        "outer": True,
    }


def test_a_dependency_that_is_not_installed_is_no_licence_that_is_allowed(
    licences: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    installed(tmp_path, "outer", "Requires-Dist: no-such-package-anywhere")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(PackageNotFoundError):
        licences.needed(["outer"])


def test_what_is_released_is_what_is_tested(licences: ModuleType) -> None:
    runtime, tested = locked("requirements-runtime.lock"), locked("requirements.lock")
    assert set(licences.needed(licences.declared())) <= set(runtime), "run make lock"
    assert {name: versions for name, versions in runtime.items() if tested.get(name) != versions} == {}
