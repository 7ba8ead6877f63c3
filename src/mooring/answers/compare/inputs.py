"""Reading what is to be compared: a trace, and every variant that is to run it."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

from mooring.answers.base.check import Check, NodeType
from mooring.answers.base.inputs import checks
from mooring.answers.base.inputs import node as node_inputs
from mooring.answers.base.inputs.checks import STANDARD_INPUT, check_strict
from mooring.answers.base.inputs.configuration import read_config, requested_version
from mooring.answers.base.plan import Question, make_plan
from mooring.answers.base.trace import Trace, load_trace, trace_machine, trace_of, trace_of_scenario
from mooring.answers.compare.answer import ReleaseComparisonDocument, compare_releases
from mooring.answers.compare.variant import Dimension, Variant, changes_between, option_sets
from mooring.cli.options import NodeOptions
from mooring.engine.core.config import MooringConfig
from mooring.engine.core.errors import InputError
from mooring.engine.core.machine import Finding, Machine
from mooring.engine.core.release import Release
from mooring.engine.devicemanager.state import Device
from mooring.engine.releases.catalog import ChosenRelease, chosen_release, minor_of
from mooring.inputs.configuration.devices import Declared, device_table, offered_devices
from mooring.inputs.configuration.node_configuration import NodeConfiguration
from mooring.inputs.decoding.documents import load_documents
from mooring.inputs.decoding.fields import Document
from mooring.inputs.machines.loader import load_machine
from mooring.inputs.pods.defaults import PodGates
from mooring.inputs.pods.pod_files import pods_of
from mooring.inputs.pods.workloads import template_paths
from mooring.lazy import lazily

with lazily():
    from mooring.inputs import node_groups
    from mooring.inputs.archive import claims
    from mooring.inputs.archive import reader as archives

if TYPE_CHECKING:
    from mooring.inputs.node_groups import NodeGroup


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


_Given: TypeAlias = tuple[str, NodeConfiguration]
"""One configuration as it was given, with its name; without devices where they are those of the node."""
_Site: TypeAlias = tuple[Machine, Mapping[str, tuple[Device, ...]]]
"""One machine with what its device plugins offer."""


def read_compared(
    node: NodeOptions,
    machines: Sequence[str],
    alternatives: Sequence[str] = (),
    trace: str = "",
    dimensions: Collection[Dimension] = (),
    cluster: str = "",
    devices: Sequence[str] = (),
) -> Compared:
    """Read the trace and make the variants.

    Args:
        node: with the first machine, if one is named.
        machines: all that are named.
        alternatives: the files of ``--with``.
        trace: as typed.
        dimensions: what is varied.
        cluster: a file with a document of kind Cluster, whose groups are compared.
        devices: a file of devices for each machine, or an empty text for a node archive, which has its own; empty where
            all have those of the configuration.

    Raises:
        InputError: something cannot be read or understood.
    """
    if cluster:
        return _of_cluster(node, cluster, dimensions)
    asked: tuple[Question, tuple[Document, ...]] | None = None
    if trace:
        run, base, sites, findings = _recorded(node, machines, trace)
    else:
        asked, base, sites = _asked(node, machines, devices)
        run, findings = trace_of(asked[0]), list(make_plan(asked[0]).findings)
    given, own = [base], base[1]
    for file in alternatives:
        found = read_config([file], release=own.mooring.release, machine=sites[0][0])
        is_plain = found.mooring == MooringConfig(release=own.mooring.release)
        mooring = own.mooring if is_plain else found.mooring
        given.append((Path(file).name, replace(found, mooring=mooring, devices=found.devices or own.devices)))
        findings += found.findings
    if node.strict:
        check_strict(findings)
    findings += _gate_findings(one for _, one in given)
    # Alone, a configuration is compared with the other topology manager policies.
    if len(sites) * len(given) == 1 and not dimensions:
        dimensions = [Dimension.TOPOLOGY_POLICY]
    variants = tuple(variant for site in sites for one in given for variant in _variants(site, one, dimensions))
    return Compared(run, variants, tuple(findings), *(asked or ()))


def compared_releases(node: NodeOptions, versions: Sequence[str]) -> ReleaseComparisonDocument:
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
        question = node_inputs.question_of(node, release)
        return replace(question, findings=(*noticed, *question.findings))

    return compare_releases(ask, releases)


def _of_cluster(node: NodeOptions, cluster: str, dimensions: Collection[Dimension]) -> Compared:
    """Read the pods, and the groups of a cluster, each a variant."""
    groups = node_groups.load_groups(cluster)
    first = groups[0]
    manifests = tuple(document for source in node.manifests for document in load_documents(source))
    noticed: list[Finding] = []
    gates, paths = PodGates.of_node(first.config, first.mooring), template_paths(node.template_paths)
    here, admission = node_inputs.chosen_node(node, None, (), manifests), node_inputs.admission_of(node, manifests)
    pods = tuple(pods_of(manifests, gates=gates, report=noticed.append, paths=paths, node=here, admission=admission))
    if not pods:
        raise node_inputs.no_pods(node, noticed)
    if node.strict:
        check_strict(noticed)
    given = [
        (one.name, NodeConfiguration(one.config, node_inputs.with_devices(one.mooring, node.devices))) for one in groups
    ]
    noticed += _gate_findings(one for _, one in given)
    question = Question(
        first.machine,
        first.config,
        given[0][1].mooring,
        pods,
        devices=first.devices,
        findings=tuple(noticed),
        alone=node.alone,
    )
    sites = [(one.machine, one.devices) for one in groups]
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


def _asked(
    node: NodeOptions, machines: Sequence[str], devices: Sequence[str]
) -> tuple[tuple[Question, tuple[Document, ...]], _Given, list[_Site]]:
    """Read pods, configuration and machines."""
    if len(machines) > 1 and STANDARD_INPUT in node.config:
        remedy = "give the configuration as a file"
        raise InputError("can be read only once", source="standard input", field="--config", remedy=remedy)
    of_pairs: list[tuple[str, ...]] = [(*node.config, *filter(None, [file])) for file in devices]
    files = of_pairs or [tuple(node.config)] * max(len(machines), 1)
    read = node_inputs.read_inputs(replace(node, config=files[0]))
    question = node_inputs.question_from(read)

    def site(place: int, machine: Machine, declared: Declared, found: Mapping[str, tuple[Device, ...]]) -> _Site:
        if not devices or devices[place]:
            return machine, found
        facts = replace(archives.open_node(machines[place]).devices(), declared=declared)
        there, _ = claims.node_devices(facts, machine, question.pods, question.mooring.device_attributes)
        return machine, {**found, **there.devices}

    given = _name(node), NodeConfiguration(question.config, question.mooring)
    sites = [site(0, question.machine, read.configuration.devices, question.devices)]
    question = replace(question, devices=sites[0][1])
    if len(machines) > 1:
        archive = node_inputs.read_node(node.node)
        for place, machine in enumerate(map(load_machine, machines[1:]), 1):
            declared = read_config(files[place], archive, machine=machine).devices
            sites.append(site(place, machine, declared, offered_devices(declared, machine)))
    return (question, tuple(read.manifests)), given, sites


def _recorded(node: NodeOptions, named: Sequence[str], path: str) -> tuple[Trace, _Given, list[_Site], list[Finding]]:
    """Read a recorded trace with its configuration and its machine, or those that are named instead."""
    scenario, file = load_trace(path)
    trace, noticed = trace_of_scenario(scenario)
    if not trace.pods:
        raise InputError("admits no pod", source=scenario.id or file, remedy="give a trace with steps that admit pods")
    version = requested_version(node.kubelet_version)
    release = (
        chosen_release([version], nearest=node.nearest_release)
        if version.version
        else ChosenRelease(scenario.mooring.release)
    )
    machines = [load_machine(name) for name in named] or [trace_machine(scenario, file)]
    found = NodeConfiguration(scenario.kubelet, MooringConfig(release=release.release))
    if node.config:
        found = read_config(node.config, release=release.release, machine=machines[0])
    given = replace(found, mooring=node_inputs.with_devices(found.mooring, node.devices))
    devices = device_table(scenario.devices)
    name = _name(node) if node.config else scenario.id or Path(file).name
    findings = [*release.findings, *noticed, *found.findings]
    return trace, (name, given), [(machine, devices) for machine in machines], findings


def _name(node: NodeOptions) -> str:
    if node.config:
        return "standard input" if node.config[0] == STANDARD_INPUT else Path(node.config[0]).name
    return Path(node.node).name if node.node else "the kubelet's defaults"


def _gate_findings(given: Iterable[NodeConfiguration]) -> Iterator[Finding]:
    gates = {PodGates.of(one.kubelet.feature_gates) for one in given}
    if len(gates) > 1:
        text = (
            "set the gates of pod-level resources differently: the pods are read once, with the gates of the first, "
            "and are the same for all"
        )
        yield Finding("warning", "the configurations", text, "MOOR-722")


def _variants(site: _Site, given: _Given, dimensions: Collection[Dimension]) -> Iterator[Variant]:
    """Yield a configuration as given, and every combination of options that departs from it."""
    (machine, devices), (name, own) = site, given
    devices = offered_devices(own.devices, machine) if own.devices else devices
    as_given = Variant(name, machine, own.kubelet, own.mooring, devices)
    yield as_given
    if not dimensions:
        return
    for config in option_sets(own.kubelet, dimensions, len(machine.info.topology), own.mooring.release):
        if changes := changes_between(own.kubelet, config):
            yield replace(as_given, config=config, changes=changes)
