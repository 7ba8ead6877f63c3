"""The configuration of the agent: its own file, and what it takes from the node's kubelet.

The own file holds an AgentConfiguration, a KubeletConfiguration with the managers' policies, options and gates, and a
MooringConfiguration, each at most once. Reservations and everything else that both must agree about may come from the
kubelet's file (``kubeletConfig``); policies and options never do, because the kubelet beside the agent has policy
``none`` and ``None``.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

from mooring.engine.core.config import KubeletConfig, MooringConfig
from mooring.engine.core.errors import InputError
from mooring.engine.core.machine import Finding, SourcePlace
from mooring.engine.releases.config_fields import POLICY_FIELDS
from mooring.inputs.configuration import devices, mooring_config
from mooring.inputs.configuration import kubelet_config as kubelet
from mooring.inputs.configuration.kubelet_config import FieldPlace, Layer, Tier, merged_layers
from mooring.inputs.configuration.kubelet_flags import KubeletFlags
from mooring.inputs.configuration.node_configuration import by_kind, recognised
from mooring.inputs.configuration.sources import load_sources
from mooring.inputs.decoding.documents import load_documents, located, places_of
from mooring.inputs.decoding.fields import Document, mapping_at, text_at, within
from mooring.inputs.pods.defaults import PodGates
from mooring.service import agent_options as own
from mooring.service.agent_options import AgentOptions, OnRejection, agent_options

MANAGER_FIELDS = frozenset(one.name for one in POLICY_FIELDS)
"""Fields of a KubeletConfiguration that only the agent's own file decides."""

FIXED_BY_DEFAULT = frozenset({"pod-restart"})
"""Defects that the agent does not have unless ``fixedDefects`` says otherwise: it restarts among running pods."""

COMMAND_LINE = "the kubelet's command line"
"""Names flags of the running kubelet in messages."""

_POLICIES = (("cpuManagerPolicy", "none"), ("memoryManagerPolicy", "None"))


@dataclass(frozen=True, slots=True)
class AgentConfiguration:
    """The whole configuration of the agent."""

    options: AgentOptions = field(default_factory=AgentOptions)
    kubelet: KubeletConfig = field(default_factory=KubeletConfig)
    """Of the engine: policies of the own file, the rest also of the kubelet's."""
    mooring: MooringConfig = field(default_factory=lambda: MooringConfig(fixed_defects=FIXED_BY_DEFAULT))
    files: tuple[str, ...] = ()
    """What was read, the own file first."""
    findings: tuple[Finding, ...] = ()
    """What was odd in them."""

    @property
    def gates(self) -> PodGates:
        """How the kubelet reads pods."""
        return PodGates.of_node(self.kubelet, self.mooring)

    @property
    def source(self) -> str:
        """The files' names, for a mistake that may be in any of them."""
        return " and ".join(self.files)


def load_agent_configuration(path: str, flags: KubeletFlags | None = None) -> AgentConfiguration:
    """Read the agent's file and what it names.

    Args:
        path: the agent's own file.
        flags: of the kubelet that runs on this node, where there is one; they win over its file, as in the kubelet.

    Raises:
        InputError: a file cannot be used, or the kubelet of this node manages CPUs or memory itself.
    """
    if os.path.isdir(path or os.curdir):  # noqa: PTH112 - a name in hand, and a Path cannot be empty
        problem = "must be a file: changes of the files in a folder would not be detected"
        raise InputError(problem, source=path or "an empty name", remedy="name the agent's file with --config")
    return agent_configuration(load_documents(path), path, flags)


