"""The configuration of a node's kubelet: wherever it can be had, reduced to what decides."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from mooring.core.errors import InputError
from mooring.discovery.tree import Tree
from mooring.manifest import devices, kubelet_config, mooring_config
from mooring.manifest.configuration import configuration_of, recognised
from mooring.manifest.documents import documents_in
from mooring.manifest.fields import Document
from mooring.manifest.kubelet_flags import KubeletFlags, merged_configuration
from mooring.manifest.reduction import reduced_configuration
from mooring.planner.nodearchive.layout import DEVICES, KUBELET_CONFIG, MOORING_CONFIG

_PLACES: Final = {
    kubelet_config.KIND: KUBELET_CONFIG,
    mooring_config.KIND: MOORING_CONFIG,
    devices.KIND: DEVICES,
}
"""Kind -> where it stands in an archive."""


@dataclass(frozen=True, slots=True)
class Found:
    """Files of one part, where they came from, and what is missing."""

    files: Mapping[str, bytes]
    origin: str = ""
    missing: str = ""


def found_configuration(
    tree: Tree, given: Sequence[Document], configz: object, flags: KubeletFlags | None, root: str
) -> Found:
    """Return the configuration: of ``--config``, else as the running kubelet tells it, else of its files and flags.

    Args:
        tree: the computer.
        given: documents of ``--config``.
        configz: what the running kubelet answered; None when it was not asked.
        flags: of the running kubelet; None when none runs.
        root: the kubelet's root directory.

    Raises:
        InputError: a document of ``--config`` is no configuration, or a second one of its kind.
    """
    if given:
        return _of_documents(given)
    if isinstance(configz, dict) and kubelet_config.is_kubelet_config(configz):
        return Found(_file(reduced_configuration(configz)), "/configz")
    return _of_files(tree, flags, f"{root}/config.yaml")


def _file(document: Mapping[str, Any], place: str = KUBELET_CONFIG) -> dict[str, bytes]:
    return {place: f"{json.dumps(document, indent=1)}\n".encode()}


def _of_documents(documents: Sequence[Document]) -> Found:
    # What is packed whole is known to hold nothing but what its kind may hold.
    configuration_of(documents)
    files: dict[str, bytes] = {}
    for document in documents:
        kind, content = recognised(document)
        reduced = reduced_configuration(content) if kind == kubelet_config.KIND else content
        files |= _file(reduced, _PLACES[kind])
    missing = "" if KUBELET_CONFIG in files else f"no {kubelet_config.KIND} in --config"
    return Found(files, "--config", missing)


def _of_files(tree: Tree, flags: KubeletFlags | None, usual: str) -> Found:
    """Read what the running kubelet's command line names, or the file where most installers put it."""
    content: dict[str, Any] = {}
    named = flags.config if flags and flags.config else ""
    # A kubelet that runs without --config has no file, whatever lies about.
    paths = [named] if named else [] if flags else [usual]
    if flags and flags.config_dir:
        folder = flags.config_dir.strip("/")
        paths += [f"{folder}/{name}" for name in tree.names(folder) if name.endswith(".conf")]
    for path in paths:
        found = _read(tree, path)
        if isinstance(found, str):
            # Half a configuration is worse than none: it looks like one.
            return Found({}, "", found)
        content = merged_configuration(content, found)
    if flags:
        content = flags.over(content)
    origins = [f"/{path.lstrip('/')}" for path in paths[:1]] + (["flags"] if flags and flags.fields else [])
    return Found(_file(reduced_configuration(content)), " and ".join(origins) or "defaults")


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
