"""Writing answers: documents as UTF-8, texts for people in what their terminal understands."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import click

from mooring.cli.destination import STANDARD_OUTPUT, write_answer

if TYPE_CHECKING:
    from mooring.core.machine import Finding

YES = 0
NO = 1


def emit(text: str, to: str = "") -> None:
    """Write a text for people to the terminal, or to the file ``to``.

    Raises:
        InputError: it cannot be written.
    """
    on_terminal = to in ("", STANDARD_OUTPUT)
    encoding = (getattr(sys.stdout, "encoding", None) if on_terminal else None) or "utf-8"
    write_answer(_ended(text).encode(encoding, "replace"), to)


def emit_document(text: str, to: str = "") -> None:
    """Write a document for programs, such as JSON, YAML or SVG: UTF-8 whatever the terminal's encoding.

    Raises:
        InputError: it cannot be written.
    """
    write_answer(_ended(text).encode("utf-8", "backslashreplace"), to)


def _ended(text: str) -> str:
    return text if text.endswith("\n") else f"{text}\n"


def json_text(document: Any) -> str:
    """Return a document as indented JSON."""
    import msgspec  # noqa: PLC0415 - only for documents

    try:
        return msgspec.json.format(msgspec.json.encode(document), indent=2).decode()
    except UnicodeEncodeError:
        # A name with bytes that are not UTF-8, as a file can have: JSON can escape what UTF-8 cannot say.
        import json  # noqa: PLC0415 - for these only

        return json.dumps(msgspec.to_builtins(document), indent=2)


def warn(findings: Iterable[Finding]) -> None:
    """Print the warnings among the findings to standard error, one line each."""
    for finding in findings:
        if finding.severity == "warning":
            mark = f"[{finding.code}]" if finding.code else ""
            click.echo(f"warning{mark}: {finding.subject}: {' '.join(finding.message.split())}", err=True)
