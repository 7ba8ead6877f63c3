"""``mooring publish``: tell the cluster what this node can still take, or show people what would be published."""

from __future__ import annotations

import time
from contextlib import closing, nullcontext
from dataclasses import replace
from typing import TYPE_CHECKING

import click
from rich.console import Group, RenderableType
from rich.text import Text

from mooring.answers.base.inputs import published_node
from mooring.cli import options
from mooring.cli.options import NodeOptions
from mooring.cli.output import NO, YES, Verb, check_destination, emit, emit_document, json_text, needs_extra, tell, warn
from mooring.cli.terminal import text_for
from mooring.engine.core.errors import InputError, MooringError, clean
from mooring.explanations.phrases import plural, size
from mooring.lazy import lazily
from mooring.published.observation import Observation, exclusive_cpus_of, zones_of
from mooring.views.console import STYLES, Breaking, new_table

with lazily():
    from mooring.answers.base import plan as planning
    from mooring.inputs.decoding import quantities, yaml_reader
    from mooring.published import observation, writing
    from mooring.published import publisher as publishing
    from mooring.service import daemon, http, logs
    from mooring.service import options as service_options

if TYPE_CHECKING:
    from mooring.engine.core.machine import Finding
    from mooring.published.observation import Observe
    from mooring.published.publisher import Pace, Publisher


EPILOG = """\b
Examples:
  mooring publish --kubeconfig /etc/kubernetes/kubelet.conf --config /var/lib/kubelet/config.yaml
  mooring publish --dry-run --machine epyc-7763-2s-nps4 --config kubelet.yaml
  mooring publish --dry-run --node node.tar.gz -o yaml
  mooring publish --prune --kubeconfig admin.conf
"""
_SOURCE = "mooring publish"


@click.command("publish", cls=Verb, epilog=EPILOG)
@options.kubeconfig("the service account of the pod that this runs in")
@options.node_name("$NODE_NAME, or else this computer's name", "NODE_NAME")
@published_node.pod_resources_option
@options.node_options(without=["node_name"])
@click.option("--once", "once", is_flag=True, help="Write once and exit.")
@click.option("--dry-run", "dry_run", is_flag=True, help="Print the objects; nothing is written to the cluster.")
@click.option("--prune", "prune", is_flag=True, help="Only remove facts that no node references.")
@click.option(
    "--heartbeat",
    "heartbeat",
    default="5m",
    metavar="DURATION",
    show_default=True,
    help="How often to write without a change.",
)
@click.option(
    "--metrics-address", "metrics", default="", metavar="HOST:PORT", help="Serve /metrics there, for Prometheus."
)
@click.option(
    "--wake", "wake", is_flag=True, help="Trigger another attempt for pending pods when the node has more room."
)
@options.output(("text", "yaml", "json"), "text")
@options.to_file
def command(
    kubeconfig: str,
    pod_resources: str,
    heartbeat: str,
    metrics: str,
    form: str,
    to: str,
    inputs: NodeOptions,
    *,
    wake: bool,
    once: bool,
    dry_run: bool,
    prune: bool,
) -> int:
    """Publish what the managers of this node have allocated and what is left, on every change, until SIGTERM.

    The state files and the PodResources API of the kubelet are read and never written. With --machine, --node or
    --active, the node that these describe is published once, in place of this computer's kubelet.

    Exit code 1 when the kubelet would not start on its state, so nothing is available.
    """
    check_destination(to)
    asked = published_node.Asked(inputs, kubeconfig, pod_resources, dry_run)
    with needs_extra("kube", source=_SOURCE):
        pace = _pace(heartbeat, wakes=wake)
        address = service_options.parse_address(metrics, source="--metrics-address")
        if prune:
            try:
                with published_node.connector(asked.kubeconfig)() as cluster:
                    gone = writing.prune(cluster.http, time.time())
            except MooringError as error:
                raise _bad(error, "may this account list and delete facts?") from None
            emit(f"Facts removed: {len(gone)}.")
            return YES
        if asked.is_described:
            return _described(asked, pace, form, to)
        source, end = published_node.kubelet_source(asked)
        try:
            if dry_run:
                try:
                    seen = source.observe()
                except MooringError as error:
                    raise _bad(error, "is the kubelet there?") from None
                if seen is None:
                    raise InputError("the node is unknown", source=_SOURCE)
                return _shown(seen, form, to)
            publisher = _publisher(asked, source.observe, pace)
            if once:
                return _once(publisher, asked.name)
            pages = {"/metrics": lambda: http.Page(publisher.text(), http.PROMETHEUS)}
            serving = nullcontext() if address is None else closing(http.serve_tcp(address, pages))
            with daemon.stop_signals() as stopping, serving:
                publisher.run(stopping)
            return YES
        finally:
            end()


