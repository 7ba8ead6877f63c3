"""Writing answers: to the terminal or, in one replace, to a file."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click
import msgspec

from mooring.checkpoint.store import write_atomically
from mooring.core.machine import Finding

YES = 0
NO = 1


def emit(text: str, to: str = "") -> None:
    """Print a text, or write it to the file ``to``.

    Raises:
        InputError: the file cannot be written.
    """
    text = text if text.endswith("\n") else text + "\n"
    if to:
        write_atomically(Path(to), text)
    else:
        click.echo(text, nl=False)


def json_text(document: Any) -> str:
    """Return a document as indented JSON."""
    return msgspec.json.format(msgspec.json.encode(document), indent=2).decode()


def warn(findings: tuple[Finding, ...]) -> None:
    """Print the warnings among the findings to standard error, one line each."""
    for finding in findings:
        if finding.severity != "warning":
            continue
        click.echo(f"{finding.severity}: {finding.subject}: {finding.message}", err=True)
