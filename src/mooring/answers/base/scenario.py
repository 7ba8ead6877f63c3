"""Replaying scenarios: the steps of a recording through the engine, the answers in the recording's own form.

It knows nothing of expected results; comparing is the work of :mod:`mooring.answers.base.agreement`.

Source: the format of the conformance recordings (docs/reference/scenarios.md).

A kubelet walks maps in random order and stops at the first fault, so that it may refuse the same start in other words;
these are found by asking the engine about each entry of the map alone.

Source: component-base/featuregate SetFromMap, policy_options.go of both managers, and cpumanager/state migration of
format V1 (up to v1.36); docs/reference/scenarios.md, "What is excused".
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import replace
from itertools import combinations
from typing import Any

import msgspec
from msgspec import to_builtins

from mooring.answers.base import plan_document as documents
from mooring.engine.core.bits import NUMAMask, mask_of
from mooring.engine.core.config import KubeletConfig, MooringConfig
from mooring.engine.core.decision import Cause, StartRefusal
from mooring.engine.core.errors import InputError, KubeletCrashError, UnsupportedError
from mooring.engine.core.machineinfo import MachineInfo
from mooring.engine.core.moment import Moment
from mooring.engine.core.pod import Pod
from mooring.engine.devicemanager.state import DeviceState
from mooring.engine.kubelet import events
from mooring.engine.kubelet.admit import AdmitMode, AdmitResult, readmit
from mooring.engine.kubelet.kubelet import Kubelet, StateTexts
from mooring.engine.kubelet.start import NotStarted, start_kubelet
from mooring.engine.node import Decision
from mooring.engine.node.decision import ScoredHint, merged_score
from mooring.engine.node.hotplug import check_known
from mooring.engine.node.resizing import resize_state
from mooring.engine.node.settings import CPU_FILE, MEMORY_FILE, build_settings
from mooring.engine.topologymanager import Hint, merge_hints
from mooring.inputs.configuration.devices import device_table
from mooring.inputs.decoding.fields import within
from mooring.inputs.pods.defaults import PodGates
from mooring.inputs.pods.pods import resized_pod
from mooring.inputs.pods.scenario import MergeCase, Scenario

BOOT = "boot-{}"
"""Name of each boot of the machine, counted from 1."""


def replay_merge(case: MergeCase) -> dict[str, Any]:
    """Merge the hints of one line and return ``{"id", "result"}``.

    Raises:
        InputError: nodes, distances, options or hints do not make sense.
    """
    _check_numbers(case.numa_nodes, "numaNodes")
    for position, row in enumerate(case.distances or ()):
        _check_numbers(row, f"distances[{position}]")
    result = merge_hints(
        case.policy, case.providers, numa_nodes=case.numa_nodes, distances=case.distances, options=case.options
    )
    numa = None if result.numa is None else list(result.numa)
    answer: dict[str, Any] = {"numa": numa, "preferred": result.preferred, "admitted": result.admitted}
    if "score" in case.result:
        entries = [_scored(hints) for provider in case.providers for hints in (provider or {"": None}).values()]
        mask = None if numa is None else NUMAMask(mask_of(numa))
        nodes = NUMAMask(mask_of(case.numa_nodes))
        answer["score"] = merged_score(case.policy, entries, Hint(mask, result.preferred), nodes)
    return {"id": case.id, "result": answer}


def _scored(hints: list[dict[str, Any]] | None) -> list[ScoredHint]:
    """Return hints of a recording with their scores; null counts as one without a mask, an empty list as impossible."""
    if not hints:
        return [ScoredHint(None, hints is None)]
    masks = (None if one["numa"] is None else NUMAMask(mask_of(one["numa"])) for one in hints)
    return [ScoredHint(mask, one["preferred"], one.get("score", 0)) for mask, one in zip(masks, hints, strict=True)]


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
        return {"id": scenario.id, "expect": to_builtins(_ScenarioRun(scenario, info).outcome())}
    except UnsupportedError as error:
        return {"id": scenario.id, "unsupported": str(error)}
    except KubeletCrashError as error:
        return {"id": scenario.id, "unsupported": f"the kubelet would crash: {error}"}


class _ScenarioRun:
    """One scenario while it runs."""

    def __init__(self, scenario: Scenario, info: MachineInfo) -> None:
        self._scenario = scenario
        texts = scenario.files
        self._info = info
        self._files = StateTexts(texts.get(CPU_FILE), texts.get(MEMORY_FILE), scenario.container_ids)
        self._endless = False
        self._wanting: Mapping[str, Pod] = {}

    def outcome(self) -> dict[str, Any]:
        scenario = self._scenario
        started = start_kubelet(self._info, scenario.kubelet, scenario.mooring, self._files, runs=not scenario.readmits)
        if isinstance(started, NotStarted):
            fields = _refusal_fields(started.refusal)
            texts = refusal_alternatives(self._info, scenario.kubelet, scenario.mooring, self._files, started.refusal)
            fields |= {"startErrorAlternatives": texts} if len(texts) > 1 else {}
            if scenario.files:
                named = {"cpuManagerState": started.files.cpu, "memoryManagerState": started.files.memory}
                fields["files"] = {name: text for name, text in named.items() if text is not None}
            return fields
        kubelet = started.at(Moment(0, BOOT.format(1)))
        if scenario.devices:
            running = {pod.uid for pod in scenario.active}
            held = {uid: found for uid, found in scenario.held.items() if uid in running}
            kubelet = kubelet.with_devices(DeviceState(device_table(scenario.devices), held, drawn=scenario.held))
        if not scenario.readmits:
            kubelet = replace(kubelet, node=kubelet.node.adopt(scenario.active)).settled()
        start = _start_fields(kubelet)
        start["allocatableCPUs"] = str(kubelet.settings.allocatable_cpus)
        outcome: dict[str, Any] = {"start": start}
        if scenario.active and scenario.readmits:
            kubelet, results = readmit(kubelet, scenario.active, AdmitMode.MANAGERS)
            start["readmitted"] = self._readmission_fields(results)
            start["afterReadmission"] = _start_fields(kubelet)
        self._kubelet, steps = kubelet, []
        happening = events.run(kubelet, self._events(), AdmitMode.MANAGERS)
        for number in range(0 if self._endless else len(scenario.steps)):
            with within(f"steps[{number}]", source=scenario.id):
                one = next(happening, None)
                result = None if one is None else self._fields(one)
            if one is None or result is None:
                break
            steps.append(result)
            self._kubelet, self._wanting = one.after, one.wanting
        if steps:
            outcome["steps"] = steps
        if self._endless:
            outcome["endless"] = True
        return outcome

    def _events(self) -> Iterator[events.Living]:
        """Yield what happens at each step, in the life that it finds."""
        boots = 1
        for step in self._scenario.steps:
            match step:
                case events.Offline(cpus) | events.Online(cpus):
                    check_known(self._kubelet.node, cpus, "offline" if isinstance(step, events.Offline) else "online")
                    yield step
                case events.Resizing(uid):
                    self._check_runs(uid, "resize.uid")
                    gates = PodGates.of_node(self._kubelet.settings.config, self._kubelet.mooring)
                    # Amounts that are not named stay what they are in the specification, also where not granted.
                    wanted = self._wanting.get(uid, self._kubelet.node.active[uid])
                    with within("resize"):
                        wanted = resized_pod(wanted, step, gates)
                    yield events.PodUpdate(wanted)
                case events.ResizeTo(pod):
                    self._check_runs(pod.uid, "resize.metadata.uid")
                    yield step
                case events.Reboot():
                    boots += 1
                    yield events.Restart(boot=BOOT.format(boots))
                case _:
                    yield step

    def _check_runs(self, uid: str, field: str) -> None:
        if uid not in self._kubelet.node.active:
            raise InputError("no such pod runs", field=field, remedy="admit it first")

    def _fields(self, one: events.Happened) -> dict[str, Any] | None:
        """Return the result of a step; None of an admission that never ends."""
        result, after = one.result, one.after
        if result.crash:
            raise KubeletCrashError(result.crash)
        if result.not_started is not None:
            return {**_refusal_fields(result.not_started.refusal), **documents.state_fields(result.not_started.files)}
        now, fields = after.node.moment, dict[str, Any]()
        match one.event:
            case events.Restart():
                fields = {"start": _start_fields(result.started)} if result.started else {}
                return fields | {"readmitted": self._readmission_fields(result.admissions), **_start_fields(after)}
            case events.ResizeTo():
                fields = self._decision_fields(result.admissions[0].decision) | _start_fields(after)
                if result.infeasible:
                    del fields["affinity"]
                return fields | {"handler": "resize" if result.infeasible else "topologyManager"}
            case events.PodUpdate(pod) if result.resize is not None:
                # The answer may be older than what the resizes of other pods led to.
                standing = documents.resize_fields(resize_state(after.node, pod.uid), now)
                fields = {"accepted": result.resize.accepted, "events": list(result.resize.events), **standing}
            case events.Advance():
                pods = {uid: documents.resize_fields(resize_state(after.node, uid), now) for uid in after.node.active}
                fields = {"sinceBoot": documents.span_text(now.since_boot), "pods": pods}
            case events.Admit():
                admission = _returned(result.admissions[0])
                self._endless = admission.never_returns
                if self._endless:
                    return None
                fields = self._decision_fields(admission.decision) | _start_fields(after)
                fields |= documents.state_fields(one.at_once.files, admission.decided.files)
        fields |= _start_fields(after)
        if result.retried:
            fields["retried"] = {uid: documents.resize_fields(answer, now) for uid, answer in result.retried.items()}
        return fields if result.cpus is None else {**fields, **documents.change_fields(after.node, result.cpus)}

    def _readmission_fields(self, results: Iterable[AdmitResult]) -> list[dict[str, Any]]:
        decisions = [_returned(one).decision for one in results]
        self._endless = any(decision.endless for decision in decisions)
        found = []
        for decision in decisions:
            if not decision.endless:
                fields = self._decision_fields(decision)
                del fields["sharedPool"]
                found.append({"uid": decision.uid, **fields})
        return found

    def _decision_fields(self, decision: Decision) -> dict[str, Any]:
        fields = documents.decision_fields(decision)
        if self._scenario.devices:
            fields["devices"] = documents.held_devices(decision)
        return fields


def _returned(result: AdmitResult) -> AdmitResult:
    if result.crash:
        raise KubeletCrashError(result.crash)
    return result


def _refusal_fields(refusal: StartRefusal) -> dict[str, Any]:
    return {"startError": refusal.message, "startErrorStage": refusal.stage}


def _start_fields(kubelet: Kubelet) -> dict[str, Any]:
    standing = documents.standing_fields(kubelet.node)
    return {"sharedPool": str(kubelet.node.shared_pool), **documents.state_fields(kubelet.files), **standing}


def refusal_alternatives(
    info: MachineInfo, config: KubeletConfig, mooring: MooringConfig, files: StateTexts, refusal: StartRefusal
) -> list[str]:
    """Return every text with which a start may be refused, sorted, the refusal's own among them."""
    texts = {refusal.message}
    texts |= {found.message for found in _alone(info, config, mooring) if found.stage == refusal.stage}
    if refusal.code == Cause.FILE_DAMAGED and refusal.faults[0].values:
        (unknown,) = refusal.faults[0].values
        # The container ids of a CPU manager's file of format V1
        entries: object = None
        with suppress(msgspec.MsgspecError, ValueError, KeyError, TypeError, RecursionError):
            entries = msgspec.json.decode(files.cpu or "")["entries"]
        for container, held in entries.items() if isinstance(entries, Mapping) else ():
            if isinstance(held, str) and container not in files.containers:
                texts.add(refusal.message.replace(f"'{unknown}'", f"'{container}'", 1))
    if refusal.code == Cause.FILE_CONTRADICTS and refusal.faults[0].values:
        texts |= {refusal.message.replace(refusal.faults[0].values[0], other) for other in refusal.faults[0].values}
    return sorted(texts)


