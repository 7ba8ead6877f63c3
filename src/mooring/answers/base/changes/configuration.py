"""Another configuration of the node: a field, an option, a gate, or a deleted state file; and what it guarantees.

A guarantee is what a configuration promises to every container that it admits. Good placement by luck is none: the
topology manager policies ``none`` and ``best-effort`` guarantee nothing.
Source: the policies and options of kubelet v1.37.1 (docs/reference/configuration.md).
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, replace
from enum import Enum, IntEnum
from typing import ClassVar

from mooring.answers.base.changes.change import ChangeStage, two_parts
from mooring.answers.base.plan import Question
from mooring.engine.core.config import KubeletConfig, with_defaults
from mooring.engine.core.errors import InputError
from mooring.engine.core.gotext import GoSyntaxError, parse_bool
from mooring.engine.cpumanager.options import ALIGN_BY_SOCKET, FULL_PCPUS_ONLY, STRICT_RESERVATION
from mooring.engine.releases.config_fields import CPU_OPTIONS, READ_FIELDS, TOPOLOGY_OPTIONS
from mooring.engine.releases.gate_history import GATE_HISTORY
from mooring.engine.releases.gates import cpu_option_groups, known_gates, topology_option_groups
from mooring.engine.topologymanager.merge import BEST_EFFORT, MAX_ALLOWABLE, RESTRICTED, SINGLE_NUMA_NODE
from mooring.inputs.decoding.fields import nearest


class Guarantee(Enum):
    """What a container can rely on; the value is its name in words."""

    EXCLUSIVE = "exclusive CPUs"
    """Of the static CPU manager policy, for whole CPUs in Guaranteed pods."""
    MEMORY = "memory of its own NUMA nodes"
    """Of the Static memory manager policy, for Guaranteed pods."""
    ALIGNED = "NUMA alignment"
    """The fewest NUMA nodes that could hold the request, or with ``align-by-socket`` sockets."""
    ONE_NODE = "one NUMA node"
    """Of single-numa-node."""
    CPU_NODES = "CPUs aligned to NUMA nodes"
    """Without ``align-by-socket``, which aligns them to sockets."""
    POD = "the same NUMA nodes for all containers of a pod"
    """Of the scope ``pod``."""
    WHOLE_CORES = "whole cores"
    """Of ``full-pcpus-only``."""
    RESERVED = "reserved CPUs that no container uses"
    """Of ``strict-cpu-reservation``."""


def guarantees(config: KubeletConfig) -> frozenset[Guarantee]:
    """Return what a configuration guarantees.

    >>> sorted(found.value for found in guarantees(KubeletConfig(topology_manager_policy="best-effort")))
    []
    """
    config = with_defaults(config)
    options = config.cpu_manager_policy_options if config.cpu_manager_policy == "static" else {}
    on = {name for name, text in options.items() if is_on(text)}
    aligns = config.topology_manager_policy in (RESTRICTED, SINGLE_NUMA_NODE)
    given = {
        Guarantee.EXCLUSIVE: config.cpu_manager_policy == "static",
        Guarantee.MEMORY: config.memory_manager_policy == "Static",
        Guarantee.ALIGNED: aligns,
        Guarantee.ONE_NODE: config.topology_manager_policy == SINGLE_NUMA_NODE,
        Guarantee.CPU_NODES: aligns and config.cpu_manager_policy == "static" and ALIGN_BY_SOCKET not in on,
        Guarantee.POD: aligns and config.topology_manager_scope == "pod",
        Guarantee.WHOLE_CORES: FULL_PCPUS_ONLY in on,
        Guarantee.RESERVED: STRICT_RESERVATION in on,
    }
    return frozenset(one for one, is_given in given.items() if is_given)


class AlignmentPromise(IntEnum):
    """What a topology manager policy promises about alignment."""

    NOTHING = 0
    """``none`` uses no hints: alignment is luck."""
    ATTEMPT = 1
    """``best-effort`` prefers aligned placement, and admits every other."""
    SOCKET = 2
    """``restricted`` with ``align-by-socket`` rejects what is not aligned to sockets."""
    GUARANTEE = 3
    """``restricted`` and ``single-numa-node`` reject what is not aligned."""


def alignment_promise(config: KubeletConfig) -> AlignmentPromise:
    """Return what a configuration promises about the alignment of CPUs, memory and devices to NUMA nodes.

    >>> alignment_promise(KubeletConfig(topology_manager_policy="best-effort")).name
    'ATTEMPT'
    """
    held = guarantees(config)
    if Guarantee.ALIGNED in held:
        by_socket = Guarantee.EXCLUSIVE in held and Guarantee.CPU_NODES not in held
        return AlignmentPromise.SOCKET if by_socket else AlignmentPromise.GUARANTEE
    policy = with_defaults(config).topology_manager_policy
    return AlignmentPromise.ATTEMPT if policy == BEST_EFFORT else AlignmentPromise.NOTHING


IMPLIED = {
    Guarantee.EXCLUSIVE: frozenset({Guarantee.CPU_NODES, Guarantee.WHOLE_CORES, Guarantee.RESERVED}),
    Guarantee.ALIGNED: frozenset({Guarantee.ONE_NODE, Guarantee.CPU_NODES, Guarantee.POD}),
}
"""Guarantee -> guarantees that do not exist without it."""


def given_up(before: KubeletConfig, after: KubeletConfig) -> tuple[Guarantee, ...]:
    """Return what is guaranteed before and not after, the weightiest first, without what that implies.

    >>> single, restricted = (KubeletConfig(topology_manager_policy=one) for one in ("single-numa-node", "restricted"))
    >>> [one.value for one in (*given_up(single, KubeletConfig()), *given_up(single, restricted))]
    ['NUMA alignment', 'one NUMA node']
    """
    lost = guarantees(before) - guarantees(after)
    implied = frozenset[Guarantee]().union(*(IMPLIED.get(one, ()) for one in lost))
    return tuple(one for one in Guarantee if one in lost - implied)


def is_on(text: str) -> bool:
    """Tell whether the text of an option is one of the kubelet's forms of true.

    >>> is_on("1"), is_on("false"), is_on("")
    (True, False, False)
    """
    try:
        return parse_bool(text)
    except GoSyntaxError:
        return False


GATES = "featureGates"

CONFIG_FIELDS = (
    "topologyManagerPolicy",
    "topologyManagerScope",
    "cpuManagerPolicy",
    "memoryManagerPolicy",
    "reservedSystemCPUs",
)
"""Text fields of the KubeletConfiguration that can be set."""


@dataclass(frozen=True, slots=True)
class ConfigField:
    """A field of the KubeletConfiguration, an option of a policy in it, or a feature gate has another value."""

    stage: ClassVar[ChangeStage] = ChangeStage.NODE

    path: str
    """The field's name in the file, such as ``topologyManagerPolicy``; of an option or a gate with its name after a
    dot, such as ``cpuManagerPolicyOptions.full-pcpus-only``."""
    value: str
    """Empty to leave an option out."""

    @property
    def kind(self) -> str:
        """``field``, ``option`` or ``gate``."""
        field, _, name = self.path.partition(".")
        return "gate" if field == GATES else "option" if name else "field"

    @property
    def target(self) -> str:
        """The field, option or gate."""
        return self.path

    @property
    def option(self) -> tuple[str, str]:
        """``--set PATH=VALUE``."""
        return "--set", f"{self.path}={self.value}"

    def phrase(self, question: Question) -> str:  # noqa: ARG002 - reads the same on every question
        """Return it with the value; an option with the manager that has it."""
        field, _, name = self.path.partition(".")
        if not name:
            return f"set {self.path} to {self.value or 'nothing'}"
        what = f"the feature gate {name}"
        if field != GATES:
            what = f"the {'CPU' if field == CPU_OPTIONS else 'topology'} manager's option {name}"
        if self.value in ("true", "false"):
            return f"switch {'on' if self.value == 'true' else 'off'} {what}"
        return f"set {what} to {self.value}" if self.value else f"leave out {what}"

    def applied_to(self, question: Question) -> Question:
        """Return the question with the value set, or without the option."""
        return replace(question, config=self.changed(question.config))

    def changed(self, config: KubeletConfig) -> KubeletConfig:
        """Return a configuration with the value set, or without the option."""
        field, _, name = self.path.partition(".")
        member = READ_FIELDS[field].member
        value: object = self.value
        if name:
            given: Mapping[str, object] = getattr(config, member)
            others = {other: setting for other, setting in given.items() if other != name}
            setting = self.value == "true" if field == GATES else self.value
            value = {**others, name: setting} if self.value else others
        return replace(config, **{member: value})  # type: ignore[arg-type]


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


def read_set(question: Question, text: str) -> list[ConfigField]:
    """Read the value of ``--set``.

    Raises:
        InputError: it cannot be understood.
    """
    return [config_field(text, question.mooring.release.name)]


def config_field(text: str, release: str) -> ConfigField:
    """Read a field and its value.

    Args:
        text: such as ``topologyManagerPolicy=restricted``.
        release: of the kubelet that reads it.

    Raises:
        InputError: it cannot be understood.
    """
    path, value = two_parts(text, "FIELD=VALUE")
    field, _, name = path.partition(".")
    if field == GATES and name:
        if value not in ("true", "false"):
            raise InputError(f"{value!r:.40} is neither true nor false", field=path, remedy="write true or false")
        _check_known(name, known_gates(release), "feature gate", path)
    elif field in (CPU_OPTIONS, TOPOLOGY_OPTIONS) and name:
        _check_known(name, _maps(release)[field], "option", path)
    elif path not in CONFIG_FIELDS:
        fields = (*CONFIG_FIELDS, f"{CPU_OPTIONS}.NAME", f"{TOPOLOGY_OPTIONS}.NAME", f"{GATES}.NAME")
        whole = next((f"{field}.{path}" for field, names in _maps(release).items() if path in names), "")
        close = whole or nearest(path, frozenset(fields))
        remedy = f"did you mean {close}?" if close else f"fields are {', '.join(fields)}"
        raise InputError(f"{path!r:.80} cannot be set", remedy=remedy)
    return ConfigField(path, value)


def settings(release: str) -> Iterator[str]:
    """Yield what can be set, with each known value: what a shell completes.

    >>> next(settings("1.37"))
    'topologyManagerPolicy=best-effort'
    """
    yield from (f"{name}={value}" for name in CONFIG_FIELDS for value in sorted(READ_FIELDS[name].values))
    for field, names in _maps(release).items():
        known = sorted(set(names) - {MAX_ALLOWABLE})
        yield from (f"{field}.{name}={value}" for name in known for value in ("true", "false"))


def _maps(release: str) -> Mapping[str, Collection[str]]:
    """Return the fields whose members are set by name, each with the names that a release knows."""
    return {
        CPU_OPTIONS: cpu_option_groups(release),
        TOPOLOGY_OPTIONS: topology_option_groups(release),
        GATES: known_gates(release),
    }


def _check_known(name: str, names: Collection[str], what: str, field: str) -> None:
    if name not in names:
        # A gate that another release has is no misspelling.
        close = "" if name in GATE_HISTORY else nearest(name, frozenset(names))
        remedy = f"did you mean {close}?" if close else "see docs/reference/configuration.md"
        raise InputError(f"there is no {what} {name!r:.80}", field=field, remedy=remedy)


def read_fresh_state(_question: Question, text: str) -> list[FreshState]:
    """Read the value of ``--fresh-state``.

    Raises:
        InputError: it cannot be understood.
    """
    if text not in ("cpu", "memory"):
        raise InputError(f"there is no state file of {text!r:.40}", remedy="write cpu or memory")
    return [FreshState(text)]
