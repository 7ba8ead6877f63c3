"""Reading what is to be compared: a trace, and every variant that is to run it."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from mooring.answers.base.check import Check, NodeType
from mooring.answers.base.inputs import checks
from mooring.answers.base.inputs.checks import STANDARD_INPUT, check_strict
from mooring.answers.base.inputs.configuration import read_config, requested_version
from mooring.answers.base.inputs.node import (
    admission_of,
    chosen_node,
    no_pods,
    question_from,
    question_of,
    read_inputs,
    read_node,
    with_devices,
)
from mooring.answers.base.plan import AnyPlan, Question, make_plan
from mooring.answers.base.trace import Trace, load_trace, trace_machine, trace_of, trace_of_scenario
from mooring.answers.compare.releases import ReleaseComparisonDocument, compare_releases
from mooring.answers.compare.variant import Dimension, Variant, changes_between, option_sets
from mooring.cli.options import NodeOptions
from mooring.engine.core.config import KubeletConfig, MooringConfig
from mooring.engine.core.errors import InputError
from mooring.engine.core.machine import Finding, Machine
from mooring.engine.core.release import Release
from mooring.engine.devicemanager.state import Device
from mooring.engine.releases.catalog import ChosenRelease, chosen_release, minor_of
from mooring.inputs.configuration.devices import Declared, device_table, offered_devices
from mooring.inputs.decoding.documents import load_documents
from mooring.inputs.decoding.fields import Document
from mooring.inputs.machines.loader import load_machine
from mooring.inputs.pods.defaults import PodGates
from mooring.inputs.pods.pod_files import pods_of
from mooring.inputs.pods.scenario import Scenario
from mooring.inputs.pods.workloads import template_paths
from mooring.lazy import lazily

with lazily():
    from mooring.inputs import node_groups
    from mooring.inputs.archive import claims
    from mooring.inputs.archive import reader as archives

if TYPE_CHECKING:
    from mooring.inputs.node_groups import NodeGroup


@dataclass(frozen=True, slots=True)
class CompareOptions:
    """What is compared, as typed."""

    node: NodeOptions
    """With the first machine, if one is named."""
    machines: Sequence[str]
    """All machines that are named."""
    alternatives: Sequence[str]
    """The files of ``--with``."""
    trace: str
    dimensions: Collection[Dimension]
    cluster: str = ""
    """A file with a document of kind Cluster, whose groups are compared."""
    devices: Sequence[str] = ()
    """A file of devices for each machine, or an empty text for a node archive, which has its own; empty where all have
    those of the configuration."""


@dataclass(frozen=True, slots=True)
class Compared:
    """What is compared, read."""

    trace: Trace
    variants: tuple[Variant, ...]
    findings: tuple[Finding, ...]
    question: Question | None = None
    """What is asked about the first variant; None for a recorded trace."""
    manifests: tuple[Document, ...] = ()
    groups: tuple[NodeGroup, ...] = ()
    """Of the cluster, as many as there are variants as given; empty without."""


@dataclass(frozen=True, slots=True)
class _Given:
    """One configuration as it was given."""

    name: str
    kubelet: KubeletConfig
    mooring: MooringConfig
    declared: Declared
    """Devices that it declares; empty for those of the node."""


@dataclass(frozen=True, slots=True)
class _Site:
    """One machine with what its device plugins offer."""

    machine: Machine
    devices: Mapping[str, tuple[Device, ...]]


def read_compared(options: CompareOptions) -> Compared:
    """Read the trace and make the variants.

    Raises:
        InputError: something cannot be read or understood.
    """
    if options.cluster:
        return _of_cluster(options)
    asked: tuple[Question, tuple[Document, ...]] | None = None
    if options.trace:
        trace, base, sites, findings = _recorded(options)
    else:
        asked, base, sites = _asked(options)
        trace, findings = trace_of(asked[0]), list(make_plan(asked[0]).findings)
    given = [base]
    for file in options.alternatives:
        found, noticed = _alternative(file, base, sites[0].machine)
        given.append(found)
        findings += noticed
    if options.node.strict:
        check_strict(findings)
    findings += _gate_findings(given)
    # Alone, a configuration is compared with the other topology manager policies.
    alone = len(sites) * len(given) == 1 and not options.dimensions
    dimensions = [Dimension.TOPOLOGY_POLICY] if alone else options.dimensions
    variants = tuple(variant for site in sites for one in given for variant in _variants(site, one, dimensions))
    return Compared(trace, variants, tuple(findings), *(asked or ()))


def compared_releases(node: NodeOptions, versions: Sequence[str]) -> tuple[list[AnyPlan], ReleaseComparisonDocument]:
    """Plan for a node under several releases; what is given is read once a release, as that kubelet reads it.

    Raises:
        InputError: something cannot be read, or a version is none or not known.
    """
    if STANDARD_INPUT in (*node.manifests, *node.active, *node.config):
        problem = "can be read only once, and every release reads it"
        raise InputError(problem, source="standard input", remedy="give a file")
    if not all(versions):
        remedy = "name releases such as 1.34,1.37"
        raise InputError(f"{','.join(versions)!r:.60} names an empty release", field="--kubelet-version", remedy=remedy)
    wanted = [requested_version(version) for version in versions]
    chosen = [chosen_release([one], nearest=node.nearest_release) for one in wanted]
    releases = sorted(
        {one.release.name: one.release for one in chosen}.values(), key=lambda one: minor_of(one.name) or 0
    )
    if len(releases) < 2:
        raise InputError("names one release", field="--kubelet-version", remedy="name two, such as 1.34,1.37")
    noticed = tuple(finding for one in chosen for finding in one.findings)

    def ask(release: Release) -> Question:
        question = question_of(node, release)
        return replace(question, findings=(*noticed, *question.findings))

    return compare_releases(ask, releases)


def _of_cluster(options: CompareOptions) -> Compared:
    """Read the pods, and the groups of a cluster, each a variant."""
    groups, node = node_groups.load_groups(options.cluster), options.node
    first = groups[0]
    manifests = tuple(document for source in node.manifests for document in load_documents(source))
    noticed: list[Finding] = []
    gates, paths = PodGates.of_node(first.config, first.mooring), template_paths(node.template_paths)
    here, admission = chosen_node(node, None, (), manifests), admission_of(node, manifests)
    pods = tuple(pods_of(manifests, gates=gates, report=noticed.append, paths=paths, node=here, admission=admission))
    if not pods:
        raise no_pods(node, noticed)
    if node.strict:
        check_strict(noticed)
    variants = tuple(
        Variant(one.name, one.machine, one.config, with_devices(one.mooring, node.devices), one.devices)
        for one in groups
    )
    given = [_Given(one.name, one.config, one.mooring, {}) for one in variants]
    question = Question(
        first.machine,
        first.config,
        variants[0].mooring,
        pods,
        devices=first.devices,
        findings=(*noticed, *_gate_findings(given)),
        alone=node.alone,
    )
    dimensions = options.dimensions
    sites = [_Site(one.machine, one.devices) for one in variants]
    varied = (variant for pair in zip(sites, given, strict=True) for variant in _variants(*pair, dimensions))
    return Compared(trace_of(question), tuple(varied), make_plan(question).findings, question, manifests, groups)


def check_of(compared: Compared, options: NodeOptions, cluster: str) -> Check:
    """Return the check of the pods on every configuration as given, the node types.

    Raises:
        InputError: a pod cannot be understood.
    """
    question = compared.question
    if question is None:
        raise InputError("a recorded trace has no manifests", field="--trace", remedy="give pods with -f")
    given = [variant for variant in compared.variants if variant.is_given]
    several = len({id(one.machine) for one in given}) > 1
    node_types = []
    for position, one in enumerate(given):
        asked = replace(question, machine=one.machine, config=one.config, mooring=one.mooring, devices=one.devices)
        plan = make_plan(asked)
        if compared.groups:
            group = compared.groups[position]
            node_types.append(NodeType(group.name, plan, group.labels, group.taints))
        elif len({other.name for other in given}) == 1:
            node_types.append(NodeType(one.machine.name, plan))
        else:
            node_types.append(NodeType(f"{one.machine.name} · {one.name}" if several else one.name, plan))
    settings = (cluster, *options.config)
    return checks.check_of(node_types, question, compared.manifests, options.template_paths, settings)


def _asked(options: CompareOptions) -> tuple[tuple[Question, tuple[Document, ...]], _Given, list[_Site]]:
    """Read pods, configuration and machines."""
    if len(options.machines) > 1 and STANDARD_INPUT in options.node.config:
        remedy = "give the configuration as a file"
        raise InputError("can be read only once", source="standard input", field="--config", remedy=remedy)
    of_pairs: list[tuple[str, ...]] = [(*options.node.config, *filter(None, [file])) for file in options.devices]
    files = of_pairs or [tuple(options.node.config)] * max(len(options.machines), 1)
    read = read_inputs(replace(options.node, config=files[0]))
    question = question_from(read)

    def site(place: int, machine: Machine, declared: Declared, found: Mapping[str, tuple[Device, ...]]) -> _Site:
        if not options.devices or options.devices[place]:
            return _Site(machine, found)
        facts = replace(archives.open_node(options.machines[place]).devices(), declared=declared)
        there = claims.node_devices(facts, machine, question.pods, question.mooring.device_attributes)
        return _Site(machine, {**found, **there.devices})

    given = _Given(_name(options.node), question.config, question.mooring, {})
    sites = [site(0, question.machine, read.configuration.devices, question.devices)]
    question = replace(question, devices=sites[0].devices)
    if len(options.machines) > 1:
        archive = read_node(options.node.node)
        for place, machine in enumerate(map(load_machine, options.machines[1:]), 1):
            declared = read_config(files[place], archive, machine=machine).devices
            sites.append(site(place, machine, declared, offered_devices(declared, machine)))
    return (question, tuple(read.manifests)), given, sites


def _recorded(options: CompareOptions) -> tuple[Trace, _Given, list[_Site], list[Finding]]:
    """Read a recorded trace with its configuration and its machine, or those that are named instead."""
    scenario, file = load_trace(options.trace)
    trace, noticed = trace_of_scenario(scenario)
    if not trace.pods:
        raise InputError("admits no pod", source=scenario.id or file, remedy="give a trace with steps that admit pods")
    release = _release_of(options, scenario)
    findings = [*release.findings, *noticed]
    mooring = with_devices(MooringConfig(release=release.release), options.node.devices)
    given = _Given(scenario.id or Path(file).name, scenario.kubelet, mooring, {})
    machines = [load_machine(name) for name in options.machines] or [trace_machine(scenario, file)]
    if options.node.config:
        configuration = read_config(options.node.config, release=given.mooring.release, machine=machines[0])
        findings += configuration.findings
        name = _name(options.node)
        mooring = with_devices(configuration.mooring, options.node.devices)
        given = _Given(name, configuration.kubelet, mooring, configuration.devices)
    devices = device_table(scenario.devices)
    return trace, given, [_Site(machine, devices) for machine in machines], findings


def _release_of(options: CompareOptions, scenario: Scenario) -> ChosenRelease:
    """Return the release that is named, else the one that was recorded."""
    version = requested_version(options.node.kubelet_version)
    if not version.version:
        return ChosenRelease(scenario.mooring.release)
    return chosen_release([version], nearest=options.node.nearest_release)


def _name(node: NodeOptions) -> str:
    if node.config:
        return "standard input" if node.config[0] == STANDARD_INPUT else Path(node.config[0]).name
    return Path(node.node).name if node.node else "the kubelet's defaults"


def _alternative(file: str, base: _Given, machine: Machine) -> tuple[_Given, tuple[Finding, ...]]:
    """Read a configuration that replaces the one of ``--config``, with all that it holds."""
    release = base.mooring.release
    found = read_config([file], release=release, machine=machine)
    mooring = found.mooring if found.mooring != MooringConfig(release=release) else base.mooring
    return _Given(Path(file).name, found.kubelet, mooring, found.devices or base.declared), found.findings


def _gate_findings(given: Sequence[_Given]) -> Iterator[Finding]:
    gates = {PodGates.of(one.kubelet.feature_gates) for one in given}
    if len(gates) > 1:
        text = (
            "set the gates of pod-level resources differently: the pods are read once, with the gates of the first, "
            "and are the same for all"
        )
        yield Finding("warning", "the configurations", text, "MOOR-722")


def _variants(site: _Site, given: _Given, dimensions: Collection[Dimension]) -> Iterator[Variant]:
    """Yield a configuration as given, and every combination of options that departs from it."""
    machine = site.machine
    devices = offered_devices(given.declared, machine) if given.declared else site.devices
    as_given = Variant(given.name, machine, given.kubelet, given.mooring, devices)
    yield as_given
    if not dimensions:
        return
    for config in option_sets(given.kubelet, dimensions, len(machine.info.topology), given.mooring.release):
        changes = changes_between(given.kubelet, config)
        if changes:
            yield replace(as_given, config=config, changes=changes)
