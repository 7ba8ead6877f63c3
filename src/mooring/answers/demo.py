"""``mooring demo``: pods, a configuration and a shipped machine; their plan, a rejection explained, the picture."""

from __future__ import annotations

import shlex
from importlib import resources
from pathlib import Path

import click

from mooring.cli.options import complete_folder
from mooring.cli.output import YES, Verb, emit, write_answer
from mooring.engine.core.errors import InputError

EPILOG = """\b
Examples:
  mooring demo
  mooring demo --to examples
"""
_FILES = ("pods.yaml", "kubelet.yaml")
_NODE = "-f {to}/pods.yaml --machine epyc-7763-2s-nps4 --config {to}/kubelet.yaml"
_COMMANDS = (f"plan {_NODE}", f"explain ai/inference {_NODE}", f"show {_NODE} -o svg --to {{to}}/node.svg")


@click.command("demo", cls=Verb, epilog=EPILOG)
@click.option(
    "--to", default="mooring-demo", show_default=True, metavar="DIR", shell_complete=complete_folder,
    help="Where pods.yaml, kubelet.yaml and node.svg are written.",
)  # fmt: skip
@click.pass_context
def command(context: click.Context, to: str) -> int:
    """Write example pods and a configuration, plan them, explain a rejection and draw the node.

    Each command is printed before it runs, so that it can be changed and typed again.
    """
    folder = Path(to)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for name in _FILES:
            content = resources.files(__package__).joinpath("demo", name).read_bytes()
            if not (folder / name).exists():
                write_answer(content, str(folder / name))
    except OSError as error:
        raise InputError(error.strerror or "cannot be written", source=to, field="--to") from None
    for line in _COMMANDS:
        words = shlex.split(line.format(to=shlex.quote(to)))
        emit(f"$ mooring {shlex.join(words)}")
        verb = context.find_root().command
        verb.main(words, prog_name=context.find_root().info_name, standalone_mode=False)
        emit("")
    emit(f"The picture of the node is {to}/node.svg: open it in a browser. Change the files, and ask again.")
    return YES
