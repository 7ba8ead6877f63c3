"""The recordings in ``tests/corpora``: what there is, and what a scenario needs."""

from __future__ import annotations

import gzip
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any, TypeVar

from msgspec import Struct
from msgspec.json import Decoder, decode

from mooring.answers.base.agreement import replay_file
from mooring.answers.base.trace import load_machines
from mooring.engine.core.machineinfo import MachineInfo
from mooring.inputs.pods.scenario import Scenario, scenario

WHOLE = os.environ.get("MOORING_RECORDINGS") == "whole"
"""Whether every recorded decision is replayed (`make test-recordings`), or a share of each file (`make test`)."""
SHARE = 8
"""The share of a file is its first line and every eighth from there, so that each theme and release has one."""
ALONE = frozenset(
    """
    config-errors-0018 config-errors-0019 config-errors-0029 config-errors-0213 config-errors-0382
    config-errors-0638 config-errors-0678 corner-amounts-002 corner-amounts-006 corner-closest-004
    corner-gates-064 corner-quantities-010 cpu-distributed-0228 delta-options-gate-010
    delta-reservation-rounding-001 delta-topology-option-001 devices-131-0088 devices-132-0084
    fuzz3-max-pods-smallest fuzz3-null-reconcile-period fuzz3-pod-entries-alone fuzz3-reserved-cpus-1048577
    fuzz3-throttling-kept-999999 fuzz3-throttling-million memory-0251 numa-large-0002 numa-large-0007
    numa-large-0009 numa-large-0039 state-0049 state-0271 state-0420 state-0426 state-131-0093 state-132-0108
    """.split()  # noqa: SIM905 - a line for each would be a page
)
"""Scenarios that the share has besides: without them it leaves lines of the engine out that all recordings execute."""
CORPORA = Path(__file__).resolve().parent.parent / "corpora"
MACHINES = tuple(CORPORA / f"{name}.jsonl" for name in ("machines", "corners-machines", "real-kubelet-machines"))


@lru_cache(maxsize=2)
def lines(name: str) -> tuple[str, ...]:
    """Return the lines of a recording."""
    with gzip.open(CORPORA / name, "rt", encoding="utf-8") as file:
        return tuple(file)


Recorded = TypeVar("Recorded")


def some(of: Iterable[Recorded], every: int = SHARE) -> list[Recorded]:
    """Return what this run takes of something recorded: all of it, or the first of so many."""
    return list(of)[:: 1 if WHOLE else every]


@lru_cache(maxsize=1)
def machines() -> dict[str, MachineInfo]:
    """Return the machines of the recordings of the newest release."""
    return load_machines([str(path) for path in MACHINES])


def scenarios(name: str, every: int = 1) -> Iterator[Scenario]:
    """Yield the first of every so many scenarios of a recording; the others are not decoded."""
    return map(decoded, lines(name)[::every])


def decoded(line: str) -> Scenario:
    """Return the scenario of a line."""
    return scenario(decode(line), source="recording")


def recorded(name: str) -> Iterator[dict[str, Any]]:
    """Yield the objects of a recording."""
    for line in lines(name):
        yield decode(line)


class Named(Struct):
    """What every line of a recording has."""

    id: str
    release: str = ""


named = Decoder(Named).decode
"""Reads the name of a line, and nothing else of it."""


PARTS = range(4 if WHOLE else 1)
"""The parts of a file, which tests replay one by one: more than one worker can then be at it."""


@lru_cache(maxsize=2)
def share(name: str) -> tuple[str, ...]:
    """Return the lines of a recording that this run replays."""
    found = lines(name)
    return tuple(line for place, line in enumerate(found) if WHOLE or place % SHARE == 0 or named(line).id in ALONE)


def needs_cpu_manager_only(content: Mapping[str, Any]) -> bool:
    """Tell whether a line needs no Static memory policy, no devices and no PodLevelResourceManagers at any step."""
    configs = [content.get("kubelet", {}), *(step.get("kubelet", {}) for step in content.get("steps", ()))]
    return not content.get("devices") and not any(
        config.get("memoryManagerPolicy") == "Static"
        or (config.get("featureGates") or {}).get("PodLevelResourceManagers")
        for config in configs
    )


def check_decisions(chosen: Sequence[str], machines: Sequence[Path], file: Path) -> None:
    """Replay lines of recordings by way of a file: each is understood, and its decision is the recorded one."""
    file.write_text("".join(chosen), encoding="utf-8")
    outcomes = list(replay_file(file, machines, compare=True))
    assert [outcome.id for outcome in outcomes] == [named(line).id for line in chosen]
    assert [outcome.id for outcome in outcomes if outcome.standing in ("unsupported", "unknown")] == []
    assert {outcome.id: outcome.differences for outcome in outcomes if outcome.differences} == {}
