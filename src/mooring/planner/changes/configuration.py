"""Another configuration of the node: a field, an option, a feature gate, or a deleted state file."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import ClassVar

from mooring.core.errors import InputError
from mooring.manifest.fields import nearest
from mooring.planner.changes.change import ChangeStage, two_parts
from mooring.planner.question import Question
from mooring.releases.gates import known_gates
from mooring.releases.policy_options import cpu_option_groups, topology_option_groups

CPU_OPTIONS = "cpuManagerPolicyOptions"
TOPOLOGY_OPTIONS = "topologyManagerPolicyOptions"
_GATES = "featureGates"
_SET = "--set"


CONFIG_FIELDS: Mapping[str, str] = MappingProxyType(
    {
        "topologyManagerPolicy": "topology_manager_policy",
        "topologyManagerScope": "topology_manager_scope",
        "cpuManagerPolicy": "cpu_manager_policy",
        "memoryManagerPolicy": "memory_manager_policy",
        "reservedSystemCPUs": "reserved_system_cpus",
    }
)
"""Text field of the KubeletConfiguration -> member of :class:`KubeletConfig`."""

_OPTION_FIELDS: Mapping[str, str] = MappingProxyType(
    {CPU_OPTIONS: "cpu_manager_policy_options", TOPOLOGY_OPTIONS: "topology_manager_policy_options"}
)
"""Field with options of a policy -> member of :class:`KubeletConfig`."""


def _with_member(question: Question, name: str, value: object) -> Question:
    return replace(question, config=replace(question.config, **{name: value}))  # type: ignore[arg-type]


@dataclass(frozen=True, slots=True)
class ConfigField:
    """A field of the KubeletConfiguration has another value."""

    kind: ClassVar[str] = "field"
    stage: ClassVar[ChangeStage] = ChangeStage.NODE

    field: str
    """Its name in the file, such as ``topologyManagerPolicy``."""
    value: str

    @property
    def target(self) -> str:
        """The field."""
        return self.field

    @property
    def option(self) -> tuple[str, str]:
        """``--set FIELD=VALUE``."""
        return _SET, f"{self.field}={self.value}"

    def phrase(self, question: Question) -> str:  # noqa: ARG002 - reads the same on every question
        """Return it with the value."""
        return f"set {self.field} to {self.value or 'nothing'}"

    def applied_to(self, question: Question) -> Question:
        """Return the question with the field set."""
        return _with_member(question, CONFIG_FIELDS[self.field], self.value)


@dataclass(frozen=True, slots=True)
class PolicyOption:
    """An option of the CPU manager or of the topology manager has another value."""

    kind: ClassVar[str] = "option"
    stage: ClassVar[ChangeStage] = ChangeStage.NODE

    field: str
    """``cpuManagerPolicyOptions`` or ``topologyManagerPolicyOptions``."""
    name: str
    value: str
    """Empty to leave the option out."""

    @property
    def target(self) -> str:
        """The option."""
        return f"{self.field}.{self.name}"

    @property
    def option(self) -> tuple[str, str]:
        """``--set FIELD.NAME=VALUE``."""
        return _SET, f"{self.field}.{self.name}={self.value}"

    def phrase(self, question: Question) -> str:  # noqa: ARG002 - reads the same on every question
        """Return it with the manager whose option it is."""
        manager = "CPU manager" if self.field == CPU_OPTIONS else "topology manager"
        what = f"the {manager}'s option {self.name}"
        if self.value in ("true", "false"):
            return f"switch {'on' if self.value == 'true' else 'off'} {what}"
        return f"set {what} to {self.value}" if self.value else f"leave out {what}"

    def applied_to(self, question: Question) -> Question:
        """Return the question with the option set or left out."""
        member = _OPTION_FIELDS[self.field]
        given: Mapping[str, str] = getattr(question.config, member)
        options = {name: value for name, value in given.items() if name != self.name}
        return _with_member(question, member, {**options, self.name: self.value} if self.value else options)


@dataclass(frozen=True, slots=True)
class FeatureGate:
    """A feature gate is on or off."""

    kind: ClassVar[str] = "gate"
    stage: ClassVar[ChangeStage] = ChangeStage.NODE

    name: str
    on: bool

    @property
    def target(self) -> str:
        """The gate."""
        return f"{_GATES}.{self.name}"

    @property
    def option(self) -> tuple[str, str]:
        """``--set featureGates.NAME=true``."""
        return _SET, f"{_GATES}.{self.name}={str(self.on).lower()}"

    def phrase(self, question: Question) -> str:  # noqa: ARG002 - reads the same on every question
        """Return it with the gate."""
        return f"switch {'on' if self.on else 'off'} the feature gate {self.name}"

    def applied_to(self, question: Question) -> Question:
        """Return the question with the gate set."""
        return _with_member(question, "feature_gates", {**question.config.feature_gates, self.name: self.on})


@dataclass(frozen=True, slots=True)
class FreshState:
    """The state file of a manager is deleted before the kubelet starts."""

    kind: ClassVar[str] = "stateFile"
    stage: ClassVar[ChangeStage] = ChangeStage.NODE

    manager: str
    """``cpu`` or ``memory``."""

    @property
    def target(self) -> str:
        """The file."""
        return f"{self.manager}_manager_state"

    @property
    def option(self) -> tuple[str, str]:
        """``--fresh-state MANAGER``."""
        return "--fresh-state", self.manager

    def phrase(self, question: Question) -> str:  # noqa: ARG002 - reads the same on every question
        """Return it with the file."""
        return f"delete the state file {self.manager}_manager_state"

    def applied_to(self, question: Question) -> Question:
        """Return the question without the file."""
        files = question.files
        files = replace(files, cpu=None) if self.manager == "cpu" else replace(files, memory=None)
        return replace(question, files=files)


def read_set(question: Question, text: str) -> list[ConfigField | PolicyOption | FeatureGate]:
    """Read the value of ``--set``.

    Raises:
        InputError: it cannot be understood.
    """
    release = question.mooring.release.name
    name, value = two_parts(text, "FIELD=VALUE")
    field, dot, part = name.partition(".")
    if not dot:
        if field not in CONFIG_FIELDS:
            raise _unknown(name)
        return [ConfigField(field, value)]
    if field == _GATES:
        if value not in ("true", "false"):
            raise InputError(f"{value!r:.40} is neither true nor false", field=name, remedy="write true or false")
        return [FeatureGate(_known(part, known_gates(release).gates, "feature gate", name), value == "true")]
    if field == CPU_OPTIONS:
        return [PolicyOption(field, _known(part, cpu_option_groups(release), "option", name), value)]
    if field == TOPOLOGY_OPTIONS:
        return [PolicyOption(field, _known(part, topology_option_groups(release), "option", name), value)]
    raise _unknown(name)


def _known(name: str, names: Collection[str], what: str, field: str) -> str:
    if name not in names:
        close = nearest(name, frozenset(names))
        remedy = f"did you mean {close}?" if close else "see docs/reference/configuration.md"
        raise InputError(f"there is no {what} {name!r:.80}", field=field, remedy=remedy)
    return name


def _unknown(name: str) -> InputError:
    fields = (*CONFIG_FIELDS, f"{CPU_OPTIONS}.NAME", f"{TOPOLOGY_OPTIONS}.NAME", f"{_GATES}.NAME")
    close = nearest(name, frozenset(fields))
    remedy = f"did you mean {close}?" if close else f"fields are {', '.join(fields)}"
    return InputError(f"{name!r:.80} cannot be set", remedy=remedy)


def read_fresh_state(_question: Question, text: str) -> list[FreshState]:
    """Read the value of ``--fresh-state``.

    Raises:
        InputError: it cannot be understood.
    """
    if text not in ("cpu", "memory"):
        raise InputError(f"there is no state file of {text!r:.40}", remedy="write cpu or memory")
    return [FreshState(text)]
