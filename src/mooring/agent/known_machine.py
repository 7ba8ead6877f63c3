"""The machine with all of its CPUs, those that are offline included, although the kernel describes only the others.

A CPU that goes offline loses its folders of topology and caches, so that an agent that starts meanwhile sees a smaller
machine, and would drop a state that is about the larger one. With the extension cpu-hotplug the agent's folder keeps
the description. It counts as long as what the kernel shows now is a part of it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from mooring.checkpoint.replacement import write_together
from mooring.checkpoint.store import make_folder, read_state_file
from mooring.core.cpuset import CPUSet
from mooring.core.errors import InputError
from mooring.core.machine import Machine
from mooring.core.machineinfo import MachineInfo, Node
from mooring.discovery.machineinfo_json import machine_info_document, parse_machine_info

MACHINE_FILE = "machine.json"


@dataclass(frozen=True, slots=True)
class KnownMachine:
    """What an agent begins with."""

    machine: Machine
    offline: CPUSet
    """CPUs of it that the kernel does not show now."""
    problem: str = ""
    """Why a description that was kept is not used."""


def known_machine(folder: Path, found: Machine) -> KnownMachine:
    """Return the machine that is there now, completed by what was kept of it.

    Args:
        folder: of the agent's state.
        found: as the kernel shows it.
    """
    try:
        text = read_state_file(folder / MACHINE_FILE)
        kept = None if text is None else _described(text, folder)
    except InputError as error:
        return KnownMachine(found, CPUSet(), str(error))
    if kept is None:
        return KnownMachine(found, CPUSet())
    here, there = _places(found.info), _places(kept)
    if not here.items() <= there.items():
        problem = f"{MACHINE_FILE}: is about another machine, or one with fewer CPUs; what the kernel shows now counts"
        return KnownMachine(found, CPUSet(), problem)
    return KnownMachine(replace(found, info=_whole(found.info, kept)), CPUSet.from_ids(there.keys() - here.keys()))


def _described(text: str, folder: Path) -> MachineInfo:
    return parse_machine_info(text.encode(errors="surrogateescape"), str(folder / MACHINE_FILE)).info


def keep_machine(folder: Path, machine: Machine) -> str:
    """Keep the description of a whole machine; return the problem in words, empty when there is none."""
    text = json.dumps({"name": machine.name, "note": "", "info": machine_info_document(machine.info)})
    try:
        make_folder(folder)
        if read_state_file(folder / MACHINE_FILE) != text:
            write_together(folder, {MACHINE_FILE: text})
    except InputError as error:
        return str(error)
    return ""


def _places(info: MachineInfo) -> Mapping[int, tuple[int, int, int]]:
    """Return NUMA node, socket and core id of every CPU."""
    return {
        cpu: (node.node_id, core.socket_id, core.core_id)
        for node in info.topology
        for core in node.cores
        for cpu in core.thread_ids
    }


def _whole(found: MachineInfo, kept: MachineInfo) -> MachineInfo:
    """Return what was kept, with the memory of today: that may be another after a boot."""
    now = {node.node_id: node for node in found.topology}
    return replace(
        kept,
        memory_capacity=found.memory_capacity,
        hugepages=found.hugepages,
        swap_capacity=found.swap_capacity,
        topology=tuple(_of_today(node, now.get(node.node_id)) for node in kept.topology),
        facts=found.facts,
    )


def _of_today(kept: Node, found: Node | None) -> Node:
    return kept if found is None else replace(kept, memory=found.memory, hugepages=found.hugepages)
