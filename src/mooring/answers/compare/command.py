"""``mooring compare``: which configuration is best for these pods?"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import click

from mooring.answers.base.inputs import checks
from mooring.cli import options
from mooring.cli.options import NodeOptions
from mooring.cli.output import NO, YES, Verb, emit_document, warn
from mooring.lazy import lazily

with lazily():
    from mooring.answers.compare import answer, text, variant
    from mooring.answers.compare import inputs as compare_inputs
    from mooring.answers.compare import plot as comparison_plots
    from mooring.cli import terminal
    from mooring.documents import plan
    from mooring.views.svg import plot as render_plot


if TYPE_CHECKING:
    from collections.abc import Sequence


EPILOG = """\b
Examples:
  mooring compare -f pods.yaml --machine epyc-7763-2s-nps4 --config kubelet.yaml --all-options
  mooring compare -f pods.yaml --machine node.tar.gz --config kubelet.yaml --with other.yaml
  mooring compare -f pods.yaml --config kubelet.yaml --machine epyc-7763-2s-nps1 --machine epyc-7763-2s-nps4
  mooring compare -f pods.yaml --node node.tar.gz --vary topology-policy,topology-scope --by stranded
  mooring compare -f pods.yaml --node node.tar.gz --kubelet-version 1.33,1.34,1.37
  mooring compare -f pods.yaml --cluster node-types.yaml --alone -o sarif
  mooring compare --trace day.jsonl#node-7 --all-options -o svg --to comparison.svg
"""

DIMENSIONS = ("cpu-policy", "cpu-options", "memory-policy", "topology-policy", "topology-scope", "topology-options")
"""Names of what ``--vary`` varies; those of :class:`mooring.answers.compare.variant.Dimension`."""

MEASURES = ("admitted", "numa", "devices", "memory", "l3", "core", "stranded", "socket", "spread", "guaranteed")
"""Names of what ``--by`` ranks by; those of :data:`mooring.answers.compare.measures.MEASURES`."""


def _pair(text: str) -> tuple[str, str]:
    """Return the machine and the file of a pair, none of a node archive; a machine's text can hold commas."""
    machine, comma, devices = text.rpartition(",")
    if not comma and Path(text).exists():
        return text, ""
    if not (comma and machine and devices):
        raise click.BadParameter(f"{text!r:.60} is neither MACHINE,DEVICES nor a node archive", param_hint="--pair")
    return machine, devices


def _names(ctx: click.Context, param: click.Parameter, values: tuple[str, ...]) -> tuple[str, ...]:
    """Split what was given at the commas, and check every name."""
    names = tuple(name.strip() for value in values for name in value.split(","))
    for name in names:
        if name not in DIMENSIONS:
            raise click.BadParameter(f"{name!r:.60} is not one of {', '.join(DIMENSIONS)}", ctx, param)
    return names


