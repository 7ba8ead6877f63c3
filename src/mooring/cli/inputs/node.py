"""Reading what the shared options name."""

from __future__ import annotations

import gc
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from mooring.cli.inputs.checks import check_distinct, check_folder, check_standard_input, check_strict
from mooring.cli.options import NodeOptions
from mooring.core.config import CPU_HOTPLUG, DEVICE_ALIGNMENT, MooringConfig
from mooring.core.cpuset import CPUSet
from mooring.core.errors import InputError
from mooring.core.machine import Finding
from mooring.core.release import Release
from mooring.lazy import lazily

with lazily():
    import socket

    from mooring.checkpoint import device_file, store
    from mooring.cli import output
    from mooring.cli.inputs import config as config_inputs
    from mooring.cli.inputs import release as release_inputs
    from mooring.cli.inputs import running as running_inputs
    from mooring.decoding import documents as decoded_documents
    from mooring.discovery import loader, offline
    from mooring.kubelet import kubelet
    from mooring.manifest import defaults, pod_files, steps
    from mooring.manifest.dynamic import objects as objects_of_claims
    from mooring.manifest.workloads import objects
    from mooring.planner import plan as planning
    from mooring.planner import published, question
    from mooring.planner.nodearchive import devices as node_devices
    from mooring.planner.nodearchive import layout, reader

if TYPE_CHECKING:
    from mooring.configuration.node_configuration import NodeConfiguration
    from mooring.core.machine import Machine
    from mooring.core.pod import Pod
    from mooring.decoding.fields import Document, Report
    from mooring.planner.kubelet_release import ChosenRelease
    from mooring.planner.nodearchive.reader import NodeArchive
    from mooring.planner.plan import Plan


def plan_of(options: NodeOptions) -> Plan:
    """Read everything and make the plan.

    Raises:
        InputError: something cannot be read or understood.
    """
    return planning.make_plan(question_of(options))


@dataclass(frozen=True, slots=True)
class NodeInputs:
    """What the shared options name, read once; pods depend on the gates of the kubelet that reads them."""

    options: NodeOptions
    archive: NodeArchive | None
    machine: Machine
    state: kubelet.StateTexts
    release: ChosenRelease
    configuration: NodeConfiguration
    listed: Sequence[Document]
    """Documents of ``--active``."""
    manifests: Sequence[Document]
    """Documents of ``-f``."""

    @property
    def findings(self) -> list[Finding]:
        """What was odd, apart from the pods."""
        noticed = [*self.release.findings, *self.configuration.findings]
        return [*noticed, *self.archive.findings(_replaced(self.options))] if self.archive else noticed

    def devices(self, pods: Sequence[Pod]) -> node_devices.NodeDevices:
        """Return the devices of the node, and what pods hold of them.

        Args:
            pods: whose claims count.

        Raises:
            InputError: a claim, a slice or a record cannot be understood.
        """
        facts = node_devices.DeviceFacts()
        if self.archive is not None and "state" not in self.options.left_out:
            facts = self.archive.devices()
        if self.options.state:
            facts = replace(
                facts, record=device_file.device_record(device_file.read_device_file(Path(self.options.state)))
            )
        listed = objects_of_claims.dynamic_objects((*self.listed, *self.manifests))
        if listed.claims or listed.slices:
            name = self.options.node_name or facts.node
            facts = replace(facts, dynamic=listed, node=name)
        told = {**facts.preferences, **self.configuration.preferences}
        facts = replace(facts, declared=self.configuration.devices, preferences=told)
        return node_devices.node_devices(facts, self.machine, pods, self.configuration.mooring.device_attributes)

    def scaled_down(self, gates: defaults.PodGates) -> tuple[Pod, ...]:
        """Return the pods of workloads of ``-f`` that are scaled to 0.

        Raises:
            InputError: a pod is not valid.
        """
        paths = objects.template_paths(self.options.template_paths)
        return tuple(pod for pod, _ in pod_files.scaled_down_pods(self.manifests, gates=gates, paths=paths))

    def pods(
        self, gates: defaults.PodGates, report: Report, *, may_be_none: bool = False
    ) -> tuple[pod_files.ActivePods, list[Pod]]:
        """Return the pods of the node, and those of ``-f``.

        Args:
            gates: the feature gates under which the pods are created.
            report: receives what was noticed.
            may_be_none: whether the manifests need no pod.

        Raises:
            InputError: a pod is not valid, there is none in the manifests, or one of them is active already.
        """
        noticed: list[Finding] = []
        of_node: list[Finding] = []
        try:
            active = _active(self.options, self.archive, self.listed, gates, of_node.append)
            paths = objects.template_paths(self.options.template_paths)
            pods = pod_files.pods_of(self.manifests, gates=gates, report=noticed.append, paths=paths)
        except InputError:
            # There is no answer for them to stand in.
            output.warn((*of_node, *noticed))
            raise
        for finding in (*of_node, *noticed):
            report(finding)
        if self.options.manifests and not (pods or may_be_none):
            others = "; ".join(one.message for one in noticed if one.code == pod_files.WITHOUT_PODS)
            raise InputError(
                f"there is no pod in the manifests{f', only {others}' if others else ''}",
                source=", ".join(self.options.manifests),
                remedy="give pods or workloads with -f",
            )
        known = (*active.running, *active.bound, *active.pending)
        in_archive = self.archive and not self.options.active
        check_distinct(known, pods, "in the node archive" if in_archive else "given with --active")
        return active, pods