def agent_configuration(
    documents: Iterable[Document], path: str, flags: KubeletFlags | None = None
) -> AgentConfiguration:
    """Return what the documents of the agent's file, and the files that they name, come to.

    Args:
        documents: of the file.
        path: of the file.
        flags: as in :func:`load_agent_configuration`.

    Raises:
        InputError: as there.
    """
    parts = by_kind(documents, _kind_of)
    options, part = AgentOptions(), parts.get(own.KIND)
    if part is not None:
        content, document = part
        with located(document):
            options = agent_options(content, source=document.source)
    of_kubelet, files = _of_kubelet(options, flags)
    findings: list[Finding] = []
    named, source = {}, path
    if part := parts.get(kubelet.KIND):
        content, document = part
        named, source = _fields(content), document.source
        # Read alone first, so that an error names the file that has it.
        with located(document):
            places = partial(places_of, document)
            kubelet.kubelet_config(
                named, source=source, report=findings.append, release=options.kubelet_version, places=places
            )
    # The kubelet's fields without its policies, under those of the own file; gates are put together
    taken = {name: value for name, value in of_kubelet.items() if name not in MANAGER_FIELDS}
    merged = {**taken, **{name: value for name, value in named.items() if value is not None}}
    gates = {**mapping_at(taken, "featureGates"), **mapping_at(named, "featureGates")}
    configuration = kubelet.kubelet_config({**merged, "featureGates": gates}, source=source)
    if configuration.cpu_manager_policy in ("", "none") and configuration.memory_manager_policy in ("", "None"):
        message = f"{path} has CPU manager policy none and memory manager policy None, so that the agent places nothing"
        findings.append(Finding("warning", "configuration", message))
    findings += _unreachable(options, path)
    mooring = replace(_mooring(parts.get(mooring_config.KIND)), release=options.kubelet_version)
    return AgentConfiguration(options, configuration, mooring, (path, *files), tuple(findings))


def _kind_of(document: Document) -> tuple[str, dict[str, Any]]:
    if isinstance(document.content, dict) and document.content.get("kind") == own.KIND:
        return own.KIND, document.content
    try:
        kind, fields = recognised(document)
    except InputError as error:
        remedy = f"write kind: {own.KIND}, {kubelet.KIND} or {mooring_config.KIND}"
        raise InputError(error.problem, source=error.source, field=error.field, remedy=remedy) from None
    if kind == devices.KIND:
        raise InputError(f"{devices.KIND} is not for the agent", source=document.source, remedy="the kubelet has them")
    return kind, fields


def _mooring(part: tuple[dict[str, Any], Document] | None) -> MooringConfig:
    """Return Mooring's document; where it says nothing about defects, the agent's default."""
    if part is None:
        return MooringConfig(fixed_defects=FIXED_BY_DEFAULT)
    content, document = part
    with located(document):
        found = mooring_config.mooring_config(content, source=document.source)
    return found if content.get("fixedDefects") is not None else replace(found, fixed_defects=FIXED_BY_DEFAULT)


def _of_kubelet(options: AgentOptions, flags: KubeletFlags | None) -> tuple[dict[str, Any], list[str]]:
    """Return the fields of the node's kubelet, and the file that they are from."""
    path = options.kubelet_config
    content = _kubelet_file(path) if path else {}
    given = flags or KubeletFlags()
    _refuse_managing(content, path, given)
    if not path:
        return {}, []
    drop_ins = _drop_ins(given)
    layers = [Layer(Tier.FILE, content, partial(FieldPlace, SourcePlace(path))), *(layer for layer, _ in drop_ins)]
    layers.append(Layer(Tier.FLAGS, given.fields, partial(FieldPlace, SourcePlace(COMMAND_LINE))))
    return merged_layers(layers, has_file=True), [path, *(file for _, file in drop_ins)]


def refuse_kubelet_beside(path: str, flags: KubeletFlags) -> None:
    """Refuse to continue beside a kubelet that came while the agent ran; files that cannot be read are left to it.

    Args:
        path: the file of the node's kubelet that was named to the agent, or an empty text.
        flags: of the kubelet that runs.

    Raises:
        InputError: it manages CPUs or memory itself.
    """
    _refuse_managing(_kubelet_file_if_any(path) if path else {}, path, flags)


