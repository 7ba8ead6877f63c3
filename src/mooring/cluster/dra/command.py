"""``mooring dra``: be the driver of dynamic resource allocation for the CPUs of this node.

It starts unless the kubelet owns the CPUs, reconciles every second, and stops.
"""

from __future__ import annotations

import json
import time
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from mooring.cli import options
from mooring.cli.options import complete_file, complete_folder
from mooring.cli.output import YES, Verb, needs_extra
from mooring.engine.core.errors import InputError, MooringError
from mooring.lazy import lazily

with lazily():
    from mooring.cluster.dra import cdi, devices, driver, objects, plugin
    from mooring.inputs.configuration import node_configuration
    from mooring.inputs.machines import loader
    from mooring.service import apiserver, daemon, http, logs
    from mooring.service import options as service_options

if TYPE_CHECKING:
    import threading

    from mooring.cluster.dra.devices import Grouping
    from mooring.cluster.dra.driver import Reconciler
    from mooring.cluster.dra.objects import AgentNode, ClaimsClient
    from mooring.cluster.dra.plugin import Health
    from mooring.service.logs import Log

PERIOD: Final = 1.0
"""Seconds between two reconciliations."""

GROUPS = ("numa", "socket", "l3", "machine", "core", "cpu")

EPILOG = """\b
Examples:
  mooring dra --node-name node-1 --kubeconfig /etc/kubernetes/mooring.conf
  mooring dra --group l3 --health-address 127.0.0.1:9478
  mooring dra --group cpu --kubelet-root /var/lib/kubelet --cdi-root /etc/cdi
"""


@click.command("dra", cls=Verb, epilog=EPILOG)
@click.option(
    "--agent",
    "agent",
    default="/run/mooring/claims.sock",
    show_default=True,
    metavar="SOCKET",
    shell_complete=complete_file,
    help="The agent's claimsSocket: the agent allocates the CPUs.",
)
@options.kubeconfig("the service account of the pod that this runs in")
@options.node_name("the agent's")
@click.option(
    "--group",
    "grouping",
    type=click.Choice(GROUPS),
    default="numa",
    show_default=True,
    help="What a device is: a group whose CPUs the engine chooses from, or a whole core or CPU.",
)
@click.option("--whole", is_flag=True, help="Give devices whole: a claim asks for a count of them.")
@click.option(
    "--driver-name",
    "name",
    default="cpu.mooring.dev",
    show_default=True,
    metavar="NAME",
    help="Name of the driver, as device classes select it.",
)
@options.kubelet_root("The kubelet's root directory.", "/var/lib/kubelet")
@click.option(
    "--kubelet-config",
    "kubelet_config",
    default="",
    metavar="FILE",
    shell_complete=complete_file,
    help="The kubelet's configuration, to check that it does not manage CPUs.",
)
@click.option(
    "--cdi-root",
    "cdi_root",
    default="/var/run/cdi",
    show_default=True,
    metavar="DIR",
    shell_complete=complete_folder,
    help="Where the runtime reads devices (cdi_spec_dirs).",
)
@options.machine
@click.option("--pcie-roots", "pcie_roots", is_flag=True, help="Publish PCIe roots (gate DRAListTypeAttributes).")
@click.option(
    "--numa-node-list",
    "numa_node_list",
    is_flag=True,
    help="Publish numaNode as a list, with the nearest NUMA nodes of the socket (gate DRAListTypeAttributes).",
)
@click.option(
    "--node-allocatable",
    "node_allocatable",
    is_flag=True,
    help="Count claims against the node's allocatable CPUs (gate DRANodeAllocatableResources).",
)
@click.option("--immediate", is_flag=True, help="Immediately allocate claims that request it and name this node.")
@click.option(
    "--health-address", "health", default="", metavar="HOST:PORT", help="Serve /healthz, /readyz and /metrics there."
)
@click.option("--log-format", "log_format", type=click.Choice(("json", "console")), default="json", show_default=True)
@click.option(
    "--log-level",
    "log_level",
    type=click.Choice(("debug", "info", "warning", "error")),
    default="info",
    show_default=True,
)
def command(
    agent: str,
    kubeconfig: str,
    node_name: str,
    grouping: str,
    name: str,
    kubelet_root: str,
    kubelet_config: str,
    cdi_root: str,
    machine: str,
    health: str,
    log_format: str,
    log_level: str,
    *,
    whole: bool,
    pcie_roots: bool,
    numa_node_list: bool,
    node_allocatable: bool,
    immediate: bool,
) -> int:
    """Publish this node's CPUs as devices and prepare claims to them, until SIGTERM or SIGINT.

    The agent of this node runs beside it and owns the CPUs; the kubelet has CPU manager policy none.

    With --machine, for tests and simulations, kinds of cores are those of another machine.
    """
    with needs_extra("dra", source="mooring dra"), ExitStack() as opened:
        group, root = devices.Grouping(grouping), Path(kubelet_root).absolute()
        address = service_options.parse_address(health, source="--health-address")
        roots = devices.pcie_roots() if pcie_roots else {}
        sysfs = Path("/" if machine in ("", loader.LIVE) else machine) / "sys"
        hardware = loader.load_machine(machine).hardware
        if immediate and (whole or group.is_whole):
            problem = "allocates capacity, which devices that are given whole do not have"
            raise InputError(problem, source="--immediate", remedy="leave it out, or --whole")
        _refuse_static_kubelet(root, kubelet_config)
        open_config = partial(apiserver.configuration_of, kubeconfig or None)
        open_config()
        claims = objects.ClaimsClient(agent)
        now = _first_node(claims, agent, group)
        # The kubelet waits for the driver, so the driver must not wait for a reader of its log.
        form, level = service_options.LogFormat(log_format), service_options.LogLevel(log_level)
        log, lines = logs.open_log(form, level, name="mooring.cluster.dra")
        opened.callback(lines.finish, logs.LAST_LINES)
        node = node_name or now.node
        api = objects.ClaimObjects(lambda: apiserver.cluster_of(open_config()))
        opened.callback(api.close)
        publisher = devices.SlicePublisher(
            name, node, group, api, log, hardware, roots, numa_node_list, whole, node_allocatable
        )
        specs = cdi.CDISpecs(Path(cdi_root).absolute(), name)
        specs.tidy()
        own = driver.Driver(claims, specs, publisher)
        device_health = plugin.DeviceHealth(node, sysfs)
        reconciler = driver.Reconciler(own, device_health, immediate=immediate)
        state = plugin.Health()
        metrics = plugin.DriverMetrics(state.is_ready)
        served = plugin.Plugin(own, root / "plugins" / name, root / "plugins_registry", metrics, device_health)
        opened.callback(served.close)
        state.is_registered = served.registered.is_set
        if address is not None:
            pages = {"/healthz": state.page, "/readyz": state.page, "/metrics": metrics.page}
            opened.callback(http.serve_tcp(address, pages).close)
        log.info("driver started", driver=name, node=node, group=group.value)
        with daemon.stop_signals() as stop:
            _until(stop, reconciler, state, log)
        log.info("driver stopped")
    return YES


