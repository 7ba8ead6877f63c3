"""The objects of a cluster: kubectl's lists, an archive of ``mooring collect --cluster``, or the API server's.

Nodes and pods are enough. What nodes publish, and ``/configz``, tells more where it may be read; what may not is named.

An archive has what decides, and nothing else: everything is taken from lists of names. What is not on one, such as the
environment of a container or an annotation, is left out, whatever it is.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import quote

from msgspec import to_builtins

from mooring import __version__
from mooring.documents.machine import ClusterArchiveDocument, ClusterArchivePart
from mooring.documents.plan import API_VERSION
from mooring.engine.core.errors import InputError
from mooring.inputs.archive.claims import reduced_claims
from mooring.inputs.archive.reduction import reduced_configuration, reduced_pods
from mooring.inputs.decoding.documents import documents_in, load_documents
from mooring.inputs.decoding.fields import Document, as_mapping, only, part_at, within
from mooring.inputs.decoding.files import STANDARD_INPUT
from mooring.inputs.machines.archive import archive_bytes
from mooring.inputs.machines.tree import Tree, open_tree
from mooring.inputs.pods.claims import CLAIM, SLICE, objects_of
from mooring.inputs.pods.claims import KINDS as DYNAMIC
from mooring.lazy import lazily
from mooring.published.objects import API_VERSION as OURS
from mooring.published.objects import FACTS, PLURALS, STATE, object_name

with lazily():
    from mooring.service import apiserver, following

if TYPE_CHECKING:
    from mooring.service.apiserver import Cluster

NODE: Final = "Node"
POD: Final = "Pod"
BUDGET: Final = "PodDisruptionBudget"
TOPOLOGY: Final = "NodeResourceTopology"
COLLECTIONS: Final[Mapping[str, tuple[str, str]]] = {
    NODE: ("v1", "nodes"),
    BUDGET: ("policy/v1", "poddisruptionbudgets"),
    CLAIM: ("resource.k8s.io/v1", "resourceclaims"),
    SLICE: ("resource.k8s.io/v1", "resourceslices"),
    FACTS: (OURS, PLURALS[FACTS]),
    STATE: (OURS, PLURALS[STATE]),
    TOPOLOGY: ("topology.node.k8s.io/v1alpha2", "noderesourcetopologies"),
    POD: ("v1", "pods"),
}
"""Kind -> API version and plural, in the order in which they are asked for: a pod of a state is then listed too."""
_LISTS: Final = "give what kubectl get nodes,pods -A -o json prints, or an archive of mooring collect --cluster"

Content = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class ClusterObjects:
    """The objects of one cluster at one moment."""

    source: str
    """Where they are from, for messages."""
    found: Mapping[str, tuple[Content, ...]]
    """Kind -> objects, in the order in which they were listed."""
    configz: Mapping[str, Content] = field(default_factory=dict)
    """Name of a node -> what its kubelet says of its configuration."""
    captured: str = ""
    """When they were read; empty where that is not known."""
    unread: tuple[str, ...] = ()
    """What could not be read, in words."""

    def of(self, kind: str) -> tuple[Content, ...]:
        """Return the objects of one kind."""
        return self.found.get(kind, ())


def cluster_objects(documents: Iterable[Document], source: str) -> ClusterObjects:
    """Return the objects in documents; other kinds are passed over.

    Args:
        documents: lists or single objects.
        source: their name, for messages.

    Raises:
        InputError: there is no node among them.
    """
    found: dict[str, list[Content]] = {kind: [] for kind in COLLECTIONS}
    for document in documents:
        for _, content in objects_of(document.content, COLLECTIONS):
            found[content["kind"]].append(content)
    objects = ClusterObjects(source, {kind: tuple(items) for kind, items in found.items()})
    check_has_nodes(objects)
    return objects


def check_has_nodes(objects: ClusterObjects) -> None:
    """Refuse a cluster without nodes.

    Raises:
        InputError: there is none.
    """
    if not objects.of(NODE):
        raise InputError("has no Node object", source=objects.source, remedy=_LISTS)


_NODE_SPEC: Final = ("taints", "unschedulable")
_NODE_STATUS: Final = ("allocatable", "capacity", "declaredFeatures")
_POD_METADATA: Final = ("labels", "creationTimestamp", "deletionTimestamp")
_POD_SPEC: Final = (
    "nodeName", "nodeSelector", "affinity", "tolerations", "topologySpreadConstraints", "hostNetwork", "hostUsers",
)  # fmt: skip
_OWNER: Final = ("apiVersion", "kind", "name", "uid", "controller")
_STATUS: Final = ("name", "allocatedResources", "resources")
_TOPOLOGY: Final = ("topologyPolicies", "attributes", "zones")


def reduced_objects(objects: ClusterObjects) -> dict[str, list[dict[str, Any]]]:
    """Return kind -> objects, reduced, in the order of namespace and name; claims and slices are under one kind.

    Raises:
        InputError: an object is none of Kubernetes.
    """
    pods = [_pod(one) for one in objects.of(POD)]
    claims = [{"kind": "List", "items": list(objects.of(kind))} for kind in sorted(DYNAMIC)]
    found: dict[str, list[dict[str, Any]]] = {
        NODE: [_node(one) for one in objects.of(NODE)],
        POD: pods,
        BUDGET: [
            _with_name(one)
            | {
                "spec": only(part_at(one, "spec"), ("selector",)),
                "status": only(part_at(one, "status"), ("disruptionsAllowed",)),
            }
            for one in objects.of(BUDGET)
        ],
        "ResourceClaim": reduced_claims(claims, pods, ""),
        **{kind: [_with_name(one) | {"spec": one.get("spec")} for one in objects.of(kind)] for kind in (FACTS, STATE)},
        TOPOLOGY: [_with_name(one) | only(one, _TOPOLOGY) for one in objects.of(TOPOLOGY)],
    }

    def order(content: Content) -> tuple[str, str, str]:
        metadata = part_at(content, "metadata")
        return str(content.get("kind", "")), str(metadata.get("namespace", "")), str(metadata.get("name", ""))

    return {kind: sorted(items, key=order) for kind, items in found.items()}


def _node(content: Content) -> dict[str, Any]:
    status = part_at(content, "status")
    ready = [only(one, ("type", "status")) for one in _mappings(status.get("conditions")) if one.get("type") == "Ready"]
    kept = only(status, _NODE_STATUS) | {"conditions": ready}
    kept |= {"nodeInfo": only(part_at(status, "nodeInfo"), ("kubeletVersion",))}
    found = _with_name(content)
    found["metadata"] |= only(part_at(content, "metadata"), ("labels",))
    return {**found, "spec": only(part_at(content, "spec"), _NODE_SPEC), "status": kept}


def _pod(content: Content) -> dict[str, Any]:
    """Return a pod as a node archive has it, with what the scheduler and a drain read."""
    [found] = reduced_pods([content])
    metadata, spec, status = (part_at(content, part) for part in ("metadata", "spec", "status"))
    found["metadata"] |= only(metadata, _POD_METADATA)
    owners = [only(one, _OWNER) for one in _mappings(metadata.get("ownerReferences"))]
    if owners:
        found["metadata"]["ownerReferences"] = owners
    found["spec"] |= only(spec, _POD_SPEC)
    volumes = [one for one in _mappings(spec.get("volumes")) if one.get("persistentVolumeClaim")]
    if volumes:
        found["spec"]["volumes"] = [
            {"persistentVolumeClaim": only(part_at(one, "persistentVolumeClaim"), ("claimName",))} for one in volumes
        ]
    told = found.setdefault("status", {})
    told |= only(status, ("allocatedResources", "resources"))
    for name in ("containerStatuses", "initContainerStatuses"):
        items = [only(one, _STATUS) for one in _mappings(status.get(name))]
        if items:
            told[name] = items
    return found


def _with_name(content: Content) -> dict[str, Any]:
    metadata = only(part_at(content, "metadata"), ("name", "namespace"))
    return {**only(content, ("apiVersion", "kind")), "metadata": metadata}


def _mappings(value: object) -> list[Mapping[str, Any]]:
    return [one for one in value if isinstance(one, dict)] if isinstance(value, list) else []


TOP: Final = "mooring-cluster"
"""The folder around everything."""
ABOUT: Final = "mooring-cluster.json"
CONFIGZ: Final = "configz"
"""The folder of kubelets' configurations, one file a node."""
_KIND: Final = "ClusterArchive"
_REMEDY: Final = "collect it again with mooring collect --cluster"


