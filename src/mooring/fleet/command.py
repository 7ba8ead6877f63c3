"""``mooring fleet``: what would a whole cluster do? The options of its questions, and reading what they name."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields
from functools import reduce, wraps
from importlib import import_module
from typing import TYPE_CHECKING, Any

import click

from mooring.cli import options
from mooring.cli.output import emit_document, needs_extra
from mooring.lazy import lazily

with lazily():
    from mooring.cli import terminal
    from mooring.fleet import event_files, work_files
    from mooring.published import cluster_objects
    from mooring.views import html as pages
    from mooring.views.svg import plot as plots

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from rich.console import RenderableType

    from mooring.documents.plan import DocumentPart
    from mooring.fleet.cluster import NodeCluster, Work
    from mooring.fleet.live_cluster import LiveCluster
    from mooring.views.svg.plot import Plot

QUESTIONS: Mapping[str, str] = {
    "compare": "Compare configurations, strategies and releases for the same work.",
    "drain": "Show where the pods of drained nodes find a place.",
    "fit": "Count the replicas that fit, and the pods to move for more.",
    "simulate": "Show what a cluster does with its work.",
    "size": "Count the nodes that the work needs.",
    "upgrade": "Show what another release or configuration does with the pods.",
}
"""Question -> what ``mooring fleet --help`` says; help needs no import of them."""

EPILOG = """\b
Examples:
  mooring fleet simulate --cluster cluster.yaml -f work.yaml
  mooring fleet compare --cluster cluster.yaml -f work.yaml --strategy LeastAllocated --strategy MostAllocated
  mooring fleet size --cluster cluster.yaml -f work.yaml --group gpu
  mooring fleet fit --live -f deployment.yaml --replicas 40
  mooring fleet drain --live worker-1
  mooring fleet upgrade v1.37.1 --live
