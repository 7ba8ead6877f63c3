"""A kubelet's configuration inside the documents of other tools, found by its shape and not by the tool.

Four shapes are looked for in every mapping, list and string of a document: a document that is read anyway; a mapping
with fields of a KubeletConfiguration, in the spelling of a file, of flags or of variables (``cpuManagerPolicy``,
``cpu-manager-policy``, ``kubelet_cpu_manager_policy``); flags, as a mapping, a list of names and values or a list of
words; and a text that holds one of these, which may be in base64, compressed or a ``data:`` URL.

Sources of names that differ from the kubelet's: https://bottlerocket.dev/en/os/ (settings.kubernetes);
https://github.com/kubernetes-sigs/kubespray, docs/ansible/vars.md; https://gardener.cloud/docs (Shoot, kubelet).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, TypeAlias

from mooring.engine.core.errors import InputError
from mooring.engine.core.machine import SourcePlace
from mooring.engine.releases.config_fields import FIELDS, MAPS_OF_TEXTS, Holds, KubeletField
from mooring.inputs.configuration import clouds, sources
from mooring.inputs.configuration.distributions import format_of
from mooring.inputs.configuration.kubelet_config import KIND, is_kubelet_config
from mooring.inputs.configuration.kubelet_flags import READINGS, carried_flags, kubelet_flags, merged_configuration
from mooring.inputs.configuration.sources import BOOTSTRAP_OPTIONS, KUBELET_ARGUMENTS, ConfigurationSource
from mooring.inputs.decoding.documents import positions_of
from mooring.inputs.decoding.fields import Document, part_at
from mooring.lazy import replace

_DEEPEST: Final = 4
"""Texts inside texts."""


def _plain(name: str) -> str:
    return re.sub(r"[^a-z0-9]", "", name.lower()).removeprefix("kubelet")


_BY_NAME: Final[Mapping[str, KubeletField]] = {
    _plain(name): one for one in FIELDS for name in (one.name, one.flag) if name and one.holds is not Holds.OTHER
} | {
    _plain(alias): one
    for alias, name in (
        ("memory-manager-reserved-memory", "reservedMemory"),
        ("cpu-cfs-quota-enforced", "cpuCFSQuota"),
        ("reserved-system-cpus", "reservedSystemCPUs"),
    )
    for one in FIELDS
    if one.name == name
}
_OF_RESOURCE: Final = re.compile(r"(kube|system)_(memory|cpu|ephemeral_storage|pid)_reserved")
"""Variables of Kubespray that are one resource of a reservation."""
_SIGNALS: Final = {
    _plain(f"{place}.{what}"): f"{place}.{what}"
    for place in ("memory", "nodefs", "imagefs", "containerfs", "pid")
    for what in ("available", "inodesFree")
}
_NAMES_OF_KUBELETS = """
    cpuManagerPolicy cpuManagerPolicyOptions topologyManagerPolicy topologyManagerScope topologyManagerPolicyOptions
    memoryManagerPolicy reservedMemory reservedSystemCPUs kubeReserved systemReserved
"""
_TELLING: Final = frozenset(_NAMES_OF_KUBELETS.split())
"""Fields that no other program has: one of them makes a mapping a kubelet's configuration."""
_ARGUMENTS: Final = re.compile(r"arg|flag|option", re.IGNORECASE)
_LITERAL: Final = re.compile(r"[|>][-+0-9]*\s*(?:#.*)?$")
_OF_EKS: Final = ("eksctl.io/", "karpenter.k8s.aws/")
_TOGETHER: Final = re.compile(r"files|units|drop-?ins|patches|commands|cmd|contents|args|arguments", re.IGNORECASE)
"""Lists whose entries are of one node; the entries of all other lists are different nodes."""
_EITHER: Final = ({"initconfiguration", "joinconfiguration"}, {"nodegroups", "managednodegroups"})
"""Names beside one another that are of different nodes."""
_CUT: Final = {
    "ConfigMap": "data.kubelet of kube-system/kubelet-config",
    "ClusterConfig": "kubeletExtraConfig of a node group",
    "Cluster": "spec.kubelet, or kubeadmConfigPatches of a node",
    "InstanceGroup": "spec.kubelet",
    "EC2NodeClass": "spec.kubelet or spec.userData",
    "NodePool": "spec.template.spec.kubelet",
    "Shoot": "spec.kubernetes.kubelet, or kubernetes.kubelet of a worker group",
    "MachineConfig": "the kubelet's file in spec.config.storage.files",
    "KubeadmConfigTemplate": "spec.template.spec.joinConfiguration.nodeRegistration.kubeletExtraArgs",
    "Node": "/api/v1/nodes/NAME/proxy/configz instead, by kubectl get --raw",
}
"""Kind -> where its configuration of a kubelet is."""


