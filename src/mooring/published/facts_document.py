"""A node's facts as an object of the cluster, under the digest of their content.

The content is one JSON document of machine and configurations, compressed: nodes of one kind share the object. What no
manager reads, such as clock rates, is left out, so that machines that decide the same have the same digest. Every field
of a configuration is written, defaults included: the reader may have other defaults.
"""

from __future__ import annotations

import zlib
from base64 import b64decode, b64encode
from binascii import Error as Base64Error
from collections.abc import Mapping
from dataclasses import replace
from hashlib import sha256
from typing import Annotated, Any, Final, Literal

import msgspec

from mooring.documents.plan import learn
from mooring.engine.core.config import DEVICE_ALIGNMENT, KubeletConfig, MooringConfig, may_be_off, with_defaults
from mooring.engine.core.cpuset import CPUSet, CPUSetSyntaxError
from mooring.engine.core.errors import InputError
from mooring.engine.core.machineinfo import CPUFacts, CPUKind, MachineInfo
from mooring.engine.core.release import NEWEST
from mooring.engine.releases.catalog import release_of
from mooring.engine.releases.config_fields import CPU_OPTIONS, READ_FIELDS, TOPOLOGY_OPTIONS, Holds
from mooring.inputs.configuration import kubelet_config as kubelet
from mooring.inputs.configuration import mooring_config as mooring
from mooring.inputs.configuration.kubelet_config import kubelet_config
from mooring.inputs.configuration.mooring_config import mooring_config
from mooring.inputs.machines.machineinfo_json import machine_info_document, parse_machine_info
from mooring.published.objects import FACTS, NODE_LABEL, NodeFacts, bad_object, new_object, read_object

_ENCODING: Final = "zlib+base64"
_LARGEST_CONTENT: Final = 1_000_000
"""Bytes of the content before it is compressed; a machine of 512 CPUs has a fifth of it."""
_MOST_CORES: Final = 8192
"""Of a NUMA node: as many as Linux takes CPUs."""
_LARGEST_CONFIGURATION: Final = 50_000
"""Bytes of a configuration within it."""
_CONTENT: Final = "spec.content"
_LONGEST_LABEL: Final = 63


class _FactsSpec(msgspec.Struct):
    encoding: Literal["zlib+base64"]
    content: str


class _Facts(msgspec.Struct):
    spec: _FactsSpec


class _CoreKind(msgspec.Struct):
    efficiency: int
    cpus: str


class _CPUs(msgspec.Struct):
    kinds: tuple[_CoreKind, ...]
    isolated: str


_Few = Annotated[list[msgspec.Raw], msgspec.Meta(max_length=64)]
"""NUMA nodes and their distances, sizes of huge pages, caches and CPUs of a core: machines have tens."""


class _CoreBounds(msgspec.Struct):
    thread_ids: _Few | None = None
    caches: _Few | None = None
    uncore_caches: _Few | None = None


class _NodeBounds(msgspec.Struct):
    cores: Annotated[list[_CoreBounds], msgspec.Meta(max_length=_MOST_CORES)] | None = None
    hugepages: _Few | None = None
    caches: _Few | None = None
    distances: _Few | None = None


class _MachineBounds(msgspec.Struct):
    """What is counted before objects are made of a machine: a node that lies may cost the reader little."""

    topology: Annotated[list[_NodeBounds], msgspec.Meta(max_length=64)] | None = None
    hugepages: _Few | None = None


class _Content(msgspec.Struct):
    machine: msgspec.Raw
    kubelet: msgspec.Raw
    mooring: msgspec.Raw
    release: str = NEWEST.name
    """Of the kubelet, or of the kubelet as which the agent decides; publishers before 0.2 name none."""
    cpus: _CPUs | None = None
    """What plugins may know of the CPUs; only of nodes with plugins."""


learn(_Facts, _MachineBounds, _Content)


def essential(info: MachineInfo) -> MachineInfo:
    """Return a machine with what managers decide by, and nothing else."""
    return MachineInfo(
        num_cores=info.num_cores,
        num_sockets=info.num_sockets,
        memory_capacity=info.memory_capacity,
        topology=tuple(
            replace(node, caches=(), cores=tuple(replace(core, caches=()) for core in node.cores))
            for node in info.topology
        ),
        hugepages=info.hugepages,
    )


def digest_of(facts: NodeFacts) -> str:
    """Return the name under which facts are published: 64 hexadecimal digits."""
    return sha256(_content(facts)).hexdigest()


def facts_document(facts: NodeFacts, node: str = "") -> dict[str, Any]:
    """Return the NodeFacts object.

    Args:
        facts: its content.
        node: that makes it; it is labelled with the name, or with the beginning of one that no label takes.
    """
    content = _content(facts)
    packed = b64encode(zlib.compress(content, 9)).decode()
    made = new_object(FACTS, sha256(content).hexdigest(), spec=msgspec.to_builtins(_FactsSpec(_ENCODING, packed)))
    if node:
        made["metadata"]["labels"] = {NODE_LABEL: node[:_LONGEST_LABEL].rstrip("-.")}
    return made


