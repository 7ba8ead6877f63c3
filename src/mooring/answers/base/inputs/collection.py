"""From the options of ``mooring collect`` to a collection: opening the computer, asking the kubelet and the cluster.

The cluster is asked through kubectl, if installed: three questions about one node.
"""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from mooring.answers.base.inputs.checks import (
    STANDARD_INPUT,
    allocatable_devices,
    check_open,
    node_name,
    preferences_of,
)
from mooring.answers.base.inputs.cluster_node import ask_cluster
from mooring.answers.base.inputs.configuration import installed_version, requested_version
from mooring.engine.core.errors import InputError
from mooring.inputs.archive.collect import KUBELET_ROOT, ClusterAnswers, Collection, CollectRequest, collect
from mooring.inputs.configuration.kubelet_flags import kubelet_flags
from mooring.inputs.configuration.sources import load_sources
from mooring.inputs.decoding.documents import load_documents
from mooring.inputs.machines.process import kubelet_arguments
from mooring.inputs.machines.tree import FolderTree, LiveTree, Tree, open_tree


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
    objects: Sequence[object] = ()
    """Pods that are known already, as the API server has them."""


def collection_of(options: CollectOptions) -> Collection:
    """Collect what the options say.

    Raises:
        InputError: there is no such computer, a file that was named cannot be used, or the version is none.
    """
    given = requested_version(options.kubelet)
    from_input = [source for source in (*options.config, *options.pods) if source == STANDARD_INPUT]
    check_open(from_input)
    if len(from_input) > 1:
        raise InputError("can be read only once", source="standard input", remedy="give all but one of them a file")
    tree = _tree(options.root)
    arguments = kubelet_arguments(tree)
    flags = None if arguments is None else kubelet_flags(arguments)
    name = node_name(tree, options.node, flags)
    cluster = ask_cluster(name, with_pods=not options.pods) if options.ask else ClusterAnswers()
    kubelet_root = _kubelet_root(tree, options.kubelet_root) or (flags.root_dir if flags else "") or KUBELET_ROOT
    allocatable, problem = allocatable_devices(f"{options.root.rstrip('/')}{kubelet_root}")
    version = given.version or cluster.version
    if not version and isinstance(tree, LiveTree):
        version = installed_version()
    return collect(
        tree,
        CollectRequest(
            node=name,
            kubelet=version,
            kubelet_root=kubelet_root,
            config=[source for path in options.config for source in load_sources(path)],
            pods=[*(document.content for path in options.pods for document in load_documents(path)), *options.objects],
            flags=flags,
            cluster=cluster,
            allocatable=allocatable,
            allocatable_problem=problem,
            preferences=preferences_of(f"{options.root.rstrip('/')}{kubelet_root}", allocatable or {}),
            anonymous=options.anonymous,
            captured=captured_now(),
        ),
    )


def captured_now() -> str:
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