_Part: TypeAlias = tuple[str, ConfigurationSource]
"""A configuration in a document, and its path there."""


def _is_of_another_node(one: _Part, other: _Part) -> bool:
    """Tell whether two parts cannot be of one node: the same twice, or entries of a list."""
    return _are_apart(one[0], other[0]) or _group(one[1]) == _group(other[1]) != ""


def _are_apart(one: str, other: str) -> bool:
    """Tell whether paths lead to different entries of a list, or to names that are of different nodes."""
    first, second = (re.findall(r"[^.\[\]]+|\[\d+\]", path) for path in (one, other))
    at = next((at for at, both in enumerate(zip(first, second, strict=False)) if both[0] != both[1]), -1)
    if at < 0:
        return False
    is_entry = first[at].startswith("[") and not (at and _TOGETHER.search(first[at - 1]))
    return is_entry or {first[at].lower(), second[at].lower()} in _EITHER


def _joined(one: _Part, other: _Part) -> _Part | None:
    """Return two parts as one, where both are bare fields of one object and agree."""
    (path, source), (other_path, added) = one, other
    first, second = source.document.content, added.document.content
    if not isinstance(first, dict) or not isinstance(second, dict):
        return None
    is_bare = "kind" not in {*first, *second} and _group(source) == _group(added) == KIND
    if not is_bare or _are_apart(path, other_path):
        return None
    if any(first[name] != second[name] for name in first.keys() & second.keys()):
        return None

    def places(fields: Sequence[str]) -> dict[str, SourcePlace]:
        owners = {field: added if field.partition(".")[0] in second else source for field in fields}
        return {field: owner.places([field])[field] for field, owner in owners.items()}

    document = replace(source.document, content=merged_configuration(first, second))
    return path, replace(source, document=document, places=places)


def embedded(
    given: Sequence[ConfigurationSource], name: str, chosen: str = "", depth: int = 0
) -> list[ConfigurationSource]:
    """Return the configurations of one node in the documents of a file; documents that are read anyway stay.

    Args:
        given: the documents.
        name: the file's, for messages.
        chosen: path of the part that is meant, or the beginning of it.
        depth: how many texts are around the documents.

    Raises:
        InputError: there are several for different nodes, none at the chosen path, or none at all.
    """
    found: list[_Part] = []
    left: list[ConfigurationSource] = []
    for source in given:
        content = source.document.content
        parts = [("", source)] if _is_read(content, depth) else list(_search(content, "", source, depth))
        prefix = ""
        if len(given) > 1 and isinstance(content, dict):
            named = (content.get("kind"), part_at(content, "metadata").get("name"))
            prefix = "/".join(str(one) for one in named if one)
        found += [(f"{prefix}.{path}".strip("."), part) for path, part in parts]
        left += [] if parts else [source]
    if not any(path for path, _ in found) or (left and not any(part.found for _, part in found)):
        if left and depth:
            raise InputError("no configuration in it", source=name)
        if chosen:
            raise InputError(f"nothing is at {chosen:.80}", source=name, remedy="give the file alone to see its parts")
        return [*(part for _, part in found), *left]
    kept = _of_one_node(found, name, chosen)
    of_eks = any(
        isinstance(one.document.content, dict)
        and (
            str(one.document.content.get("apiVersion")).startswith(_OF_EKS) or {"settings"} == set(one.document.content)
        )
        for one in given
    )
    if of_eks and not any(_group(one) in ("EKS", "EKS bootstrap.sh") for one in kept):
        own = Document({BOOTSTRAP_OPTIONS: []}, name, 1, 1)
        kept.insert(0, ConfigurationSource.at(own, SourcePlace(name)))
    return kept


def advice(kind: str) -> str:
    """Return where the configuration of a kubelet is in documents of a kind; empty where that is not known."""
    return f"; of a {kind} give {_CUT[kind]}" if kind in _CUT else ""


def _is_read(content: object, depth: int) -> bool:
    """Tell whether a document is read as it is: by its kind, as a vendor's, or as bare fields."""
    if not isinstance(content, dict):
        return False
    if (form := format_of(content)) is not None:
        # In a text of another tool one name of k3s, such as debug or server, is not enough.
        return not depth or form.name != "k3s" or any("kubelet" in name for name in content)
    if "kind" in content:
        return content["kind"] in (KIND, "MooringConfiguration", "NodeDevices", "AgentConfiguration")
    if not is_kubelet_config(content) or not _TELLING.isdisjoint(content):
        return is_kubelet_config(content)
    nowhere = ConfigurationSource.at(Document(content, "", 1, 1), SourcePlace(""))
    return not any(_search({**content, "kind": ""}, "", nowhere, _DEEPEST))


