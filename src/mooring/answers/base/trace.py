"""A trace: what happens to a node, whatever its configuration is; of a question, or of a recorded scenario.

The machines of scenarios are described in files beside them, in the scenario itself, or known by name.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TypeAlias

import msgspec

from mooring.answers.base.plan import Question, happening
from mooring.engine.core.errors import InputError
from mooring.engine.core.machine import Finding, Machine
from mooring.engine.core.machineinfo import MachineInfo
from mooring.engine.core.pod import Pod
from mooring.engine.devicemanager.state import DeviceState
from mooring.engine.kubelet.events import Admit, Offline, Reboot, Remove, Restart, ordered
from mooring.engine.kubelet.kubelet import Kubelet, StateTexts
from mooring.engine.node.resources import pod_requests
from mooring.engine.node.settings import CPU_FILE, MEMORY_FILE
from mooring.inputs.decoding.fields import inside
from mooring.inputs.decoding.files import check_regular
from mooring.inputs.machines.loader import MAX_DESCRIPTION_BYTES, load_machine
from mooring.inputs.machines.machineinfo_json import machines_of_lines, parse_machine_info
from mooring.inputs.pods.scenario import Scenario, is_recording, load_scenarios, node_histories

TraceStep: TypeAlias = Admit | Remove | Restart | Offline


@dataclass(frozen=True, slots=True)
class Trace:
    """Pods that start and end, and restarts of the kubelet. A restart keeps the configuration."""

    steps: tuple[TraceStep, ...]
    active: tuple[Pod, ...] = ()
    """Pods that run already when the kubelet starts."""
    files: StateTexts = field(default_factory=StateTexts)
    """State files that exist before."""
    devices: DeviceState = field(default_factory=DeviceState)
    """What pods hold of devices; which devices there are, the compared variants say."""
    waits: bool = False
    """Whether all pods wait together when the first is asked about, so that plugins may order them."""
    alone: bool = False
    """Whether each pod ends before the next is asked about."""

    @property
    def pods(self) -> tuple[Pod, ...]:
        """The pods that are to be admitted, in order; one that comes twice is there twice."""
        return tuple(step.pod for step in self.steps if isinstance(step, Admit))

    def steps_on(self, kubelet: Kubelet) -> tuple[TraceStep, ...]:
        """Return the steps as they happen on a kubelet, whose plugins may order pods that wait together."""
        if not self.waits or kubelet.settings.plugins is None:
            return self.steps
        others = (step for step in self.steps if not isinstance(step, Admit))
        return (*others, *(Admit(pod) for pod in ordered(kubelet, self.pods)))


def trace_of(question: Question) -> Trace:
    """Return the trace in which the pods of a question are admitted one after another, as in a plan."""
    offline = (Offline(question.offline),) if question.offline else ()
    asked = happening(tuple(Admit(pod) for pod in question.pods), {}, alone=question.alone)
    steps = (*offline, *(step for step in asked if isinstance(step, Admit | Remove)))
    devices = DeviceState({}, question.held, question.claimed, question.preferences)
    return Trace(steps, question.active, question.files, devices, waits=not question.alone, alone=question.alone)


def trace_of_scenario(scenario: Scenario) -> tuple[Trace, tuple[Finding, ...]]:
    """Return the trace of a recorded scenario, and what was left out of it."""
    known = [step for step in scenario.steps if isinstance(step, Admit | Remove | Restart | Reboot)]
    steps = tuple(Restart() if isinstance(step, Restart | Reboot) else step for step in known)
    changed = sum(1 for step in scenario.steps if isinstance(step, Restart) and step.kubelet is not None)
    texts = scenario.files
    # The pods of a kubelet that runs come to each variant in their order: files are of the one policy alone.
    files = StateTexts(texts.get(CPU_FILE), texts.get(MEMORY_FILE), scenario.container_ids)
    files = files if scenario.readmits else StateTexts()
    findings: tuple[Finding, ...] = ()
    if changed:
        them = "a restart changes" if changed == 1 else f"{changed} restarts change"
        text = f"{them} the configuration; the compared ones are kept through all restarts instead"
        findings = (Finding("warning", scenario.id or "the trace", text, "MOOR-721"),)
    if len(known) < len(scenario.steps):
        text = "resizes, time and CPU hotplug are left out: what is compared is how pods are placed"
        findings += (Finding("warning", scenario.id or "the trace", text, "MOOR-723"),)
    return Trace(steps, scenario.active, files), findings


def shapes(trace: Trace) -> tuple[Pod, ...]:
    """Return one pod of each shape in the trace, nameless, the largest CPU requests first.

    Pods have one shape when they differ in nothing but their names.
    """
    found: list[Pod] = []
    for pod in trace.pods:
        shape = replace(pod, uid="", name="", namespace="", annotations={})
        if shape not in found:
            found.append(shape)
    return tuple(sorted(found, key=lambda shape: -pod_requests(shape).get("cpu", 0)))


SEPARATOR = "#"
"""Between a file and the name of a scenario in it."""


def load_trace(source: str) -> tuple[Scenario, str]:
    """Return the scenario that ``FILE`` or ``FILE#ID`` names, or a whole recording as one, and the file.

    Raises:
        InputError: it cannot be read, there is none of that name, no name tells several apart, or a recording is of
            several nodes.
    """
    file, wanted = source, ""
    if SEPARATOR in source and not Path(source).exists():
        file, _, wanted = source.rpartition(SEPARATOR)
    if not wanted and source != "-" and is_recording(file):
        histories = node_histories(file)
        if len(histories) > 1:
            names = ", ".join(one.node for one in histories[:5])
            remedy = f"name the folder of one: {file}/{histories[0].node}"
            raise InputError(f"has recordings of several nodes: {names}", source=file, remedy=remedy)
        [history] = histories
        return replace(history.scenario, id=history.node), history.file
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
    if inline and not isinstance(inline, list):
        remedy = "write a list of {name, info}"
        raise InputError("must be a list of machine descriptions", source=scenario.id, field=INLINE, remedy=remedy)
    if inline:
        machines = dict(known)
        for index, item in enumerate(inline):
            try:
                described = parse_machine_info(msgspec.json.encode(item), scenario.id)
            except InputError as error:
                place = f"{INLINE}[{index}]"
                raise inside(InputError(error.problem, field=error.field), place).at(scenario.id) from None
            machines[described.name] = described.info
        return machines
    name = scenario.machine
    if name in known or not name:
        return known
    from mooring.inputs.machines.loader import SHIPPED  # noqa: PLC0415 - not for recorded scenarios

    if name in SHIPPED or ("=" in name and "/" not in name):
        try:
            return {name: load_machine(name).info}
        except InputError as error:
            raise InputError(error.problem, source=scenario.id, field="machine", remedy=error.remedy) from None
    return known


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