def _described(asked: published_node.Asked, pace: Pace, form: str, to: str) -> int:
    plan = published_node.described_node(asked)
    warn(plan.findings)
    asked = replace(asked, inputs=replace(asked.inputs, node_name=published_node.described_name(asked)))
    if isinstance(plan, planning.RefusedPlan):
        emit(f"The kubelet would not start: {plan.refusal.message}")
        return NO
    seen = observation.EngineObserver(asked.name).observe(plan.kubelet)
    if asked.dry_run:
        return _shown(seen, form, to, plan.machine.name)
    return _once(_publisher(asked, lambda: seen, pace), asked.name)


def _shown(seen: Observation, form: str, to: str, machine: str = "") -> int:
    if seen.problem:
        tell(f"available amounts are not published: {seen.problem}")
    if form == "text":
        emit(publish_text(seen, to, machine), to)
    else:
        document = observation.listing_of(seen)
        emit_document(json_text(document) if form == "json" else yaml_reader.yaml_text(document), to)
    return NO if seen.problem else YES


def _publisher(asked: published_node.Asked, observe: Observe, pace: Pace) -> publishing.Publisher:
    connect = published_node.connector(asked.kubeconfig)
    log = logs.start_log(service_options.LogFormat.JSON, service_options.LogLevel.INFO, name="mooring.publish")

    def report(finding: Finding) -> None:
        tell = log.warning if finding.severity == "warning" else log.info
        tell(finding.message, about=finding.subject)

    return publishing.Publisher(observe, connect, asked.name, pace=pace, report=report)


def _once(publisher: Publisher, name: str) -> int:
    try:
        publisher.once()
    except MooringError as error:
        raise _bad(error, "is the API server there, and the kubelet?") from None
    finally:
        publisher.close()
    emit(f"{name} is published.")
    return YES


def _bad(error: MooringError, remedy: str) -> InputError:
    """Return what a program that runs once ends with; one that stays would try again."""
    return error if isinstance(error, InputError) else InputError(str(error), source=_SOURCE, remedy=remedy)


def _pace(heartbeat: str, *, wakes: bool) -> Pace:
    try:
        seconds = quantities.nanoseconds(heartbeat) / 1e9
    except InputError as error:
        raise InputError(error.problem, field="--heartbeat", remedy=error.remedy) from None
    if not 1 <= seconds <= 86400:
        raise InputError("must be between 1s and 24h", field="--heartbeat")
    return publishing.Pace(heartbeat=seconds, waking=publishing.LEAST_WAKING if wakes else None)


def publish_text(seen: Observation, to: str = "", machine: str = "") -> str:
    """Return the text for a terminal of the present width, or for the file ``to``.

    Args:
        seen: what would be published.
        to: the destination.
        machine: the name of the machine where files describe it; that of an archive tells when it was captured.
    """
    state = seen.state
    title = machine if machine.startswith(f"{state.node},") else state.node
    parts: list[RenderableType] = [
        Text.assemble((clean(title), STYLES["title"]), f": {plural(len(state.pods), 'pod')}"),
        Breaking(f"facts {state.facts[:12]}"),
    ]
    if seen.node is not None:
        table, columns = new_table("zone", "resource"), ("available", "allocatable", "capacity")
        for name in columns:
            table.add_column(name, justify="right")
        for zone in zones_of(seen.facts.machine, seen.node):
            for number, one in enumerate(zone["resources"]):
                resource = one["name"]
                is_bytes = resource == "memory" or resource.startswith("hugepages-")
                amounts = (size(int(one[name])) if is_bytes else one[name] for name in columns)
                row = (zone["name"] if not number else "", clean(resource), *amounts)
                table.add_row(*(Breaking(cell, "/") for cell in row))
        allocatable, available = exclusive_cpus_of(seen.node)
        words = f"{available} of {allocatable} CPUs are available for exclusive use"
        words = words if allocatable else "no container gets exclusive CPUs on this node"
        parts += [Breaking(words), Text(""), table]
    return text_for(Group(*parts), to)