def _search(content: Any, path: str, source: ConfigurationSource, depth: int) -> Iterator[_Part]:
    """Yield the parts of a value."""
    last = re.sub(r"\[\d+\]", "", path).rpartition(".")[2]
    if path.count(".") + path.count("[") > 40:
        return
    if isinstance(content, str) and "kubelet" in last.lower() and (words := _flags(content.split(), path, last)):
        yield _flag_part([(word, path) for word, _ in words], path, source)
    elif isinstance(content, str):
        if depth < _DEEPEST:
            yield from _in_text(content, path, source, depth)
    elif (words := _flags(content, path, last)) is not None:
        yield _flag_part(words, path, source)
    elif isinstance(content, list):
        for index, inner in enumerate(content):
            yield from _search(inner, f"{path}[{index}]", source, depth)
    elif isinstance(content, dict):
        yield from _in_mapping(content, path, source, depth)


def _in_mapping(content: dict[str, Any], path: str, source: ConfigurationSource, depth: int) -> Iterator[_Part]:
    if path and "kind" in content and _is_read(content, depth):
        yield path, _below(source, path, content, {})
        return
    if "kind" in content and isinstance(content.get("apiVersion"), str):
        source = replace(source, api=content["apiVersion"])
    block = path.rpartition(".")[2] in ("kubelet", "kubeletConfiguration")
    known = next((fields for api, fields in clouds.BLOCK_FIELDS if block and source.api.startswith(api)), None)
    if known is not None:
        source = replace(source, refused=tuple(f"{path}.{key}" for key in content if key not in known))
        content = {key: value for key, value in content.items() if key in known}
    names = {} if "kind" in content else _names(content)
    told = any(one.partition(".")[0] in _TELLING or key.startswith("kubelet_") for one, key in names.items())
    if not told and "kubelet" not in path.lower().rpartition(".")[2]:
        names = {}
    fields: dict[str, Any] = {}
    holds = {one.name: one.holds for one in FIELDS}
    for name, key in names.items():
        above, _, resource = name.partition(".")
        if resource and holds.get(name) is None:
            fields.setdefault(above, {})[resource] = str(content[key])
        elif not resource and (value := _value(content[key], holds[name])) is not None:
            fields[name] = {**fields.get(name, {}), **value} if isinstance(value, dict) else value
    if fields or source.refused:
        yield path, _below(source, path, fields or {"kind": KIND}, names)
    for key, inner in content.items():
        if key not in names.values():
            yield from _search(inner, f"{path}.{key}" if path else key, source, depth)


def _names(content: Mapping[str, Any]) -> dict[str, str]:
    """Return the field of a KubeletConfiguration, or a key of one, that each name is -> the name."""
    found: dict[str, str] = {}
    for key in content:
        if match := _OF_RESOURCE.fullmatch(key):
            found[f"{match[1]}Reserved.{match[2].replace('_', '-')}"] = key
        elif one := _BY_NAME.get(_plain(key)):
            found[one.name] = key
    return found


def _value(value: Any, holds: Holds) -> Any:
    """Return a value as a file of the kubelet has it; None for switches of the tool itself."""
    is_map = holds in MAPS_OF_TEXTS or holds is Holds.GATES
    if isinstance(value, str) and (is_map or holds in (Holds.MEMORY, Holds.COUNT, Holds.FLAG, Holds.TEXTS)):
        return READINGS[holds](value)
    if holds is Holds.OPTIONS and isinstance(value, list):
        return {name: on or "true" for name, _, on in (str(word).partition("=") for word in value)}
    if holds is Holds.MEMORY and isinstance(value, dict):
        return [
            {"numaNode": int(node), "limits": {key: text for key, text in one.items() if key != "enabled"}}
            for node, one in value.items()
            if node.isdecimal() and isinstance(one, dict) and one.get("enabled", True)
        ]
    if holds is Holds.GATES and isinstance(value, dict):
        return {gate: on == "true" if on in ("true", "false") else on for gate, on in value.items()}
    if holds is Holds.THRESHOLDS and isinstance(value, dict):
        return {_SIGNALS.get(_plain(signal), signal): amount for signal, amount in value.items()}
    return None if is_map and isinstance(value, bool) else value


