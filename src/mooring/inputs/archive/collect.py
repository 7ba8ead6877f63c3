"""Putting a node archive together from the files of a computer and the answers of a cluster.

Nothing is fetched here: files come from a :class:`Tree`, answers of the cluster are arguments. The configuration of the
kubelet is taken from the first source that has it, and reduced to what decides. What is not available is noted with its
reason, and the rest is packed.

The node of a kubelet that runs: its files as an archive has them, and the machine itself.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from msgspec import to_builtins

from mooring import __version__
from mooring.documents.machine import ArchivePart, NodeArchiveDocument, UnreadFile
from mooring.engine.checkpoint.device_file import DEVICE_FILE, device_record, without_answers
from mooring.engine.checkpoint.store import SIZE_LIMIT
from mooring.engine.core.errors import InputError
from mooring.engine.core.machine import Finding
from mooring.engine.devicemanager.state import Device, Preference
from mooring.inputs.archive import reader, reduction
from mooring.inputs.archive.claims import anonymous_claims, reduced_claims
from mooring.inputs.configuration import devices
from mooring.inputs.configuration.kubelet_flags import KubeletFlags
from mooring.inputs.configuration.sources import ConfigurationSource
from mooring.inputs.machines.archive import archive_bytes
from mooring.inputs.machines.cadvisor_probe import read_problem
from mooring.inputs.machines.capture import Capture, capture_isolation, capture_machine
from mooring.inputs.machines.tree import CPUS, KubeletProcess, Tree
from mooring.lazy import dataclass, field

ANONYMOUS_NODE: Final = "node-1"
KUBELET_ROOT: Final = "/var/lib/kubelet"


@dataclass(frozen=True, slots=True)
class ClusterAnswers:
    """What the cluster said about the node. Each answer is a document, or None with the reason."""

    pods: object = None
    pods_problem: str = "the cluster was not asked"
    dynamic: tuple[object, ...] = ()
    """Lists with claims and slices."""
    configz: object = None
    version: str = ""
    """The kubelet's version."""
    findings: tuple[Finding, ...] = ()
    """What the person who asked should know."""


@dataclass(frozen=True, slots=True)
class CollectRequest:
    """What is to collect."""

    node: str = ""
    """The node's name."""
    kubelet: str = ""
    """The kubelet's version, where it is known."""
    kubelet_root: str = KUBELET_ROOT
    config: Sequence[ConfigurationSource] = ()
    """What ``--config`` names; empty to look for the kubelet's own."""
    pods: Sequence[object] = ()
    """Documents with the node's pods; empty to take the cluster's."""
    flags: KubeletFlags | None = None
    """Of the running kubelet; None when none runs."""
    cluster: ClusterAnswers = field(default_factory=ClusterAnswers)
    allocatable: Mapping[str, tuple[Device, ...]] | None = None
    """The kubelet's answer to GetAllocatableResources."""
    preferences: Mapping[str, Preference] = field(default_factory=dict)
    """Resource -> which of its devices its plugin prefers."""
    allocatable_problem: str = ""
    """Why there is none; empty where nobody asked."""
    anonymous: bool = False
    captured: str = ""
    """Date and time of the collection, as in ``2026-11-01T12:00:00Z``."""


@dataclass(frozen=True, slots=True)
class Collection:
    """What goes into an archive."""

    about: NodeArchiveDocument
    files: Mapping[str, bytes]
    links: Mapping[str, str]
    folders: frozenset[str]
    findings: tuple[Finding, ...] = ()
    """What the person who collects should know; not in the archive."""

    def packed(self) -> bytes:
        """Return the archive; the same collection gives the same bytes.

        Raises:
            InputError: it would be too large.
        """
        return archive_bytes(reader.TOP, self.files, self.links, self.folders)


def collect(tree: Tree, request: CollectRequest) -> Collection:
    """Collect a node.

    Raises:
        InputError: there is no machine in the tree, or documents that were handed over cannot be used.
    """
    if not tree.is_dir(CPUS):
        remedy = "name the root directory of a computer with --root; in a debugging pod it is /host"
        raise InputError(f"has no {CPUS}", source=tree.name, field="--root", remedy=remedy)
    machine = capture_machine(tree)
    isolation = capture_isolation(tree, service_names=not request.anonymous)
    unread = {**machine.unread, **isolation.unread}
    parts = [
        _captured(reader.MACHINE_PART, "sysfs and /proc", machine),
        _captured(reader.ISOLATION_PART, "sysfs, /proc, /etc", isolation),
    ]
    of_kubelet, kubelet_parts = kubelet_files(tree, request, unread)
    files = {**isolation.files, **machine.files, **of_kubelet}
    parts += kubelet_parts
    about = NodeArchiveDocument(
        node=ANONYMOUS_NODE if request.anonymous and request.node else request.node,
        kubelet=request.kubelet or request.cluster.version,
        anonymous=request.anonymous,
        captured=request.captured,
        parts=parts,
        unread=[UnreadFile(path, problem) for path, problem in sorted(unread.items())],
        mooring=__version__,
    )
    files[reader.ABOUT] = reader.json_bytes(to_builtins(about))
    links = {**isolation.links, **machine.links}
    folders = frozenset(machine.folders | isolation.folders)
    return Collection(about, files, links, folders, request.cluster.findings)


