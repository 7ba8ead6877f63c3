"""``mooring collect -o text``: what was packed, and what was not."""

from __future__ import annotations

from collections.abc import Iterator

from rich.console import Group, RenderableType
from rich.text import Text

from mooring.cli.terminal import text_for
from mooring.documents.machine import ClusterArchiveDocument, NodeArchiveDocument
from mooring.engine.core.errors import clean
from mooring.explanations.phrases import plural, size
from mooring.views.console import new_table


def collect_text(about: NodeArchiveDocument, packed: int, written: str) -> str:
    """Return the summary.

    Args:
        about: what the archive says of itself.
        packed: its bytes.
        written: where it is; empty when nothing was written.
    """
    return text_for(Group(*_parts(about, packed, written)), "")


def _parts(about: NodeArchiveDocument, packed: int, written: str) -> Iterator[RenderableType]:
    node = clean(about.node) or "unknown node"
    kubelet = f"kubelet {clean(about.kubelet)}" if about.kubelet else "kubelet of unknown version"
    names = "; names of pods and namespaces are made up" if about.anonymous else ""
    yield Text.assemble((node, "bold"), f": {kubelet}{names}")
    yield Text("")
    table = new_table()
    table.add_column("part", no_wrap=True)
    table.add_column("files", justify="right", no_wrap=True)
    table.add_column("size", justify="right", no_wrap=True)
    table.add_column("from", overflow="fold")
    for part in about.parts:
        told = part.origin if part.files else "missing"
        told += f": {part.missing}" if part.missing else ""
        cells = (part.name, str(part.files or "–"), size(part.bytes) if part.files else "–", clean(told))
        table.add_row(*(Text(cell) for cell in cells))
    if about.unread:
        table.add_row(Text("unreadable"), Text(str(len(about.unread))), Text("–"), Text(_named(about)))
    yield table
    yield Text("")
    if written:
        asked = "" if written == "-" else f" Ask about it with --node {written}"
        yield Text(f"{written}: {size(packed)}.{asked}")
    else:
        yield Text("Nothing was written: this is a dry run.")


def collect_cluster_text(about: ClusterArchiveDocument, packed: int, written: str) -> str:
    """Return the summary about a cluster; see :func:`collect_text`."""
    table = new_table("kind")
    for heading in ("objects", "size"):
        table.add_column(heading, justify="right")
    for part in about.parts:
        table.add_row(part.name, str(part.objects or "–"), size(part.bytes) if part.objects else "–")
    said = f"{written}: {size(packed)}." + ("" if written == "-" else f" Ask about it with --cluster {written}")
    last = Text(said if written else "Nothing was written: this is a dry run.")
    return text_for(Group(Text("The cluster", "bold"), Text(""), table, Text(""), last), "")


def _named(about: NodeArchiveDocument) -> str:
    first = about.unread[0].path
    more = len(about.unread) - 1
    return f"/{clean(first)}" + (f" and {plural(more, 'more file')}" if more else "")
