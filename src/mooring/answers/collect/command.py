"""``mooring collect``: pack what a question about a node needs into one file."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from mooring.cli import options
from mooring.cli.output import (
    STANDARD_OUTPUT,
    YES,
    Verb,
    check_destination,
    emit,
    emit_document,
    json_text,
    tell,
    warn,
    write_answer,
)
from mooring.engine.core.errors import InputError
from mooring.engine.core.machine import Finding
from mooring.lazy import lazily

with lazily():
    from mooring.answers.base.inputs import collection as collect_inputs
    from mooring.answers.collect import text
    from mooring.cli import output as verb
    from mooring.published import cluster_access as access
    from mooring.published import cluster_archive as archive


if TYPE_CHECKING:
    from collections.abc import Iterator

    from mooring.documents.machine import NodeArchiveDocument

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
@click.option("--dry-run", is_flag=True, help="Show what would be packed; write nothing.")
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
@options.text(
    "--config",
    "FILE",
    "The kubelet's configuration, and Mooring's documents; repeatable. Default: the running kubelet's.",
    options.complete_file,
    multiple=True,
)
@options.text(
    "--pods",
    "FILE|DIR|-",
    "The node's pods, as kubectl get pods -o json prints them; repeatable. Default: from kubectl.",
    options.complete_file,
    multiple=True,
)
@options.node_name("the kubelet's --hostname-override, or else the computer's name")
@options.text("--kubelet-version", "VERSION", "The kubelet's version, such as v1.37.1.", variable="version")
@click.option("--cluster", "whole", is_flag=True, help="Pack a whole cluster through its API server instead.")
@options.kubeconfig("with --cluster as kubectl's")
@click.option("--context", default="", help="Context of the kubeconfig. Default: the current one.")
@click.option("--kubectl/--no-kubectl", "cluster", default=True, help="Whether to query the cluster with kubectl.")
@click.option(
    "--anonymous", is_flag=True, help="Replace the names of pods, namespaces and the node with generated ones."
)
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
        check_destination(to)
    if whole:
        if root != "/" or kubelet_root or config or pods or node_name or version or anonymous or not cluster:
            raise click.UsageError("with --cluster only --kubeconfig, --context, --to, --dry-run and -o")
        return _cluster(kubeconfig, context, "" if dry_run else to, form)
    if kubeconfig or context:
        raise click.UsageError("--kubeconfig and --context need --cluster")
    collection = collect_inputs.collection_of(
        collect_inputs.CollectOptions(root, kubelet_root, config, pods, node_name, version, cluster, anonymous)
    )
    packed = b"" if dry_run else collection.packed()
    if not dry_run:
        write_answer(packed, to)
    warn([*collection.findings, *_unread(collection.about)])
    _report(collection.about, len(packed), "" if dry_run else to, form)
    return YES


def _cluster(kubeconfig: str, context: str, to: str, form: str) -> int:
    """Pack a cluster."""
    with verb.needs_extra("fleet", source="mooring collect --cluster"):
        objects = access.read_cluster(kubeconfig, context)
    collected = archive.ClusterArchive(objects, collect_inputs.captured_now())
    packed = collected.packed() if to else b""
    if to:
        write_answer(packed, to)
    warn(Finding("warning", "the API server", f"{one}; the rest is packed") for one in objects.unread)
    answer = (
        json_text(collected.about) if form == "json" else text.collect_cluster_text(collected.about, len(packed), to)
    )
    _show(answer, to, form)
    return YES


def _unread(about: NodeArchiveDocument) -> Iterator[Finding]:
    """Yield a warning for each file that is there and could not be read; of many, some and their number."""
    for file in about.unread[:_SHOWN]:
        yield Finding("warning", f"/{file.path}", f"is not packed: {file.problem}")
    if len(about.unread) > _SHOWN:
        yield Finding(
            "warning", "collect", f"{len(about.unread) - _SHOWN} more files could not be read and are not packed"
        )


def _report(about: NodeArchiveDocument, packed: int, written: str, form: str) -> None:
    answer = json_text(about) if form == "json" else text.collect_text(about, packed, written)
    _show(answer, written, form)


def _show(answer: str, written: str, form: str) -> None:
    # An archive on standard output leaves no room there for anything else.
    if written == STANDARD_OUTPUT:
        tell(answer.rstrip("\n"))
    elif form == "json":
        emit_document(answer)
    else:
        emit(answer)
