"""A cluster from a file: a document of kind Cluster with groups of nodes, or a live one as kubectl prints it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from mooring.engine.releases.catalog import KubeletVersion, chosen_release
from mooring.fleet.cluster import NodeCluster
from mooring.fleet.inputs.event_files import cluster_events
from mooring.fleet.inputs.live_cluster import live_cluster
from mooring.fleet.inputs.live_machines import named_machines
from mooring.inputs.decoding.documents import load_documents, located
from mooring.inputs.decoding.fields import (
    Document,
    as_mapping,
    list_at,
    mapping_at,
    name_at,
    text_at,
)
from mooring.inputs.node_groups import groups_in, single_cluster
from mooring.published.cluster_archive import ARCHIVES, ClusterObjects, cluster_objects, has_nodes, load_objects


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
    document = single_cluster(documents, path)
    with located(document):
        return _cluster(document, config)


def _live(objects: ClusterObjects, config: tuple[str, ...], machines: tuple[str, ...]) -> NodeCluster:
    known = [one for file in config for one in load_documents(file)]
    return live_cluster(objects, named_machines(machines), known).cluster


def _cluster(document: Document, config: tuple[str, ...]) -> NodeCluster:
    content = as_mapping(document.content)
    name = text_at(mapping_at(content, "metadata"), "name") or document.file
    cluster = NodeCluster(name, groups_in(document, config), tuple(_other_releases(content)))
    return replace(cluster, events=cluster_events(list_at(content, "events"), cluster))


def _other_releases(content: Mapping[str, Any]) -> Iterator[str]:
    """Yield what is to be known of kubelets of releases that are not."""
    for entry in list_at(content, "groups"):
        group = as_mapping(entry)
        version = KubeletVersion(text_at(group, "release"), "release")
        for one in chosen_release([version]).findings:
            yield f"group {name_at(group, 'name')}: {one.subject} {one.message}"
