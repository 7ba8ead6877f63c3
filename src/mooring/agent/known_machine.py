"""The description of the machine with all of its CPUs, kept in the agent's folder (extension cpu-hotplug).

A CPU that goes offline loses its folders of topology and caches, so that an agent that starts meanwhile sees a smaller
machine, and would drop a state that is about the larger one. What was kept counts as long as what the kernel shows now
is a part of it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from mooring.agent.store import MACHINE_FILE
from mooring.engine.checkpoint.store import make_folder, read_state_file, write_together
from mooring.engine.core.errors import InputError
from mooring.engine.core.machine import Machine
from mooring.engine.core.machineinfo import MachineInfo
from mooring.inputs.machines.machineinfo_json import machine_info_document, parse_machine_info


def known_machine(folder: Path, found: Machine) -> tuple[Machine, str]:
    """Return the machine that is there now, completed by what was kept of it.

    Args:
        folder: of the agent's state.
        found: as the kernel shows it.
    """
    try:
        kept, text = None, read_state_file(folder / MACHINE_FILE)
        if text is not None:
            kept = parse_machine_info(text.encode(errors="surrogateescape"), str(folder / MACHINE_FILE)).info
    except InputError as error:
        return found, str(error)
    if kept is None:
        return found, ""
    here, there = _places(found.info), _places(kept)
    if not here.items() <= there.items():
        problem = f"{MACHINE_FILE}: is about another machine, or one with fewer CPUs; what the kernel shows now counts"
        return found, problem
    # With the memory of today: that may be another after a boot
    now = {node.node_id: node for node in found.info.topology}
    info = replace(
        kept,
        memory_capacity=found.info.memory_capacity,
        hugepages=found.info.hugepages,
        swap_capacity=found.info.swap_capacity,
        topology=tuple(
            replace(node, memory=now[node.node_id].memory, hugepages=now[node.node_id].hugepages)
            if node.node_id in now
            else node
            for node in kept.topology
        ),
        facts=found.info.facts,
    )
    return replace(found, info=info), ""


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
