"""A cluster from a file: a document of kind Cluster with groups of nodes, or a live one as kubectl prints it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from mooring.engine.core.errors import InputError
from mooring.engine.core.machine import Machine
from mooring.engine.releases.catalog import KubeletVersion, chosen_release, release_of
from mooring.fleet.cluster import NodeCluster, NodeGroup
from mooring.fleet.inputs.event_files import cluster_events
from mooring.fleet.inputs.live_cluster import live_cluster
from mooring.fleet.inputs.live_machines import named_machines
from mooring.inputs.configuration.devices import KIND as DEVICES
from mooring.inputs.configuration.devices import offered_devices
from mooring.inputs.configuration.kubelet_config import KIND as KUBELET
from mooring.inputs.configuration.mooring_config import KIND as MOORING
from mooring.inputs.configuration.node_configuration import configuration_of
from mooring.inputs.configuration.sources import load_sources
from mooring.inputs.decoding.documents import load_documents, located
from mooring.inputs.decoding.fields import (
    Document,
    as_mapping,
    caused_in,
    check_names,
    count_at,
    inside,
    list_at,
    mapping_at,
    name_at,
    text_at,
    texts_at,
)
from mooring.inputs.machines.loader import load_machine
from mooring.inputs.pods.scheduling_fields import taints_at
from mooring.published.cluster_archive import ARCHIVES, ClusterObjects, cluster_objects, has_nodes, load_objects

KIND: Final = "Cluster"
API_VERSION: Final = "mooring/v1alpha1"
MOST_NODES: Final = 100_000
_FIELDS: Final = ("apiVersion", "kind", "metadata", "groups", "events")
_GROUP_FIELDS: Final = (
    "name", "count", "machine", "config", "kubelet", "mooring", "devices", "release", "labels", "taints", "zones",
)  # fmt: skip


def load_cluster(path: str, config: tuple[str, ...] = (), machines: tuple[str, ...] = ()) -> NodeCluster:
    """Read a cluster: a document of kind Cluster, or a live one.

    Args:
        path: of the file.
        config: configuration of every node, where the cluster says nothing of it.
        machines: ``KIND:MACHINE`` of nodes of a live cluster that publish nothing.

    Raises:
        InputError: it cannot be read or understood.
    """
    if path.endswith(ARCHIVES):
        return _live(load_objects(path), config, machines)
    documents = [one for one in load_documents(path) if one.content is not None]
    if has_nodes(documents):
        return _live(cluster_objects(documents, path), config, machines)
    if len(documents) != 1:
        raise InputError(f"has {len(documents)} documents", source=path, remedy=f"give one of kind {KIND}")
    with located(documents[0]):
        return _cluster(documents[0], config)


def _live(objects: ClusterObjects, config: tuple[str, ...], machines: tuple[str, ...]) -> NodeCluster:
    known = [one for file in config for one in load_documents(file)]
    return live_cluster(objects, named_machines(machines), known).cluster


def _cluster(document: Document, config: tuple[str, ...]) -> NodeCluster:
    content = as_mapping(document.content)
    check_names(content, _FIELDS)
    if (kind := text_at(content, "kind")) != KIND:
        raise InputError(f"{kind!r:.60} is not a cluster", field="kind", remedy=f"write {KIND}")
    if (version := text_at(content, "apiVersion")) != API_VERSION:
        raise InputError(f"{version!r:.60} is not supported", field="apiVersion", remedy=f"write {API_VERSION}")
    folder = Path(document.file).parent
    groups: list[NodeGroup] = []
    for index, entry in enumerate(list_at(content, "groups")):
        try:
            groups.append(replace(_group(as_mapping(entry), folder, config), source=document.file))
        except InputError as error:
            raise inside(error, f"groups[{index}]") if not error.source else error from None
    if not groups:
        raise InputError("must not be empty", field="groups", remedy="list at least one group of nodes")
    names = [one.name for one in groups]
    twice = next((name for name in names if names.count(name) > 1), "")
    if twice:
        raise InputError(f"{twice!r:.60} is the name of two", field="groups", remedy="give each its own name")
    if sum(one.count for one in groups) > MOST_NODES:
        raise InputError(f"are more than {MOST_NODES} nodes", field="groups", remedy="lower a count")
    name = text_at(mapping_at(content, "metadata"), "name") or document.file
    cluster = NodeCluster(name, tuple(groups), tuple(_other_releases(content)))
    return replace(cluster, events=cluster_events(list_at(content, "events"), cluster))


def _other_releases(content: Mapping[str, Any]) -> Iterator[str]:
    """Yield what is to be known of kubelets of releases that are not."""
    for entry in list_at(content, "groups"):
        group = as_mapping(entry)
        version = KubeletVersion(text_at(group, "release"), "release")
        for one in chosen_release([version]).findings:
            yield f"group {name_at(group, 'name')}: {one.subject} {one.message}"


def _group(content: Mapping[str, Any], folder: Path, config: tuple[str, ...]) -> NodeGroup:
    check_names(content, _GROUP_FIELDS)
    name = name_at(content, "name")
    count = count_at(content, "count", 1, least=0)
    machine = _machine(name_at(content, "machine"))
    files = [str(folder / one) for one in _texts(content, "config")] or list(config)
    sources = [source for path in files for source in load_sources(path)]
    inline = [
        Document({"apiVersion": _VERSIONS[kind], "kind": kind, **mapping_at(content, field)}, f"{name}.{field}", 1, 1)
        for field, kind in _INLINE.items()
        if content.get(field) is not None
    ]
    try:
        configuration = configuration_of([*sources, *inline], machine=machine.info)
    except InputError as error:
        raise _in_group(error, name) from None
    mooring = configuration.mooring
    if release := text_at(content, "release"):
        mooring = replace(mooring, release=release_of(release, "release"))
    return NodeGroup(
        name,
        count,
        machine,
        configuration.kubelet,
        mooring,
        texts_at(content, "labels") if content.get("labels") else {},
        taints_at(content),
        offered_devices(configuration.devices, machine.pci),
        tuple(_texts(content, "zones")),
    )


def _machine(text: str) -> Machine:
    try:
        return load_machine(text)
    except InputError as error:
        raise caused_in(error, "machine") from None


def _in_group(error: InputError, name: str) -> InputError:
    """Return an error about fields that stand in the group itself as one of the group."""
    field = error.source.removeprefix(f"{name}.")
    if field not in _INLINE:
        return error
    return inside(InputError(error.problem, field=error.field, remedy=error.remedy), field)


_INLINE: Final = {"kubelet": KUBELET, "mooring": MOORING, "devices": DEVICES}
"""Field of a group -> kind of the configuration whose fields stand there."""
_VERSIONS: Final = {
    KUBELET: "kubelet.config.k8s.io/v1beta1",
    MOORING: "mooring/v1alpha1",
    DEVICES: "mooring/v1alpha1",
}


def _texts(content: Mapping[str, Any], field: str) -> list[str]:
    found = list_at(content, field)
    if not all(isinstance(one, str) for one in found):
        raise InputError("must be a list of strings", field=field, remedy="put each in quotes")
    return found
