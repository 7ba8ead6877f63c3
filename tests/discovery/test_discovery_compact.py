"""Compact text gives the machine that it says, in both views alike, or one clear refusal."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.discovery import tool_outputs
from tests.discovery.trees import plain
from tests.values import cases, not_none, refusal

from mooring.engine.core.machineinfo import HugePages
from mooring.engine.core.topology import discover_topology
from mooring.inputs.machines.compact import parse_compact
from mooring.inputs.machines.loader import machine_in

SHAPES = yaml.safe_load((Path(__file__).parent / "shapes.yaml").read_text(encoding="utf-8"))


def pages(pools: tuple[HugePages, ...]) -> list[list[int]]:
    return [[pool.page_size, pool.num_pages] for pool in pools]


@pytest.mark.parametrize("shape", SHAPES, ids=lambda shape: str(shape["machine"]) or "defaults")
def test_a_machine_is_what_its_line_says(shape: dict[str, Any]) -> None:
    machine = parse_compact(shape["machine"])
    info, nodes, hardware = machine.info, machine.info.topology, not_none(machine.hardware)
    cores = [core for node in nodes for core in node.cores]
    topology = discover_topology(info)
    told = {
        "machine": machine.name,
        "counts": {name: getattr(topology, name) for name in shape.get("counts", ())},
        "threads": sorted(sorted(core.thread_ids) for core in cores),
        "memory": [node.memory / 2**30 for node in nodes],
        "core_ids": [[core.core_id for core in node.cores] for node in nodes],
        "uncores": [[cache.id for cache in core.uncore_caches] for core in cores],
        "distances": [list(node.distances or ()) for node in nodes],
        "pages": pages(info.hugepages),
        "node_pages": [pages(node.hugepages) for node in nodes],
        "kinds": [str(kind.cpus) for kind in hardware.kinds],
        "cpus": {name: [plain(getattr(cpu, name)) for cpu in hardware.cpus] for name in shape.get("cpus", ())},
    }
    assert {name: told[name] for name in shape} == shape
    assert info.memory_capacity == sum(node.memory for node in nodes)


@pytest.mark.parametrize(("text", "message"), cases(__file__, "refused-machines.yaml", "machine", "says"))
def test_what_makes_no_machine_is_refused_in_one_line(text: str, message: str) -> None:
    said = refusal(parse_compact, text)
    assert said.startswith(f"machine: {message}")
    assert "\n" not in said


def test_a_line_has_an_end() -> None:
    assert refusal(parse_compact, "cores=4 " * 1000).startswith("machine: is longer than 4096 characters")


@st.composite
def compact_texts(draw: st.DrawFn) -> str:
    sockets = draw(st.integers(1, 3))
    numa = sockets * draw(st.integers(1, 4)) if draw(st.booleans()) else draw(st.sampled_from([1, sockets]))
    l3 = max(numa, sockets) * draw(st.integers(1, 2)) if draw(st.booleans()) else sockets
    cores = max(numa, l3) * draw(st.integers(1, 3))
    pairs = {"sockets": sockets, "numa": numa, "l3": l3, "cores": cores, "threads": draw(st.sampled_from([1, 2, 4]))}
    if draw(st.booleans()):
        pairs["cpuless"] = numa * draw(st.integers(1, 2))
    if draw(st.booleans()):
        pairs["hugepages-2Mi"] = numa * draw(st.integers(1, 5))
    siblings = draw(st.sampled_from(["split", "adjacent"]))
    efficiency = "" if draw(st.booleans()) else f" efficiency-cores={cores}"
    return " ".join(f"{key}={value}" for key, value in pairs.items()) + f" siblings={siblings}{efficiency}"


@settings(deadline=None, max_examples=60)
@given(compact_texts())
def test_both_views_are_what_the_readers_find_in_such_a_machine(text: str) -> None:
    made = parse_compact(text)
    found = machine_in(tool_outputs.lstopo(made).encode(), "written")
    assert found.info_error == ""
    members = ("num_cores", "num_sockets", "memory_capacity", "hugepages", "topology")
    assert [getattr(found.info, name) for name in members] == [getattr(made.info, name) for name in members]
    assert found.hardware is not None
    assert made.hardware is not None
    counts = ("num_cores", "num_packages", "num_l3", "distances", "online")
    assert [getattr(found.hardware, name) for name in counts] == [getattr(made.hardware, name) for name in counts]
    for real, ours in zip(found.hardware.cpus, made.hardware.cpus, strict=True):
        # Which kind a core is follows from clocks, which such text does not have.
        assert real == replace(ours, efficiency=None)
