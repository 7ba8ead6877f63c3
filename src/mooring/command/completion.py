"""``mooring completion``: the script that teaches a shell to complete mooring's words.

Completing words on a command line: names that Mooring knows, files for the rest.

Bash, zsh and fish ask through click's own scripts. Kubectl asks in the protocol of cobra: one candidate a line with its
description behind a tab, and a last line ``:N`` that says what the shell is to do besides.
Source: kubectl v1.26 and later, plugin completion; github.com/spf13/cobra, ShellCompDirective.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

import click
from click import shell_completion
from click.shell_completion import CompletionItem, ShellComplete

from mooring.cli import options
from mooring.cli.output import YES, Verb, emit, emit_document
from mooring.lazy import lazily

with lazily():
    from mooring.command import main


SHELLS: Final = ("bash", "zsh", "fish")

_FILES: Final = 0
_NO_FILES: Final = 4
_FOLDERS_ONLY: Final = 16


class _Bash(shell_completion.BashComplete):
    """Bash, for which an equals sign is a word: a value such as ``FIELD=VALUE`` is put together again."""

    def get_completion_args(self) -> tuple[list[str], str]:
        """Return the words before the one that is completed, and that one."""
        words, incomplete = super().get_completion_args()
        while words and (incomplete.startswith("=") or words[-1] == "="):
            incomplete = f"{words.pop()}{incomplete}"
        return words, incomplete

    def get_completions(self, args: list[str], incomplete: str) -> list[CompletionItem]:
        """Return the candidates, without what bash leaves as it is."""
        before = "".join(incomplete.rpartition("=")[:2])
        found = super().get_completions(args, incomplete)
        return [CompletionItem(one.value.removeprefix(before), one.type, one.help) for one in found]


def answer(instruction: str) -> int:
    """Answer a shell that asks for the script or for candidates, and return the exit code."""
    shell_completion.add_completion_class(_Bash)
    return shell_completion.shell_complete(main.cli, {}, main.PROGRAM, main.COMPLETION, instruction)


def script(command: click.Command, shell: str, program: str, variable: str) -> str:
    """Return the script that teaches a shell to complete a program.

    Args:
        command: the program's grammar.
        shell: one of :data:`SHELLS`.
        program: its name.
        variable: the environment variable by which the script asks.
    """
    kind = shell_completion.get_completion_class(shell)
    if kind is None:
        raise ValueError(f"click knows no shell {shell!r}")
    found = kind(command, {}, program, variable)
    # Not source(): for bash it first asks the bash that is installed here, which need not be the one that will run it.
    return found.source_template % found.source_vars()


def complete_for_kubectl(command: click.Command, words: Sequence[str]) -> None:
    """Print the completions of the last word as kubectl wants them."""
    *before, incomplete = words or [""]
    items = ShellComplete(command, {}, "kubectl mooring", "").get_completions(list(before), incomplete)
    for line in cobra_lines(items):
        emit(line)


def cobra_lines(items: Iterable[CompletionItem]) -> list[str]:
    r"""Return completions in cobra's protocol.

    >>> cobra_lines([CompletionItem("plan", help="What would this node do?"), CompletionItem("show")])
    ['plan\tWhat would this node do?', 'show', ':4']
    >>> cobra_lines([CompletionItem("po", type="file")])
    [':0']
    """
    lines: list[str] = []
    directive = _NO_FILES
    for item in items:
        if item.type == "plain":
            lines.append(f"{item.value}\t{item.help}" if item.help else str(item.value))
        else:
            directive = _FOLDERS_ONLY if item.type == "dir" else _FILES
    return [*lines, f":{directive}"]


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
    emit_document(script(main.cli, shell, main.PROGRAM, main.COMPLETION), to)
    return YES
