"""From the options of ``mooring collect`` to a collection: opening the computer, asking the kubelet and the cluster.

The cluster is asked through kubectl, if installed: three questions about one node.
"""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from urllib.parse import quote

from mooring.cli.inputs import STANDARD_INPUT, check_open
from mooring.cli.kubectl import PATIENCE, Kubectl, NoAnswerError, installed_kubectl, is_node_name
from mooring.cli.release_inputs import installed_version
from mooring.configuration.kubelet_flags import KubeletFlags, kubelet_flags
from mooring.configuration.sources import load_sources
from mooring.core.errors import InputError
from mooring.core.machine import Finding
from mooring.decoding.documents import load_documents
from mooring.discovery.capture.process import kubelet_arguments
from mooring.discovery.files import FolderTree, LiveTree, open_tree
from mooring.discovery.tree import Tree
from mooring.planner.nodearchive.collect import KUBELET_ROOT, ClusterAnswers, Collection, CollectRequest, collect


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
    """Kubectl may be asked."""
    anonymous: bool


def collection_of(options: CollectOptions) -> Collection:
    """Collect what the options say.

    Raises:
        InputError: there is no such computer, or a file that was named cannot be used.
    """
    from_input = [source for source in (*options.config, *options.pods) if source == STANDARD_INPUT]
    check_open(from_input)
    if len(from_input) > 1:
        raise InputError("can be read only once", source="standard input", remedy="give all but one of them a file")
    tree = _tree(options.root)
    arguments = kubelet_arguments(tree)
    flags = None if arguments is None else kubelet_flags(arguments)
    name = node_name(tree, options.node, flags)
    cluster = ask_cluster(name, with_pods=not options.pods) if options.ask else ClusterAnswers()
    version = options.kubelet or cluster.version
    if not version and isinstance(tree, LiveTree):
        version = installed_version()
    return collect(
        tree,
        CollectRequest(
            node=name,
            kubelet=version,
            kubelet_root=_kubelet_root(tree, options.kubelet_root) or (flags.root_dir if flags else "") or KUBELET_ROOT,
            config=[source for path in options.config for source in load_sources(path)],
            pods=[document.content for path in options.pods for document in load_documents(path)],
            flags=flags,
            cluster=cluster,
            anonymous=options.anonymous,
            captured=_now(),
        ),
    )


def _now() -> str:
    """Return date and time; those of SOURCE_DATE_EPOCH where it is set, as reproducible builds set it."""
    given = os.environ.get("SOURCE_DATE_EPOCH", "")
    seconds = int(given) if given.isascii() and given.isdigit() else int(time.time())
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def _tree(root: str) -> Tree:
    tree = open_tree(root)
    if isinstance(tree, LiveTree):
        return tree
    if not isinstance(tree, FolderTree):
        raise InputError("is not a directory", source=root, field="--root", remedy="name a computer's root directory")
    return FolderTree(root, is_root_directory=True)


def _kubelet_root(tree: Tree, given: str) -> str:
    """Return the directory below the tree's root that was named; on this computer it may be a relative path."""
    return str(Path(given).absolute()) if given and isinstance(tree, LiveTree) else given


def node_name(tree: Tree, given: str, flags: KubeletFlags | None) -> str:
    """Return the node's name as the kubelet registers it, unless another one is given."""
    named = given or (flags.node if flags else "") or (tree.read("etc/hostname") or "").strip()
    if not named and isinstance(tree, LiveTree):
        named = os.uname().nodename
    return named.lower()


_SHORT = 5
"""Seconds for one question where the cluster is not what the command is about."""


def ask_pods(node: str) -> ClusterAnswers:
    """Return the pods of a node; a cluster that does not answer soon is left alone.

    Args:
        node: its name.
    """
    kubectl = installed_kubectl()
    if kubectl is None or not is_node_name(node):
        return ClusterAnswers(pods_problem="kubectl is not installed; give them with --active")
    try:
        return ClusterAnswers(pods=_pods_of(kubectl, node, _SHORT))
    except NoAnswerError:
        return ClusterAnswers(pods_problem="kubectl did not answer; give them with --active")


def ask_cluster(node: str, *, with_pods: bool = True) -> ClusterAnswers:
    """Return what the cluster has about a node: its pods, its kubelet's configuration and version.

    Whatever cannot be had is left out; the reason why there are no pods is kept.

    Args:
        node: its name.
        with_pods: collect the pods too.
    """
    kubectl = installed_kubectl()
    if kubectl is None:
        return ClusterAnswers(pods_problem="kubectl is not installed; give --pods")
    if not is_node_name(node):
        return ClusterAnswers(pods_problem="the node's name is unknown; give --node-name")
    pods: object = None
    try:
        if with_pods:
            pods = _pods_of(kubectl, node, PATIENCE)
    except NoAnswerError as error:
        # The reason can name servers: it is for the person, and not for the archive.
        told = Finding("warning", "kubectl", f"{error}; give the pods with --pods, or --no-kubectl to do without")
        return ClusterAnswers(pods_problem="kubectl did not answer", findings=(told,))
    configz: object = None
    described: object = None
    # Few identities may ask a kubelet for its configuration; its file is read instead.
    with suppress(NoAnswerError):
        configz = kubectl.json("get", "--raw", f"/api/v1/nodes/{quote(node, safe='')}/proxy/configz")
    with suppress(NoAnswerError):
        described = kubectl.json("get", "node", node, "-o", "json")
    return ClusterAnswers(pods=pods, configz=configz, version=_version(described))


def _pods_of(kubectl: Kubectl, node: str, seconds: int) -> object:
    selector = f"--field-selector=spec.nodeName={node}"
    return kubectl.json("get", "pods", "--all-namespaces", selector, "-o", "json", seconds=seconds)


def _version(node: object) -> str:
    found = node
    for name in ("status", "nodeInfo", "kubeletVersion"):
        found = found.get(name) if isinstance(found, dict) else None
    return found if isinstance(found, str) else ""