def _refuse_managing(named: Mapping[str, Any], path: str, flags: KubeletFlags) -> None:
    """Refuse what the file says that was named, what the kubelet reads of files, and what its flags say."""
    wins = dict(flags.fields)
    refuse_managing_kubelet(flags.fields, COMMAND_LINE)
    for layer, file in reversed(_drop_ins(flags)):
        refuse_managing_kubelet(layer.fields, file, unless=wins)
        wins = {**wins, **layer.fields}
    refuse_managing_kubelet(named, path, unless=wins)
    if flags.config not in ("", path):
        refuse_managing_kubelet(_kubelet_file_if_any(flags.config), flags.config, unless=wins)


def _drop_ins(flags: KubeletFlags) -> list[tuple[Layer, str]]:
    """Return the drop-ins of the kubelet's folder with their files; what cannot be read is left to the kubelet."""
    if not flags.config_dir:
        return []
    try:
        given = [one for one in load_sources(flags.config_dir) if one.drop_in]
    except InputError:
        return []
    return [
        (Layer(Tier.DROP_IN, content, partial(FieldPlace, SourcePlace(one.document.file))), one.document.file)
        for one in given
        if isinstance(content := one.document.content, dict)
    ]


def refuse_managing_kubelet(fields: Mapping[str, Any], source: str, unless: Mapping[str, Any] | None = None) -> None:
    """Refuse to run beside a kubelet that places CPUs or memory itself: both would write the same cpusets.

    Args:
        fields: of its configuration.
        source: where they are from.
        unless: fields that win over these, and are judged by themselves.

    Raises:
        InputError: its CPU manager is not ``none``, or its memory manager not ``None``.
    """
    for name, idle in _POLICIES:
        if name in (unless or {}):
            continue
        with within(source=source):
            policy = text_at(fields, name) or idle
        if policy != idle:
            raise InputError(
                f"is {policy} on this node, so kubelet and agent would write the same cpusets",
                source=source,
                field=name,
                remedy=f"set it to {idle} for the kubelet, drain the node and restart the kubelet; the policy belongs "
                "into the agent's file",
            )


def _kubelet_file(path: str) -> dict[str, Any]:
    try:
        documents = load_documents(path)
    except InputError as error:
        remedy = error.remedy or "name the file of the node's kubelet as kubeletConfig, or leave that out"
        raise InputError(error.problem, source=error.source, field=error.field, remedy=remedy) from None
    content = documents[0].content
    if len(documents) > 1 or not isinstance(content, dict) or not kubelet.is_kubelet_config(content):
        remedy = "name the file of the node's kubelet as kubeletConfig"
        raise InputError(f"must hold one {kubelet.KIND} and nothing else", source=path, remedy=remedy)
    kubelet.kubelet_config(content, source=path)
    return _fields(content)


def _kubelet_file_if_any(path: str) -> dict[str, Any]:
    """Return a file that the agent's configuration does not name; what cannot be read is left to the kubelet."""
    try:
        return _kubelet_file(path)
    except InputError:
        return {}


def _fields(content: dict[str, Any]) -> dict[str, Any]:
    return mapping_at(content, kubelet.CONFIGZ) if set(content) == {kubelet.CONFIGZ} else content


def _unreachable(options: AgentOptions, path: str) -> list[Finding]:
    """Say what is requested and cannot be had without an API server."""
    lacking = (
        (options.node_condition, "nodeCondition", "the node gets no condition"),
        (
            options.fail_closed,
            "failClosed",
            "the node gets no taint, and pods are scheduled to it while the agent is not running",
        ),
        (options.on_rejection is OnRejection.EVICT, "onRejection", "rejected pods are held back instead of evicted"),
    )
    return [
        Finding("warning", field, f"{path} names no kubeconfig: {text}")
        for is_wanted, field, text in lacking
        if is_wanted and not options.kubeconfig
    ]
