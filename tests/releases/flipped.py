"""Releases with one rule of an older kubelet on or off, against what they do."""

from __future__ import annotations

import gzip
from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from typing import Any

import msgspec

from mooring.answers.base.agreement import FieldDifference, differences
from mooring.answers.base.scenario import replay_scenario
from mooring.answers.base.trace import load_machines
from mooring.engine.core.machineinfo import MachineInfo
from mooring.engine.core.release import NEWEST, Release
from mooring.engine.releases.rules import RULES
from mooring.inputs.pods.scenario import scenario

CORPORA = Path(__file__).resolve().parent.parent / "corpora"
FOLDER = CORPORA / "releases"
PREVIEW = FOLDER / "v1.38.0-beta.0"
OF_BOTH = "differences-v1.37.2.jsonl.gz"
"""What the newest release answers to the small scenarios of the preview."""


@lru_cache(maxsize=1)
def machines() -> Mapping[str, MachineInfo]:
    return load_machines([str(FOLDER / "machines.jsonl"), str(PREVIEW / "differences-machines.jsonl")])


def files_of(release: Release) -> list[Path]:
    """Return the recordings of a release that has one; of the newest those that all releases have."""
    if release.tag == NEWEST.tag:
        return [CORPORA / "admission-deltas.jsonl.gz", PREVIEW / OF_BOTH]
    found = (FOLDER / release.tag).glob("*.jsonl.gz")
    return sorted(file for file in found if file.name not in (OF_BOTH, "merge-38.jsonl.gz"))


def recorded(file: Path) -> Iterator[dict[str, Any]]:
    with gzip.open(file, "rb") as lines:
        for line in lines:
            yield msgspec.json.decode(line)


def flipped(release: Release, rule: str) -> Release:
    """Return a release that decides otherwise by one rule."""
    is_on = release.name in next(one.releases for one in RULES if one.name == rule)
    return replace(release, rules=replace(release.rules, **{rule.replace("-", "_"): not is_on}))


def departures(content: Mapping[str, Any], release: Release) -> list[FieldDifference]:
    """Return where the answer of a release departs from a recording."""
    case = scenario(content, source="recording", release=release)
    return differences(case.expect, replay_scenario(case, machines()).get("expect", {}))
