"""Reading what the shared options name."""

from __future__ import annotations

import gc
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from mooring.answers.base.inputs.checks import check_distinct, check_standard_input, check_strict
from mooring.cli.options import NodeOptions
from mooring.engine.core.config import CPU_HOTPLUG, DEVICE_ALIGNMENT, MooringConfig
from mooring.engine.core.cpuset import CPUSet
from mooring.engine.core.errors import InputError
from mooring.engine.core.machine import Finding
from mooring.engine.core.release import Release
from mooring.lazy import lazily

with lazily():
    import socket

    from mooring.answers.base import plan as question
    from mooring.answers.base import pods as pod_names
    from mooring.answers.base import published
    from mooring.answers.base.inputs import checks as running_inputs
    from mooring.answers.base.inputs import collection
    from mooring.answers.base.inputs import configuration as configuration_inputs
    from mooring.cli import output
    from mooring.engine.checkpoint import device_file
    from mooring.engine.kubelet import kubelet
    from mooring.inputs.archive import claims as node_devices
    from mooring.inputs.archive import reader
    from mooring.inputs.configuration import devices as declared
    from mooring.inputs.decoding import documents as decoded_documents
    from mooring.inputs.machines import loader
    from mooring.inputs.pods import admission, cluster_objects, defaults, launched_pods, pod_files, workloads
    from mooring.inputs.pods import pods as pod_objects

