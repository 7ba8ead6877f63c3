"""Other words with which the kubelet may refuse the same start: it walks maps in random order and stops at a fault.

Only the faults themselves are collected here, by asking the engine about each entry of the map alone.

Source: component-base/featuregate SetFromMap, policy_options.go of both managers, and cpumanager/state migration of
format V1 (up to v1.36); docs/reference/scenarios.md, "What is excused".
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace

import msgspec

from mooring.engine.core.config import KubeletConfig, MooringConfig
from mooring.engine.core.decision import Cause, StartRefusal
from mooring.engine.core.errors import KubeletCrashError
from mooring.engine.core.machineinfo import MachineInfo
from mooring.engine.kubelet.kubelet import StateTexts
from mooring.engine.node.settings import build_settings


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
    return sorted(texts)


def _alone(info: MachineInfo, config: KubeletConfig, mooring: MooringConfig) -> Iterator[StartRefusal]:
    """Yield how each unknown gate and each bad option is refused when it is the only one."""
    for name, on in config.feature_gates.items():
        found = _refusal(info, replace(config, feature_gates={name: on}), mooring)
        if found is not None and any(fault.names == (name,) and not fault.values for fault in found.faults):
            yield found
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
