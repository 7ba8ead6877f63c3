"""Releases with one rule of an older kubelet on or off, against what they do."""

from __future__ import annotations

import gzip
from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from typing import Any

import msgspec

from mooring.core.machineinfo import MachineInfo
from mooring.core.release import NEWEST, Release
from mooring.manifest.scenario import scenario
from mooring.planner.replay.agreement import FieldDifference, differences
from mooring.planner.replay.scenario import replay_scenario
from mooring.planner.scenario_machines import load_machines
from mooring.releases.rules import RULES

CORPORA = Path(__file__).resolve().parent.parent / "corpora"
FOLDER = CORPORA / "releases"


@lru_cache(maxsize=1)
def machines() -> Mapping[str, MachineInfo]:
    return load_machines([str(FOLDER / "machines.jsonl")])


def files_of(release: Release) -> list[Path]:
    """Return the recordings of a release that has one; of the newest those that all releases have."""
    if release.tag == NEWEST.tag:
        return [CORPORA / "admission-deltas.jsonl.gz"]
    return sorted((FOLDER / release.tag).glob("*.jsonl.gz"))


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