if TYPE_CHECKING:
    from mooring.engine.core.decision import Rejection
    from mooring.engine.core.machine import Machine
    from mooring.engine.core.pod import Pod
    from mooring.engine.devicemanager.state import DeviceState
    from mooring.engine.releases.catalog import ChosenRelease
    from mooring.inputs.archive.reader import NodeArchive
    from mooring.inputs.configuration.node_configuration import NodeConfiguration
    from mooring.inputs.decoding.fields import Document, Report


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
    archived: Sequence[Document] = ()
    """Documents with the pods of the archive, where none are given with ``--active``."""
    named: frozenset[str] = frozenset()
    """Uids of pods that are asked about though they have ended."""
    live: frozenset[str] = frozenset()
    """Uids of pods of ``-f`` that exist, as their statuses say, where a pod is named: they may be among those that run.
    """
    recorded: Mapping[str, Rejection] = field(default_factory=dict)
    """Uid of each pod that has failed -> what its status records."""
    resources: Sequence[declared.ResourcesDump] = ()
    """What dumps of the PodResources API in ``--active`` list."""

    @property
    def findings(self) -> list[Finding]:
        """What was odd, apart from the pods."""
        noticed = [*self.release.findings, *self.configuration.findings]
        if self.archive is None:
            documents = (*self.listed, *self.manifests)
            return [*noticed, *running_inputs.of_another_node(self.options, self.machine, documents)]
        options = self.options
        given = (
            (reader.MACHINE_PART, "machine", options.machine),
            (reader.RELEASE_PART, "kubelet_version", options.kubelet_version),
            (reader.CONFIGURATION_PART, "config", options.config),
            (reader.STATE_PART, "state", options.state),
            (reader.PODS_PART, "active", options.active),
        )
        # In place of these parts something else was given.
        replaced = [part for part, option, value in given if value or option in options.left_out]
        return [*noticed, *self.archive.findings(replaced)]

    def devices(self, pods: Sequence[Pod]) -> tuple[DeviceState, tuple[Finding, ...]]:
        """Return the devices of the node with what pods hold of them, and what was odd.

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
                facts,
                record=device_file.device_record(published.state_text(self.options.state, device_file.DEVICE_FILE)),
            )
        for one in self.resources:
            facts = replace(facts, allocatable={**facts.allocatable, **one.devices})
        claims, slices = cluster_objects.dynamic_objects((*self.listed, *self.manifests))
        if claims or slices:
            name = self.options.node_name or facts.node
            facts = replace(facts, claims=claims, slices=slices, node=name)
        told = {**facts.preferences, **self.configuration.preferences}
        facts = replace(facts, declared=self.configuration.devices, preferences=told)
        return node_devices.node_devices(facts, self.machine, pods, self.configuration.mooring.device_attributes)

    def scaled_down(self, gates: defaults.PodGates) -> tuple[Pod, ...]:
        """Return the pods of workloads of ``-f`` that are scaled to 0.

        Raises:
            InputError: a pod is not valid.
        """
        paths = workloads.template_paths(self.options.template_paths)
        found = pod_files.scaled_down_pods(self.manifests, gates=gates, paths=paths, admission=self.admission())
        return tuple(pod for pod, _ in found)

    def admission(self) -> admission.APIServerAdmission:
        """Return what admission does to the pods of ``-f``, by the objects beside them and beside the active pods."""
        return admission_of(self.options, (*self.listed, *self.manifests))

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
            node = chosen_node(self.options, self.archive, self.listed, self.manifests)
            paths = workloads.template_paths(self.options.template_paths)
            pods = pod_files.pods_of(
                self.manifests,
                gates=gates,
                report=noticed.append,
                paths=paths,
                node=node,
                named=self.named,
                admission=self.admission(),
            )
            # A pod that is given in both places is asked about as the one of the manifests.
            named = self.named.difference(pod.uid for pod in pods)
            if self.archive is not None and self.archived:
                node = self.archive.about.node
            active = pod_files.active_pods(
                self.archived or self.listed, node, gates=gates, report=of_node.append, named=named
            )
        except InputError:
            # There is no answer for them to stand in.
            output.warn((*of_node, *noticed))
            raise
        for finding in (*of_node, *noticed):
            report(finding)
        if self.options.manifests and not (pods or may_be_none):
            raise no_pods(self.options, noticed)
        known = (*active.running, *active.bound, *active.pending)
        twice = self.live.intersection(pod.uid for pod in known)
        pods = [pod for pod in pods if pod.uid not in twice]
        in_archive = self.archive and not self.options.active
        check_distinct(known, pods, "in the node archive" if in_archive else "given with --active")
        return active, pods


def admission_of(options: NodeOptions, documents: Sequence[Document]) -> admission.APIServerAdmission:
    """Return what admission does to the pods of documents, with the containers of ``--inject``.

    Raises:
        InputError: a LimitRange or an injected container cannot be understood.
    """
    injected = [one for source in options.inject for one in decoded_documents.load_documents(source)]
    return admission.APIServerAdmission.of(documents, admission.fragment_of(injected))


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
    state = archive.state() if archive and takes_state else published.read_state(options.state)
    machine = _machine(options.machine, archive)
    listed = [one for source in options.active for one in decoded_documents.load_documents(source)]
    listed, resources = published.listed_resources_in(listed)
    manifests = launched_pods.with_instance_types(
        [one for source in options.manifests for one in decoded_documents.load_documents(source)]
    )
    archived = archive.pod_documents() if archive and not options.active and "active" not in options.left_out else ()
    asked = cluster_objects.listed_pods(manifests)
    pods = [*cluster_objects.listed_pods((*archived, *listed)), *asked]
    options, named = _with_named(options, archive, pods)
    existing = asked if options.named else []
    live = frozenset(
        pod.uid
        for pod, content in existing
        if not cluster_objects.holds_nothing(content)
        and cluster_objects.standing_of(content) is not cluster_objects.Standing.NEW
    )
    given = configuration_inputs.load_sources(options.config)
    release = configuration_inputs.read_release(options, archive, listed, decides, given)
    configured = None if "config" in options.left_out else archive
    configuration = configuration_inputs.configuration_from(given, configured, release.release, machine)
    if options.kubelet_version or decides:
        configuration = replace(configuration, mooring=replace(configuration.mooring, release=release.release))
    configuration = replace(configuration, mooring=with_devices(configuration.mooring, options.devices))
    failures = ((pod.uid, cluster_objects.recorded_failure(content)) for pod, content in pods)
    recorded = {uid: failure for uid, failure in failures if failure is not None}
    read = NodeInputs(options, archive, machine, state, release, configuration, listed, manifests)
    return replace(read, archived=archived, named=named, live=live, recorded=recorded, resources=resources)


def with_devices(mooring: MooringConfig, choice: str) -> MooringConfig:
    """Return the configuration in which ``--devices`` is followed; empty for what the configuration says."""
    known = {"kubelet": mooring.extensions - {DEVICE_ALIGNMENT}, "follow": mooring.extensions | {DEVICE_ALIGNMENT}}
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
    cpus = pod_objects.cpu_list(options.offline, "--offline") if options.offline else CPUSet()
    if cpus and CPU_HOTPLUG not in configuration.mooring.extensions:
        # A kubelet reads the machine once: it can only be asked what it would do without these CPUs from the start.
        machine, cpus = loader.without_cpus(machine, cpus), CPUSet()
    gates = defaults.PodGates.of_node(configuration.kubelet, configuration.mooring)
    scaled_down = inputs.scaled_down(gates) if counts_scaled_down else ()
    active, pods = inputs.pods(gates, noticed.append, may_be_none=bool(scaled_down))
    devices, odd = inputs.devices((*active.running, *active.bound, *pods, *active.pending))
    noticed += odd
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
        recorded=inputs.recorded,
        alone=options.alone,
    )
    asked = published.with_listed(asked, inputs.resources)
    runs = cluster_objects.uids_that_run(inputs.manifests)
    return published.with_published(asked, lambda field: any(layer.sets(field) for layer in configuration.layers), runs)


def _with_named(
    options: NodeOptions, archive: NodeArchive | None, pods: Sequence[tuple[Pod, Mapping[str, Any]]]
) -> tuple[NodeOptions, frozenset[str]]:
    """Return the options with the node of the pod that is named, and the uids of named pods that have ended.

    A name means pods that have ended only where it means no other.
    """
    ended: set[str] = set()
    nodes: set[str] = set()
    for text in options.named:
        found = {pod.uid for pod in pod_names.called_or_owning([pod for pod, _ in pods], text)}
        meant = [(pod, content) for pod, content in pods if pod.uid in found]
        meant = [one for one in meant if not cluster_objects.holds_nothing(one[1])] or meant
        ended.update(pod.uid for pod, content in meant if cluster_objects.holds_nothing(content))
        nodes.update({cluster_objects.node_of(content) for _, content in meant} - {""})
    if len(nodes) == 1 < len({cluster_objects.node_of(content) for _, content in pods} - {""}):
        known = options.node_name or _node_of_archive(archive)
        options = replace(options, node_name=known or next(iter(nodes)))
    return options, frozenset(ended)


def _node_of_archive(archive: NodeArchive | None) -> str:
    return "" if archive is None or archive.about.anonymous else archive.about.node


def chosen_node(
    options: NodeOptions, archive: NodeArchive | None, listed: Sequence[Document], manifests: Sequence[Document]
) -> str:
    """Return the name of the node whose pods are taken; empty for any.

    Args:
        options: as typed.
        archive: of the node, where one is given.
        listed: documents of ``--active``, which decide where they list pods that are bound.
        manifests: documents of ``-f``.

    Raises:
        InputError: the pods are bound to several nodes, and none of them is known to be meant.
    """
    if known := options.node_name or _node_of_archive(archive):
        return known
    bound, option, sources = cluster_objects.bound_nodes(listed), "--active", options.active
    if not bound:
        bound, option, sources = cluster_objects.bound_nodes(manifests), "-f", options.manifests
    if len(bound) < 2:
        return next(iter(bound), "")
    if not options.machine and not archive and (here := socket.gethostname().lower()) in bound:
        return here
    raise InputError(
        f"the pods are bound to {len(bound)} nodes ({configuration_inputs.listed_nodes(bound)})",
        source=", ".join(sources),
        field=option,
        remedy="choose one with --node-name",
    )


def no_pods(options: NodeOptions, noticed: Sequence[Finding]) -> InputError:
    """Return the error about manifests without a pod that counts, of which something was left out."""
    others = "; ".join(one.message for one in noticed if one.code == pod_files.WITHOUT_PODS)
    left_out = (one for one in noticed if one.code in (cluster_objects.OTHER_PODS, cluster_objects.LEFT_OUT))
    problem = f"there is no pod in the manifests{f', only {others}' if others else ''}"
    of_others = any(one.code == cluster_objects.OTHER_PODS for one in noticed)
    return InputError(
        "; ".join([problem, *(f"{one.subject}: {one.message}" for one in left_out)]),
        source=", ".join(options.manifests),
        remedy="choose another node with --node-name" if of_others else "give pods or workloads with -f",
    )


def read_node(source: str) -> NodeArchive | None:
    """Open a node archive, where one is named.

    Raises:
        InputError: it is none.
    """
    return reader.open_node(source) if source else None


def read_machine(options: NodeOptions) -> Machine:
    """Read the machine that is named, or that of the named node archive or node of the cluster, or this computer.

    Raises:
        InputError: there is none, or it cannot be understood.
    """
    if options.node and not options.machine and collection.may_be_cluster_node(options):
        return collection.cluster_node(options).machine()
    return _machine(options.machine, options.running or read_node(options.node))


def _machine(machine: str, archive: NodeArchive | None) -> Machine:
    return archive.machine() if archive and not machine else loader.load_machine(machine)
