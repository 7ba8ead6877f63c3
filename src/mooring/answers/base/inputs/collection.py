"""Collecting a node: of this computer as ``mooring collect`` does, or of the cluster through kubectl.

A node of the cluster can be what a question is about: ``mooring show --node worker-1``, or ``mooring explain NS/POD``
on the node of the pod. kubectl tells its pods, its kubelet's release and configuration. The machine and state files are
what ``mooring publish`` or ``mooring agent`` published, or what a pod on the node has packed, now or earlier; else the
machine is a NodeResourceTopology.

The pod is like that of ``kubectl debug node``, but only reads, has a name that is known before it is created, is
deleted, and ends by itself. Its image needs a shell and the programs of busybox, and may have Mooring.
"""

from __future__ import annotations

import json
import os
import secrets
import shlex
import signal
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import partial
from hashlib import sha256
from importlib import resources
from pathlib import Path
from threading import current_thread, main_thread
from typing import Any, Final

import click
import msgspec

from mooring.answers.base.inputs import checks
from mooring.answers.base.inputs import cluster_node as asking
from mooring.answers.base.inputs.configuration import installed_version, requested_version, version_of
from mooring.cli.options import NodeOptions
from mooring.cli.output import warn, write_answer
from mooring.documents.machine import ArchivePart, NodeArchiveDocument
from mooring.engine.checkpoint.device_file import DEVICE_FILE
from mooring.engine.core.errors import InputError
from mooring.engine.core.machine import Finding
from mooring.inputs.archive import collect as collecting
from mooring.inputs.archive import reader
from mooring.inputs.archive.reduction import found_configuration
from mooring.inputs.configuration.devices import devices_document
from mooring.inputs.configuration.kubelet_flags import kubelet_flags
from mooring.inputs.configuration.sources import load_sources
from mooring.inputs.decoding.documents import load_documents
from mooring.inputs.machines.archive import ArchiveTree, folders_above, read_archive
from mooring.inputs.machines.capture import CPU_LINKS, GROUP_FILES, INITIATORS, ISOLATION, MACHINE, NAMES
from mooring.inputs.machines.isolation import ROOT as GROUPS
from mooring.inputs.machines.machineinfo_json import machine_info_document
from mooring.inputs.machines.tree import FolderTree, kubelet_arguments, open_tree
from mooring.published.facts_document import facts_of, kubelet_document, mooring_document
from mooring.published.objects import FACTS, GROUP, PLURALS, STATE, state_of
from mooring.service.daemon import handled_signals


@dataclass(frozen=True, slots=True)
class CollectOptions:
    """The options as typed."""

    root: str
    kubelet_root: str
    config: Sequence[str]
    pods: Sequence[str]
    node: str
    kubelet: str
    ask: bool
    """Whether kubectl may be asked."""
    anonymous: bool
    objects: Sequence[object] = ()
    """Pods that are known already, as the API server has them."""


def collection_of(options: CollectOptions) -> collecting.Collection:
    """Collect what the options say.

    Raises:
        InputError: there is no such computer, a file that was named cannot be used, or the version is none.
    """
    given = requested_version(options.kubelet)
    from_input = [source for source in (*options.config, *options.pods) if source == checks.STANDARD_INPUT]
    checks.check_open(from_input)
    if len(from_input) > 1:
        raise InputError("can be read only once", source="standard input", remedy="give all but one of them a file")
    tree = open_tree(options.root)
    if not tree.is_live and not isinstance(tree, FolderTree):
        raise InputError("is not a directory", source=options.root, field="--root", remedy="name a root directory")
    tree = tree if tree.is_live else FolderTree(options.root, is_root_directory=True)
    arguments = kubelet_arguments(tree)
    flags = None if arguments is None else kubelet_flags(arguments)
    name = checks.node_name(tree, options.node, flags)
    cluster = asking.ask_cluster(name, with_pods=not options.pods) if options.ask else collecting.ClusterAnswers()
    # Below the tree's root; on this computer it may be a relative path.
    given_root = options.kubelet_root
    given_root = str(Path(given_root).absolute()) if given_root and tree.is_live else given_root
    kubelet_root = given_root or (flags.root_dir if flags else "") or collecting.KUBELET_ROOT
    allocatable, problem = checks.allocatable_devices(f"{options.root.rstrip('/')}{kubelet_root}")
    version = given.version or cluster.version or (installed_version() if tree.is_live else "")
    return collecting.collect(
        tree,
        collecting.CollectRequest(
            node=name,
            kubelet=version,
            kubelet_root=kubelet_root,
            config=[source for path in options.config for source in load_sources(path)],
            pods=[*(document.content for path in options.pods for document in load_documents(path)), *options.objects],
            flags=flags,
            cluster=cluster,
            allocatable=allocatable,
            allocatable_problem=problem,
            preferences=checks.preferences_of(f"{options.root.rstrip('/')}{kubelet_root}", allocatable or {}),
            anonymous=options.anonymous,
            captured=captured_now(),
        ),
    )


