"""A running kubelet as the node that a question is about: of the node that --node names, or of this computer."""

from __future__ import annotations

import os
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from mooring.lazy import lazily

with lazily():
    from mooring.answers.base.inputs import cluster_node
    from mooring.engine.devicemanager import state as device_state
    from mooring.inputs.archive import collect
    from mooring.inputs.configuration import kubelet_flags
    from mooring.inputs.machines import process as processes
    from mooring.inputs.machines import tree as trees
    from mooring.service import podresources

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from mooring.cli.options import NodeOptions
    from mooring.engine.devicemanager.state import Device, Preference
    from mooring.inputs.archive.reader import RunningKubelet
    from mooring.inputs.machines.tree import Tree

NONE = "none"
"""Value of an option that leaves a part of the running kubelet out; a file of that name is ./none."""
ROOT = "MOORING_ROOT"
"""Environment variable: the root directory of the computer whose kubelet is meant, such as /host in a debugging pod;
``none`` for no computer."""
_LIVE = ("", "live")


def with_running_kubelet(options: NodeOptions) -> NodeOptions:
    """Return the options with the node of the cluster that they name, or else this computer's kubelet.

    Raises:
        InputError: the kubelet's configuration cannot be understood, or the cluster does not tell the node.
    """
    if options.running is not None:
        return options
    asked = _without_none(options)
    if asked.node and cluster_node.may_be_cluster_node(asked.node):
        return replace(asked, running=cluster_node.cluster_node(asked.node, asked.debug_image))
    if options.node or options.machine not in _LIVE:
        return asked
    tree = _computer()
    found = None if tree is None else processes.kubelet_here(tree).process
    if tree is None or found is None:
        return asked
    flags = kubelet_flags.kubelet_flags(found.arguments)
    name = node_name(tree, options.node_name, flags)
    takes_pods = not options.active and isinstance(tree, trees.LiveTree)
    cluster = cluster_node.ask_pods(name) if takes_pods else collect.ClusterAnswers()
    root = flags.root_dir or collect.KUBELET_ROOT
    allocatable, problem = allocatable_devices(f"{os.environ.get(ROOT, '').rstrip('/')}{root}")
    preferences = preferences_of(f"{os.environ.get(ROOT, '').rstrip('/')}{root}", allocatable or {})
    request = collect.CollectRequest(
        node=name,
        kubelet_root=root,
        flags=flags,
        cluster=cluster,
        allocatable=allocatable,
        allocatable_problem=problem,
        preferences=preferences,
    )
    return replace(asked, running=collect.running_node(tree, found, request))


def allocatable_devices(root: str) -> tuple[Mapping[str, tuple[Device, ...]] | None, str]:
    """Ask a kubelet for its devices; None with the reason where it does not answer, and no reason without its socket.

    Args:
        root: its root directory.
    """
    socket = Path(root) / "pod-resources/kubelet.sock"
    try:
        if not socket.is_socket():
            return None, ""
    except OSError:
        return None, ""
    try:
        with closing(podresources.PodResourcesClient(str(socket))) as client:
            return client.devices(), ""
    except ModuleNotFoundError:
        return None, "the PodResources API of the kubelet was not asked: that needs the extra kube"
    except podresources.PodResourcesError:
        # The reason can name files of the node: it is not for the archive.
        return None, "the PodResources API of the kubelet did not answer"


def preferences_of(root: str, resources: Collection[str]) -> Mapping[str, Preference]:
    """Ask the device plugins below a kubelet's root directory whether they choose among devices themselves.

    Args:
        root: of the kubelet.
        resources: that plugins offer.
    """
    if not resources:
        return {}
    sockets = podresources.preferring_plugins(Path(root) / "device-plugins")
    return dict.fromkeys(podresources.resources_of(sockets, resources), device_state.Preference.PLUGIN)


def state_folder(kubelet: RunningKubelet) -> str:
    """Return the root directory of a running kubelet."""
    return f"{os.environ.get(ROOT, '')}{kubelet.root}"


def _without_none(options: NodeOptions) -> NodeOptions:
    off = [part for part in ("config", "state", "active") if getattr(options, part) in (NONE, (NONE,))]
    return replace(
        options,
        config=() if "config" in off else options.config,
        state="" if "state" in off else options.state,
        active=() if "active" in off else options.active,
        node="" if options.node == NONE else options.node,
        left_out=options.left_out | frozenset(off),
    )


def _computer() -> Tree | None:
    """Return the files of the computer; None where only root could read what its kubelet has."""
    root = os.environ.get(ROOT, "")
    if root == NONE:
        return None
    if root:
        return trees.FolderTree(root, is_root_directory=True)
    return trees.LiveTree() if os.geteuid() == 0 else None


def node_name(tree: Tree, given: str, flags: kubelet_flags.KubeletFlags | None) -> str:
    """Return the node's name as the kubelet registers it, unless another one is given."""
    named = given or (flags.node if flags else "") or (tree.read("etc/hostname") or "").strip()
    if not named and isinstance(tree, trees.LiveTree):
        named = os.uname().nodename
    return named.lower()
