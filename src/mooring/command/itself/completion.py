"""``mooring completion``: the script that teaches a shell to complete mooring's words."""

from __future__ import annotations

import click

from mooring.cli import options
from mooring.cli.output import YES, check_destination, emit_document
from mooring.cli.verb import Verb
from mooring.command.completion import SHELLS, script
from mooring.lazy import lazily

with lazily():
    from mooring.command import main


EPILOG = """\b
Examples:
  source <(mooring completion bash)
  mooring completion bash --to ~/.local/share/bash-completion/completions/mooring
  mooring completion zsh --to ~/.zfunc/_mooring
  mooring completion fish --to ~/.config/fish/completions/mooring.fish
"""


@click.command("completion", cls=Verb, epilog=EPILOG)
@click.argument("shell", type=click.Choice(SHELLS))
@options.to_file
def command(shell: str, to: str) -> int:
    """Print the completion script of a shell: bash 4.4 or later, zsh, or fish."""
    check_destination(to)
    emit_document(script(main.cli, shell, main.PROGRAM, main.COMPLETION), to)
    return YES
