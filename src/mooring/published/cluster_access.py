"""The objects of a cluster through its API server, as the person of a kubeconfig may read them.

Nodes and pods have to be readable. Everything else tells more where it may be read; what may not is named.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Final
from urllib.parse import quote

from mooring.engine.core.errors import InputError
from mooring.inputs.pods.claims import CLAIM, SLICE
from mooring.lazy import lazily
from mooring.published.cluster_archive import BUDGET, NODE, POD, TOPOLOGY, ClusterObjects, Content, check_has_nodes
from mooring.published.objects import API_VERSION, FACTS, PLURALS, STATE, object_name

with lazily():
    from mooring.service import apiserver, following

if TYPE_CHECKING:
    from mooring.service.apiserver import Cluster

COLLECTIONS: Final[Mapping[str, tuple[str, str]]] = {
    NODE: ("v1", "nodes"),
    POD: ("v1", "pods"),
    BUDGET: ("policy/v1", "poddisruptionbudgets"),
    CLAIM: ("resource.k8s.io/v1", "resourceclaims"),
    SLICE: ("resource.k8s.io/v1", "resourceslices"),
    FACTS: (API_VERSION, PLURALS[FACTS]),
    STATE: (API_VERSION, PLURALS[STATE]),
    TOPOLOGY: ("topology.node.k8s.io/v1alpha2", "noderesourcetopologies"),
}
"""Kind -> API version and plural. States come before pods in what is asked: a pod of a state is then listed too."""
_ORDER: Final = (NODE, BUDGET, CLAIM, SLICE, FACTS, STATE, TOPOLOGY, POD)
_REQUIRED: Final = (NODE, POD)
_USUAL: Final = Path("~/.kube/config")
_NOT_THERE: Final = 404


def read_cluster(kubeconfig: str = "", context: str = "") -> ClusterObjects:
    """Ask the API server for the objects of its cluster.

    Args:
        kubeconfig: path of the file; empty for that of ``KUBECONFIG``, ``~/.kube/config`` or the pod's own account.
        context: of the file; empty for the current one.

    Raises:
        InputError: there is no access, nodes or pods cannot be read, or there is no node.
    """
    config = apiserver.configuration_of(_file(kubeconfig), context or None)
    with apiserver.cluster_of(config) as cluster:
        try:
            found: dict[str, tuple[Content, ...]] = {}
            unread: list[str] = []
            for kind in _ORDER:
                try:
                    found[kind] = listed(cluster, kind)
                except apiserver.ClusterError as error:
                    if kind in _REQUIRED:
                        raise
                    found[kind] = ()
                    # A cluster without the kind has none of it.
                    if error.code != _NOT_THERE:
                        unread.append(f"{COLLECTIONS[kind][1]} cannot be read: {_first_line(error)}")
            objects = ClusterObjects(config.cluster.server, found)
            check_has_nodes(objects)
            configz = _configz(cluster, objects, unread)
            return replace(objects, configz=configz, unread=tuple(unread))
        except apiserver.ClusterError as error:
            raise InputError(
                str(error), source=config.cluster.server, remedy="grant get and list on nodes and pods, or try kubectl"
            ) from None


def _file(given: str) -> str | None:
    """Return the kubeconfig that kubectl would take first; None for the account of a pod."""
    if given:
        return given
    for path in os.environ.get("KUBECONFIG", "").split(os.pathsep):
        if path and Path(path).exists():
            return path
    usual = _USUAL.expanduser()
    return str(usual) if usual.exists() else None


def listed(cluster: Cluster, kind: str) -> tuple[Content, ...]:
    """Return all objects of a kind.

    Raises:
        ClusterError: there is no answer, or it is no.
    """
    version, plural = COLLECTIONS[kind]
    prefix = f"apis/{version}" if "/" in version else f"api/{version}"
    found = following.objects_at(cluster.http, f"{prefix}/{plural}")
    return tuple({"apiVersion": version, "kind": kind, **item} for item in found)


def _configz(cluster: Cluster, objects: ClusterObjects, unread: list[str]) -> dict[str, Content]:
    """Ask the kubelets of nodes that publish nothing; the first that may not be asked ends it."""
    published = {object_name(one) for one in objects.of(STATE)}
    found: dict[str, Content] = {}
    silent: list[str] = []
    for name in [object_name(one) for one in objects.of(NODE)]:
        if name in published:
            continue
        try:
            found[name] = configz_of(cluster, name)
        except apiserver.ClusterError as error:
            if error.code in (401, 403):
                unread.append(f"/configz of kubelets cannot be read: {_first_line(error)}")
                break
            silent.append(name)
    if silent:
        unread.append(f"/configz of {len(silent)} kubelets does not answer, such as that of {silent[0]}")
    return found


def configz_of(cluster: Cluster, name: str) -> Content:
    """Return what the kubelet of a node says of its configuration.

    Raises:
        ClusterError: there is no answer, or it is no.
    """
    return apiserver.asked_json(cluster.http, "GET", f"api/v1/nodes/{quote(name, safe='')}/proxy/configz")


def _first_line(error: Exception) -> str:
    """Return what a refusal says, without the object around it."""
    text = str(error)
    _, found, rest = text.partition('"message":"')
    return rest.partition('"')[0] if found else text[:200]
