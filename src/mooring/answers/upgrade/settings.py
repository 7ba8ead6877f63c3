"""Settings that another release takes otherwise: gates, policy options, fields of the configuration, state files.

What the data of :mod:`mooring.engine.releases` says, as far as this configuration is concerned. Whether the kubelet
starts is not decided here.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from enum import StrEnum
from typing import Annotated

from mooring.documents.plan import DocumentPart, one_of, told
from mooring.engine.checkpoint.formats import ACTUATED_FILE, ALLOCATED_FILE
from mooring.engine.core.config import KubeletConfig
from mooring.engine.core.gates import MANAGER_GATES, SWITCHES, FeatureGates, Gate
from mooring.engine.core.release import Release
from mooring.engine.node.start import CPU_FILE, MEMORY_FILE
from mooring.engine.releases.config_fields import (
    CPU_OPTIONS,
    DEFAULT_HISTORY,
    FIELDS_SINCE,
    TOPOLOGY_OPTIONS,
    later_fields,
)
from mooring.engine.releases.gates import CPU_OPTION_HISTORY, TOPOLOGY_OPTION_HISTORY, known_gates
from mooring.engine.releases.rule import standing
from mooring.engine.releases.state_files import pod_file_versions, state_file_rules

POD_LEVEL_GATE = "PodLevelResourceManagers"
UNKNOWN = "not known"


class SettingEffect(StrEnum):
    """What another release does with a setting."""

    REFUSED = "refused"
    """The kubelet does not start with it."""
    IGNORED = "ignored"
    """It is an unknown field."""
    TAKES_EFFECT = "takes effect"
    """It was an unknown field before."""
    DEFAULT = "default"
    """It is not set, and its default is another one."""
    GROUP = "group"
    """The policy option needs another gate, or none any more."""
    COMPUTED = "computed"
    """The kubelet makes it of other settings, and comes to another result."""


class SettingChangePart(DocumentPart):
    """A setting that the new release takes otherwise."""

    name: Annotated[str, told("Such as featureGates.MemoryManager or failCgroupV1.")]
    effect: Annotated[str, one_of("refused", "ignored", "takes effect", "default", "group", "computed")]
    before: str
    after: str


def setting_changes(
    config: KubeletConfig, fields: frozenset[str], old: Release, new: Release
) -> list[SettingChangePart]:
    """Return the settings that a release takes otherwise than another one.

    Args:
        config: of the node's kubelet.
        fields: names of the fields that the configuration sets.
        old: before the upgrade.
        new: after it.
    """
    return [
        *_configured_gates(config, old, new),
        *_gate_defaults(config, old, new),
        *_options(CPU_OPTIONS, config.cpu_manager_policy_options, CPU_OPTION_HISTORY, old, new),
        *_options(TOPOLOGY_OPTIONS, config.topology_manager_policy_options, TOPOLOGY_OPTION_HISTORY, old, new),
        *_fields(fields, old, new),
    ]


def _configured_gates(config: KubeletConfig, old: Release, new: Release) -> Iterator[SettingChangePart]:
    before, after = known_gates(old.name).gates, known_gates(new.name).gates
    for name, value in sorted(config.feature_gates.items()):
        was_refused, is_refused = _is_refused(before.get(name), value), _is_refused(after.get(name), value)
        if is_refused != was_refused:
            effect = SettingEffect.REFUSED if is_refused else SettingEffect.TAKES_EFFECT
            yield SettingChangePart(f"featureGates.{name}", effect, _words(before.get(name)), _words(after.get(name)))


def _is_refused(gate: Gate | None, value: bool) -> bool:  # noqa: FBT001 - the value of a gate
    return gate is None or (gate.locked and value != gate.default)


def _gate_defaults(config: KubeletConfig, old: Release, new: Release) -> Iterator[SettingChangePart]:
    """Yield the gates of the resource managers that are not set, and on in one release only."""
    for name in sorted(MANAGER_GATES - set(config.feature_gates)):
        if gate_value(name, config, old) != gate_value(name, config, new):
            before, after = (known_gates(one.name).gates.get(name) for one in (old, new))
            yield SettingChangePart(f"featureGates.{name}", SettingEffect.DEFAULT, _words(before), _words(after))


def gate_value(name: str, config: KubeletConfig, release: Release) -> bool:
    """Return whether a gate is on; one that the release does not know is off, unless its feature is always on there."""
    gate = known_gates(release.name).gates.get(name)
    if gate is None:
        return FeatureGates({})[name]
    configured = config.feature_gates
    return configured.get(name, configured.get(SWITCHES.get(gate.stage, ""), gate.default))


def _words(gate: Gate | None) -> str:
    if gate is None:
        return UNKNOWN
    return f"{gate.stage.value} {'on' if gate.default else 'off'}{' locked' if gate.locked else ''}"


def _options(
    field: str, configured: Mapping[str, str], histories: Mapping[str, str], old: Release, new: Release
) -> Iterator[SettingChangePart]:
    for name in configured:
        history = histories.get(name, "")
        before, after = (standing(history, one.name) or UNKNOWN for one in (old, new))
        if before == after:
            continue
        effect = SettingEffect.REFUSED if after == UNKNOWN else SettingEffect.GROUP
        yield SettingChangePart(f"{field}.{name}", effect, before, after)


def _fields(fields: frozenset[str], old: Release, new: Release) -> Iterator[SettingChangePart]:
    missing_before, missing_after = later_fields(old.name), later_fields(new.name)
    for name in sorted(fields & FIELDS_SINCE.keys()):
        if (name in missing_before) != (name in missing_after):
            effect = SettingEffect.IGNORED if name in missing_after else SettingEffect.TAKES_EFFECT
            words = [UNKNOWN if name in missing else "known" for missing in (missing_before, missing_after)]
            yield SettingChangePart(name, effect, words[0], words[1])
    for name, history in sorted(DEFAULT_HISTORY.items()):
        before, after = standing(history, old.name), standing(history, new.name)
        if name not in fields and before and after and before != after:
            yield SettingChangePart(name, SettingEffect.DEFAULT, before, after)


class StateFileFormatsPart(DocumentPart):
    """The formats of a state file."""

    file: str
    written_before: str
    read_after: Annotated[list[str], told("What the new release reads, in order.")]
    written_after: str
    read_before: Annotated[list[str], told("What the old release reads after a rollback, in order.")]


def state_file_formats(config: KubeletConfig, old: Release, new: Release) -> list[StateFileFormatsPart]:
    """Return the formats of the managers' files, and of those of allocated and actuated pods where they change."""
    was, then = pod_file_versions(old.name), pod_file_versions(new.name)
    before, after = (
        state_file_rules(one.name, pod_level=gate_value(POD_LEVEL_GATE, config, one)) for one in (old, new)
    )
    return [
        StateFileFormatsPart(file, was.written, list(then.read), then.written, list(was.read))
        for file, was, then in ((CPU_FILE, before.cpu, after.cpu), (MEMORY_FILE, before.memory, after.memory))
    ] + [
        StateFileFormatsPart(file, was[0], list(then[1]), then[0], list(was[1]))
        for file in (ALLOCATED_FILE, ACTUATED_FILE)
        if was[0] != then[0]
    ]
