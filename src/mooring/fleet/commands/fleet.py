"""``mooring fleet``: what would a whole cluster do?"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

import click

from mooring.cli.output import needs_extra

if TYPE_CHECKING:
    from collections.abc import Mapping

QUESTIONS: Mapping[str, str] = {
    "compare": "Compare configurations, strategies and releases for the same work.",
    "drain": "Show where the pods of drained nodes of a live cluster find a place.",
    "fit": "Count the replicas that fit into a live cluster, and the pods to move for more.",
    "simulate": "Show what a cluster does with its work.",
    "size": "Count the nodes that the work needs.",
    "upgrade": "Show what another release or configuration does with the pods of a live cluster.",
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
        module = "simulation" if cmd_name in {"compare", "simulate", "size"} else "relocation"
        command = getattr(import_module(f"mooring.fleet.commands.{module}"), f"{cmd_name}_command")
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
