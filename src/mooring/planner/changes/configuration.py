"""Another configuration of the node: a field, an option, a feature gate, or a deleted state file."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import ClassVar

from mooring.core.config import KubeletConfig
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


def _text_field(name: str) -> Callable[[KubeletConfig, str], KubeletConfig]:
    return lambda config, value: replace(config, **{name: value})  # type: ignore[arg-type]  # all of them are texts


CONFIG_FIELDS: Mapping[str, Callable[[KubeletConfig, str], KubeletConfig]] = MappingProxyType(
    {
        "topologyManagerPolicy": _text_field("topology_manager_policy"),
        "topologyManagerScope": _text_field("topology_manager_scope"),
        "cpuManagerPolicy": _text_field("cpu_manager_policy"),
        "memoryManagerPolicy": _text_field("memory_manager_policy"),
        "reservedSystemCPUs": _text_field("reserved_system_cpus"),
    }
)
"""Field of the KubeletConfiguration -> how to set it."""


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
        return replace(question, config=CONFIG_FIELDS[self.field](question.config, self.value))


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
        config = question.config
        is_cpu = self.field == CPU_OPTIONS
        given = config.cpu_manager_policy_options if is_cpu else config.topology_manager_policy_options
        options = {name: value for name, value in given.items() if name != self.name}
        if self.value:
            options[self.name] = self.value
        if is_cpu:
            return replace(question, config=replace(config, cpu_manager_policy_options=options))
        return replace(question, config=replace(config, topology_manager_policy_options=options))


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
        gates = {**question.config.feature_gates, self.name: self.on}
        return replace(question, config=replace(question.config, feature_gates=gates))


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
        if self.manager == "cpu":
            return replace(question, files=replace(question.files, cpu=None))
        return replace(question, files=replace(question.files, memory=None))


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