def captured_now() -> str:
    """Return date and time; those of SOURCE_DATE_EPOCH where it is set, as reproducible builds set it."""
    given = os.environ.get("SOURCE_DATE_EPOCH", "")
    seconds = int(given) if given.isascii() and given.isdigit() else int(time.time())
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


_PUBLISHED: Final = "published"
_SUFFIXES: Final = (".tar", ".gz", ".tgz", ".xz", ".bz2")
_UNREAD: Final = "only a pod on the node reads them (--debug-image IMAGE)"


def may_be_cluster_node(options: NodeOptions) -> bool:
    """Tell whether the node that options name, if they do, is no file, and a cluster can be asked about it."""
    source = options.node
    if source and (not asking.is_node_name(source) or source.endswith(_SUFFIXES) or Path(source).exists()):
        return False
    return asking.installed_kubectl() is not None


def cluster_node(options: NodeOptions) -> reader.NodeArchive:
    """Return the node of the cluster that options name, or that the named pod is on, as it is now.

    Raises:
        InputError: there is no such pod or node, what is published cannot be used, or the person does not agree.
    """
    kubectl = asking.installed_kubectl()
    if kubectl is None:
        raise InputError("is not a file, and kubectl is not installed", source=options.node, field="--node")
    pod = None
    if checks.asks_pod(options):
        try:
            pod = asking.named_pod(kubectl, options.named[0])
        except InputError:
            # The name can be that of a workload.
            if not options.node:
                raise
    name = options.node or asking.node_that_names(kubectl, pod or {}, options.named[0])
    described: object = None
    new: list[ArchivePart] = []
    try:
        described = asking.asked(kubectl, "get", "node", name, "-o", "json")
    except asking.NoAnswerError as error:
        if "(Forbidden)" not in str(error):
            remedy = "name an archive of mooring collect, or a node of kubectl get nodes"
            problem = f"is neither a file nor a node: {error}"
            raise InputError(problem, source=name, field="--node", remedy=remedy) from None
        new.append(ArchivePart(reader.RELEASE_PART, missing=str(error)))
    pods, part = asking.pods_beside(kubectl, name, pod)
    new.append(part)
    base = _base(kubectl, name, described, options)
    known = {one.name: one for one in base.about.parts}
    files = {} if pods is None else {reader.PODS: reader.json_bytes(pods)}
    if dynamic := asking.dynamic_of(kubectl, name, pods):
        files[reader.CLAIMS] = reader.json_bytes({"apiVersion": "v1", "kind": "List", "items": list(dynamic)})
    if not options.config and (
        reader.CONFIGURATION_PART not in known or known[reader.CONFIGURATION_PART].origin != _PUBLISHED
    ):
        try:
            configz = asking.configz_of(kubectl, name)
            told, from_, missing = found_configuration(base.tree, (), configz, None, collecting.KUBELET_ROOT)
            files |= told
            new.append(ArchivePart(reader.CONFIGURATION_PART, from_, missing=missing))
        except asking.NoAnswerError as error:
            if base.tree.data(reader.KUBELET_CONFIG) is None:
                new.append(ArchivePart(reader.CONFIGURATION_PART, missing=str(error)))
    about = msgspec.structs.replace(
        base.about,
        node=name,
        kubelet=base.about.kubelet or version_of(described),
        parts=list((known | {one.name: one for one in new}).values()),
    )
    return replace(base, files=files, about=about)


