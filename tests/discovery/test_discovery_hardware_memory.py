"""Rules about memory nodes: which are shown, what is local to them, how fast and how far they are."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.discovery import trees
from tests.discovery.trees import CPUS, NODES, Files, plain

from mooring.engine.core.bits import mask_of

CASES = yaml.safe_load((Path(__file__).parent / "memory-nodes.yaml").read_text(encoding="utf-8"))


def files_of(case: dict[str, Any]) -> Files:
    files: Files = {}
    for place, (number, cpus) in enumerate(case.get("nodes", {}).items()):
        files[f"node{number}/cpumap"] = f"{mask_of(cpus):x}"
        files[f"node{number}/meminfo"] = f"Node {number} MemTotal:      {number + 1} kB"
        if "distances" in case:
            files[f"node{number}/distance"] = " ".join(map(str, case["distances"][place]))
        files |= {f"node{number}/cpu{cpu}/x": "" for cpu in cpus if case.get("links")}
    for number, figures in case.get("speeds", {}).items():
        for what, figure in zip(("bandwidth", "latency"), figures, strict=True):
            files |= {f"node{number}/access0/initiators/{way}_{what}": f"{figure}" for way in ("read", "write")}
    files |= case.get("files", {})
    files = {f"{NODES}/{path}": text for path, text in files.items() if path not in case.get("without", ())}
    for name, part in (("package_cpus", "packages"), ("cluster_cpus", "clusters")):
        files |= {f"{CPUS}/cpu{cpu}/topology/{name}": f"{mask_of(of):x}" for of in case.get(part, ()) for cpu in of}
    return {path: f"{text}\n" if text else text for path, text in (files | case.get("root", {})).items()}


@pytest.mark.parametrize("case", CASES, ids=lambda case: str(case["name"]))
def test_memory_nodes_are_shown_as_their_files_tell_them(case: dict[str, Any]) -> None:
    hardware = trees.hardware(trees.cores(8), files_of(case))
    for member, column in case.get("shows", {}).items():
        assert [plain(getattr(node, member)) for node in hardware.nodes] == column, member
    for member, value in case.get("machine", {}).items():
        assert plain(getattr(hardware, member)) == value, member
    for member in case.keys() & {"cluster", "l3"}:
        assert [getattr(cpu, member) for cpu in hardware.cpus] == case[member]
    for cpu, nodes in case.get("numa", {}).items():
        assert plain(hardware.cpus[cpu].numa) == nodes