def _flags(content: Any, path: str, last: str) -> list[tuple[str, str]] | None:
    """Return the flags that a mapping or a list is, each with its path; None where it is none."""
    is_named = bool(_ARGUMENTS.search(last))
    of_kubelet = not path or (is_named and "kubelet" in last.lower())
    pairs: list[tuple[str, str]] = []
    if isinstance(content, dict) and is_named:
        for name, value in content.items():
            texts = value if isinstance(value, list) else [value]
            pairs += [(f"--{name.lstrip('-')}={text}", f"{path}.{name}") for text in texts]
    elif isinstance(content, list):
        for index, item in enumerate(content):
            where = f"{path}[{index}]"
            if isinstance(item, dict) and str(item.get("Component", "kubelet")) == "kubelet":
                name, value = item.get("name", item.get("Key")), item.get("value", item.get("Value"))
                pairs += [(f"--{name}={value}", where)] if isinstance(name, str) and value is not None else []
            elif isinstance(item, str) and (carried := carried_flags(item)):
                pairs += [(word, where) for word in carried.split()]
            elif isinstance(item, str) and (item.startswith("--") or (of_kubelet and "=" in item)):
                pairs.append((f"--{item.lstrip('-')}", where))
    told = kubelet_flags(text for text, _ in pairs).fields if pairs else {}
    return pairs if told and (of_kubelet or not _TELLING.isdisjoint(told)) else None


def _flag_part(words: Sequence[tuple[str, str]], path: str, source: ConfigurationSource) -> _Part:
    def path_of(field: str) -> str:
        index = field.removeprefix(f"{KUBELET_ARGUMENTS}[").removesuffix("]")
        return words[int(index)][1] if index.isdecimal() and int(index) < len(words) else path

    document = source.document
    made = Document({KUBELET_ARGUMENTS: [text for text, _ in words]}, document.file, document.index, document.line)
    return path, ConfigurationSource(made, source.renamed(path_of), found=path or "the document")


def _below(
    source: ConfigurationSource, path: str, content: dict[str, Any], keys: Mapping[str, str]
) -> ConfigurationSource:
    """Return the part of a document at a path; ``keys`` are the names there of fields that have another name."""

    def path_of(field: str) -> str:
        first, dot, rest = field.partition(".")
        there = keys.get(field) or f"{keys.get(first, first)}{dot}{rest}"
        return f"{path}.{there}".strip(".")

    document = replace(source.document, content=content, text="")
    return replace(source, document=document, places=source.renamed(path_of), found=path or "the document")


def _in_text(text: str, path: str, source: ConfigurationSource, depth: int) -> Iterator[_Part]:
    """Yield the parts of a text."""
    unpacked = sources.unpacked(text)
    if not sources.HINT.search(unpacked):
        return
    position = positions_of(source.document, [path])[path] if source.document.text else None
    place = source.places([path])[path]
    line = 0
    if position is not None and unpacked is text:
        whole = source.document.text
        lines = (whole if isinstance(whole, str) else whole.decode("utf-8", "replace")).split("\n")
        above = position[0] - (source.document.line if source.document.is_alone else 1)
        line = position[0] if above < len(lines) and _LITERAL.search(lines[above]) else 0
    data = ("\n" * line + unpacked).encode()
    try:
        inner = list(sources.sources_in(data, source.document.file, depth=depth + 1))
    except InputError:
        return
    for one in inner:

        def places(fields: Sequence[str], one: ConfigurationSource = one) -> dict[str, SourcePlace]:
            # The text is indented where it stands: its columns are not those of the file.
            known = one.places(fields) if line else dict.fromkeys(fields, place)
            return {field: SourcePlace(there.file, there.line) for field, there in known.items()}

        below = f"{path}.{one.found}" if one.found and one.found != "the document" else path
        yield below, replace(one, places=places, found=below)


def _group(source: ConfigurationSource) -> str:
    content = source.document.content
    form = format_of(content) if isinstance(content, dict) else None
    if form is None:
        return str(content.get("kind", KIND)) if isinstance(content, dict) else ""
    return "" if form.several else form.one_of or form.name


def _of_one_node(found: Iterable[_Part], name: str, chosen: str) -> list[ConfigurationSource]:
    """Return the parts of the chosen node, or of the only one.

    Raises:
        InputError: naming the parts among which one is to be chosen.
    """
    parts: list[_Part] = []
    for one in found:
        if any(one[1].document.content == other.document.content for _, other in parts):
            continue
        made = ((at, _joined(earlier, one)) for at, earlier in enumerate(parts) if not chosen)
        index, both = next((found for found in made if found[1] is not None), (len(parts), one))
        parts[index : index + 1] = [both or one]
    if chosen:
        meant = [one for one in parts if one[0] == chosen or one[0].startswith((f"{chosen}.", f"{chosen}["))]
        if not meant:
            remedy = f"parts are {', '.join(path for path, _ in parts[:8])}"
            raise InputError(f"nothing is at {chosen:.80}", source=name, remedy=remedy)
        parts = [one for one in parts if one in meant or not any(_is_of_another_node(one, it) for it in meant)]
    several = [one[0] for one in parts if any(_is_of_another_node(one, it) for it in parts if it is not one)]
    if several:
        listed = ", ".join(several[:8])
        problem = f"has {len(several)} configurations of kubelets: {listed}"
        raise InputError(problem, source=name, remedy=f"choose one: --config '{name}#{several[0]}'")
    return [part for _, part in parts]
