"""A kubelet whose gate MemoryManager is off, which v1.31 allows: it has no memory manager and no file of one."""

from __future__ import annotations

from dataclasses import replace

import pytest

from mooring.engine.core.config import KubeletConfig, MooringConfig, ReservedMemory
from mooring.engine.core.decision import StartRefusal
from mooring.engine.kubelet.kubelet import Kubelet, StateTexts
from mooring.engine.kubelet.start import NotStarted, Start, refusal_of, start_kubelet
from mooring.engine.releases.catalog import RELEASES
from mooring.inputs.machines.compact import parse_compact

MACHINE = parse_compact("sockets=2 cores=4 memory=32Gi")
CONFIG = KubeletConfig(
    cpu_manager_policy="static",
    system_reserved={"cpu": "1"},
    memory_manager_policy="Static",
    reserved_memory=(ReservedMemory(0, {"memory": "100Mi"}),),
    feature_gates={"MemoryManager": False},
)


def started(config: KubeletConfig, memory: str | None = None, release: str = "1.31") -> Start:
    return start_kubelet(MACHINE.info, config, MooringConfig(release=RELEASES[release]), StateTexts(memory=memory))


@pytest.mark.parametrize("text", [None, "no state file", '{"policyName":"None","machineState":{},"checksum":1}'])
def test_the_file_of_the_memory_manager_is_neither_read_nor_written(text: str | None) -> None:
    start = started(CONFIG, text)
    assert isinstance(start, Kubelet)
    assert start.settings.memory is None
    assert start.files.memory == text
    assert start.files.cpu is not None


def test_with_the_gate_on_the_same_file_stops_the_kubelet() -> None:
    on = replace(CONFIG, feature_gates={})
    assert isinstance(started(on), Kubelet)
    assert isinstance(started(on, "no state file"), NotStarted)


def test_later_releases_refuse_to_switch_it_off() -> None:
    assert refusal_of(started(CONFIG, release="1.32")) == StartRefusal(
        "decode",
        "failed to merge global and in-flight KubeletConfiguration while setting defaults, error: "
        "cannot set feature gate MemoryManager to false, feature is locked to true",
    )