"""


class _Questions(click.Group):
    """A group whose questions are imported when they are asked."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 - click's signature
        """Return the names of all questions."""
        return sorted(QUESTIONS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002 - as above
        """Import one question."""
        if cmd_name not in QUESTIONS:
            return None
        room = "mooring.fleet.relocation" if cmd_name in ("drain", "fit", "upgrade") else "mooring.fleet"
        command = getattr(import_module(f"{room}.commands"), f"{cmd_name}_command")
        return command if isinstance(command, click.Command) else None

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002 - as above
        """List the questions without importing them."""
        with formatter.section("Questions"):
            formatter.write_dl(sorted(QUESTIONS.items()))

    def invoke(self, ctx: click.Context) -> object:
        """Answer a question; a package that is missing is named."""
        with needs_extra("fleet", source="mooring fleet"):
            return super().invoke(ctx)


@click.command("fleet", cls=_Questions, epilog=EPILOG, subcommand_metavar="QUESTION [ARGS]...")
def command() -> None:
    """Ask about a whole cluster, described or live: a model of the scheduler before nodes that decide as kubelets."""


@dataclass(frozen=True, slots=True)
class FleetOptions:
    """The options that name a cluster and its work, as typed."""

    cluster: str
    live: bool
    kubeconfig: str
    context: str
    machines: tuple[str, ...]
    config: tuple[str, ...]
    seed: int
    work: tuple[str, ...] = ()
    events: tuple[str, ...] = ()
    traces: tuple[str, ...] = ()
    stay: bool = False

    def read(self) -> LiveCluster:
        """Return the cluster as it is now; the nodes of a described one are empty.

        Raises:
            InputError: it cannot be read or understood.
            UsageError: options do not fit together.
        """
        if bool(self.cluster) == self.live:
            raise click.UsageError("give one of --cluster and --live")
        if self.live:
            objects = cluster_objects.read_cluster(self.kubeconfig, self.context)
            return event_files.live(objects, self.config, self.machines)
        if self.kubeconfig or self.context:
            raise click.UsageError("--kubeconfig and --context need --live")
        return event_files.load_cluster(self.cluster, self.config, self.machines)

    def read_cluster(self) -> NodeCluster:
        """Return the cluster with what happens to it.

        Raises:
            InputError: it cannot be read or understood.
        """
        if self.cluster or self.live:
            cluster = self.read().cluster
        elif len(self.traces) == 1:
            cluster = event_files.recorded_cluster(self.traces[0])
        else:
            raise click.UsageError("Missing option '--cluster' or '--live', or one '--trace' whose nodes it has.")
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


def _gathered(*added: Callable[..., Any]) -> Callable[..., Any]:
    """Return a decorator that adds options to a verb, which gets their values as :class:`FleetOptions`, ``inputs``."""
    names = frozenset(one.name for one in fields(FleetOptions))

    def decorator(function: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(function)
        def verb(**given: Any) -> Any:
            return function(inputs=FleetOptions(**{name: given.pop(name) for name in names & given.keys()}), **given)

        return reduce(lambda made, option: option(made), reversed(added), verb)

    return decorator


def file_option(*names: str, help: str, metavar: str = "FILE", **more: Any) -> Callable[..., Any]:  # noqa: A002 - click's
    """Return an option that names files and is repeatable, unless it has a default."""
    more.setdefault("multiple", "default" not in more)
    return click.option(*names, metavar=metavar, shell_complete=options.complete_file, help=help, **more)


_cluster_options = (
    file_option(
        "--cluster",
        "cluster",
        default="",
        metavar="FILE|-",
        help="The cluster: a document of kind Cluster, what kubectl get nodes,pods -A -o json prints, or an archive of "
        "mooring collect --cluster.",
    ),
    click.option("--live", is_flag=True, help="Ask the API server instead."),
    options.kubeconfig("with --live as kubectl's"),
    click.option("--context", default="", help="Context of the kubeconfig. Default: the current one."),
    click.option(
        "--machine",
        "machines",
        multiple=True,
        metavar="KIND:MACHINE",
        help="Machine of nodes of a live cluster that publish nothing: KIND is an instance type, label=value or *; "
        "repeatable.",
    ),
    file_option("--config", "config", help="Configuration of kubelets of which none is known; repeatable."),
    click.option("--seed", default=0, show_default=True, help="Of ties among nodes, and of generated work."),
)
cluster_options = _gathered(*_cluster_options)
"""Adds the options that name a cluster, described or live."""
fleet_options = _gathered(
    *_cluster_options[:1],
    file_option(
        "-f",
        "--filename",
        "work",
        help="The work: manifests, lines of JSON with times (.jsonl), or a document of kind GeneratedWork; repeatable.",
    ),
    *_cluster_options[1:-1],
    file_option(
        "--events",
        "events",
        help="Drains, restarts, taints and other events over time: a document of kind ClusterEvents; repeatable.",
    ),
    file_option(
        "--trace",
        "traces",
        metavar="RECORDING",
        help="More work: what mooring record saw of nodes, a folder or a file; without --cluster and --live its nodes "
        "are the cluster; repeatable.",
    ),
    click.option("--stay", is_flag=True, help="Pods that are on a node stay there: what fits, and what it leaves."),
    *_cluster_options[-1:],
)
"""Adds the options that name a cluster with its work."""

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

resume = file_option(
    "--resume",
    default="",
    metavar="FOLDER",
    help="Keep each finished simulation in a folder, and take from it those that it has.",
)


def print_answer(
    form: str, to: str, answer: DocumentPart, parts: Iterator[RenderableType], plot: Plot | None = None
) -> None:
    """Print an answer in a form, or write it to a file: its document, its drawing, or its text."""
    if plot is not None and form in ("html", "svg"):
        emit_document(pages.plot_page_text(plot) if form == "html" else plots.plot_svg(plot), to)
    else:
        terminal.print_answer(form, to, answer, parts)
