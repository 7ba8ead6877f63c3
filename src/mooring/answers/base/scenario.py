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
from dataclasses import replace
from itertools import combinations
from typing import Any

import msgspec
from msgspec import to_builtins

from mooring.answers.base.plan_document import (
    change_fields,
    decision_fields,
    held_devices,
    resize_fields,
    span_text,
    standing_fields,
    state_fields,
)
from mooring.engine.core.bits import NUMAMask, mask_of
from mooring.engine.core.config import KubeletConfig, MooringConfig
from mooring.engine.core.decision import Cause, StartRefusal
from mooring.engine.core.errors import InputError, KubeletCrashError, UnsupportedError
from mooring.engine.core.machineinfo import MachineInfo
from mooring.engine.core.moment import Moment
from mooring.engine.devicemanager.state import DeviceState
from mooring.engine.kubelet.admit import AdmitMode, AdmitResult, readmit
from mooring.engine.kubelet.events import (
    Admit,
    Advance,
    Offline,
    Online,
    Reboot,
    Remove,
    ResizeTo,
    Resizing,
    Restart,
    Step,
    after_event,
    check_known,
)
from mooring.engine.kubelet.kubelet import Kubelet, StateTexts
from mooring.engine.kubelet.start import NotStarted, restart_kubelet, start_kubelet
from mooring.engine.kubelet.timeline import Timeline, advanced, resized, retried
from mooring.engine.node import Decision
from mooring.engine.node.resize.feasibility import Resize
from mooring.engine.node.resize.resizing import resize_state
from mooring.engine.node.scores import ScoredHint, merged_score
from mooring.engine.node.settings import build_settings
from mooring.engine.node.start import CPU_FILE, MEMORY_FILE
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
        case.policy,
        case.providers,
        numa_nodes=case.numa_nodes,
        distances=case.distances,
        options=case.options,
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
        self._start = start_kubelet(info, scenario.kubelet, scenario.mooring, self._files, runs=not scenario.readmits)
        self._endless = False
        self._boots = 1
        self._timeline: Timeline | None = None
        if isinstance(self._start, Kubelet):
            kubelet = self._start.at(Moment(0, BOOT.format(1)))
            if scenario.devices:
                running = {pod.uid for pod in scenario.active}
                held = {uid: found for uid, found in scenario.held.items() if uid in running}
                table = device_table(scenario.devices)
                kubelet = kubelet.with_devices(DeviceState(table, held, drawn=scenario.held))
            if not scenario.readmits:
                kubelet = replace(kubelet, node=kubelet.node.adopt(scenario.active)).settled()
            self._timeline = Timeline.of(kubelet)

    def outcome(self) -> dict[str, Any]:
        if isinstance(self._start, NotStarted):
            fields = _refusal_fields(self._start.refusal)
            asked = self._scenario.kubelet, self._scenario.mooring
            texts = refusal_alternatives(self._info, *asked, self._files, self._start.refusal)
            fields |= {"startErrorAlternatives": texts} if len(texts) > 1 else {}
            if self._scenario.files:
                named = {"cpuManagerState": self._start.files.cpu, "memoryManagerState": self._start.files.memory}
                fields["files"] = {name: text for name, text in named.items() if text is not None}
            return fields
        if self._timeline is None:
            raise AssertionError("a kubelet that has started has a timeline")
        start = _start_fields(self._timeline.kubelet)
        start["allocatableCPUs"] = str(self._timeline.kubelet.settings.allocatable_cpus)
        outcome: dict[str, Any] = {"start": start}
        if self._scenario.active and self._scenario.readmits:
            kubelet, results = readmit(self._timeline.kubelet, self._scenario.active, AdmitMode.MANAGERS)
            self._timeline = Timeline.of(kubelet)
            start["readmitted"] = self._readmission_fields(results)
            start["afterReadmission"] = _start_fields(kubelet)
        steps = []
        for number, step in enumerate(self._scenario.steps):
            if self._endless or self._timeline is None:
                break
            with within(f"steps[{number}]", source=self._scenario.id):
                result = self._step(self._timeline, step)
            if result is not None:
                steps.append(result)
        if steps:
            outcome["steps"] = steps
        if self._endless:
            outcome["endless"] = True
        return outcome

    def _step(self, timeline: Timeline, step: Step) -> dict[str, Any] | None:
        match step:
            case Admit():
                return self._admit(timeline, step)
            case Remove():
                kubelet, _ = after_event(timeline.kubelet, step)
                return self._retried(replace(timeline, kubelet=kubelet), {})
            case Offline() | Online():
                return self._hotplugged(timeline, step)
            case Resizing():
                return self._resize(timeline, step)
            case ResizeTo():
                return self._resize_to(timeline, step)
            case Advance():
                return self._advance(timeline, step)
            case Restart():
                return self._restart(timeline, step)
            case Reboot():
                self._boots += 1
                return self._restart(timeline, Restart(), BOOT.format(self._boots))

    def _hotplugged(self, timeline: Timeline, step: Offline | Online) -> dict[str, Any]:
        is_loss = isinstance(step, Offline)
        check_known(timeline.kubelet.node, step.cpus, "offline" if is_loss else "online")
        kubelet, result = after_event(timeline.kubelet, step)
        fields = self._retried(replace(timeline, kubelet=kubelet), {})
        if self._timeline is None or result.cpus is None:
            return fields
        return {**fields, **change_fields(self._timeline.kubelet.node, result.cpus)}

    def _admit(self, timeline: Timeline, step: Admit) -> dict[str, Any] | None:
        kubelet, outcome = after_event(timeline.kubelet, step, AdmitMode.MANAGERS)
        result = _returned(outcome.admissions[0])
        if result.never_returns:
            self._endless = True
            return None
        fields = self._decision_fields(result.decision)
        return self._retried(replace(timeline, kubelet=kubelet), fields, result.decided.files)

    def _retried(
        self, timeline: Timeline, fields: dict[str, Any], before_start: StateTexts | None = None
    ) -> dict[str, Any]:
        """Look at the resizes that wait, now that a pod came or went, and complete the result of the step."""
        after_step = timeline.kubelet.files
        self._timeline, retried_ = retried(timeline)
        after = self._timeline.kubelet
        fields = {**fields, **_start_fields(after)}
        if before_start is not None:
            fields |= {**state_fields(after_step, before_start), **state_fields(after.files)}
        return fields | _retried_fields(retried_, self._timeline.now)

    def _resize(self, timeline: Timeline, step: Resizing) -> dict[str, Any]:
        pod = timeline.kubelet.node.active.get(step.uid)
        if pod is None:
            raise InputError("no such pod runs", field="resize.uid", remedy="admit it first")
        gates = PodGates.of_node(timeline.kubelet.settings.config, timeline.kubelet.mooring)
        # Amounts that are not named stay what they are in the specification, also where they were not granted.
        wanted = timeline.wanting().get(step.uid, pod)
        with within("resize"):
            wanted = resized_pod(wanted, step, gates)
        self._timeline, answer, others = resized(timeline, wanted)
        after = self._timeline.kubelet
        fields = {"accepted": answer.accepted, "events": list(answer.events)}
        # The answer may be older than what the resizes of other pods led to.
        standing = resize_state(after.node, step.uid)
        fields |= {**resize_fields(standing, self._timeline.now), **_start_fields(after)}
        return fields | _retried_fields(others, self._timeline.now)

    def _resize_to(self, timeline: Timeline, step: ResizeTo) -> dict[str, Any]:
        if step.pod.uid not in timeline.kubelet.node.active:
            raise InputError("no such pod runs", field="resize.metadata.uid", remedy="admit it first")
        kubelet, decision, infeasible = timeline.kubelet.ask_managers(step.pod)
        self._timeline = replace(timeline, kubelet=kubelet)
        fields = self._decision_fields(decision) | _start_fields(kubelet)
        if infeasible is not None:
            del fields["affinity"]
        return fields | {"handler": "topologyManager" if infeasible is None else "resize"}

    def _advance(self, timeline: Timeline, step: Advance) -> dict[str, Any]:
        self._timeline, answers = advanced(timeline, step.nanoseconds)
        kubelet, now = self._timeline.kubelet, self._timeline.now
        pods = {uid: resize_fields(resize_state(kubelet.node, uid), now) for uid in kubelet.node.active}
        fields: dict[str, Any] = {"sinceBoot": span_text(now.since_boot), "pods": pods, **_start_fields(kubelet)}
        return fields | _retried_fields(answers, now)

    def _restart(self, timeline: Timeline, step: Restart, boot: str | None = None) -> dict[str, Any]:
        pods, again = timeline.kubelet.node.active.values(), timeline.wanting()
        start = restart_kubelet(timeline.kubelet, step.kubelet, boot, step.release)
        if isinstance(start, NotStarted):
            self._timeline = None
            return {**_refusal_fields(start.refusal), **state_fields(start.files)}
        fields: dict[str, Any] = {"start": _start_fields(start)}
        kubelet, results = readmit(start, pods, AdmitMode.MANAGERS)
        if boot is not None:
            for uid in kubelet.node.active:
                kubelet = kubelet.start_containers(uid)
        running = kubelet.node.active
        self._timeline = Timeline.of(kubelet, {uid: pod for uid, pod in again.items() if uid in running})
        fields["readmitted"] = self._readmission_fields(results)
        return {**fields, **_start_fields(kubelet)}

    def _readmission_fields(self, results: Iterable[AdmitResult]) -> list[dict[str, Any]]:
        decisions = [_returned(one).decision for one in results]
        self._endless = any(decision.endless for decision in decisions)
        return [self._readmitted_fields(decision) for decision in decisions if not decision.endless]

    def _readmitted_fields(self, decision: Decision) -> dict[str, Any]:
        fields = self._decision_fields(decision)
        del fields["sharedPool"]
        return {"uid": decision.uid, **fields}

    def _decision_fields(self, decision: Decision) -> dict[str, Any]:
        fields = decision_fields(decision)
        if self._scenario.devices:
            fields["devices"] = held_devices(decision)
        return fields