def read_inputs(options: NodeOptions, decides: Release | None = None) -> NodeInputs:
    """Read everything that the shared options name.

    Args:
        options: as typed.
        decides: the release, whatever the options name; None where they decide.

    Raises:
        InputError: something cannot be read or understood.
    """
    # A verb reads, answers and ends: looking for the little garbage that it makes would take a twentieth of its time.
    gc.set_threshold(50_000, 20, 50)
    options = running_inputs.with_running_kubelet(options)
    check_standard_input(options)
    archive = options.running or read_node(options.node)
    takes_state = archive and not options.state and "state" not in options.left_out
    state = archive.state() if archive and takes_state else _read_state(options.state)
    machine = _machine(options.machine, archive)
    listed = [one for source in options.active for one in decoded_documents.load_documents(source)]
    given = config_inputs.load_sources(options.config)
    release = release_inputs.read_release(options, archive, listed, decides, given)
    configured = None if "config" in options.left_out else archive
    configuration = config_inputs.configuration_from(given, configured, release.release, machine)
    if options.kubelet_version or decides:
        configuration = replace(configuration, mooring=replace(configuration.mooring, release=release.release))
    configuration = replace(configuration, mooring=with_devices(configuration.mooring, options.devices))
    manifests = [one for source in options.manifests for one in decoded_documents.load_documents(source)]
    return NodeInputs(options, archive, machine, state, release, configuration, listed, manifests)


def with_devices(mooring: MooringConfig, choice: str) -> MooringConfig:
    """Return the configuration in which ``--devices`` is followed; empty for what the configuration says."""
    others = mooring.extensions - {DEVICE_ALIGNMENT}
    known = {"kubelet": others, "follow": others | {DEVICE_ALIGNMENT}}
    return replace(mooring, extensions=known.get(choice, mooring.extensions))


def question_of(
    options: NodeOptions, decides: Release | None = None, *, counts_scaled_down: bool = False
) -> question.Question:
    """Read everything that a plan needs; arguments as of :func:`read_inputs` and :func:`question_from`.

    Raises:
        InputError: something cannot be read or understood.
    """
    return question_from(read_inputs(options, decides), counts_scaled_down=counts_scaled_down)


