"""What an agent starts with: configuration, machine and node, read once; and the services that it starts.

A CPU that goes offline loses its folders of topology and caches, so that an agent that starts meanwhile sees a smaller
machine, and would drop a state that is about the larger one. With the extension cpu-hotplug the agent's folder keeps
the description of the machine with all of its CPUs. It counts as long as what the kernel shows now is a part of it.
"""

from __future__ import annotations

import json
import socket
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from mooring.agent.cgroups.files import find_layout
from mooring.agent.cgroups.protocol import CGroups, KernelCGroups, UnseenCGroups
from mooring.agent.claims import serve_claims
from mooring.agent.conflicts import KubeletFinder
from mooring.agent.metrics import AgentMetrics, health_pages, status_pages
from mooring.agent.pods.cluster import AgentAccount, connector, own_accounts
from mooring.agent.reactor.recovery import Stored, resume
from mooring.agent.reactor.response import EventOutcome
from mooring.agent.state import Options
from mooring.agent.state_holder import StateHolder
from mooring.agent.status import Published
from mooring.agent.store import MACHINE_FILE
from mooring.engine.checkpoint.store import make_folder, read_state_file, write_together
from mooring.engine.core.config import CPU_HOTPLUG
from mooring.engine.core.decision import Observer
from mooring.engine.core.errors import InputError
from mooring.engine.core.machine import Finding, Machine
from mooring.engine.core.machineinfo import MachineInfo
from mooring.engine.devicemanager.state import Device
from mooring.engine.kubelet.kubelet import Kubelet
from mooring.inputs.decoding.fields import Report
from mooring.inputs.machines.loader import load_machine
from mooring.inputs.machines.machineinfo_json import machine_info_document, parse_machine_info
from mooring.lazy import lazily
from mooring.service.agent_configuration import AgentConfiguration, load_agent_configuration
from mooring.service.agent_options import AgentOptions, OnRejection, overridden
from mooring.service.daemon import Heartbeat
from mooring.service.http import serve_tcp, serve_unix
from mooring.service.logs import Log
from mooring.service.podresources import serve_pod_resources

if TYPE_CHECKING:
    from mooring.published.publisher import PublisherThread

with lazily():
    from mooring.published import publisher


@dataclass(frozen=True, slots=True)
class AgentCommand:
    """The agent's command line."""

    config: str
    """The agent's file."""
    state_dir: str = ""
    """In place of the file's ``stateDir``."""
    nri_socket: str = ""
    """In place of the file's ``nriSocket``."""
    machine: str = ""
    """A machine of tests and simulations; empty means this computer, whose control groups are managed."""


@dataclass(frozen=True, slots=True)
class Startup:
    """Everything that is known before the first connection."""

    configuration: AgentConfiguration
    load: Callable[[], AgentConfiguration]
    """Reads the configuration again."""
    machine: Machine
    cgroups: CGroups
    node: str
    """Name of the node in the cluster."""
    root: str = ""
    """Folder that stands for ``/`` where interrupts and online CPUs are managed; empty: nowhere."""
    beside: KubeletFinder | None = None
    """Finds this computer's kubelet; None on a machine that is not this computer."""


def read_startup(asked: AgentCommand) -> Startup:
    """Read configuration and machine.

    Raises:
        InputError: one of them cannot be used, or a kubelet of this node manages CPUs or memory itself.
    """
    beside = None if asked.machine else KubeletFinder()

    def load() -> AgentConfiguration:
        # At a boot the agent is there before the kubelet, so that its flags are asked for each time.
        flags = None if beside is None else beside.flags()
        configuration = load_agent_configuration(asked.config, flags)
        options = overridden(configuration.options, state_dir=asked.state_dir, nri_socket=asked.nri_socket)
        return replace(configuration, options=options)

    configuration = load()
    machine = load_machine(asked.machine)
    if machine.info_error:
        raise InputError(f"cannot be described: {machine.info_error}", source=machine.name)
    if not asked.machine:
        configuration, machine = with_known_cpus(configuration, machine)
    cgroups: CGroups = UnseenCGroups() if asked.machine else KernelCGroups(find_layout())
    flags = None if beside is None else beside.flags()
    name = configuration.options.node_name or (flags.node if flags is not None else "") or socket.gethostname().lower()
    return Startup(configuration, load, machine, cgroups, name, "" if asked.machine else "/", beside)


def resume_state(startup: Startup, stored: Stored, observer: Observer | None = None) -> EventOutcome:
    """Return the agent's state after a start, and the reports about what was kept of it.

    Args:
        startup: what the agent runs with.
        stored: what was read of the state folder.
        observer: receives the engine's facts.

    Raises:
        InputError: the engine does not start.
    """
    configuration = startup.configuration
    return resume(
        startup.machine.info,
        configuration.kubelet,
        configuration.mooring,
        stored,
        choices_of(configuration.options),
        observer,
        configuration.source,
    )


def choices_of(options: AgentOptions) -> Options:
    """Return what of the options the reactor decides by."""
    return Options(
        evict=options.on_rejection is OnRejection.EVICT,
        opt_out_annotation=options.opt_out_annotation,
        place_while_unwritable=options.place_while_unwritable,
        telling=options.assigned,
        assigned_dir=options.assigned_dir,
        assigned_mount_path=options.assigned_mount_path,
    )