def _returned(result: AdmitResult) -> AdmitResult:
    if result.crash:
        raise KubeletCrashError(result.crash)
    return result


def _refusal_fields(refusal: StartRefusal) -> dict[str, Any]:
    return {"startError": refusal.message, "startErrorStage": refusal.stage}


def _start_fields(kubelet: Kubelet) -> dict[str, Any]:
    standing = standing_fields(kubelet.node)
    return {"sharedPool": str(kubelet.node.shared_pool), **state_fields(kubelet.files), **standing}


def _retried_fields(answers: Mapping[str, Resize], now: Moment) -> dict[str, Any]:
    """Return the answers for pods that had waited; nothing when none had."""
    return {"retried": {uid: resize_fields(one, now) for uid, one in answers.items()}} if answers else {}


def refusal_alternatives(
    info: MachineInfo, config: KubeletConfig, mooring: MooringConfig, files: StateTexts, refusal: StartRefusal
) -> list[str]:
    """Return every text with which a start may be refused, sorted, the refusal's own among them."""
    texts = {refusal.message}
    texts |= {found.message for found in _alone(info, config, mooring) if found.stage == refusal.stage}
    if refusal.code == Cause.FILE_DAMAGED and refusal.faults[0].values:
        (unknown,) = refusal.faults[0].values
        for container in _ids(files.cpu):
            if container not in files.containers:
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


def _ids(text: str | None) -> list[str]:
    """Return the container ids of a CPU manager's file of format V1."""
    try:
        entries = msgspec.json.decode(text or "")["entries"]
    except (msgspec.MsgspecError, ValueError, KeyError, TypeError, RecursionError):
        return []
    return [name for name, held in entries.items() if isinstance(held, str)] if isinstance(entries, Mapping) else []
