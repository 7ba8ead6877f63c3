"""Checks: what the options of a verb name, before anything is computed; the running kubelet that a question is about.

A running kubelet is that of the node that ``--node`` names, or of this computer.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Final

from mooring.cli.options import NodeOptions, flag
from mooring.cli.output import emit_document, json_text, tell, warn
from mooring.engine.core.errors import InputError
from mooring.engine.core.machine import Finding
from mooring.explanations.phrases import plural
from mooring.lazy import lazily

with lazily():
    import socket

    from mooring.answers.base import check as checking
    from mooring.answers.base.inputs import cluster_node, collection
    from mooring.engine.devicemanager import state as device_state
    from mooring.inputs.archive import collect, reader
    from mooring.inputs.configuration import kubelet_flags
    from mooring.inputs.decoding import api_fields
    from mooring.inputs.machines import tree as trees
    from mooring.inputs.pods import cluster_objects, defaults, pod_files, workloads
    from mooring.service import podresources

if TYPE_CHECKING:
    from collections.abc import Collection

    from mooring.answers.base.check import Check, NodeType
    from mooring.answers.base.plan import Question
    from mooring.engine.core.machine import Machine
    from mooring.engine.core.pod import Pod
    from mooring.engine.devicemanager.state import Device, Preference
    from mooring.inputs.archive.reader import NodeArchive
    from mooring.inputs.decoding.fields import Document
    from mooring.inputs.machines.tree import Tree


OTHER_MACHINE: Final = "MOOR-529"
NONE = "none"
"""Value of an option that leaves a part of the running kubelet out; a file of that name is ./none."""
ROOT = "MOORING_ROOT"
"""Environment variable: the root directory of the computer whose kubelet is meant, such as /host in a debugging pod;
``none`` for no computer."""
_LIVE = ("", "live")


def with_running_kubelet(options: NodeOptions) -> NodeOptions:
    """Return the options with the node of the cluster that they name, or else this computer's kubelet.

    Where there is none, and nothing but a pod is named, it is the node of that pod.

    Raises:
        InputError: the kubelet's configuration cannot be understood, or the cluster does not tell the node.
    """
    if options.running is not None:
        return options
    off = [part for part in ("config", "state", "active") if getattr(options, part) in (NONE, (NONE,))]
    asked = replace(
        options,
        config=() if "config" in off else options.config,
        state="" if "state" in off else options.state,
        active=() if "active" in off else options.active,
        node="" if options.node == NONE else options.node,
        left_out=options.left_out | frozenset(off),
    )
    tree = None if options.node or options.machine not in _LIVE else computer()
    found = None if tree is None else trees.kubelet_here(tree)[0]
    if tree is None or found is None:
        # Most questions name neither, and need nothing of what collects a node.
        names_one = options.node != NONE and (options.node or asks_pod(asked))
        if not names_one or not collection.may_be_cluster_node(asked):
            return asked
        node = collection.cluster_node(asked)
        return replace(asked, node=node.about.node, running=node)
    flags = kubelet_flags.kubelet_flags(found.arguments)
    name = node_name(tree, options.node_name, flags)
    takes_pods = not options.active and tree.is_live
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


def asks_pod(options: NodeOptions) -> bool:
    """Tell whether options name nothing but a pod."""
    return bool(options.named) and not (options.manifests or options.active)


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


def state_folder(running: NodeArchive | None) -> str:
    """Return the root directory of the kubelet of a running node; empty where none runs."""
    return "" if running is None or running.kubelet is None else f"{os.environ.get(ROOT, '')}{running.kubelet_root}"


def computer() -> Tree | None:
    """Return the files of the computer; None where only root could read what its kubelet has."""
    root = os.environ.get(ROOT, "")
    if root == NONE:
        return None
    if root:
        return trees.FolderTree(root, is_root_directory=True)
    return trees.live_tree() if os.geteuid() == 0 else None


def node_name(tree: Tree, given: str, flags: kubelet_flags.KubeletFlags | None) -> str:
    """Return the node's name as the kubelet registers it, unless another one is given; empty where that is no name.

    Raises:
        InputError: the one that is given is no name.
    """
    here = os.uname().nodename if tree.is_live else ""
    named = (given or (flags.node if flags else "") or (tree.read("etc/hostname") or "").strip() or here).lower()
    # A computer that is in no cluster may have underscores in its name, or be called (none).
    if cluster_node.is_node_name(named.replace("_", "-")):
        return named
    if given:
        raise InputError(f"{given!r:.60} is no name that a node can have", field="--node-name")
    return ""


STANDARD_INPUT = "-"


def check_standard_input(options: NodeOptions) -> None:
    """Refuse to read standard input twice, or where there is none.

    Raises:
        InputError: two options name it, or it is closed.
    """
    named = [
        option
        for option, sources in (
            ("-f", options.manifests),
            ("--active", options.active),
            ("--config", options.config),
            ("--inject", options.inject),
            ("--machine", options.machine.split("\n")),
        )
        for source in sources
        if source == STANDARD_INPUT
    ]
    check_open(named)
    if len(named) > 1:
        raise InputError(
            "can be read only once",
            source="standard input",
            field=" and ".join(dict.fromkeys(named)),
            remedy="give all but one of them a file",
        )


def check_open(wanted: Sequence[object]) -> None:
    """Refuse to read standard input where there is none.

    Raises:
        InputError: it is closed.
    """
    if wanted and sys.stdin is None:
        raise InputError("is closed", source="standard input", remedy="open it, or name a file")


def check_folder(folder: str, option: str, *, may_be_missing: bool = False) -> None:
    """Refuse what is no directory.

    Raises:
        InputError: naming the option.
    """
    path = Path(folder)
    try:
        missing, is_folder = not path.exists(), path.is_dir()
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        raise InputError(reason.lower(), source=folder, field=option, remedy="check the path") from None
    remedy = "name a kubelet root directory or a copy of one"
    if missing and not may_be_missing:
        raise InputError("no such directory", source=folder, field=option, remedy=remedy)
    if not missing and not is_folder:
        raise InputError("is not a directory", source=folder, field=option, remedy=remedy)


def check_save(save: str, options: NodeOptions, archives: Sequence[str] = ()) -> None:
    """Refuse a directory that cannot take the state files, before anything is computed.

    Args:
        save: the directory.
        options: of the node, with the kubelet that runs on this computer if it is meant.
        archives: values of ``--node``, where it is given more than once.

    Raises:
        InputError: it is no directory, or the one of the node's own state files: these are never written.
    """
    check_folder(save, "--save-state", may_be_missing=True)
    read = [("--state", options.state)]
    for node in (options.node, *archives):
        read += [("--node", node), ("--node", str((Path(node) / reader.CPU_STATE).parent))] if node else []
    if folder := state_folder(options.running):
        read.append(("the running kubelet", folder))
    for owner, folder in read:
        if folder and os.path.realpath(save) == os.path.realpath(folder):
            raise InputError(
                f"is also the directory of {owner}, whose files are never written",
                source=save,
                field="--save-state",
                remedy="name another directory",
            )


def check_distinct(active: Sequence[Pod], pods: Sequence[Pod], where: str) -> None:
    """Refuse a pod that is to be admitted and runs already.

    Raises:
        InputError: naming the pod.
    """
    running = {pod.uid for pod in active}
    for pod in pods:
        if pod.uid in running:
            raise InputError(
                f"the pod {pod.namespace}/{pod.name} (uid {pod.uid}) is also {where}",
                source="-f",
                remedy="a pod is either running or to be admitted: remove it from one of the two",
            )


def check_strict(noticed: Sequence[Finding]) -> None:
    """Refuse fields that their type does not have, and values that no kubelet takes.

    Raises:
        InputError: naming the first.
    """
    refused = (
        api_fields.UNKNOWN_CONFIGURATION_FIELD,
        api_fields.UNKNOWN_POD_FIELD,
        api_fields.UNKNOWN_VALUE,
        cluster_objects.TOO_LARGE,
    )
    unknown = [one for one in noticed if one.code in refused]
    if unknown:
        more = f" (and {len(unknown) - 1} more)" if len(unknown) > 1 else ""
        raise InputError(f"{unknown[0].message}{more}", remedy="without --strict it is a warning")


FORMS: Final = ("sarif", "junit")
"""Formats in which a check is written."""

alone = flag(
    "--alone",
    "Ask about each pod without the others of -f: it ends before the next is asked about.",
)


def check_of(
    node_types: Iterable[NodeType],
    question: Question,
    manifests: Sequence[Document],
    templates: Sequence[str],
    settings: Sequence[str],
) -> Check:
    """Return a check.

    Args:
        node_types: with their plans.
        question: that was planned on the first.
        manifests: documents of ``-f``.
        templates: of ``--pod-template-path``.
        settings: files that configure the node types.

    Raises:
        InputError: a pod cannot be understood.
    """
    gates = defaults.PodGates.of_node(question.config, question.mooring)
    paths = workloads.template_paths(templates)
    described = pod_files.pods_with_origins(manifests, gates=gates, paths=paths)
    origins: Mapping[str, pod_files.PodOrigin] = {pod.uid: origin for pod, origin in described}
    file = next((one for one in settings if one != "-" and Path(one).is_file()), "")
    return checking.Check(tuple(node_types), origins, question.alone, file)


def emit_check(check: Check, form: str, to: str) -> None:
    """Write a check.

    Args:
        check: the check.
        form: one of :data:`FORMS`.
        to: the destination.

    Raises:
        InputError: it cannot be written.
    """
    if form == "junit":
        # JUnit has no place for warnings.
        warn(check.findings)
        emit_document(checking.junit_text(check), to)
    else:
        emit_document(json_text(checking.sarif_document(check)), to)


def show_errors(check: Check) -> None:
    """Print to standard error why the answer of a check is no, each reason with its place."""
    for one, _ in checking.remarks_of(check):
        if one.severity == "error":
            place = f"{one.place}: " if one.place is not None else ""
            tell(f"error[{one.code}]: {place}{one.message}")


def of_another_node(options: NodeOptions, machine: Machine, given: Iterable[Document]) -> Iterator[Finding]:
    """Say that pods of another node are asked about on this computer, for want of their machine."""
    here = socket.gethostname().lower().partition(".")[0]
    bound = frozenset[str]() if options.machine else cluster_objects.bound_nodes(given)
    if bound and here not in {name.partition(".")[0] for name in bound}:
        message = (
            f"none given: this computer's, with {plural(machine.info.num_cores, 'CPU')}, although the pods are bound "
            "to another node (give its machine with --machine, or the node with --node)"
        )
        yield Finding("warning", "machine", message, OTHER_MACHINE)