class ClusterArchive:
    """What goes into an archive."""

    def __init__(self, objects: ClusterObjects, captured: str) -> None:
        """Reduce objects to what decides.

        Args:
            objects: of the cluster.
            captured: date and time, as in ``2026-11-01T12:00:00Z``.

        Raises:
            InputError: an object is none of Kubernetes.
        """
        self._files: dict[str, bytes] = {}
        parts = []
        for kind, items in reduced_objects(objects).items():
            data = _json({"apiVersion": "v1", "kind": "List", "items": items})
            if items:
                self._files[f"{kind}.json"] = data
            parts.append(ClusterArchivePart(kind, len(items), len(data) if items else 0))
        configz = {
            f"{CONFIGZ}/{name}.json": _json(reduced_configuration(one)) for name, one in sorted(objects.configz.items())
        }
        self._files |= configz
        parts.append(ClusterArchivePart(CONFIGZ, len(configz), sum(map(len, configz.values()))))
        self.about = ClusterArchiveDocument(
            mooring=__version__, captured=captured, parts=parts, unread=list(objects.unread)
        )

    def packed(self) -> bytes:
        """Return the archive; the same objects give the same bytes.

        Raises:
            InputError: it would be too large.
        """
        return archive_bytes(TOP, {**self._files, ABOUT: _json(to_builtins(self.about))})


