"""The recorded starts that kubelet v1.37.1 refused: the question that stood before it, and its words."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.planner.recordings import CORPORA, MACHINES

from mooring.answers.base.plan import Question
from mooring.answers.base.trace import load_machines
from mooring.engine.core.config import KubeletConfig
from mooring.engine.core.decision import StartRefusal
from mooring.engine.core.machine import Machine
from mooring.engine.core.machineinfo import MachineInfo
from mooring.engine.devicemanager.state import DeviceState
from mooring.engine.kubelet.events import Admit, Remove, Restart
from mooring.engine.kubelet.kubelet import Kubelet, StateTexts
from mooring.engine.kubelet.start import refusal_of, restart_kubelet, start_kubelet, start_on
from mooring.inputs.configuration.devices import device_table
from mooring.inputs.pods.scenario import Scenario, load_scenarios


@dataclass(frozen=True, slots=True)
class RecordedStart:
    """One start and how it was recorded."""

    id: str
    question: Question
    error: str
    """The kubelet's message; empty when it started."""
    stage: str

    @property
    def refusal(self) -> StartRefusal:
        """The engine's refusal of a start that was refused."""
        asked = self.question
        found = refusal_of(start_on(asked.machine, asked.config, asked.mooring, asked.files))
        assert found is not None, self.id
        return found


def recorded_starts(name: str, machines: Sequence[Path] = MACHINES) -> Iterator[RecordedStart]:
    """Yield every start of a recording: the first of each scenario, and each restart that was refused."""
    known = load_machines([str(path) for path in machines])
    for scenario in load_scenarios(CORPORA / name):
        assert isinstance(scenario, Scenario)
        info = known[scenario.machine]
        cpu, memory = (scenario.files.get(file) for file in ("cpu_manager_state", "memory_manager_state"))
        files = StateTexts(cpu, memory, scenario.container_ids)
        yield RecordedStart(
            scenario.id,
            _question(scenario, info, scenario.kubelet, files),
            str(scenario.expect.get("startError", "")),
            str(scenario.expect.get("startErrorStage", "")),
        )
        yield from _refused_restarts(scenario, info, files)


def _question(scenario: Scenario, info: MachineInfo, config: KubeletConfig, files: StateTexts) -> Question:
    machine = Machine(scenario.machine, info)
    return Question(machine, config, scenario.mooring, files=files, active=scenario.active)


def _refused_restarts(scenario: Scenario, info: MachineInfo, files: StateTexts) -> Iterator[RecordedStart]:
    results = scenario.expect.get("steps", ())
    if not any("startError" in result for result in results):
        return
    kubelet = start_kubelet(info, scenario.kubelet, scenario.mooring, files)
    assert isinstance(kubelet, Kubelet)
    if scenario.devices:
        kubelet = kubelet.with_devices(DeviceState(device_table(scenario.devices)))
    kubelet, _ = kubelet.readmit(scenario.active)
    for step, result in zip(scenario.steps, results, strict=False):
        if isinstance(step, Admit):
            kubelet, _ = kubelet.admit(step.pod)
        elif isinstance(step, Remove):
            kubelet, _ = kubelet.remove(step.uid)
        elif isinstance(step, Restart):
            config = step.kubelet or kubelet.settings.config
            if "startError" in result:
                question = _question(scenario, info, config, kubelet.files)
                yield RecordedStart(scenario.id, question, result["startError"], result["startErrorStage"])
                return
            running = tuple(kubelet.node.active.values())
            kubelet = restart_kubelet(kubelet, config)
            assert isinstance(kubelet, Kubelet)
            kubelet, _ = kubelet.readmit(running)
