"""The machines of scenarios: described in files beside them, in the scenario itself, or known by name."""

from __future__ import annotations

import os
import stat
from collections.abc import Mapping, Sequence
from pathlib import Path

import msgspec

from mooring.engine.core.errors import InputError
from mooring.engine.core.machineinfo import MachineInfo
from mooring.inputs.decoding.fields import inside
from mooring.inputs.decoding.files import check_regular
from mooring.inputs.machines.loader import MAX_DESCRIPTION_BYTES, load_machine
from mooring.inputs.machines.machineinfo_json import machines_of_lines, parse_machine_info
from mooring.inputs.pods.scenario import Scenario

PATTERN = "*machines.jsonl"
"""Files beside a scenario file that describe its machines."""

INLINE = "machines"
"""Field of a scenario with descriptions of its own, in the form of a line of such a file."""


def machine_files(file: str) -> list[str]:
    """Return the machine descriptions beside a scenario file; none for standard input.

    Raises:
        InputError: the folder cannot be read.
    """
    if file == "-":
        return []
    folder = Path(file).parent
    try:
        return sorted(str(path) for path in folder.glob(PATTERN))
    except (OSError, ValueError) as error:
        raise InputError(f"the folder cannot be read: {_reason(error)}", source=str(folder)) from None


def load_machines(files: Sequence[str]) -> dict[str, MachineInfo]:
    """Read machine descriptions by name; a name in a later file wins.

    A file of another kind than ``.jsonl`` holds one machine, in any form that ``--machine`` takes.

    Raises:
        InputError: a file cannot be read or understood.
    """
    machines: dict[str, MachineInfo] = {}
    for file in files:
        if Path(file).exists():
            check_regular(Path(file))
        if file.endswith(".jsonl") or not Path(file).exists():
            machines.update((described.name, described.info) for described in machines_of_lines(_read(file), file))
        else:
            machine = load_machine(file)
            machines[machine.name] = machine.info
    return machines


def machines_for(scenario: Scenario, known: Mapping[str, MachineInfo]) -> Mapping[str, MachineInfo]:
    """Return machines among which the scenario's is, if there is such a machine at all.

    Its own descriptions come first, then the known ones, then shipped machines and compact text.

    Raises:
        InputError: a description of its own, or compact text, cannot be understood.
    """
    inline = scenario.raw.get(INLINE)
    if inline:
        return {**known, **_described(inline, scenario.id)}
    name = scenario.machine
    if name in known or not name:
        return known
    from mooring.inputs.machines.compact import shipped_names  # noqa: PLC0415 - not for recorded scenarios

    if name in shipped_names() or ("=" in name and "/" not in name):
        try:
            return {name: load_machine(name).info}
        except InputError as error:
            raise InputError(error.problem, source=scenario.id, field="machine", remedy=error.remedy) from None
    return known


def _described(inline: object, source: str) -> dict[str, MachineInfo]:
    if not isinstance(inline, list):
        remedy = "write a list of {name, info}"
        raise InputError("must be a list of machine descriptions", source=source, field=INLINE, remedy=remedy)
    machines = {}
    for index, item in enumerate(inline):
        try:
            described = parse_machine_info(msgspec.json.encode(item), source)
        except InputError as error:
            raise inside(InputError(error.problem, field=error.field), f"{INLINE}[{index}]").at(source) from None
        machines[described.name] = described.info
    return machines


def _read(file: str) -> bytes:
    try:
        # A named pipe would be waited for, and a directory has no bytes.
        if not stat.S_ISREG(os.stat(file).st_mode):  # noqa: PTH116 - pathlib raises for some of what a user may type
            raise InputError("is not a file", source=file, remedy="name a file with one machine description a line")
        with Path(file).open("rb") as stream:
            data = stream.read(MAX_DESCRIPTION_BYTES + 1)
    except (OSError, ValueError) as error:
        remedy = "check the path and its permissions"
        raise InputError(f"cannot be read: {_reason(error)}", source=file, remedy=remedy) from None
    if len(data) > MAX_DESCRIPTION_BYTES:
        limit = MAX_DESCRIPTION_BYTES // 2**20
        raise InputError(f"is larger than {limit} MiB", source=file, remedy="is it a file of machine descriptions?")
    return data


def _reason(error: OSError | ValueError) -> str:
    return (error.strerror or str(error)).lower() if isinstance(error, OSError) else str(error)
