"""From the options of ``mooring collect`` to a collection: opening the computer, asking kubelet and cluster."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from mooring.cli.inputs import STANDARD_INPUT, check_open
from mooring.cli.kubectl import ask_cluster, installed_version
from mooring.core.errors import InputError
from mooring.discovery.capture.process import kubelet_arguments
from mooring.discovery.tree import FolderTree, LiveTree, Tree, open_tree
from mooring.manifest.documents import load_documents
from mooring.manifest.kubelet_flags import KubeletFlags, kubelet_flags
from mooring.planner.nodearchive.collect import KUBELET_ROOT, ClusterAnswers, Collection, Request, collect


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
    name = _node_name(tree, options.node, flags)
    cluster = ask_cluster(name, with_pods=not options.pods) if options.ask else ClusterAnswers()
    version = options.kubelet or cluster.version
    if not version and isinstance(tree, LiveTree):
        version = installed_version()
    return collect(
        tree,
        Request(
            node=name,
            kubelet=version,
            kubelet_root=_kubelet_root(tree, options.kubelet_root) or (flags.root_dir if flags else "") or KUBELET_ROOT,
            config=[document for path in options.config for document in load_documents(path)],
            pods=[document.content for path in options.pods for document in load_documents(path)],
            flags=flags,
            cluster=cluster,
            anonymous=options.anonymous,
        ),
    )


def _tree(root: str) -> Tree:
    tree = open_tree(root)
    if isinstance(tree, LiveTree):
        return tree
    if not isinstance(tree, FolderTree):
        raise InputError("is not a directory", source=root, field="--root", remedy="name a computer's root directory")
    return FolderTree(root, is_root_directory=True)


def _kubelet_root(tree: Tree, given: str) -> str:
    """Return the directory below the tree's root that somebody named; on this computer it may be a relative path."""
    return str(Path(given).absolute()) if given and isinstance(tree, LiveTree) else given


def _node_name(tree: Tree, given: str, flags: KubeletFlags | None) -> str:
    """Return the node's name as the kubelet would register it, unless somebody knows better."""
    named = given or (flags.node if flags else "") or (tree.read("etc/hostname") or "").strip()
    if not named and isinstance(tree, LiveTree):
        named = os.uname().nodename
    return named.lower()
