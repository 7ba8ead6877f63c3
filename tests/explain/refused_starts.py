"""The recorded starts that kubelet v1.37.1 refused: the question that stood before it, and its words."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from tests.planner.recordings import CORPORA, MACHINES

from mooring.answers.base.question import Question
from mooring.answers.base.trace import load_machines
from mooring.engine.core.config import KubeletConfig, MooringConfig
from mooring.engine.core.machine import Machine
from mooring.engine.core.machineinfo import MachineInfo
from mooring.engine.devicemanager.state import DeviceState
from mooring.engine.kubelet.kubelet import StateTexts
from mooring.engine.kubelet.start import restart_kubelet, start_kubelet
from mooring.inputs.configuration.devices import device_table
from mooring.inputs.pods.scenario import Scenario, load_scenarios
from mooring.inputs.pods.steps import Admit, Remove, Restart


@dataclass(frozen=True, slots=True)
class RecordedStart:
    """One start and how it was recorded."""

    id: str
    question: Question
    error: str
    """The kubelet's message; empty when it started."""
    stage: str


def recorded_starts(name: str) -> Iterator[RecordedStart]:
    """Yield every start of a recording: the first of each scenario, and each restart that was refused."""
    machines = load_machines([str(path) for path in MACHINES])
    for scenario in load_scenarios(CORPORA / name):
        assert isinstance(scenario, Scenario)
        info = machines[scenario.machine]
        files = StateTexts(scenario.files.get("cpu_manager_state"), scenario.files.get("memory_manager_state"))
        yield RecordedStart(
            scenario.id,
            _question(scenario, info, scenario.kubelet, files),
            str(scenario.expect.get("startError", "")),
            str(scenario.expect.get("startErrorStage", "")),
        )
        yield from _refused_restarts(scenario, info, files)


def _question(scenario: Scenario, info: MachineInfo, config: KubeletConfig, files: StateTexts) -> Question:
    return Question(Machine(scenario.machine, info), config, files=files, active=scenario.active)


def _refused_restarts(scenario: Scenario, info: MachineInfo, files: StateTexts) -> Iterator[RecordedStart]:
    results = scenario.expect.get("steps", ())
    if not any("startError" in result for result in results):
        return
    kubelet = start_kubelet(info, scenario.kubelet, MooringConfig(), files).kubelet
    assert kubelet is not None
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
            kubelet = restart_kubelet(kubelet, config).kubelet
            assert kubelet is not None
            kubelet, _ = kubelet.readmit(running)