def with_known_cpus(configuration: AgentConfiguration, found: Machine) -> tuple[AgentConfiguration, Machine]:
    """Return the machine with its offline CPUs too, where CPU hotplug is on; what is odd becomes a finding."""
    if CPU_HOTPLUG not in configuration.mooring.extensions:
        return configuration, found
    known, problem = known_machine(Path(configuration.options.state_dir), found)
    if problem:
        odd = Finding("warning", "the machine's description", problem)
        configuration = replace(configuration, findings=(*configuration.findings, odd))
    return configuration, known


def known_machine(folder: Path, found: Machine) -> tuple[Machine, str]:
    """Return the machine that is there now, completed by what was kept of it.

    Args:
        folder: of the agent's state.
        found: as the kernel shows it.
    """
    try:
        kept, text = None, read_state_file(folder / MACHINE_FILE)
        if text is not None:
            kept = parse_machine_info(text.encode(errors="surrogateescape"), str(folder / MACHINE_FILE)).info
    except InputError as error:
        return found, str(error)
    if kept is None:
        return found, ""
    here, there = _places(found.info), _places(kept)
    if not here.items() <= there.items():
        problem = f"{MACHINE_FILE}: is about another machine, or one with fewer CPUs; what the kernel shows now counts"
        return found, problem
    # With the memory of today: that may be another after a boot
    now = {node.node_id: node for node in found.info.topology}
    info = replace(
        kept,
        memory_capacity=found.info.memory_capacity,
        hugepages=found.info.hugepages,
        swap_capacity=found.info.swap_capacity,
        topology=tuple(
            replace(node, memory=now[node.node_id].memory, hugepages=now[node.node_id].hugepages)
            if node.node_id in now
            else node
            for node in kept.topology
        ),
        facts=found.info.facts,
    )
    return replace(found, info=info), ""


def keep_machine(folder: Path, machine: Machine) -> str:
    """Keep the description of a whole machine; return the problem in words, empty when there is none."""
    text = json.dumps({"name": machine.name, "note": "", "info": machine_info_document(machine.info)})
    try:
        make_folder(folder)
        if read_state_file(folder / MACHINE_FILE) != text:
            write_together(folder, {MACHINE_FILE: text})
    except InputError as error:
        return str(error)
    return ""


def _places(info: MachineInfo) -> Mapping[int, tuple[int, int, int]]:
    """Return NUMA node, socket and core id of every CPU."""
    return {
        cpu: (node.node_id, core.socket_id, core.core_id)
        for node in info.topology
        for core in node.cores
        for cpu in core.thread_ids
    }


def serve(
    options: AgentOptions,
    provider: Published,
    holder: StateHolder,
    metrics: AgentMetrics,
    heartbeat: Heartbeat,
    opened: ExitStack,
    log: Log,
) -> tuple[str, int] | None:
    """Serve status, metrics, health, PodResources and claims; return the address of metrics, None without one.

    Args:
        options: of the agent.
        provider: has the newest snapshot.
        holder: has the state.
        metrics: of the agent.
        heartbeat: of the agent's main thread.
        opened: closes the servers at the end.
        log: of the agent.

    Raises:
        InputError: a socket or address cannot be used.
    """
    address: tuple[str, int] | None = None
    if options.status_socket:
        opened.callback(serve_unix(options.status_socket, status_pages(provider, metrics.counts)).close)
    if options.metrics_address is not None:
        pages = {**health_pages(provider, heartbeat), "/metrics": metrics.page}
        server = serve_tcp(options.metrics_address, pages)
        opened.callback(server.close)
        address = server.address
    if options.pod_resources_socket:
        served = serve_pod_resources(options.pod_resources_socket, lambda: provider.snapshot().state.kubelet.node, log)
        opened.callback(served.close)
    if options.claims_socket:
        opened.callback(serve_claims(options.claims_socket, provider, holder, log).close)
    return address


def start_publisher(
    startup: Startup,
    provider: Published,
    report: Report,
    offered: Callable[[], Mapping[str, tuple[Device, ...]]] | None = None,
) -> PublisherThread:
    """Start the publisher beside the agent.

    Args:
        startup: what the agent runs with.
        provider: has the newest snapshot.
        report: receives outages.
        offered: returns the devices of the node, by resource and driver; None where they are not known.

    Raises:
        InputError: there is no kubeconfig, or it cannot be used.
    """
    path = startup.configuration.options.kubeconfig
    if not path:
        raise InputError("needs the API server", field="publish", remedy="write kubeconfig, or publish: false")
    last: tuple[Kubelet, Mapping[str, tuple[Device, ...]], Kubelet] | None = None

    def kubelet() -> Kubelet:
        nonlocal last
        now = provider.snapshot().state.kubelet
        if offered is None:
            return now
        devices = offered()
        if last is None or last[0] is not now or last[1] != devices:
            last = now, devices, now.with_devices(now.node.providers.devices.offering(devices))
        return last[2]

    connect = own_accounts(path).get(AgentAccount.PUBLISH) or connector(path)
    return publisher.PublisherThread(kubelet, connect, startup.node, report)
