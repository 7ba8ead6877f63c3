"""The recordings in ``tests/corpora``: what there is, and what a scenario needs."""

from __future__ import annotations

import gzip
from collections.abc import Iterator, Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any

from msgspec import Struct
from msgspec.json import Decoder, decode

CORPORA = Path(__file__).resolve().parent.parent / "corpora"
MACHINES = tuple(CORPORA / f"{name}.jsonl" for name in ("machines", "corners-machines", "real-kubelet-machines"))


@lru_cache(maxsize=2)
def lines(name: str) -> tuple[str, ...]:
    """Return the lines of a recording."""
    with gzip.open(CORPORA / name, "rt", encoding="utf-8") as file:
        return tuple(file)


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


def needs_cpu_manager_only(content: Mapping[str, Any]) -> bool:
    """Tell whether a line needs no Static memory policy, no devices and no PodLevelResourceManagers at any step."""
    configs = [content.get("kubelet", {}), *(step.get("kubelet", {}) for step in content.get("steps", ()))]
    return not content.get("devices") and not any(
        config.get("memoryManagerPolicy") == "Static"
        or (config.get("featureGates") or {}).get("PodLevelResourceManagers")
        for config in configs
    )
