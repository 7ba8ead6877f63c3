"""A node's configuration, as ``--config`` names it, and which release its kubelet has."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from mooring.engine.core.errors import InputError
from mooring.engine.core.machine import Finding
from mooring.engine.core.release import NEWEST, Release
from mooring.engine.releases.catalog import ChosenRelease, KubeletVersion, chosen_release, minor_of, release_of
from mooring.inputs.decoding.fields import nearest, within
from mooring.inputs.machines.loader import LIVE
from mooring.inputs.pods.cluster_objects import bound_nodes
from mooring.inputs.pods.workloads import OtherObject, pod_objects
from mooring.lazy import lazily

with lazily():
    import shutil
    import subprocess

    from mooring.cli import output
    from mooring.inputs.configuration import devices as node_devices
    from mooring.inputs.configuration import node_configuration, sources
    from mooring.service import agent_configuration
    from mooring.service import options as service_options


if TYPE_CHECKING:
    from mooring.cli.options import NodeOptions
    from mooring.engine.core.machine import Machine
    from mooring.inputs.archive.reader import NodeArchive
    from mooring.inputs.configuration.node_configuration import NodeConfiguration
    from mooring.inputs.configuration.sources import ConfigurationSource
    from mooring.inputs.decoding.fields import Document

_OPTION = "--kubelet-version"
_SECONDS = 10
_MOST_NODES = 5


def read_config(
    paths: Sequence[str], archive: NodeArchive | None = None, release: Release = NEWEST, machine: Machine | None = None
) -> NodeConfiguration:
    """Read a configuration; without one the kubelet's defaults, and a word about what that means.

    Args:
        paths: the files of ``--config``.
        archive: where it comes from when there are none.
        release: of the kubelet.
        machine: by whose size some vendors reserve.
    """
    return configuration_from(load_sources(paths), archive, release, machine)


def load_sources(paths: Sequence[str]) -> list[ConfigurationSource]:
    """Read what ``--config`` names, before it is known which release decides.

    Raises:
        InputError: something cannot be read.
    """
    return [source for path in paths for source in sources.load_sources(path)]


def configuration_from(
    given: Sequence[ConfigurationSource],
    archive: NodeArchive | None = None,
    release: Release = NEWEST,
    machine: Machine | None = None,
) -> NodeConfiguration:
    """Return the configuration that documents come to; the other arguments as of :func:`read_config`."""
    if archive and not given:
        collected = archive.configuration(release)
        if collected is not None:
            return collected
    if given:
        # What files say; those of a node that the agent manages: what the agent does there, as its own release
        documents = [source.document for source in given]
        if not any(
            isinstance(one.content, dict) and one.content.get("kind") == service_options.AGENT_CONFIGURATION
            for one in documents
        ):
            return node_configuration.configuration_of(
                given, release, machine.info if machine else None, refused=lambda finding: output.warn([finding])
            )
        declared = [
            one for one in documents if isinstance(one.content, dict) and one.content.get("kind") == node_devices.KIND
        ]
        own = [one for one in documents if one not in declared]
        found = agent_configuration.agent_configuration(own, ", ".join(dict.fromkeys(one.source for one in own)))
        return node_configuration.NodeConfiguration(
            found.kubelet,
            found.mooring,
            node_configuration.configuration_of(declared, release, machine.info if machine else None).devices,
            found.findings,
        )
    configuration = node_configuration.configuration_of((), release)
    finding = Finding(
        "warning",
        "configuration",
        "none given: the kubelet's defaults have CPU manager policy none, under which no container gets exclusive CPUs "
        "(give a KubeletConfiguration with --config)",
        "MOOR-504",
    )
    return replace(configuration, findings=(finding,))


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
    name, listed = options.node_name, node_versions(active) if options.node_name else {}
    known = frozenset(listed) | bound_nodes(active)
    if listed and name not in known:
        # A list with Node objects does not have it: its node would be empty.
        close = nearest(name, known)
        raise InputError(
            f"{name!r:.60} is not among the nodes given",
            source=", ".join(options.active),
            field="--node-name",
            remedy=f"did you mean {close}?" if close else f"known are {listed_nodes(known)}",
        )
    if decides is not None:
        return ChosenRelease(decides)
    return chosen_release(_versions(options, archive, active, given), nearest=options.nearest_release)


def _versions(
    options: NodeOptions, archive: NodeArchive | None, active: Sequence[Document], given: Sequence[ConfigurationSource]
) -> Iterator[KubeletVersion]:
    yield requested_version(options.kubelet_version)
    if archive is not None:
        yield KubeletVersion(archive.about.kubelet, options.node)
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
            remedy=f"choose a node with --node-name, or a release with {_OPTION}",
        )
    name = known or next(iter(versions), "")
    yield KubeletVersion(versions.get(name, ""), f"node {name}")
    yield from configured_versions(given)
    if (archive is None or archive.kubelet is not None) and options.machine in ("", LIVE):
        yield KubeletVersion(installed_version(), "the kubelet of this computer")


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
    """Return the version that an option or argument names; it may be empty.

    Raises:
        InputError: it is no version.
    """
    if text and minor_of(text) is None:
        with within(source=option):
            release_of(text)  # raises
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
    found: dict[str, str] = {}
    for document in documents:
        with within(source=document.source):
            nodes = (
                one for one in pod_objects(document.content) if isinstance(one, OtherObject) and one.kind == "Node"
            )
            found |= {one.name: version_of(one.content) for one in nodes}
    return found


def version_of(node: object) -> str:
    """Return the version of a Node's kubelet; empty where it has none."""
    for name in ("status", "nodeInfo", "kubeletVersion"):
        node = node.get(name) if isinstance(node, dict) else None
    return node if isinstance(node, str) else ""