def _json(content: object) -> bytes:
    return f"{json.dumps(content, indent=1)}\n".encode()


def objects_of_archive(tree: Tree) -> ClusterObjects:
    """Return the objects of an archive.

    Raises:
        InputError: it is none, or a file in it cannot be understood.
    """
    top = f"{TOP}/" if tree.is_dir(TOP) else ""
    about = _content(tree, f"{top}{ABOUT}")
    if about is None:
        raise InputError(f"is not an archive of a cluster: {ABOUT} is missing", source=tree.name, remedy=_REMEDY)
    if (about.get("kind"), about.get("apiVersion")) != (_KIND, API_VERSION):
        found = f"{about.get('kind')!s:.40} of {about.get('apiVersion')!s:.40}"
        raise InputError(f"{found} is not {_KIND} of {API_VERSION}", source=f"{tree.name}: {ABOUT}", remedy=_REMEDY)
    documents = [
        document
        for name in tree.names(top.rstrip("/"))
        if name.endswith(".json") and name != ABOUT
        for document in documents_in(tree.data(f"{top}{name}") or b"", f"{tree.name}: {name}")
    ]
    objects = cluster_objects(documents, tree.name)
    configz = {
        name.removesuffix(".json"): content
        for name in tree.names(f"{top}{CONFIGZ}")
        if (content := _content(tree, f"{top}{CONFIGZ}/{name}")) is not None
    }
    unread = about.get("unread")
    told = tuple(str(one) for one in unread) if isinstance(unread, list) else ()
    return ClusterObjects(tree.name, objects.found, configz, str(about.get("captured") or ""), told)


def _content(tree: Tree, path: str) -> Content | None:
    data = tree.data(path)
    if data is None:
        return None
    source = f"{tree.name}: {path}"
    with within(source=source):
        [document, *_] = documents_in(data, source)
        content: Mapping[str, Any] = as_mapping(document.content)
    return content


ARCHIVES: Final = (".tar.gz", ".tgz", ".tar")


def load_objects(path: str) -> ClusterObjects:
    """Read the objects of a cluster.

    Args:
        path: of kubectl's lists, or of an archive or its unpacked folder; ``-`` is standard input.

    Raises:
        InputError: it cannot be read, or has no node.
    """
    if is_archive(path):
        return objects_of_archive(open_tree(path))
    return cluster_objects(load_documents(path), STANDARD_INPUT if path == "-" else path)


def is_archive(path: str) -> bool:
    """Tell whether a path is that of an archive, or of its unpacked folder."""
    return path.endswith(ARCHIVES) or (Path(path) / ABOUT).is_file()


def has_nodes(documents: Sequence[Document]) -> bool:
    """Tell whether documents hold Node objects, as kubectl prints them."""
    return any(True for document in documents for _ in objects_of(document.content, (NODE,)))


_NOT_THERE: Final = 404


def read_cluster(kubeconfig: str = "", context: str = "") -> ClusterObjects:
    """Ask the API server for the objects of its cluster.

    Args:
        kubeconfig: path of the file; empty for that of ``KUBECONFIG``, ``~/.kube/config`` or the pod's own account.
        context: of the file; empty for the current one.

    Raises:
        InputError: there is no access, nodes or pods cannot be read, or there is no node.
    """
    # The file that kubectl would take first; none for the account of a pod
    usual = *os.environ.get("KUBECONFIG", "").split(os.pathsep), str(Path("~/.kube/config").expanduser())
    file = kubeconfig or next((path for path in usual if path and Path(path).exists()), None)
    config = apiserver.configuration_of(file, context or None)
    with apiserver.cluster_of(config) as cluster:
        try:
            found, unread = dict[str, tuple[Content, ...]](), list[str]()
            for kind in COLLECTIONS:
                try:
                    found[kind] = listed(cluster, kind)
                except apiserver.ClusterError as error:
                    if kind in (NODE, POD):
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
    found, silent = dict[str, Content](), list[str]()
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
