"""Candidates for the values of options; the shell asks for them, and nobody else pays for them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem


def complete_file(_context: click.Context, _parameter: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Let the shell complete a file."""
    from click.shell_completion import CompletionItem  # noqa: PLC0415 - only for shells

    return [CompletionItem(incomplete, type="file")]


def complete_folder(_context: click.Context, _parameter: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Let the shell complete a directory."""
    from click.shell_completion import CompletionItem  # noqa: PLC0415 - only for shells

    return [CompletionItem(incomplete, type="dir")]


def complete_machine(context: click.Context, parameter: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Complete the name of a shipped machine; what begins none of them is a file."""
    from click.shell_completion import CompletionItem  # noqa: PLC0415 - only for shells

    from mooring.discovery.shipped import SHIPPED  # noqa: PLC0415 - only for shells

    named = [
        CompletionItem(name, help=shipped.description)
        for name, shipped in SHIPPED.items()
        if name.startswith(incomplete)
    ]
    return named or complete_file(context, parameter, incomplete)