def _alone(info: MachineInfo, config: KubeletConfig, mooring: MooringConfig) -> Iterator[StartRefusal]:
    """Yield how each unknown gate, behind any of the locked ones, and each bad option is refused alone."""
    unknown, locked = [], []
    for name, on in config.feature_gates.items():
        found = _refusal(info, replace(config, feature_gates={name: on}), mooring)
        for fault in () if found is None else found.faults:
            if found is not None and fault.names == (name,) and fault.values:
                locked.append(fault)
            elif found is not None and fault.names == (name,):
                unknown.append(found)
    for one in unknown:
        prefix = one.message.removesuffix(one.faults[0].text)
        for count in range(len(locked) + 1):
            for before in combinations(locked, count):
                yield StartRefusal.of(one.stage, *before, *one.faults, prefix=prefix)
    for name, value in config.cpu_manager_policy_options.items():
        found = _refusal(info, replace(config, cpu_manager_policy_options={name: value}), mooring)
        if found is not None and name in found.faults[0].names:
            yield found
    for name, value in config.topology_manager_policy_options.items():
        found = _refusal(info, replace(config, topology_manager_policy_options={name: value}), mooring)
        if found is not None and name in found.faults[0].names:
            yield found


def _refusal(info: MachineInfo, config: KubeletConfig, mooring: MooringConfig) -> StartRefusal | None:
    try:
        found = build_settings(config, mooring, info)
    except KubeletCrashError:
        return None
    return found if isinstance(found, StartRefusal) else None
