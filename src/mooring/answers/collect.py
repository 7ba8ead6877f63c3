"""``mooring collect``: pack what a question about a node needs into one file."""

from __future__ import annotations

from collections.abc import Iterator

import click
from rich.console import Group, RenderableType
from rich.text import Text

from mooring.cli import options, output
from mooring.cli.output import STANDARD_OUTPUT, YES, Verb, emit, emit_document, json_text, tell, warn, write_answer
from mooring.cli.terminal import text_for
from mooring.documents.machine import ClusterArchiveDocument, NodeArchiveDocument
from mooring.engine.core.errors import InputError, clean
from mooring.engine.core.machine import Finding
from mooring.explanations.phrases import plural, size
from mooring.lazy import lazily
from mooring.views.console import new_table

with lazily():
    from mooring.answers.base.inputs import collection as collect_inputs
    from mooring.published import cluster_objects


_SHOWN = 20
"""Warnings about single files; a computer that hides its sysfs would else print thousands."""

EPILOG = """\b
Examples:
  mooring collect --to node.tar.gz
  mooring collect --dry-run
  mooring collect --to node.tar.gz --anonymous --pods pods.json
  mooring collect --root /host --to - > node.tar.gz
  mooring collect --cluster --to cluster.tar.gz
  mooring plan -f new.yaml --node node.tar.gz

\b
What is in the archive and what never is: docs/reference/collect.md
"""


@click.command("collect", cls=Verb, epilog=EPILOG)
@options.text("--to", "FILE", "The archive, a .tar.gz; - is standard output.", options.complete_file)
@options.flag("--dry-run", "Show what would be packed; write nothing.")
@options.text(
    "--root",
    "DIR",
    "Root directory of the computer; /host in a debugging pod.",
    options.complete_folder,
    default="/",
    show_default=True,
)
@options.kubelet_root(
    "The kubelet's root directory, below --root. Default: the running kubelet's, or /var/lib/kubelet."
)
@options.texts(
    "--config",
    "FILE",
    "The kubelet's configuration, and Mooring's documents; repeatable. Default: the running kubelet's.",
    options.complete_file,
)
@options.texts(
    "--pods",
    "FILE|DIR|-",
    "The node's pods, as kubectl get pods -o json prints them; repeatable. Default: from kubectl.",
    options.complete_file,
)
@options.node_name("the kubelet's --hostname-override, or else the computer's name")
@options.text("--kubelet-version", "VERSION", "The kubelet's version, such as v1.37.1.", variable="version")
@click.option("--cluster", "whole", is_flag=True, help="Pack a whole cluster through its API server instead.")
@options.kubeconfig("with --cluster as kubectl's")
@click.option("--context", default="", help="Context of the kubeconfig. Default: the current one.")
@click.option("--kubectl/--no-kubectl", "cluster", default=True, help="Whether to query the cluster with kubectl.")
@options.flag("--anonymous", "Replace the names of pods, namespaces and the node with generated ones.")
@options.output(("text", "json"), "text")
def command(
    to: str,
    root: str,
    kubelet_root: str,
    config: tuple[str, ...],
    pods: tuple[str, ...],
    node_name: str,
    version: str,
    kubeconfig: str,
    context: str,
    form: str,
    *,
    whole: bool,
    dry_run: bool,
    cluster: bool,
    anonymous: bool,
) -> int:
    """Pack machine, configuration, state files and pods of this node, or a whole cluster; no secrets are packed.

    Files that cannot be read are named in a warning; the rest is packed.
    """
    if not to and not dry_run:
        raise InputError("is missing", field="--to", remedy="name the archive, such as node.tar.gz, or give --dry-run")
    if not dry_run:
        output.check_destination(to)
    if whole:
        if root != "/" or kubelet_root or config or pods or node_name or version or anonymous or not cluster:
            raise click.UsageError("with --cluster only --kubeconfig, --context, --to, --dry-run and -o")
        with output.needs_extra("fleet", source="mooring collect --cluster"):
            objects = cluster_objects.read_cluster(kubeconfig, context)
        archive = cluster_objects.ClusterArchive(objects, collect_inputs.captured_now())
        packed = b"" if dry_run else archive.packed()
        if not dry_run:
            write_answer(packed, to)
        warn(Finding("warning", "the API server", f"{one}; the rest is packed") for one in objects.unread)
        said = collect_cluster_text(archive.about, len(packed), "" if dry_run else to)
        _show(json_text(archive.about) if form == "json" else said, "" if dry_run else to, form)
        return YES
    if kubeconfig or context:
        raise click.UsageError("--kubeconfig and --context need --cluster")
    collection = collect_inputs.collection_of(
        collect_inputs.CollectOptions(root, kubelet_root, config, pods, node_name, version, cluster, anonymous)
    )
    packed = b"" if dry_run else collection.packed()
    if not dry_run:
        write_answer(packed, to)
    # Of many files that are there and could not be read, some are named
    unread = collection.about.unread
    found = [*collection.findings]
    found += [Finding("warning", f"/{one.path}", f"is not packed: {one.problem}") for one in unread[:_SHOWN]]
    if len(unread) > _SHOWN:
        more = f"{len(unread) - _SHOWN} more files could not be read and are not packed"
        found.append(Finding("warning", "collect", more))
    warn(found)
    said = collect_text(collection.about, len(packed), "" if dry_run else to)
    _show(json_text(collection.about) if form == "json" else said, "" if dry_run else to, form)
    return YES


def _show(answer: str, written: str, form: str) -> None:
    # An archive on standard output leaves no room there for anything else.
    if written == STANDARD_OUTPUT:
        tell(answer.rstrip("\n"))
    elif form == "json":
        emit_document(answer)
    else:
        emit(answer)


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
        count = len(about.unread)
        named = f"/{clean(about.unread[0].path)}" + (f" and {plural(count - 1, 'more file')}" if count > 1 else "")
        table.add_row(*map(Text, ("unreadable", str(count), "–", named)))
    yield table
    yield Text("")
    if written:
        asked = "" if written == "-" else f" Ask about it with --node {written}"
        yield Text(f"{written}: {size(packed)}.{asked}")
    else:
        yield Text("Nothing was written: this is a dry run.")


def collect_cluster_text(about: ClusterArchiveDocument, packed: int, written: str) -> str:
    """Return the summary about a cluster; see :func:`collect_text`."""
    table = new_table("kind", "objects", "size", right=(1, 2))
    for part in about.parts:
        table.add_row(part.name, str(part.objects or "–"), size(part.bytes) if part.objects else "–")
    said = f"{written}: {size(packed)}." + ("" if written == "-" else f" Ask about it with --cluster {written}")
    last = Text(said if written else "Nothing was written: this is a dry run.")
    return text_for(Group(Text("The cluster", "bold"), Text(""), table, Text(""), last), "")