def _first_node(claims: ClaimsClient, agent: str, grouping: Grouping) -> AgentNode:
    try:
        now = claims.node()
    except objects.ClaimsError as error:
        raise InputError(str(error)) from None
    if not now.is_static:
        raise InputError(
            "the agent's CPU manager policy is none, so no CPU can be claimed",
            source=agent,
            remedy="give the agent cpuManagerPolicy: static",
        )
    if grouping is devices.Grouping.CPU and now.room.whole_cores and now.room.group_size > 1:
        raise InputError(
            "single CPUs are not whole cores, which the agent's full-pcpus-only requires",
            source="--group cpu",
            remedy="use --group core",
        )
    return now


def _until(stop: threading.Event, reconciler: Reconciler, health: Health, log: Log) -> None:
    while True:
        try:
            reconciler.reconcile(time.monotonic())
            problem = ""
        except MooringError as error:
            problem = str(error)
        if problem and problem != health.problem:
            log.warning("reconciliation failed", problem=problem)
        health.problem = problem
        if stop.wait(PERIOD):
            return


_REMEDY: Final = "let mooring agent place containers, and set the kubelet's cpuManagerPolicy to none"


def _refuse_static_kubelet(kubelet_root: Path, configuration: str) -> None:
    """Refuse a node whose kubelet gives exclusive CPUs itself.

    Args:
        kubelet_root: the kubelet's root directory, with its state file.
        configuration: the kubelet's file; empty when it is not named.

    Raises:
        InputError: the kubelet's CPU manager has the policy static.
    """
    state = kubelet_root / "cpu_manager_state"
    if configuration and node_configuration.load_config(configuration).kubelet.cpu_manager_policy == "static":
        problem = "the kubelet gives CPUs to containers itself (cpuManagerPolicy: static), and two cannot own them"
        raise InputError(problem, source=configuration, remedy=_REMEDY)
    try:
        content = json.loads(state.read_bytes())
    except (OSError, ValueError, RecursionError):
        return
    if isinstance(content, dict) and content.get("policyName") == "static":
        problem = "the kubelet gives CPUs to containers itself (its policy is static), and two cannot own them"
        raise InputError(problem, source=str(state), remedy=_REMEDY)
