"""Nothing that a release has goes away or changes its type: documents, custom resources, codes, metrics, options."""

from __future__ import annotations

import copy
from types import ModuleType
from typing import Any

import pytest

from mooring import __version__


@pytest.fixture(scope="session")
def now(compatibility: ModuleType) -> dict[str, Any]:
    found: dict[str, Any] = compatibility.surface()
    return found


def test_everything_that_a_release_had_is_still_there(compatibility: ModuleType, now: dict[str, Any]) -> None:
    assert compatibility.released()
    found = {version: compatibility.breaks(old, now, version) for version, old in compatibility.released().items()}
    broken = [line for lines in found.values() for line in lines]
    assert not broken, (
        "others rely on this (docs/reference/versions.md): keep it, or make a new version of the document; "
        "make freeze is for a version that is not released yet:\n" + "\n".join(broken)
    )


def test_this_version_is_written_down_before_its_release(compatibility: ModuleType) -> None:
    assert __version__ in compatibility.released(), "run make freeze"


@pytest.mark.parametrize(
    ("area", "name", "new", "text"),
    [
        ("members of JSON documents", "Plan.pods", None, "Plan.pods was in 1.0 and is missing"),
        ("members of JSON documents", "Plan.kubelet", "integer", "Plan.kubelet was string in 1.0 and is integer"),
        ("codes", "MOOR-105", None, "MOOR-105 was in 1.0 and is missing"),
        ("metrics", "mooring_agent_repairs", "counter", "was counter by kind in 1.0 and is counter"),
        ("metrics", "mooring_agent_aligned_containers", None, "is missing"),
        ("metrics", "mooring_extender_request_seconds", "gauge by verb", "was histogram by verb"),
        ("metrics", "mooring_publish_writes", None, "is missing"),
        (
            "metrics",
            "mooring_dra_claims",
            "counter by step",
            "was counter by result, step in 1.0 and is counter by step",
        ),
        ("fields of custom resources", "NodeFacts.mooring.dev/v1alpha1.spec.content", "string", "string, required"),
        ("options", "mooring plan -f", None, "is missing"),
        ("options", "mooring agent --config", "a value", "was a value, required in 1.0"),
    ],
)
def test_what_is_removed_or_changed_is_named(
    compatibility: ModuleType, now: dict[str, Any], area: str, name: str, new: str | None, text: str
) -> None:
    changed = copy.deepcopy(now)
    assert name in changed[area]
    if new is None:
        del changed[area][name]
    else:
        changed[area][name] = new
    (line,) = compatibility.breaks(now, changed, "1.0")
    assert line.startswith(f"{area}: {name} was")
    assert text in line


def test_additions_are_compatible(compatibility: ModuleType, now: dict[str, Any]) -> None:
    more = copy.deepcopy(now)
    for area, names in more.items():
        names[f"new {area}"] = "string"
    assert compatibility.breaks(now, more, "1.0") == []
