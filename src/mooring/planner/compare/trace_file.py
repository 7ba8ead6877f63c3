"""Reading one recorded trace: a scenario of a file, and the machine that it ran on."""

from __future__ import annotations

from pathlib import Path

from mooring.core.errors import InputError
from mooring.core.machine import Machine
from mooring.manifest.scenario import Scenario, load_scenarios
from mooring.planner.scenario_machines import load_machines, machine_files, machines_for

SEPARATOR = "#"
"""Between a file and the name of a scenario in it."""


def load_trace(source: str) -> tuple[Scenario, str]:
    """Return the scenario that ``FILE`` or ``FILE#ID`` names, and the file.

    Raises:
        InputError: it cannot be read, there is none of that name, or no name tells several apart.
    """
    file, wanted = source, ""
    if SEPARATOR in source and not Path(source).exists():
        file, _, wanted = source.rpartition(SEPARATOR)
    found: Scenario | None = None
    for case in load_scenarios(file):
        if not isinstance(case, Scenario) or (wanted and case.id != wanted):
            continue
        if wanted:
            return case, file
        if found is not None:
            raise InputError("holds several scenarios", source=file, remedy=f"name one: {file}{SEPARATOR}{found.id}")
        found = case
    if found is None:
        problem = f"no scenario is called {wanted!r:.80}" if wanted else "holds no scenario"
        raise InputError(problem, source=file, remedy="see docs/reference/scenarios.md for the format")
    return found, file


def trace_machine(scenario: Scenario, file: str) -> Machine:
    """Return the machine of a scenario: as described in it or beside its file, shipped, or compact text.

    Raises:
        InputError: there is no such machine.
    """
    known = machines_for(scenario, load_machines(machine_files(file)))
    if scenario.machine not in known:
        problem = f"no machine is called {scenario.machine!r:.80}" if scenario.machine else "is missing"
        remedy = "give a machine with --machine"
        raise InputError(problem, source=scenario.id or file, field="machine", remedy=remedy)
    return Machine(scenario.machine, known[scenario.machine])