def question_from(inputs: NodeInputs, *, counts_scaled_down: bool = False) -> question.Question:
    """Return what is asked about a node whose inputs are read.

    Args:
        inputs: that are read.
        counts_scaled_down: whether workloads that are scaled to 0 are read, too.

    Raises:
        InputError: a pod cannot be understood, or ``--strict`` refuses a field.
    """
    options, configuration, noticed, machine = inputs.options, inputs.configuration, inputs.findings, inputs.machine
    cpus = steps.cpu_list(options.offline, "--offline") if options.offline else CPUSet()
    if cpus and CPU_HOTPLUG not in configuration.mooring.extensions:
        # A kubelet reads the machine once: it can only be asked what it would do without these CPUs from the start.
        machine, cpus = offline.without_cpus(machine, cpus), CPUSet()
    gates = defaults.PodGates.of_node(configuration.kubelet, configuration.mooring)
    scaled_down = inputs.scaled_down(gates) if counts_scaled_down else ()
    active, pods = inputs.pods(gates, noticed.append, may_be_none=bool(scaled_down))
    devices = inputs.devices((*active.running, *active.bound, *pods, *active.pending))
    noticed += devices.findings
    if options.strict:
        check_strict(noticed)
    asked = question.Question(
        machine,
        configuration.kubelet,
        configuration.mooring,
        (*active.bound, *pods, *active.pending),
        active.running,
        inputs.state,
        devices.devices,
        devices.held,
        tuple(noticed),
        offline=cpus,
        stop_at_crash=options.stop_at_crash,
        claimed=devices.claimed,
        preferences=devices.preferences,
        scaled_down=scaled_down,
        alone=options.alone,
    )
    return published.with_published(asked, lambda field: any(layer.sets(field) for layer in configuration.layers))


def _active(
    options: NodeOptions,
    archive: NodeArchive | None,
    documents: Sequence[Document],
    gates: defaults.PodGates,
    report: Report,
) -> pod_files.ActivePods:
    if archive and not options.active and "active" not in options.left_out:
        return archive.pods(gates, report)

    def choose(bound: frozenset[str]) -> str:
        return _node_name(options, archive, bound)

    return pod_files.active_pods(documents, choose=choose, gates=gates, report=report)


def _node_name(options: NodeOptions, archive: NodeArchive | None, bound: frozenset[str]) -> str:
    """Return the name of the node whose pods are taken.

    Raises:
        InputError: the pods are bound to several nodes, and none of them is known to be meant.
    """
    known = options.node_name or ("" if archive is None or archive.about.anonymous else archive.about.node)
    if known or len(bound) < 2:
        return known or next(iter(bound), "")
    if not options.machine and not archive and (here := socket.gethostname().lower()) in bound:
        return here
    raise InputError(
        f"the pods are bound to {len(bound)} nodes ({release_inputs.listed_nodes(bound)})",
        source=", ".join(options.active),
        field="--active",
        remedy="choose one with --node-name",
    )


def _replaced(options: NodeOptions) -> list[str]:
    """Return the parts of a node archive in whose place something else was given."""
    given = (
        (layout.CONFIGURATION_PART, "config", options.config),
        (layout.STATE_PART, "state", options.state),
        (layout.PODS_PART, "active", options.active),
    )
    return [part for part, option, value in given if value or option in options.left_out]


def read_node(source: str) -> NodeArchive | None:
    """Open a node archive, where one is named.

    Raises:
        InputError: it is none.
    """
    if not source:
        return None
    return reader.open_node(source)


def read_machine(machine: str, node: str) -> Machine:
    """Read the machine that ``--machine`` names, or else that of a node archive, or else this computer.

    Raises:
        InputError: there is none, or it cannot be understood.
    """
    return _machine(machine, read_node(node))


def _machine(machine: str, archive: NodeArchive | None) -> Machine:
    return archive.machine() if archive and not machine else loader.load_machine(machine)


def _read_state(folder: str) -> kubelet.StateTexts:
    """Read the state files of a kubelet root directory; they are never written.

    Raises:
        InputError: there is no such directory, or a file in it cannot be read.
    """
    if not folder:
        return kubelet.StateTexts()
    check_folder(folder, "--state")
    files = store.StateFolder(Path(folder))
    return kubelet.StateTexts(files.read_cpu(), files.read_memory())
