"""The recorded state files of the conformance corpora: texts round-trip, refusals are reproduced letter for letter."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from zlib import crc32

import pytest
from tests.planner.recordings import WHOLE, lines, share

from mooring.engine.checkpoint.cpu_file import cpu_state_text, load_cpu_state
from mooring.engine.checkpoint.memory_file import load_memory_state, memory_state_text
from mooring.engine.core.bits import list_text
from mooring.engine.core.decision import StartRefusal
from mooring.engine.cpumanager.state import CPUState
from mooring.engine.memorymanager.state import MemoryState
from mooring.engine.node.start import CPU_FILE, MEMORY_FILE

CORPORA = Path(__file__).parents[1] / "corpora"
RECORDINGS = sorted(path.name for path in CORPORA.glob("*.jsonl.gz") if path.name != "merge.jsonl.gz")
STATE_FILES = "state-files.jsonl.gz"
SAMPLE = 4 if WHOLE else 16
"""One text in so many is tried, chosen by its own bytes."""

Scenario = dict[str, Any]


def scenarios(name: str) -> Iterator[Scenario]:
    yield from map(json.loads, lines(name) if name == STATE_FILES else share(name))


def recorded_texts(node: object) -> Iterator[tuple[str, str]]:
    """Yield the state texts in an expectation with the name of their manager."""
    if isinstance(node, dict):
        for key, value in node.items():
            if isinstance(value, str) and key.startswith(("cpuManagerState", "memoryManagerState")):
                yield key[:3], value
            else:
                yield from recorded_texts(value)
    elif isinstance(node, list):
        for item in node:
            yield from recorded_texts(item)


def rewritten(manager: str, text: str) -> str | StartRefusal:
    """Load a text as a kubelet of its own policy with all gates on, and write what was loaded."""
    policy = json.loads(text)["policyName"]
    if manager == "cpu":
        # A file without baselines would be given some: only a file that has them shows that gate.
        cpu = load_cpu_state(text, policy=policy, pod_level=True, baselines='\\"baselines\\"' in text)
        return cpu_state_text(cpu, pod_level=True, baselines=True) if isinstance(cpu, CPUState) else cpu
    memory = load_memory_state(text, policy=policy, pod_level=True)
    return memory_state_text(memory, pod_level=True) if isinstance(memory, MemoryState) else memory


@pytest.mark.corpus
@pytest.mark.parametrize("name", RECORDINGS)
def test_recorded_texts_round_trip(name: str) -> None:
    """Files that a scenario brings along are left out: not all of them are as the kubelet writes them."""
    seen: set[tuple[str, str]] = set()
    for scenario in scenarios(name):
        given = set((scenario.get("files") or {}).values())
        seen.update(item for item in recorded_texts(scenario["expect"]) if item[1] not in given)
    chosen = [item for item in sorted(seen) if crc32(item[1].encode()) % SAMPLE == 0]
    assert chosen
    for manager, text in chosen:
        assert rewritten(manager, text) == text


def gates(scenario: Scenario) -> tuple[bool, bool]:
    chosen = scenario["kubelet"].get("featureGates", {})
    return (
        chosen.get("PodLevelResourceManagers", False),
        chosen.get("InPlacePodVerticalScalingExclusiveCPUs", False),
    )


def load_cpu(scenario: Scenario) -> CPUState | StartRefusal | None:
    pod_level, baselines = gates(scenario)
    policy = scenario["kubelet"].get("cpuManagerPolicy", "none")
    text = scenario["files"].get(CPU_FILE)
    return load_cpu_state(text, policy=policy, pod_level=pod_level, baselines=baselines) if text is not None else None


def load_memory(scenario: Scenario) -> MemoryState | StartRefusal | None:
    pod_level, _ = gates(scenario)
    policy = scenario["kubelet"].get("memoryManagerPolicy", "None")
    text = scenario["files"].get(MEMORY_FILE)
    return load_memory_state(text, policy=policy, pod_level=pod_level) if text is not None else None


def refusal_texts(scenario: Scenario) -> list[str]:
    """Return the refusals of both managers; the kubelet starts the CPU manager first and stops at its refusal."""
    loaded = (load_cpu(scenario), load_memory(scenario))
    return [outcome.message for outcome in loaded if isinstance(outcome, StartRefusal)]


@pytest.mark.corpus
def test_every_recorded_refusal_is_reproduced() -> None:
    refused = 0
    for scenario in scenarios(STATE_FILES):
        error = scenario["expect"].get("startError", "")
        if "could not restore state from checkpoint" not in error:
            continue
        refused += 1
        assert scenario["expect"]["startErrorStage"] == "start"
        assert refusal_texts(scenario)[:1] == [error], scenario["id"]
    assert refused == 241


@pytest.mark.corpus
def test_nothing_is_refused_that_a_kubelet_started_with() -> None:
    started = 0
    for scenario in scenarios(STATE_FILES):
        expect = scenario["expect"]
        if "start" not in expect:
            continue
        started += 1
        assert refusal_texts(scenario) == [], scenario["id"]
        loaded = load_cpu(scenario)
        # An empty default set is filled by the static policy at its start.
        if isinstance(loaded, CPUState) and loaded.default:
            assert list_text(loaded.default) == expect["start"]["sharedPool"], scenario["id"]
    assert started > 200
