"""The nodes that ``mooring upgrade`` is asked about: one, several archives, or the nodes of a cluster."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from mooring.answers.base.inputs import configuration as configuration_inputs
from mooring.answers.base.inputs.checks import check_strict
from mooring.answers.base.inputs.configuration import node_versions
from mooring.answers.base.inputs.node import NodeInputs, read_inputs
from mooring.answers.upgrade.answer import UpgradeDocument, upgrade_of
from mooring.answers.upgrade.node import NodePods, UpgradedNode
from mooring.cli.options import NodeOptions
from mooring.engine.core.errors import InputError
from mooring.engine.core.machine import Finding
from mooring.inputs.decoding.fields import ignore
from mooring.inputs.pods.defaults import PodGates

if TYPE_CHECKING:
    from mooring.answers.base.plan import AnyPlan
    from mooring.engine.releases.catalog import ChosenRelease
    from mooring.inputs.decoding.fields import Report


def upgrades_of(
    options: NodeOptions, archives: Sequence[str], new: ChosenRelease
) -> Iterator[tuple[AnyPlan, UpgradeDocument]]:
    """Yield the upgrade of each node that the options describe.

    Args:
        options: the shared options; ``kubelet_version`` is the release before the upgrade.
        archives: node archives; with several each is a node.
        new: the release after the upgrade.

    Raises:
        InputError: something cannot be read or understood, or the release before is not known.
    """
    for archive in archives or ("",):
        for inputs in _nodes(read_inputs(replace(options, node=archive))):
            yield _upgrade(inputs, new)


def _nodes(inputs: NodeInputs) -> Iterator[NodeInputs]:
    """Yield the inputs of each node of a cluster, or what was given for one node."""
    options = inputs.options
    if inputs.archive is None and not options.active and node_versions(inputs.manifests):
        # A cluster's list of nodes and pods: the pods run.
        options = replace(options, active=options.manifests, manifests=())
        inputs = replace(inputs, options=options, listed=inputs.manifests, manifests=())
    names = [options.node_name] if options.node_name else list(node_versions(inputs.listed))
    if inputs.archive is not None or not names:
        yield inputs
        return
    for name in names:
        of_node = replace(options, node_name=name)
        yield replace(inputs, options=of_node, release=configuration_inputs.read_release(of_node, None, inputs.listed))


def _upgrade(inputs: NodeInputs, new: ChosenRelease) -> tuple[AnyPlan, UpgradeDocument]:
    if not inputs.release.source:
        remedy = "name the release of the node's kubelet, such as 1.34"
        raise InputError("is missing", source="--kubelet-version", remedy=remedy)
    old, configuration = inputs.release.release, inputs.configuration
    mooring = replace(configuration.mooring, release=old)
    noticed: list[Finding] = [*inputs.findings, *new.findings]
    active, pods = inputs.pods(PodGates.of_node(configuration.kubelet, mooring), noticed.append)
    devices = inputs.devices((*active.running, *active.bound, *pods, *active.pending))
    if inputs.options.strict:
        check_strict(noticed)

    def read(gates: PodGates, report: Report = ignore) -> NodePods:
        active, _ = inputs.pods(gates, report)
        return NodePods(active.running, (*active.bound, *active.pending))

    def first(gates: PodGates) -> NodePods:
        return NodePods(tuple(inputs.pods(gates, ignore)[1]))

    node = UpgradedNode(
        name=inputs.options.node_name or ("" if inputs.archive is None else inputs.archive.about.node),
        machine=inputs.machine,
        config=configuration.kubelet,
        pods=read,
        mooring=mooring,
        files=inputs.state,
        devices=devices.devices,
        held=devices.held,
        claimed=devices.claimed,
        fields=configuration.fields,
        findings=tuple(noticed),
    )
    return upgrade_of(node, old, new.release, first if inputs.manifests else None)
