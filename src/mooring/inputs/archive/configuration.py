"""The configuration of a kubelet for a node archive: from the first source that has it, reduced to what decides."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

from mooring.engine.core.errors import InputError
from mooring.inputs.archive.layout import DEVICES, KUBELET_CONFIG, MOORING_CONFIG, json_bytes
from mooring.inputs.archive.reduction import reduced_configuration
from mooring.inputs.configuration import devices, kubelet_config, mooring_config
from mooring.inputs.configuration.kubelet_flags import KubeletFlags
from mooring.inputs.configuration.layers import FieldPlace, Layer, Tier, merged_layers
from mooring.inputs.configuration.node_configuration import configuration_of
from mooring.inputs.configuration.sources import DROP_IN_SUFFIX, ConfigurationSource
from mooring.inputs.decoding.documents import documents_in
from mooring.inputs.decoding.fields import Document
from mooring.inputs.machines.loader import machine_of
from mooring.inputs.machines.tree import Tree

_PLACES: Final = {
    mooring_config.KIND: MOORING_CONFIG,
    devices.KIND: DEVICES,
}
"""Kind -> its place in an archive."""


@dataclass(frozen=True, slots=True)
class Found:
    """Files of one part, where they came from, and what is missing."""

    files: Mapping[str, bytes]
    origin: str = ""
    missing: str = ""


def found_configuration(
    tree: Tree, given: Sequence[ConfigurationSource], configz: object, flags: KubeletFlags | None, root: str
) -> Found:
    """Return the configuration: of ``--config``, else as the running kubelet tells it, else of its files and flags.

    Args:
        tree: the computer.
        given: what ``--config`` names.
        configz: what the running kubelet answered; None when it was not asked.
        flags: of the running kubelet; None when none runs.
        root: the kubelet's root directory.

    Raises:
        InputError: a document of ``--config`` is no configuration, or a second one of its kind.
    """
    if given:
        return _of_sources(tree, given)
    if isinstance(configz, dict) and kubelet_config.is_kubelet_config(configz):
        return Found(_reduced(configz), "/configz")
    return _of_files(tree, flags, f"{root}/config.yaml")


def _reduced(content: Mapping[str, Any]) -> dict[str, bytes]:
    return {KUBELET_CONFIG: json_bytes(reduced_configuration(content))}


def _of_sources(tree: Tree, given: Sequence[ConfigurationSource]) -> Found:
    """Return what was given: of the kubelet, in whatever format, the fields in force."""
    # What is packed whole is known to hold nothing but what its kind may hold.
    found = configuration_of(given, machine=machine_of(tree, "").info)
    files = _reduced(found.merged) if found.layers else {}
    for source in given:
        content = source.document.content
        kind = content.get("kind") if isinstance(content, dict) else None
        if isinstance(content, dict) and kind in _PLACES:
            files |= {_PLACES[str(kind)]: json_bytes(content)}
    missing = "" if KUBELET_CONFIG in files else f"no {kubelet_config.KIND} in --config"
    return Found(files, "--config", missing)


def _of_files(tree: Tree, flags: KubeletFlags | None, usual: str) -> Found:
    """Read what the running kubelet's command line names, or the file where most installers put it."""
    named = flags.config if flags and flags.config else ""
    # A kubelet that runs without --config has no file, whatever lies about.
    paths = [named] if named else [] if flags else [usual]
    files = len(paths)
    if flags and flags.config_dir:
        paths += _drop_ins(tree, flags.config_dir.strip("/"))
    layers = []
    for number, path in enumerate(paths):
        found = _read(tree, path)
        if isinstance(found, str):
            # Half a configuration is worse than none: it looks like one.
            return Found({}, "", found)
        layers.append(Layer(Tier.FILE if number < files else Tier.DROP_IN, found, partial(FieldPlace, path)))
    if flags:
        layers.append(Layer(Tier.FLAGS, flags.fields, partial(FieldPlace, "the command line")))
    content = merged_layers(layers, has_file=files > 0)
    origins = [f"/{path.lstrip('/')}" for path in paths[:1]] + (["flags"] if flags and flags.fields else [])
    return Found(_reduced(content), " and ".join(origins) or "defaults")


def _drop_ins(tree: Tree, folder: str) -> list[str]:
    """Return the drop-ins of a folder in the order in which the kubelet reads them."""
    found = []
    for name in sorted(tree.names(folder)):
        path = f"{folder}/{name}"
        if tree.is_dir(path):
            found += _drop_ins(tree, path)
        elif name.endswith(DROP_IN_SUFFIX):
            found.append(path)
    return found


def _read(tree: Tree, path: str) -> dict[str, Any] | str:
    """Return the mapping in a file, or why there is none."""
    data = tree.data(path.lstrip("/"))
    if data is None:
        reason = "cannot be read" if tree.exists(path.lstrip("/")) else "is not there"
        return f"{path} {reason}"
    try:
        contents = list(_mappings(documents_in(data, path)))
    except InputError as error:
        return f"{path}: {error.problem}"
    return contents[0] if contents else f"{path} holds no mapping"


def _mappings(documents: Sequence[Document]) -> Iterator[dict[str, Any]]:
    return (document.content for document in documents if isinstance(document.content, dict))