def _base(kubectl: str, name: str, described: object, options: NodeOptions) -> reader.NodeArchive:
    """Return machine and state files of a node: published, collected now or earlier, or as a NodeResourceTopology.

    Raises:
        InputError: as :func:`cluster_node`.
    """
    origin = f"node {name} of the cluster"
    with suppress(asking.NoAnswerError):
        state = state_of(asking.asked(kubectl, "get", f"{PLURALS[STATE]}.{GROUP}", name, "-o", "json"))
        facts = facts_of(asking.asked(kubectl, "get", f"{PLURALS[FACTS]}.{GROUP}", state.facts, "-o", "json"))
        documents = {
            reader.MACHINE_INFO: machine_info_document(facts.machine),
            reader.KUBELET_CONFIG: kubelet_document(facts.config),
            reader.MOORING_CONFIG: mooring_document(facts.mooring),
            reader.DEVICES: devices_document(state.devices.devices),
        }
        files = {path: msgspec.json.encode(document) for path, document in documents.items()}
        for path, text in ((reader.CPU_STATE, state.files.cpu), (reader.MEMORY_STATE, state.files.memory)):
            if text is not None:
                files[path] = text.encode(errors="surrogateescape")
        named = (reader.MACHINE_PART, reader.CONFIGURATION_PART, reader.STATE_PART)
        told = [ArchivePart(part, _PUBLISHED) for part in named]
        about = NodeArchiveDocument(kubelet=facts.mooring.release.name, parts=told)
        return reader.NodeArchive(ArchiveTree(f"node {name}", files), about, origin=origin)
    without = NodeArchiveDocument(parts=[ArchivePart(reader.STATE_PART, missing=_UNREAD)])
    if options.machine and not options.debug_image:
        return reader.NodeArchive(ArchiveTree(f"node {name}", {}), without, origin=origin)
    cached = _cache(described)
    if not options.debug_image:
        with suppress(InputError, OSError):
            if cached is not None:
                kept = reader.node_of(read_archive(f"node {name}", cached.read_bytes()))
                return replace(kept, origin=f"{origin}, collected earlier (--debug-image IMAGE collects it again)")
        with suppress(asking.NoAnswerError, InputError):
            topology = asking.asked(kubectl, "get", "noderesourcetopologies.topology.node.k8s.io", name, "-o", "json")
            parts = [ArchivePart(reader.MACHINE_PART, "NodeResourceTopology"), *without.parts]
            about = NodeArchiveDocument(parts=parts)
            found = reader.NodeArchive(
                ArchiveTree(f"node {name}", {reader.NODE_TOPOLOGY: reader.json_bytes(topology)}), about, origin=origin
            )
            found.machine()  # one that does not describe a machine is none
            return found
        question = f"Nothing is published about {name}. Read its files in a pod of {IMAGE} there, and delete it then?"
        if not sys.stdin.isatty() or not click.confirm(question, err=True):
            problem = "is a node about which nothing is published"
            remedy = "add --debug-image IMAGE to collect it in a pod of busybox or alike, or give its --machine"
            raise InputError(problem, source=name, field="--node", remedy=remedy)
    packed = packed_node(kubectl, name, options.debug_image or IMAGE, version_of(described), captured_now())
    if cached is not None:
        with suppress(OSError, InputError):
            cached.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            for earlier in cached.parent.glob(f"{cached.name.partition('-')[0]}-*"):
                earlier.unlink(missing_ok=True)
            write_answer(packed, str(cached))
    return replace(reader.node_of(read_archive(f"node {name}", packed)), origin=f"{origin}, collected in a pod")


def _cache(described: object) -> Path | None:
    """Return the file for a node as it is since it was started with this kubelet; None if that is not known."""
    status = described.get("status") if isinstance(described, dict) else None
    about = status.get("nodeInfo") if isinstance(status, dict) else None
    metadata = described.get("metadata") if isinstance(described, dict) else None
    if not isinstance(about, dict) or not isinstance(metadata, dict):
        return None
    key = [str(one or "") for one in (metadata.get("uid"), about.get("bootID"), about.get("kubeletVersion"))]
    node, started = (sha256("\n".join(words).encode()).hexdigest()[:32] for words in (key[:1], key[1:]))
    folder = Path(os.environ.get("XDG_CACHE_HOME") or f"{os.environ.get('HOME', '')}/.cache")
    return folder / f"mooring/nodes/{node}-{started}.tar.gz" if all(key) and folder.is_absolute() else None


IMAGE: Final = "busybox:stable"
_START: Final = 120
"""Seconds that a pod may take to start, its image included."""
_LIFE: Final = 600
"""Seconds after which the pod ends by itself, should nothing delete it."""
_MOST_WORDS: Final = 500
_PATTERNS: Final = (
    *(one for one in (*MACHINE, *ISOLATION, *NAMES, INITIATORS, CPU_LINKS) if not one.startswith("proc/self/")),
    *(f"{GROUPS}{'/*' * depth}/{name}" for depth in range(6) for name in GROUP_FILES),
    *(f"{collecting.KUBELET_ROOT.lstrip('/')}/{name}" for name in ("config.yaml", "*_manager_state", DEVICE_FILE)),
)
"""What is packed besides files that the kubelet's command line names; of the packing process itself nothing."""


