"""``mooring dra``: be the driver of dynamic resource allocation for the CPUs of this node."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from mooring.cli import options
from mooring.cli.options import complete_file, complete_folder
from mooring.cli.output import YES, Verb, needs_extra
from mooring.lazy import lazily

with lazily():
    from mooring.cluster.dra import devices, run
    from mooring.inputs.machines import loader
    from mooring.service import options as service_options


if TYPE_CHECKING:
    from collections.abc import Callable

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
def command(machine: str, *, pcie_roots: bool, **given: Any) -> int:
    """Publish this node's CPUs as devices and prepare claims to them, until SIGTERM or SIGINT.

    The agent of this node runs beside it and owns the CPUs; the kubelet has CPU manager policy none.

    With --machine, for tests and simulations, kinds of cores are those of another machine.
    """
    with needs_extra("dra", source="mooring dra"):
        read: dict[str, Callable[[str], object]] = {
            "grouping": devices.Grouping,
            "kubelet_root": lambda path: Path(path).absolute(),
            "cdi_root": lambda path: Path(path).absolute(),
            "health": lambda text: service_options.parse_address(text, source="--health-address"),
            "log_format": service_options.LogFormat,
            "log_level": service_options.LogLevel,
        }
        given |= {name: reader(given[name]) for name, reader in read.items()}
        roots = devices.pcie_roots() if pcie_roots else {}
        sysfs = Path("/" if machine in ("", loader.LIVE) else machine) / "sys"
        hardware = loader.load_machine(machine).hardware
        run.run_driver(run.DriverOptions(hardware=hardware, pcie_roots=roots, sysfs=sysfs, **given))
    return YES
