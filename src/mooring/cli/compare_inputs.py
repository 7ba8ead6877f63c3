"""Reading what is to be compared: a trace, and every variant that is to run it."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from mooring.cli.config_inputs import read_config
from mooring.cli.inputs import STANDARD_INPUT, check_strict, question_of, read_node, with_devices
from mooring.cli.options import NodeOptions
from mooring.cli.release_inputs import requested_version
from mooring.configuration.devices import Declared, device_table, offered_devices
from mooring.core.config import KubeletConfig, MooringConfig
from mooring.core.errors import InputError
from mooring.core.machine import Finding, Machine
from mooring.core.release import Release
from mooring.devicemanager.state import Device
from mooring.discovery.loader import load_machine
from mooring.manifest.defaults import PodGates
from mooring.manifest.scenario import Scenario
from mooring.planner.compare.by_release import ReleaseComparison, compare_releases
from mooring.planner.compare.combinations import Dimension, option_sets
from mooring.planner.compare.trace import Trace, load_trace, trace_machine, trace_of, trace_of_scenario
from mooring.planner.compare.variant import Variant, changes_between
from mooring.planner.kubelet_release import ChosenRelease, chosen_release
from mooring.planner.plan import make_plan
from mooring.planner.question import Question
from mooring.releases.catalog import minor_of


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


@dataclass(frozen=True, slots=True)
class Compared:
    """What is compared, read."""

    trace: Trace
    variants: tuple[Variant, ...]
    findings: tuple[Finding, ...]


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
    trace, base, sites, findings = _recorded(options) if options.trace else _asked(options)
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
    return Compared(trace, variants, tuple(findings))


def compared_releases(node: NodeOptions, versions: Sequence[str]) -> ReleaseComparison:
    """Plan for a node under several releases; what is given is read once a release, as that kubelet reads it.

    Raises:
        InputError: something cannot be read, or a version is none or not known.
    """
    if STANDARD_INPUT in (*node.manifests, *node.active, *node.config):
        problem = "can be read only once, and every release reads it"
        raise InputError(problem, source="standard input", remedy="give a file")
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


def _asked(options: CompareOptions) -> tuple[Trace, _Given, list[_Site], list[Finding]]:
    """Read pods, configuration and machines."""
    if len(options.machines) > 1 and STANDARD_INPUT in options.node.config:
        remedy = "give the configuration as a file"
        raise InputError("can be read only once", source="standard input", field="--config", remedy=remedy)
    question = question_of(options.node)
    given = _Given(_name(options.node), question.config, question.mooring, {})
    sites = [_Site(question.machine, question.devices)]
    if len(options.machines) > 1:
        declared = read_config(options.node.config, read_node(options.node.node)).devices
        machines = [load_machine(name) for name in options.machines[1:]]
        sites += [_Site(machine, offered_devices(declared, machine.pci)) for machine in machines]
    return trace_of(question), given, sites, list(make_plan(question).findings)


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
    devices = offered_devices(given.declared, machine.pci) if given.declared else site.devices
    as_given = Variant(given.name, machine, given.kubelet, given.mooring, devices)
    yield as_given
    if not dimensions:
        return
    for config in option_sets(given.kubelet, dimensions, len(machine.info.topology), given.mooring.release):
        changes = changes_between(given.kubelet, config)
        if changes:
            yield replace(as_given, config=config, changes=changes)