def packed_node(kubectl: str, name: str, image: str, version: str, captured: str) -> bytes:
    """Return an archive of a node that a pod of it has packed; the pod is deleted.

    Args:
        kubectl: the program.
        name: of the node.
        image: of the pod.
        version: of the kubelet; empty if it is not known.
        captured: date and time.

    Raises:
        InputError: the pod does not start, or packs no node.
    """
    pod = f"mooring-collect-{secrets.token_hex(4)}"
    script = (resources.files(__package__) / "pack_node.sh").read_text(encoding="utf-8")
    folders = {folder for path in _PATTERNS for folder in folders_above(path) if "/" in folder}
    given = f"host=/host node={name}; set -- {shlex.join([*sorted(folders), *_PATTERNS])}\n{script}"
    # Signals that end a program are exceptions, so that what was begun is undone. Only the main thread may handle them;
    # in another one the pod ends by itself.
    ending = (signal.SIGTERM, signal.SIGHUP) if current_thread() is main_thread() else ()
    try:
        with handled_signals({number: partial(sys.exit, 128 + number) for number in ending}):
            try:
                asking.run(
                    kubectl,
                    "create",
                    "-f",
                    "-",
                    seconds=asking.PATIENCE,
                    given=json.dumps(_pod(pod, name, image)).encode(),
                )
                _wait(kubectl, pod)
                packed = asking.run(kubectl, "exec", "-i", pod, "--", "sh", "-s", seconds=_START, given=given.encode())
            finally:
                gone = ("delete", "pod", pod, "--ignore-not-found", "--wait=false")
                try:
                    asking.run(kubectl, *gone, seconds=asking.PATIENCE, apart=True)
                except asking.NoAnswerError as error:
                    problem = f"is not deleted, and ends by itself: {error}"
                    warn([Finding("warning", f"pod {pod}", problem, reader.CLUSTER)])
        tree = read_archive(f"pod {pod}", packed)
        if tree.data(reader.ABOUT) is not None:
            return packed
        arguments = kubelet_arguments(tree)
        flags = None if arguments is None else kubelet_flags(arguments)
        root = (flags.root_dir if flags else "") or collecting.KUBELET_ROOT
        request = collecting.CollectRequest(
            node=name, kubelet=version, kubelet_root=root, flags=flags, captured=captured
        )
        return collecting.collect(tree, request).packed()
    except (asking.NoAnswerError, InputError) as error:
        reason = error.problem if isinstance(error, InputError) else error
        problem = f"cannot be collected in a pod of {image}: {reason}"
        remedy = "name another image with --debug-image, or collect it with mooring collect"
        raise InputError(problem, source=name, field="--node", remedy=remedy) from None


def _wait(kubectl: str, pod: str) -> None:
    wait = ("wait", f"pod/{pod}", "--for=condition=Ready", f"--timeout={_START}s")
    try:
        asking.run(kubectl, *wait, seconds=_START + asking.PATIENCE)
    except asking.NoAnswerError as error:
        why = ""
        with suppress(asking.NoAnswerError):
            path = "jsonpath={.status.reason} {.status.message} {.status.containerStatuses[*].state.waiting}"
            why = (
                asking.run(kubectl, "get", "pod", pod, "-o", path, seconds=asking.PATIENCE)
                .decode(errors="replace")
                .strip()
            )
        raise asking.NoAnswerError(f"{error} {why[:_MOST_WORDS]}".strip()) from None


def _pod(name: str, node: str, image: str) -> dict[str, Any]:
    """Return a pod that only reads: the node's root directory and its processes."""
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "labels": {"app.kubernetes.io/name": "mooring-collect"}},
        "spec": {
            "nodeName": node,
            "restartPolicy": "Never",
            "activeDeadlineSeconds": _LIFE,
            "terminationGracePeriodSeconds": 0,
            "automountServiceAccountToken": False,
            "hostNetwork": True,
            "hostPID": True,
            "tolerations": [{"operator": "Exists"}],
            "containers": [
                {
                    "name": "collect",
                    "image": image,
                    "command": ["sleep", str(_LIFE)],
                    "securityContext": {
                        "runAsUser": 0,
                        "readOnlyRootFilesystem": True,
                        "allowPrivilegeEscalation": False,
                    },
                    "volumeMounts": [
                        {"name": "host", "mountPath": "/host", "readOnly": True},
                        {"name": "packed", "mountPath": "/tmp"},  # noqa: S108 - a volume of the pod
                    ],
                }
            ],
            "volumes": [{"name": "host", "hostPath": {"path": "/"}}, {"name": "packed", "emptyDir": {}}],
        },
    }
