"""The options that the questions of ``mooring fleet`` share, and reading what they name."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from functools import wraps
from typing import TYPE_CHECKING, Any

import click

from mooring.cli import options
from mooring.lazy import lazily

with lazily():
    from mooring.fleet import strategy
    from mooring.fleet.inputs import cluster_files, event_files, recordings, work_files

if TYPE_CHECKING:
    from mooring.fleet.cluster import NodeCluster
    from mooring.fleet.strategy import Strategy
    from mooring.fleet.work import Work


@dataclass(frozen=True, slots=True)
class FleetOptions:
    """The options that name a cluster and its work, as typed."""

    cluster: str
    work: tuple[str, ...]
    config: tuple[str, ...]
    machines: tuple[str, ...]
    events: tuple[str, ...]
    traces: tuple[str, ...]
    stay: bool
    seed: int

    def read_cluster(self) -> NodeCluster:
        """Return the cluster.

        Raises:
            InputError: it cannot be read or understood.
        """
        if self.cluster:
            cluster = cluster_files.load_cluster(self.cluster, self.config, self.machines)
        elif len(self.traces) == 1:
            cluster = recordings.recorded_cluster(self.traces[0])
        else:
            raise click.UsageError("Missing option '--cluster', or one '--trace' whose nodes are the cluster.")
        for path in self.events:
            cluster = event_files.with_events(cluster, path)
        return cluster

    def read_work(self, number: int = 0) -> Work:
        """Return the work.

        Args:
            number: of the seed, from 0.

        Raises:
            InputError: it cannot be read or understood.
        """
        if not self.work and not self.traces:
            raise click.UsageError("Missing option '-f' / '--filename', or '--trace'.")
        return work_files.load_work(self.work, self.seed + number, traces=self.traces, stay=self.stay)


machines = click.option(
    "--machine",
    "machines",
    multiple=True,
    metavar="KIND:MACHINE",
    help="Machine of nodes of a live cluster that publish nothing: KIND is an instance type, label=value or *; "
    "repeatable.",
)
_OPTIONS = (
    click.option(
        "--cluster",
        "cluster",
        default="",
        metavar="FILE",
        shell_complete=options.complete_file,
        help="The nodes: a document of kind Cluster, a live cluster as kubectl get nodes,pods -A -o json prints it, or "
        "nodes of Alibaba's traces (.csv). Default: the nodes of --trace.",
    ),
    click.option(
        "-f",
        "--filename",
        "work",
        multiple=True,
        metavar="FILE",
        shell_complete=options.complete_file,
        help="The work: manifests, lines of JSON with times (.jsonl), pods of Alibaba's traces (.csv), or a document "
        "of kind GeneratedWork; repeatable.",
    ),
    click.option(
        "--config",
        "config",
        multiple=True,
        metavar="FILE",
        shell_complete=options.complete_file,
        help="Configuration of the nodes for which the cluster names none; repeatable.",
    ),
    machines,
    click.option(
        "--events",
        "events",
        multiple=True,
        metavar="FILE",
        shell_complete=options.complete_file,
        help="Drains, restarts, taints and other events over time: a document of kind ClusterEvents; repeatable.",
    ),
    click.option(
        "--trace",
        "traces",
        multiple=True,
        metavar="RECORDING",
        shell_complete=options.complete_file,
        help="More work: what mooring record saw of nodes, a folder or a file; repeatable.",
    ),
    click.option("--stay", is_flag=True, help="Pods that are on a node stay there: what fits, and what it leaves."),
    click.option("--seed", default=0, show_default=True, help="Of ties among nodes and of generated work."),
)


def fleet_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options that name a cluster and its work; the verb receives them as one value, ``inputs``."""
    names = [one.name for one in fields(FleetOptions)]

    @wraps(function)
    def verb(**given: Any) -> Any:
        return function(inputs=FleetOptions(**{name: given.pop(name) for name in names}), **given)

    added: Callable[..., Any] = verb
    for option in reversed(_OPTIONS):
        added = option(added)
    return added


STRATEGY_HELP = (
    "How pods are placed: LeastAllocated, MostAllocated or RequestedToCapacityRatio(0:0,100:10), with +extender for "
    "Mooring's extender, or +numa:SCORING for NodeResourceTopologyMatch (LeastAllocated, MostAllocated, "
    "BalancedAllocation, LeastNUMANodes), or +agent for Mooring's agent on the nodes"
)
scoring = click.option(
    "--strategy", "scoring", default="LeastAllocated", show_default=True, metavar="NAME", help=f"{STRATEGY_HELP}."
)
extender = click.option(
    "--extender", is_flag=True, help="With Mooring's extender: nodes that would refuse a pod are left out."
)
jobs = click.option(
    "--jobs", type=click.IntRange(1, 1024), default=1, show_default=True, help="Processes that simulate side by side."
)
dask = click.option("--dask", default="", metavar="ADDRESS", help="Simulate on the workers of a Dask scheduler.")

resume = click.option(
    "--resume",
    default="",
    metavar="FOLDER",
    shell_complete=options.complete_file,
    help="Keep each finished simulation in a folder, and take from it those that it has.",
)


def chosen_strategy(name: str, *, extender: bool = False) -> Strategy:
    """Return the strategy that was named.

    Raises:
        InputError: there is none of the name.
    """
    found = strategy.strategy_of(name)
    return replace(found, extender=True) if extender else found
