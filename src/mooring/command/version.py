"""``mooring version``: what is installed."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from mooring.cli import options
from mooring.cli.output import YES, check_destination, emit, emit_document, json_text
from mooring.cli.verb import Verb
from mooring.lazy import lazily

with lazily():
    from mooring.documents import version

if TYPE_CHECKING:
    from mooring.documents.version import VersionDocument


EPILOG = """\b
Examples:
  mooring version
  mooring version -o json
"""


@click.command("version", cls=Verb, epilog=EPILOG)
@options.output(("text", "json"), "text")
@options.to_file
def command(form: str, to: str) -> int:
    """Show the versions of Mooring, of the kubelets that it knows, of its documents, of Python and of its packages."""
    check_destination(to)
    document = version.version_document()
    if form == "json":
        emit_document(json_text(document), to)
    else:
        emit("\n".join(_lines(document)), to)
    return YES


def _lines(document: VersionDocument) -> list[str]:
    python, releases = document.python, list(document.kubelet_releases.values())
    extras = ", ".join(f"{name}: {'yes' if there else 'no'}" for name, there in document.extras.items())
    installed = ", ".join(f"{name} {found}" for name, found in document.dependencies.items() if found is not None)
    lines = {
        "mooring": f"{document.mooring} (decisions of kubelet {document.kubelet})",
        "kubelets": ", ".join(releases),
        "documents": ", ".join(document.documents),
        "python": f"{python.version} ({python.implementation}), {python.machine}, {python.libc or 'unknown libc'}",
        "packages": installed or "unknown: Mooring runs from its source",
        "extras": extras or "unknown",
    }
    return [f"{name:11}{text}" for name, text in lines.items()]