@click.command("compare", cls=Verb, epilog=EPILOG)
@options.pods("Pods, workloads or lists to admit in order, YAML or JSON; repeatable.")
@options.text(
    "--trace",
    "FILE[#ID]",
    "A recorded trace (a scenario file) instead of -f, with its machine and configuration unless others are named.",
)
@options.texts(
    "--machine",
    "MACHINE",
    "A machine, in any form that plan takes; repeat it to compare machines. Default: this computer.",
    variable="machines",
)
@options.texts(
    "--pair",
    "MACHINE,DEVICES",
    "A machine with its own devices, a file with a document of kind NodeDevices, or a node archive that has both, "
    "instead of --machine; repeatable.",
    variable="pairs",
)
@options.text(
    "--cluster",
    "FILE",
    "Node types to compare, instead of --machine and --config: the groups of a document of kind Cluster, as of mooring "
    "fleet.",
    options.complete_file,
)
@options.node_options("devices", without=["machine", "kubelet_version"])
@checks.alone
@options.texts(
    "--with",
    "FILE",
    "A KubeletConfiguration to compare with, instead of that of --config; repeatable.",
    variable="alternatives",
)
@options.flag(
    "--all-options",
    "Compare all legal combinations of cpu-options, topology-policy, topology-scope and topology-options.",
)
@options.texts(
    "--vary",
    "WHAT[,WHAT]",
    f"Compare all legal combinations of these: {', '.join(DIMENSIONS)}.",
    options.among(lambda: DIMENSIONS, after=","),
    callback=_names,
)
@options.texts(
    "--kubelet-version",
    "VERSION[,VERSION]",
    "Compare these releases of the kubelet, side by side with the rules that separate them; one release decides for "
    "all variants. Default: the node's own where it is known, else the newest.",
    options.complete_release,
    "versions",
)
@click.option(
    "--by",
    type=click.Choice(MEASURES),
    default="guaranteed",
    show_default=True,
    help="Measure to rank by first; guaranteed: variants whose policy guarantees alignment, then how many pods each "
    "admits.",
)
@click.option(
    "--top", type=click.IntRange(0), default=10, show_default=True, help="How many of the best to show; 0 shows all."
)
@click.option(
    "--group/--no-group",
    "grouped",
    default=True,
    help="Show variants with equal decisions together, or each separately.  [default: group]",
)
@click.option(
    "--jobs", type=click.IntRange(0, 1024), default=0, metavar="N", help="Number of processes. Default: one per core."
)
@options.text("--sarif", "FILE", "Write the results for code scanning too, in the same run.", options.complete_file)
@options.text("--junit", "FILE", "Write them as JUnit XML too, in the same run.", options.complete_file)
@options.output(("text", "wide", "markdown", "json", "svg", "sarif", "junit"), "text")
@options.to_file
def command(
    trace: str,
    machines: tuple[str, ...],
    pairs: tuple[str, ...],
    cluster: str,
    alternatives: tuple[str, ...],
    vary: tuple[str, ...],
    versions: tuple[str, ...],
    by: str,
    top: int,
    jobs: int,
    sarif: str,
    junit: str,
    form: str,
    to: str,
    inputs: NodeOptions,
    *,
    all_options: bool,
    grouped: bool,
) -> int:
    """Run the same pods, or a recorded trace, under several configurations, option sets or machines; best first.

    Exit code 1 when no variant admits all pods (with --alone: a pod is admitted by none), or releases decide
    differently.
    """
    checked = [(kind, path) for kind, path in (("sarif", sarif), ("junit", junit)) if path]
    checked += [(form, to)] if form in checks.FORMS else []
    _check_source(inputs.manifests, trace, checked, others=bool(inputs.state or inputs.active or inputs.node))
    if checked and (vary or all_options):
        raise click.UsageError(f"{checked[0][0]} shows configurations as given: remove --vary and --all-options")
    if cluster and (machines or alternatives or trace or versions or inputs.config or inputs.state or inputs.node):
        raise click.UsageError("--cluster describes the nodes: give no other machine, configuration, release or trace")
    if not trace and not machines and not cluster:
        inputs = checks.with_running_kubelet(inputs)
    if alternatives and not inputs.config and not inputs.node and not inputs.running and not trace:
        # Without a base the first alternative is one: the kubelet's defaults were not asked for.
        inputs, alternatives = replace(inputs, config=alternatives[:1]), alternatives[1:]
    paired = [_pair(text_) for text_ in pairs]
    if paired and (machines or trace or cluster or versions):
        raise click.UsageError(
            "--pair brings machines with their devices: remove --machine, --trace, --cluster and --kubelet-version"
        )
    machines = tuple(machine for machine, _ in paired) or machines
    releases = [version.strip() for text_ in versions for version in text_.split(",")]
    described = replace(inputs, machine=machines[0] if machines else "", kubelet_version=(releases or [""])[0])
    if len(releases) > 1:
        others = bool(trace or alternatives or all_options or vary or len(machines) > 1)
        return _releases(described, releases, form, to, others=others)
    dimensions = {*map(variant.Dimension, vary), *(variant.ALL_OPTIONS if all_options else ())}
    devices = tuple(devices for _, devices in paired)
    compared = compare_inputs.read_compared(described, machines, alternatives, trace, dimensions, cluster, devices)
    check = compare_inputs.check_of(compared, described, cluster) if checked or cluster else None
    if check is not None:
        for kind, path in checked:
            checks.emit_check(check, kind, path)
        if form in checks.FORMS:
            return YES if check.is_yes else NO
    warn(compared.findings if check is None else check.findings)
    watched = terminal.Watched("comparing", lambda: len(compared.variants), on_screen=True)
    comparison = answer.compare(
        compared.trace, compared.variants, by=by, jobs=jobs or answer.usable_cores(), watch=watched.items
    )
    comparison.document.findings = plan.finding_parts(compared.findings)
    if form == "svg":
        emit_document(render_plot.plot_svg(comparison_plots.comparison_plot(comparison, top, grouped=grouped)), to)
    else:
        parts = text.comparison_parts(comparison, top, wide=form == "wide", grouped=grouped, to=to)
        terminal.print_answer(form, to, comparison.document, parts)
    if check is not None:
        checks.show_errors(check)
        return YES if check.is_yes else NO
    return YES if comparison.is_yes else NO


def _releases(node: NodeOptions, versions: list[str], form: str, to: str, *, others: bool) -> int:
    if others:
        raise click.UsageError("several releases are compared on one node with one configuration and -f")
    if form not in ("text", "json", "markdown"):
        raise click.UsageError("a comparison of releases is text, markdown or json")
    compared = compare_inputs.compared_releases(node, versions)
    terminal.print_answer(form, to, compared, text.release_parts(compared), compared.findings)
    return NO if compared.differences or 0 < len(compared.start_errors) < len(compared.kubelets) else YES


def _check_source(manifests: Sequence[str], trace: str, checked: Sequence[tuple[str, str]], *, others: bool) -> None:
    """Refuse a command line that names no pods, or names them twice, or checks what has no file."""
    if trace and checked:
        raise click.UsageError(f"{checked[0][0]} names places in files of -f: remove --trace")
    if trace and manifests:
        raise click.UsageError("-f and --trace exclude each other")
    if trace and others:
        raise click.UsageError("--trace brings its own state: remove --state, --active and --node")
    if not trace and not manifests:
        raise click.UsageError("missing option '-f' or '--trace'")
