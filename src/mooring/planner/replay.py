"""Replaying scenarios: the steps of a recording through the engine, the answers in the recording's own form.

It knows nothing of expected results; comparing is the work of :mod:`mooring.planner.agreement`.

Source: the format of the conformance recordings (docs/reference/scenarios.md).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from mooring.core.config import MooringConfig
from mooring.core.decision import StartRefusal
from mooring.core.errors import InputError, KubeletCrashError, UnsupportedError
from mooring.core.machineinfo import MachineInfo
from mooring.devicemanager.state import DeviceState
from mooring.manifest.devices import device_table
from mooring.manifest.scenario import Admit, MergeCase, Remove, Restart, Scenario, Step
from mooring.node import Decision, Readmission
from mooring.node.refusals import CPU_FILE, MEMORY_FILE
from mooring.planner.outcome import decision_fields, device_fields, state_fields
from mooring.planner.simulation import Kubelet, StateTexts, start_kubelet
from mooring.topologymanager import merge_hints


def replay_merge(case: MergeCase) -> dict[str, Any]:
    """Merge the hints of one line and return ``{"id", "result"}``.

    Raises:
        InputError: nodes, distances, options or hints do not make sense.
    """
    _check_numbers(case.numa_nodes, "numaNodes")
    for position, row in enumerate(case.distances or ()):
        _check_numbers(row, f"distances[{position}]")
    result = merge_hints(
        case.policy,
        case.providers,
        numa_nodes=case.numa_nodes,
        distances=case.distances,
        options=case.options,
    )
    numa = None if result.numa is None else list(result.numa)
    return {
        "id": case.id,
        "result": {"numa": numa, "preferred": result.preferred, "admitted": result.admitted},
    }


def _check_numbers(values: Any, field: str) -> None:
    if not (isinstance(values, list) and all(type(value) is int for value in values)):
        raise InputError("must be a list of whole numbers", field=field, remedy="write [0, 1]")


def replay_scenario(scenario: Scenario, machines: Mapping[str, MachineInfo]) -> dict[str, Any]:
    """Run one scenario and return ``{"id", "expect"}``, or ``{"id", "unsupported"}`` with the reason.

    Raises:
        InputError: the scenario names a machine that is not there.
    """
    info = machines.get(scenario.machine)
    if info is None:
        problem = f"no machine is called {scenario.machine!r:.80}" if scenario.machine else "is missing"
        remedy = "name a machine of a file that is given with --machines, a shipped one, or write sockets=2 cores=16"
        raise InputError(problem, source=scenario.id, field="machine", remedy=remedy)
    try:
        return {"id": scenario.id, "expect": _Run(scenario, info).outcome()}
    except UnsupportedError as error:
        return {"id": scenario.id, "unsupported": str(error)}
    except KubeletCrashError as error:
        return {"id": scenario.id, "unsupported": f"the kubelet would crash: {error}"}


class _Run:
    """One scenario while it runs."""

    def __init__(self, scenario: Scenario, info: MachineInfo) -> None:
        self._scenario = scenario
        files = StateTexts(scenario.files.get(CPU_FILE), scenario.files.get(MEMORY_FILE))
        self._start = start_kubelet(info, scenario.kubelet, MooringConfig(), files)
        self._kubelet = self._start.kubelet
        if self._kubelet is not None and scenario.devices:
            self._kubelet = self._kubelet.with_devices(DeviceState(device_table(scenario.devices)))
        self._endless = False

    def outcome(self) -> dict[str, Any]:
        if self._kubelet is None:
            fields = _refusal_fields(self._start.refusal)
            if self._scenario.files:
                fields["files"] = _file_fields(self._start.files)
            return fields
        start = _start_fields(self._kubelet)
        start["allocatableCPUs"] = str(self._kubelet.settings.allocatable_cpus)
        outcome: dict[str, Any] = {"start": start}
        if self._scenario.active:
            self._kubelet, readmission = self._kubelet.readmit(self._scenario.active)
            start["readmitted"] = self._readmission_fields(readmission)
            start["afterReadmission"] = _start_fields(self._kubelet)
        steps = []
        for step in self._scenario.steps:
            if self._endless or self._kubelet is None:
                break
            result = self._step(self._kubelet, step)
            if result is not None:
                steps.append(result)
        if steps:
            outcome["steps"] = steps
        if self._endless:
            outcome["endless"] = True
        return outcome

    def _step(self, kubelet: Kubelet, step: Step) -> dict[str, Any] | None:
        if isinstance(step, Admit):
            return self._admit(kubelet, step)
        if isinstance(step, Remove):
            self._kubelet, _ = kubelet.remove(step.uid)
            return _start_fields(self._kubelet)
        return self._restart(kubelet, step)

    def _admit(self, kubelet: Kubelet, step: Admit) -> dict[str, Any] | None:
        kubelet, decision = kubelet.decide(step.pod)
        if decision.endless:
            self._endless = True
            return None
        fields = self._decision_fields(decision)
        before = kubelet.files
        if decision.admitted:
            kubelet = kubelet.start_containers(step.pod.uid)
        self._kubelet = kubelet
        return {**fields, **state_fields(kubelet.files, before)}

    def _restart(self, kubelet: Kubelet, step: Restart) -> dict[str, Any]:
        pods = kubelet.node.active.values()
        start = kubelet.restarted(step.kubelet)
        if start.kubelet is None:
            self._kubelet = None
            return {**_refusal_fields(start.refusal), **state_fields(start.files)}
        fields: dict[str, Any] = {"start": _start_fields(start.kubelet)}
        self._kubelet, readmission = start.kubelet.readmit(pods)
        fields["readmitted"] = self._readmission_fields(readmission)
        return {**fields, **_start_fields(self._kubelet)}

    def _readmission_fields(self, readmission: Readmission) -> list[dict[str, Any]]:
        self._endless = any(decision.endless for decision in readmission.decisions)
        return [self._readmitted_fields(decision) for decision in readmission.decisions if not decision.endless]

    def _readmitted_fields(self, decision: Decision) -> dict[str, Any]:
        fields = self._decision_fields(decision)
        del fields["sharedPool"]
        return {"uid": decision.uid, **fields}

    def _decision_fields(self, decision: Decision) -> dict[str, Any]:
        fields = decision_fields(decision)
        if self._scenario.devices:
            fields["devices"] = device_fields(decision)
        return fields


def _refusal_fields(refusal: StartRefusal | None) -> dict[str, Any]:
    if refusal is None:
        raise AssertionError("a kubelet that did not start has a reason")
    return {"startError": refusal.message, "startErrorStage": refusal.stage}


def _start_fields(kubelet: Kubelet) -> dict[str, Any]:
    return {"sharedPool": str(kubelet.node.shared_pool), **state_fields(kubelet.files)}


def _file_fields(files: StateTexts) -> dict[str, str]:
    named = {"cpuManagerState": files.cpu, "memoryManagerState": files.memory}
    return {name: text for name, text in named.items() if text is not None}
