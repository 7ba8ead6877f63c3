"""Reading what ``--config`` names: the one way of every verb to a node's configuration."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from mooring.engine.core.machine import Finding
from mooring.engine.core.release import NEWEST, Release
from mooring.lazy import lazily

with lazily():
    from mooring.agent import configuration as agent_configuration
    from mooring.cli import output
    from mooring.inputs.configuration import devices as node_devices
    from mooring.inputs.configuration import node_configuration, sources
    from mooring.service import options as service_options

if TYPE_CHECKING:
    from mooring.engine.core.machine import Machine
    from mooring.inputs.archive.reader import NodeArchive
    from mooring.inputs.configuration.node_configuration import NodeConfiguration
    from mooring.inputs.configuration.sources import ConfigurationSource


def read_config(
    paths: Sequence[str],
    archive: NodeArchive | None = None,
    release: Release = NEWEST,
    machine: Machine | None = None,
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
        return _configuration(given, release, machine)
    configuration = node_configuration.configuration_of((), release)
    finding = Finding(
        "warning",
        "configuration",
        "none given: the kubelet's defaults have CPU manager policy none, under which no container gets exclusive CPUs "
        "(give a KubeletConfiguration with --config)",
        "MOOR-504",
    )
    return replace(configuration, findings=(finding,))


def _configuration(
    given: Sequence[ConfigurationSource], release: Release, machine: Machine | None
) -> node_configuration.NodeConfiguration:
    """Return what files say; those of a node that the agent manages: what the agent does there, as its own release."""
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
