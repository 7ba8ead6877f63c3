"""Where the kubelet's release comes from: the option, archive, Node objects, vendors' files, or this computer."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

from mooring.engine.core.errors import InputError
from mooring.engine.releases.catalog import ChosenRelease, KubeletVersion, chosen_release, minor_of, release_of
from mooring.inputs.decoding.fields import nearest
from mooring.inputs.machines.loader import LIVE
from mooring.inputs.pods.pod_status import bound_nodes
from mooring.inputs.pods.workloads.objects import OtherObject, pod_objects
from mooring.lazy import lazily

with lazily():
    import shutil
    import subprocess

    from mooring.inputs.configuration import node_configuration

if TYPE_CHECKING:
    from mooring.cli.options import NodeOptions
    from mooring.engine.core.release import Release
    from mooring.inputs.archive.reader import NodeArchive
    from mooring.inputs.configuration.sources import ConfigurationSource
    from mooring.inputs.decoding.fields import Document

_OPTION = "--kubelet-version"
_SECONDS = 10
_MOST_NODES = 5


def read_release(
    options: NodeOptions,
    archive: NodeArchive | None,
    active: Sequence[Document],
    decides: Release | None = None,
    given: Sequence[ConfigurationSource] = (),
) -> ChosenRelease:
    """Return the release that decides: of the first source that names one, else the newest.

    Args:
        options: as typed.
        archive: of the node, where one is given.
        active: documents of ``--active``; Nodes among them report their kubelet's version.
        decides: the release, where it is chosen already.
        given: what ``--config`` names.

    Raises:
        InputError: the version is not valid or older than all known releases, nodes of several are given, or the node
            that is named is not among them.
    """
    _check_node_name(options, active)
    if decides is not None:
        return ChosenRelease(decides)
    return chosen_release(_versions(options, archive, active, given), nearest=options.nearest_release)


def _versions(
    options: NodeOptions,
    archive: NodeArchive | None,
    active: Sequence[Document],
    given: Sequence[ConfigurationSource],
) -> Iterator[KubeletVersion]:
    yield requested_version(options.kubelet_version, options.version_option)
    if archive is not None:
        yield KubeletVersion(archive.about.kubelet, options.node)
    yield from _of_nodes(options, archive, active)
    yield from configured_versions(given)
    if (archive is None or options.running is not None) and options.machine in ("", LIVE):
        yield KubeletVersion(installed_version(), "the kubelet of this computer")


def _of_nodes(
    options: NodeOptions, archive: NodeArchive | None, active: Sequence[Document]
) -> Iterator[KubeletVersion]:
    versions = node_versions(active)
    bound = bound_nodes(active)
    known = options.node_name or ("" if archive is None else archive.about.node)
    if not known and len(bound) == 1:
        known = next(iter(bound))
    if not known and len(set(versions.values())) > 1:
        raise InputError(
            f"the {len(versions)} nodes have kubelets of different versions",
            source=", ".join(options.active),
            field="--active",
            remedy=f"choose a node with --node-name, or a release with {options.version_option}",
        )
    name = known or next(iter(versions), "")
    yield KubeletVersion(versions.get(name, ""), f"node {name}")


def _check_node_name(options: NodeOptions, active: Sequence[Document]) -> None:
    """Refuse the name of a node that a list with Node objects does not have: its node would be empty."""
    name, listed = options.node_name, node_versions(active) if options.node_name else {}
    known = frozenset(listed) | bound_nodes(active)
    if not listed or name in known:
        return
    close = nearest(name, known)
    remedy = f"did you mean {close}?" if close else f"known are {listed_nodes(known)}"
    raise InputError(
        f"{name!r:.60} is not among the nodes given",
        source=", ".join(options.active),
        field="--node-name",
        remedy=remedy,
    )


def listed_nodes(names: Collection[str]) -> str:
    """Return the first names of nodes in order, and how many more there are.

    >>> listed_nodes(["n2", "n1"])
    'n1, n2'
    """
    more = f" and {len(names) - _MOST_NODES} more" if len(names) > _MOST_NODES else ""
    return f"{', '.join(sorted(names)[:_MOST_NODES])}{more}"


def configured_versions(given: Sequence[ConfigurationSource]) -> Iterator[KubeletVersion]:
    """Yield the versions that vendors' files name.

    Raises:
        InputError: a version is no string.
    """
    return (KubeletVersion(one.version, str(one.place)) for one in node_configuration.named_versions(given))


def requested_version(text: str, option: str = _OPTION) -> KubeletVersion:
    """Return the version that an option names; it may be empty.

    Raises:
        InputError: it is no version.
    """
    if text and minor_of(text) is None:
        try:
            release_of(text)  # raises
        except InputError as error:
            raise error.at(option) from None
    return KubeletVersion(text, option)


def installed_version() -> str:
    """Return the version of the kubelet that is installed on this computer; empty without one."""
    program = shutil.which("kubelet")
    if program is None:
        return ""
    try:
        answer = subprocess.run(  # noqa: S603 - a fixed program and argument, without a shell
            [program, "--version"], capture_output=True, check=True, timeout=_SECONDS, stdin=subprocess.DEVNULL
        )
    except (OSError, subprocess.SubprocessError):
        return ""
    return answer.stdout.decode(errors="replace").strip().removeprefix("Kubernetes").strip()


def node_versions(documents: Iterable[Document]) -> dict[str, str]:
    """Return the kubelet's version of each Node object among documents, by the name of the node.

    Source: Kubernetes API v1, Node, ``status.nodeInfo.kubeletVersion``.

    Raises:
        InputError: something in a document is no object.
    """
    return dict(_nodes_by_name(documents))


def _nodes_by_name(documents: Iterable[Document]) -> Iterator[tuple[str, str]]:
    for document in documents:
        try:
            for found in pod_objects(document.content):
                if isinstance(found, OtherObject) and found.kind == "Node":
                    yield found.name, _reported(found.content)
        except InputError as error:
            raise error.at(document.source) from None


def _reported(node: object) -> str:
    for name in ("status", "nodeInfo", "kubeletVersion"):
        node = node.get(name) if isinstance(node, dict) else None
    return node if isinstance(node, str) else ""