def facts_of(document: object) -> NodeFacts:
    """Return the facts of a NodeFacts object.

    Raises:
        InputError: it is none, cannot be read, or is not what its name says.
    """
    name, found = read_object(document, FACTS, _Facts)
    content = _unpacked(name, found.spec.content)
    if sha256(content).hexdigest() != name:
        raise bad_object(FACTS, name, _CONTENT, "is not the content that the name is the digest of")
    try:
        parts = msgspec.json.decode(content, type=_Content)
        msgspec.json.decode(parts.machine, type=_MachineBounds)
        if max(len(bytes(parts.kubelet)), len(bytes(parts.mooring))) > _LARGEST_CONFIGURATION:
            raise bad_object(FACTS, name, _CONTENT, f"has a configuration of more than {_LARGEST_CONFIGURATION} bytes")
        fields = [msgspec.json.decode(part, type=dict[str, Any]) for part in (parts.kubelet, parts.mooring)]
        cpus = None
        if parts.cpus is not None:
            kinds = tuple(CPUKind(kind.efficiency, CPUSet.parse(kind.cpus)) for kind in parts.cpus.kinds)
            cpus = CPUFacts(kinds, CPUSet.parse(parts.cpus.isolated))
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError, CPUSetSyntaxError) as error:
        raise bad_object(FACTS, name, _CONTENT, f"cannot be read: {error}") from None
    source = f"{FACTS} {name}"
    try:
        release = release_of(parts.release)
    except InputError as error:
        raise bad_object(FACTS, name, _CONTENT, f"cannot be read: {error.problem}") from None
    machine = parse_machine_info(bytes(parts.machine), source).info
    return NodeFacts(
        machine if cpus is None else replace(machine, facts=cpus),
        kubelet_config(fields[0], source=source, release=release),
        replace(mooring_config(fields[1], source=source), release=release),
    )


def _content(facts: NodeFacts) -> bytes:
    content: dict[str, object] = {
        "machine": machine_info_document(essential(facts.machine)),
        "kubelet": kubelet_document(facts.config),
        "mooring": mooring_document(facts.mooring),
        "release": facts.mooring.release.name,
    }
    if facts.mooring.plugins.plugins:
        known = facts.machine.facts
        kinds = tuple(_CoreKind(kind.efficiency, str(kind.cpus)) for kind in known.kinds)
        content["cpus"] = _CPUs(kinds, str(known.isolated))
    return msgspec.json.encode(content, order="sorted")


def _unpacked(name: str, text: str) -> bytes:
    """Return the content before compression, and never more than it may have."""
    try:
        packed = b64decode(text, validate=True)
        reader = zlib.decompressobj()
        content = reader.decompress(packed, _LARGEST_CONTENT)
    except (Base64Error, zlib.error, ValueError) as error:
        raise bad_object(FACTS, name, _CONTENT, f"is not {_ENCODING}: {error}") from None
    if not reader.eof:
        raise bad_object(FACTS, name, _CONTENT, "is cut off, or larger than any machine")
    return content


def kubelet_document(config: KubeletConfig) -> dict[str, Any]:
    """Return a KubeletConfiguration with the fields that the managers read.

    >>> kubelet_document(KubeletConfig(cpu_manager_policy="static"))["cpuManagerPolicy"]
    'static'
    """
    plain = with_defaults(config)
    document: dict[str, Any] = {"apiVersion": kubelet.API_VERSION, "kind": kubelet.KIND}
    for name, field in READ_FIELDS.items():
        value = field.of(plain)
        # The number of pods only where it says something, so that facts of other nodes keep their names.
        if value is not None and (value or name != "podsPerCore"):
            if field.holds is Holds.DURATION:
                value = f"{value}ns"
            elif field.holds is Holds.MEMORY:
                value = [{"numaNode": entry.numa_node, "limits": dict(entry.limits)} for entry in value]
            document[name] = dict(value) if isinstance(value, Mapping) else value
    # While the gate of the options is off a kubelet refuses an empty map, and takes none.
    for name, is_given in (
        (CPU_OPTIONS, plain.checked.cpu_options_empty),
        (TOPOLOGY_OPTIONS, plain.checked.topology_options_empty),
    ):
        if not document[name] and not is_given and may_be_off(plain.feature_gates, READ_FIELDS[name].gate):
            del document[name]
    return document


def mooring_document(config: MooringConfig) -> dict[str, Any]:
    """Return a MooringConfiguration.

    >>> mooring_document(MooringConfig(fixed_defects=frozenset({"odd-uncore"})))["fixedDefects"]
    ['odd-uncore']
    """
    document: dict[str, Any] = {
        "apiVersion": mooring.API_VERSION,
        "kind": mooring.KIND,
        "extensions": sorted(config.extensions),
        "fixedDefects": sorted(config.fixed_defects),
    }
    if config.plugins.plugins:
        # A reader without the same plugins cannot predict the node.
        document["plugins"] = [
            {
                "name": plugin.name,
                "settings": dict(plugin.settings),
                "placement": plugin.placement.value,
                "weight": plugin.weight,
            }
            for plugin in config.plugins.plugins
        ]
        document["pluginBudget"] = f"{config.plugins.budget}ns"
    if DEVICE_ALIGNMENT in config.extensions:
        rules = config.device_alignments
        classes = {
            name: {"alignment": alignment.value, "resources": list(resources)}
            for name, (alignment, resources) in rules.classes.items()
        }
        document["deviceAlignment"] = {"default": rules.default.value, "classes": classes}
    if config.device_attributes:
        document["deviceAttributes"] = mooring.device_attributes_document(config.device_attributes)
    return document
