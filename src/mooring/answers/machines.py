"""``mooring machines``: the machines that come with Mooring, what is assumed of them, and where the facts are."""

from __future__ import annotations

import click

from mooring.cli import options
from mooring.cli.output import YES, Verb, emit
from mooring.cli.terminal import text_for
from mooring.lazy import lazily

with lazily():
    from rich.table import Table
    from rich.text import Text

    from mooring.inputs.machines.loader import SHIPPED

EPILOG = """\b
Examples:
  mooring machines
  mooring machines --to machines.txt
"""


@click.command("machines", cls=Verb, epilog=EPILOG)
@options.to_file
def command(to: str) -> int:
    """List the machines that --machine takes by name: what each is, its text, what is assumed, its source.

    Amounts behind the name replace those of the machine: --machine "hgx-8gpu memory=1Ti hugepages-1Gi=64
    nvidia.com/gpu=4 node0.memory=768Gi".
    """
    table = Table(box=None, padding=(0, 2, 0, 0), show_edge=False, show_header=False)
    table.add_column(no_wrap=True)
    table.add_column(overflow="fold")
    for name, one in SHIPPED.items():
        assumed = " ".join(f"{word} (assumed)" for word in one.assumed.split())
        lines = (one.description, one.text, assumed, *one.source.split())
        table.add_row(Text(name), Text("\n".join(filter(None, lines))))
    emit(text_for(table, to), to)
    return YES
