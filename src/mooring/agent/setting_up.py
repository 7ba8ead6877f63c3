"""What an agent begins with: the node that it is on, read once."""

from __future__ import annotations

import socket
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

from mooring.agent.cgroups.kernel import KernelCGroups
from mooring.agent.cgroups.layout import find_layout
from mooring.agent.cgroups.protocol import CGroups
from mooring.agent.cgroups.unseen import UnseenCGroups
from mooring.agent.configuration import AgentConfiguration, load_agent_configuration
from mooring.agent.known_machine import known_machine
from mooring.agent.kubelet_beside import KubeletBeside
from mooring.agent.options import overridden
from mooring.core.config import CPU_HOTPLUG
from mooring.core.errors import InputError
from mooring.core.machine import Finding, Machine
from mooring.discovery.loader import load_machine


@dataclass(frozen=True, slots=True)
class Asked:
    """The agent's command line."""

    config: str
    """The agent's file."""
    state_dir: str = ""
    """In place of the file's ``stateDir``."""
    nri_socket: str = ""
    """In place of the file's ``nriSocket``."""
    machine: str = ""
    """A machine of tests and simulations; empty means this computer, whose control groups are looked after."""


@dataclass(frozen=True, slots=True)
class Beginning:
    """Everything that is known before the first connection."""

    configuration: AgentConfiguration
    load: Callable[[], AgentConfiguration]
    """Reads the configuration anew."""
    machine: Machine
    cgroups: CGroups
    node: str
    """Name of the node in the cluster."""
    root: str = ""
    """Folder that stands for ``/`` where interrupts and online CPUs are looked after; empty: nowhere."""
    beside: KubeletBeside | None = None
    """Looks for this computer's kubelet; None where there is none to look for."""


def beginning_of(asked: Asked) -> Beginning:
    """Read configuration and machine.

    Raises:
        InputError: one of them cannot be used, or a kubelet of this node manages CPUs or memory itself.
    """
    beside = None if asked.machine else KubeletBeside()

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
    return Beginning(configuration, load, machine, cgroups, name, "" if asked.machine else "/", beside)


def with_known_cpus(configuration: AgentConfiguration, found: Machine) -> tuple[AgentConfiguration, Machine]:
    """Return the machine with its offline CPUs too, where they may come and go; what is odd becomes a finding."""
    if CPU_HOTPLUG not in configuration.mooring.extensions:
        return configuration, found
    known = known_machine(Path(configuration.options.state_dir), found)
    if known.problem:
        odd = Finding("warning", "the machine's description", known.problem)
        configuration = replace(configuration, findings=(*configuration.findings, odd))
    return configuration, known.machine