def kubelet_files(
    tree: Tree, request: CollectRequest, unread: dict[str, str]
) -> tuple[dict[str, bytes], list[ArchivePart]]:
    """Return configuration, state files and pods of a kubelet at their places in an archive, and what they are.

    Args:
        tree: the computer.
        request: what is to collect.
        unread: receives files that could not be read, with the reason.

    Raises:
        InputError: documents that were handed over cannot be used.
    """
    told = request.cluster.configz
    configuration = reduction.found_configuration(tree, request.config, told, request.flags, request.kubelet_root)
    states = _states(tree, request.kubelet_root, unread)
    pods, claims = _pods(request)
    devices_of_node = _devices(tree, request, claims, unread)
    files: dict[str, bytes] = {}
    parts: list[ArchivePart] = []
    for name, (found, origin, missing) in (
        (reader.CONFIGURATION_PART, configuration),
        (reader.STATE_PART, states),
        (reader.DEVICES_PART, devices_of_node),
        (reader.PODS_PART, pods),
    ):
        files |= found
        parts.append(ArchivePart(name, origin if found else "", len(found), sum(map(len, found.values())), missing))
    return files, parts


def _captured(name: str, origin: str, capture: Capture) -> ArchivePart:
    return ArchivePart(name, origin, len(capture.files), sum(map(len, capture.files.values())))


def _states(tree: Tree, root: str, unread: dict[str, str]) -> reduction.Found:
    """Take the state files as they are, damaged ones too."""
    files: dict[str, bytes] = {}
    for place in (reader.CPU_STATE, reader.MEMORY_STATE):
        path = f"{root}/{place.rpartition('/')[2]}".lstrip("/")
        data = tree.data(path)
        if data is not None and len(data) <= SIZE_LIMIT:
            files[place] = data
        elif data is not None:
            unread[path] = f"larger than {SIZE_LIMIT} bytes"
        elif tree.exists(path):
            unread[path] = read_problem(tree, path).rpartition(": ")[2]
    missing = "" if files else f"none could be read in {root}"
    if len(files) == 1:
        absent = next(place for place in (reader.CPU_STATE, reader.MEMORY_STATE) if place not in files)
        missing = f"no {absent.rpartition('/')[2]}"
    return files, root, missing


def _pods(request: CollectRequest) -> tuple[reduction.Found, list[dict[str, Any]]]:
    """Return the pods, and the claims and slices about them."""
    documents: Sequence[object] = request.pods
    origin = "--pods"
    if not request.pods:
        if request.cluster.pods is None:
            return ({}, "", request.cluster.pods_problem), []
        documents, origin = [request.cluster.pods], "kubectl"
    pods: list[dict[str, Any]] = reduction.reduced_pods(documents, request.node)
    claims = reduced_claims([*documents, *request.cluster.dynamic], pods, request.node)
    if request.anonymous:
        claims, pods = anonymous_claims(
            claims, pods, reduction.made_up_namespaces(pods), {request.node: ANONYMOUS_NODE}
        )
        pods = reduction.anonymous_pods(pods)
    return ({reader.PODS: reader.json_bytes(reduction.pod_list(pods))}, origin, ""), claims


def _devices(
    tree: Tree, request: CollectRequest, claims: list[dict[str, Any]], unread: dict[str, str]
) -> reduction.Found:
    """Take the device manager's record without what plugins answered, the kubelet's devices, claims and slices."""
    files: dict[str, bytes] = {}
    origins, missing = [], ""
    for root in dict.fromkeys((request.kubelet_root, KUBELET_ROOT)):
        # The kubelet has its folder of device plugins at one place, whatever its root directory is.
        path = f"{root}/{DEVICE_FILE}".lstrip("/")
        data = tree.data(path)
        if data is None:
            continue
        text = without_answers(data.decode(errors="surrogateescape")) if len(data) <= SIZE_LIMIT else None
        if text is None:
            unread[path] = "is not a record of devices"
            continue
        files[reader.DEVICE_RECORD] = text.encode(errors="surrogateescape")
        origins.append(root)
        break
    if request.allocatable is not None:
        files[reader.ALLOCATABLE] = reader.json_bytes(
            devices.devices_document(request.allocatable, request.preferences)
        )
        origins.append("PodResources API")
    elif (
        reader.DEVICE_RECORD in files
        and device_record(files[reader.DEVICE_RECORD].decode(errors="surrogateescape")).registered
    ):
        missing = request.allocatable_problem or "the PodResources API was not asked for NUMA nodes of free devices"
    if claims:
        files[reader.CLAIMS] = reader.json_bytes({"apiVersion": "v1", "kind": "List", "items": claims})
        origins.append("claims")
    return files, ", ".join(origins), missing


def running_node(tree: Tree, process: KubeletProcess, request: CollectRequest) -> reader.NodeArchive:
    """Return the node of a running kubelet as it is now.

    Args:
        tree: its computer.
        process: the kubelet.
        request: its flags, its root directory and what the cluster said.

    Raises:
        InputError: a file of the configuration cannot be understood.
    """
    files, parts = kubelet_files(tree, request, {})
    about = NodeArchiveDocument(node=request.node, kubelet=request.kubelet, parts=parts)
    return reader.NodeArchive(tree, about, process, request.kubelet_root, files=files)
