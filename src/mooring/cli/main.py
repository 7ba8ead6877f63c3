"""The entry point: finds the verb, and turns bad input into one line and exit code 2.

Source of the exit codes: docs/reference/command-line.md.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from importlib import import_module

import click

VERBS: Mapping[str, str] = {
    "plan": "What would this node do with these pods?",
    "replay": "Run recorded scenarios and compare.",
    "show": "Draw a machine and who owns what.",
    "topology": "Show a machine as it is and as the kubelet sees it.",
}
"""Verb -> what ``mooring --help`` says; kept here so that help needs no import of the verbs."""

EPILOG = """\b
Examples:
  mooring topology
  mooring plan -f pods.yaml --machine epyc-7763-2s-nps4 --config kubelet.yaml
  mooring show -f pods.yaml --machine epyc-7763-2s-nps4 --config kubelet.yaml -o svg --to node.svg
"""


class Verbs(click.Group):
    """A group whose verbs are imported when they are called."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 - click's signature
        """Return the names of all verbs."""
        return sorted(VERBS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002 - as above
        """Import one verb."""
        if cmd_name not in VERBS:
            return None
        command = import_module(f"mooring.cli.verbs.{cmd_name}").command
        if not isinstance(command, click.Command):
            raise TypeError(f"the verb {cmd_name} has no command")
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Find a verb, and name the nearest ones for a misspelt one."""
        name = args[0] if args else ""
        if name and not name.startswith("-") and name not in VERBS:
            from difflib import get_close_matches  # noqa: PLC0415 - only for mistakes

            near = get_close_matches(name, VERBS, n=1)
            hint = f"; did you mean {near[0]!r}?" if near else f"; verbs are {', '.join(sorted(VERBS))}"
            raise click.UsageError(f"no such verb: {name!r}{hint}")
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002 - as above
        """List the verbs without importing them."""
        with formatter.section("Verbs"):
            formatter.write_dl(sorted(VERBS.items()))


@click.group(
    cls=Verbs,
    epilog=EPILOG,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110},
)
@click.version_option(package_name="mooring", message="%(prog)s %(version)s (decisions of kubelet v1.37.1)")
def cli() -> None:
    """Mooring: the kubelet's CPU, memory, device and topology managers, with no cluster."""


def main() -> None:
    """Run the command line and exit with its code."""
    from mooring.core.errors import MooringError  # noqa: PLC0415 - help and completion need no core

    try:
        code = cli.main(standalone_mode=False)
        sys.stdout.flush()
    except click.exceptions.Abort:
        code = 130
    except click.ClickException as error:
        error.show()
        code = error.exit_code
    except BrokenPipeError:
        # The reader went away, as in `mooring show | head`: nothing is wrong, and nothing more can be said.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        code = 0
    except MooringError as error:
        click.echo(f"mooring: {error}", err=True)
        code = 2
    sys.exit(code if isinstance(code, int) else 0)
