"""Reading what the shared options name."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from mooring.core.cpuset import CPUSet
from mooring.core.errors import InputError
from mooring.core.machine import Finding

if TYPE_CHECKING:
    from mooring.core.machine import Machine
    from mooring.core.pod import Pod
    from mooring.kubelet.kubelet import StateTexts
    from mooring.manifest.configuration import NodeConfiguration
    from mooring.planner.nodearchive.reader import NodeArchive
    from mooring.planner.plan import Plan
    from mooring.planner.question import Question

STANDARD_INPUT = "-"


@dataclass(frozen=True, slots=True)
class NodeOptions:
    """The shared options as typed."""

    manifests: Sequence[str]
    machine: str
    config: Sequence[str]
    state: str
    active: Sequence[str]
    node: str = ""
    """A node archive; what the other options name comes from there instead."""
    offline: str = ""
    """CPUs that go offline when the running pods are back."""

    @property
    def describes_node(self) -> bool:
        """Tell whether there is more than a machine: then a kubelet is to be started on it."""
        return bool(self.manifests or self.active or self.state or self.config or self.node)


def plan_of(options: NodeOptions) -> Plan:
    """Read everything and make the plan.

    Raises:
        InputError: something cannot be read or understood.
    """
    from mooring.planner.plan import make_plan  # noqa: PLC0415 - the engine is not needed for --help

    return make_plan(question_of(options))


def question_of(options: NodeOptions) -> Question:
    """Read everything that a plan needs.

    Raises:
        InputError: something cannot be read or understood.
    """
    from mooring.manifest.defaults import PodGates  # noqa: PLC0415 - as above
    from mooring.manifest.devices import offered_devices  # noqa: PLC0415 - after the options are known to be good
    from mooring.manifest.pod_files import load_pods  # noqa: PLC0415 - as above
    from mooring.manifest.steps import cpu_list  # noqa: PLC0415 - as above
    from mooring.planner.question import Question  # noqa: PLC0415 - as above

    _check_standard_input(options)
    archive = read_node(options.node)
    state = archive.state() if archive and not options.state else _read_state(options.state)
    machine = _machine(options.machine, archive)
    configuration = read_config(options.config, archive)
    noticed = list(configuration.findings)
    if archive:
        noticed += archive.findings(configuration, _replaced(options))
    gates = PodGates.of_node(configuration.kubelet, configuration.mooring)
    if archive and not options.active:
        active = archive.pods(gates, noticed.append)
    else:
        active = load_pods(options.active, gates=gates, report=noticed.append)
    pods = load_pods(options.manifests, gates=gates, report=noticed.append)
    if options.manifests and not pods:
        raise InputError(
            "there is no pod in the manifests",
            source=", ".join(options.manifests),
            remedy="give pods or workloads with -f",
        )
    _check_distinct(active, pods, "in the node archive" if archive and not options.active else "given with --active")
    return Question(
        machine,
        configuration.kubelet,
        configuration.mooring,
        tuple(pods),
        tuple(active),
        state,
        offered_devices(configuration.devices, machine.pci),
        tuple(noticed),
        offline=cpu_list(options.offline, "--offline") if options.offline else CPUSet(),
    )


def _replaced(options: NodeOptions) -> list[str]:
    """Return the parts of a node archive in whose place something else was given."""
    from mooring.planner.nodearchive.layout import CONFIGURATION_PART, PODS_PART, STATE_PART  # noqa: PLC0415 - as above

    given = ((CONFIGURATION_PART, options.config), (STATE_PART, options.state), (PODS_PART, options.active))
    return [part for part, value in given if value]


def _check_standard_input(options: NodeOptions) -> None:
    named = [
        option
        for option, sources in (("-f", options.manifests), ("--active", options.active), ("--config", options.config))
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


def _check_distinct(active: Sequence[Pod], pods: Sequence[Pod], where: str) -> None:
    running = {pod.uid for pod in active}
    for pod in pods:
        if pod.uid in running:
            raise InputError(
                f"the pod {pod.namespace}/{pod.name} (uid {pod.uid}) is also {where}",
                source="-f",
                remedy="a pod is either running or to be admitted: remove it from one of the two",
            )


def read_node(source: str) -> NodeArchive | None:
    """Open a node archive, where one is named.

    Raises:
        InputError: it is none.
    """
    if not source:
        return None
    from mooring.planner.nodearchive.reader import open_node  # noqa: PLC0415 - only where it is asked for

    return open_node(source)


def read_machine(machine: str, node: str) -> Machine:
    """Read the machine that ``--machine`` names, or else that of a node archive, or else this computer.

    Raises:
        InputError: there is none, or it cannot be understood.
    """
    return _machine(machine, read_node(node))


def _machine(machine: str, archive: NodeArchive | None) -> Machine:
    from mooring.discovery.loader import load_machine  # noqa: PLC0415 - as above

    return archive.machine() if archive and not machine else load_machine(machine)


def read_config(paths: Sequence[str], archive: NodeArchive | None = None) -> NodeConfiguration:
    """Read a configuration; without one the kubelet's defaults, and a word about what that means.

    Args:
        paths: the files of ``--config``.
        archive: where it comes from when there are none.
    """
    from mooring.manifest.configuration import configuration_of  # noqa: PLC0415 - as above

    if archive and not paths:
        collected = archive.configuration()
        if collected is not None:
            return collected
    if paths:
        return _configuration(paths)
    configuration = configuration_of(())
    finding = Finding(
        "warning",
        "configuration",
        "none given: the kubelet's defaults have CPU manager policy none, under which no container gets exclusive CPUs "
        "(give a KubeletConfiguration with --config)",
        "MOOR-504",
    )
    return replace(configuration, findings=(finding,))


def _configuration(paths: Sequence[str]) -> NodeConfiguration:
    """Read files; those of a node that the agent manages say what the agent would do there."""
    from mooring.manifest import devices  # noqa: PLC0415 - as above
    from mooring.manifest.configuration import NodeConfiguration, configuration_of  # noqa: PLC0415 - as above
    from mooring.manifest.documents import load_documents  # noqa: PLC0415 - as above
    from mooring.service.options import AGENT_CONFIGURATION  # noqa: PLC0415 - as above

    documents = [document for path in paths for document in load_documents(path)]
    if not any(isinstance(one.content, dict) and one.content.get("kind") == AGENT_CONFIGURATION for one in documents):
        return configuration_of(documents)
    from mooring.agent.configuration import agent_configuration  # noqa: PLC0415 - heavy, and only for its own file

    declared = [one for one in documents if isinstance(one.content, dict) and one.content.get("kind") == devices.KIND]
    found = agent_configuration((one for one in documents if one not in declared), ", ".join(paths))
    return NodeConfiguration(found.kubelet, found.mooring, configuration_of(declared).devices, found.findings)


def _read_state(folder: str) -> StateTexts:
    """Read the state files of a kubelet root directory; they are never written.

    Raises:
        InputError: there is no such directory, or a file in it cannot be read.
    """
    from mooring.kubelet.kubelet import StateTexts  # noqa: PLC0415 - with the engine behind it

    if not folder:
        return StateTexts()
    from mooring.checkpoint.store import StateFolder  # noqa: PLC0415 - only where it is asked for

    check_folder(folder, "--state")
    files = StateFolder(Path(folder))
    return StateTexts(files.read_cpu(), files.read_memory())


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
