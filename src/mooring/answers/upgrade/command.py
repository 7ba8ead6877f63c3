"""``mooring upgrade``: what does another release of the kubelet change on this node?"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click
from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from mooring.answers.base.inputs import checks
from mooring.cli import options
from mooring.cli.options import NodeOptions
from mooring.cli.output import NO, YES, Verb, emit_document
from mooring.engine.core.errors import clean
from mooring.engine.node.settings import CPU_FILE, MEMORY_FILE
from mooring.explanations.phrases import joined, plural
from mooring.explanations.story import PodVerdict
from mooring.lazy import lazily
from mooring.views.console import Breaking, indented, new_table

with lazily():
    from mooring.answers.base import picture
    from mooring.answers.base import plan as planning
    from mooring.answers.base.inputs import configuration as configuration_inputs
    from mooring.answers.upgrade import answer
    from mooring.answers.upgrade import differences as differing
    from mooring.cli import terminal
    from mooring.engine.checkpoint import store
    from mooring.engine.releases import catalog
    from mooring.views import html
    from mooring.views.svg import elements
    from mooring.views.svg import picture as svg

if TYPE_CHECKING:
    from mooring.answers.upgrade.answer import HopPart, RollbackPart, UpgradeDocument, UpgradeListDocument
    from mooring.answers.upgrade.differences import ExamplePodPart, UpgradeCausePart
    from mooring.answers.upgrade.node import UpgradedPodPart
    from mooring.documents.plan import PodPart
    from mooring.views.view import NodeView

EPILOG = """\b
Examples:
  mooring upgrade --node node.tar.gz
  mooring upgrade 1.36 --kubelet-version 1.34 --node node.tar.gz -o json
  mooring upgrade --kubelet-version 1.34 --state /var/lib/kubelet --config kubelet.yaml --active running.yaml
  mooring upgrade 1.37 --kubelet-version 1.34 -f pods.yaml --machine epyc-7763-2s-nps4 --config kubelet.yaml
  mooring upgrade --node node.tar.gz -o html --to upgrade.html
  mooring upgrade --node node-1.tar.gz --node node-2.tar.gz
  kubectl get nodes,pods -A -o json | mooring upgrade -f - --machine node.tar.gz --config kubelet.yaml
"""


@click.command("upgrade", cls=Verb, epilog=EPILOG)
@click.argument("version", default="", metavar="[VERSION]", shell_complete=options.complete_release)
@options.pods(
    "Pods that the old kubelet admits first; or nodes and pods of a cluster, as kubectl lists them. Repeatable."
)
@options.node_options(without=["node", "debug_image", "kubelet_version"])
@options.text(
    "--kubelet-version",
    "VERSION",
    "Release of the kubelet before the upgrade. Default: the node's own, where it is known.",
    options.complete_release,
)
@options.texts(
    "--node",
    "FILE",
    "A node archive of mooring collect, instead of --machine, --config, --state and --active; repeatable for several "
    "nodes.",
    options.complete_file,
    "archives",
)
@options.text(
    "--save-state", "DIR", "Write the state files as they are after the new kubelet's start.", variable="save"
)
@options.output(("text", "wide", "markdown", "json", "html"), "text")
@options.to_file
def command(version: str, archives: tuple[str, ...], save: str, form: str, to: str, inputs: NodeOptions) -> int:
    """Show what the kubelet of VERSION changes on a node: start, running pods, settings, and the way back.

    VERSION is the release after the upgrade, such as 1.36; by default the newest that is out.

    The kubelet of the new release starts on the state files of the old one and admits the running pods again. With
    several nodes there is one line for each; mooring fleet upgrade --cluster has where pods of a cluster go.

    Exit code 0 when nothing is decided differently and all running pods keep what they have, also at a later start;
    else 1; 2 when the input is wrong.
    """
    if save:
        inputs = inputs if archives else checks.with_running_kubelet(inputs)
        checks.check_save(save, inputs, archives)
    requested = configuration_inputs.requested_version(version, "VERSION")
    new = catalog.chosen_release([requested], nearest=inputs.nearest_release)
    found = list(answer.upgrades_of(inputs, archives, new))
    documents = [document for _, document in found]
    if save:
        if len(found) > 1:
            raise click.UsageError("--save-state needs one node; choose it with --node-name")
        [saved] = documents
        if saved.start_error is None:
            folder = store.StateFolder(store.make_folder(Path(save)))
            folder.write_both(saved.cpu_manager_state, saved.memory_manager_state)
    (plan, document), is_one = found[0], len(documents) == 1
    several = answer.upgrade_list(documents)
    if form == "html":
        view = None if isinstance(plan, planning.RefusedPlan) else picture.plan_view(plan)
        emit_document(upgrade_page(document, view) if is_one else upgrades_page(several), to)
    else:
        parts = upgrade_parts(document, wide=form == "wide") if is_one else upgrades_parts(documents)
        noticed = [one for place, one in enumerate(several.findings) if one not in several.findings[:place]]
        terminal.print_answer(form, to, document if is_one else several, parts, noticed)
    return NO if any(document.changed or not document.safe for document in documents) else YES


def upgrade_page(document: UpgradeDocument, view: NodeView | None) -> str:
    """Return the page of one node; it has no script.

    Args:
        document: what the new release changes.
        view: the node after the start of the new kubelet; None if it does not start.
    """
    # The styles of the page have the rules of the picture already, and the policy allows no other style element.
    drawing = "" if view is None else svg.svg_text(view, _PICTURE_WIDTH).replace(elements.style_sheet(), "")
    title = f"{document.node or document.machine}: kubelet {document.from_} to {document.to}"
    verdict = headline_text(document)
    return html.page_text("upgrade.html", title=title, upgrade=document, verdict=verdict, picture=drawing)


def upgrades_page(document: UpgradeListDocument) -> str:
    """Return the page of several nodes, with a row for each; it has no script."""
    safe = sum(node.safe for node in document.nodes)
    # Nodes of one cluster come from the same files, so that most findings are about all of them.
    found = [one for place, one in enumerate(document.findings) if one not in document.findings[:place]]
    return html.page_text("upgrades.html", title="Kubelet upgrade", nodes=document.nodes, safe=safe, found=found)


_PICTURE_WIDTH = 1144
"""Pixels that the page has for the picture."""

_MOST_NAMES = 5
_GATES = "featureGates."
_SITUATIONS = {
    "restart": "when the kubelet starts on the state files",
    "recreated": "when the pods are created anew on the empty node",
}


def upgrade_parts(upgrade: UpgradeDocument, *, wide: bool) -> Iterator[RenderableType]:
    """Yield the answer for people."""
    name = clean(upgrade.node or upgrade.machine)
    yield Text.assemble((name, "bold"), f": kubelet {upgrade.from_} to {upgrade.to}")
    yield Text(headline_text(upgrade), "bold")
    if upgrade.start_error is not None:
        yield indented(f"{clean(upgrade.start_error)} [{upgrade.start_error_code}]")
    if upgrade.next_start_error is not None:
        yield Text(f"Its start after that fails: {clean(upgrade.next_start_error)}", "bold")
    if upgrade.start_error_before is not None:
        yield Text(f"Kubelet {upgrade.from_} does not start either: {clean(upgrade.start_error_before)}")
    shown = [one for one in upgrade.pods if wide or one.changed or one.outcome != PodVerdict.KEPT]
    if shown and (upgrade.start_error is None or wide):
        yield from _section("Pods", _table(shown))
    if upgrade.recreated and upgrade.start_error is None:
        yield from _section("Pods, if all were created anew on the empty node", _table(upgrade.recreated))
    if upgrade.causes:
        yield from _section("Why", *(part for cause in upgrade.causes for part in _cause(cause)))
    settings = [one for one in upgrade.settings if wide or one.effect != differing.SettingEffect.GROUP]
    if settings:
        yield from _section("Settings", *(Text(line) for line in settings_texts(settings)))
    if upgrade.advice:
        texts = [clean(one.text) for one in upgrade.advice]
        texts = texts if len(texts) == 1 else [f"{number}. {text}" for number, text in enumerate(texts, 1)]
        yield from _section("Do first (each was tried)", *map(Text, texts))
    if upgrade.hops:
        yield from _section("Through every minor release", *map(Text, _hops(upgrade.hops)))
    yield from _section("State files", *map(Text, _files(upgrade)))
    if upgrade.rollback is not None:
        yield from _section("Rollback", *_rollback(upgrade, upgrade.rollback))


def _section(title: str, *parts: RenderableType) -> Iterator[RenderableType]:
    yield Text("")
    yield Text(title, "bold")
    yield from (indented(part) for part in parts)


def _table(pods: Sequence[UpgradedPodPart]) -> Table:
    table = new_table("pod", "before", "after")
    for one in pods:
        before = differing.placements_text(one.before, one.pod_before) if one.before else "–"
        table.add_row(Breaking(_name(one)), Text(clean(before)), Text(clean(_after(one))))
    return table


def _after(one: UpgradedPodPart) -> str:
    note = "" if one.changed or one.outcome == PodVerdict.KEPT else " (as after a restart of the old kubelet)"
    match one.outcome:
        case PodVerdict.KEPT:
            return "the same" if not one.changed else "the same; the old kubelet, started again, decides differently"
        case PodVerdict.MOVED:
            return f"{differing.placements_text(one.after, one.pod_after)}{note}"
        case PodVerdict.ADMITTED:
            return differing.placements_text(one.after, one.pod_after)
        case PodVerdict.REJECTED:
            return f"rejected, {one.reason}: {one.message}{note}"
        case _:
            return "not asked"


def _name(pod: PodPart | UpgradedPodPart | ExamplePodPart) -> str:
    return clean(f"{pod.namespace}/{pod.name}")


def _cause(cause: UpgradeCausePart) -> Iterator[RenderableType]:
    span = f" ({cause.releases})" if cause.releases else ""
    yield Text.assemble((f"{cause.name}{span}", "bold"), f": {cause.before}. Then: {cause.after}.")
    if cause.releases:
        yield indented(f"Source: {cause.source}", "dim")
    shown = list(_example(cause))
    if shown:
        yield indented(f"Example, {_SITUATIONS[cause.situation]}:", "dim")
        yield from (indented(line, by=4) for line in shown)


def _example(cause: UpgradeCausePart) -> Iterator[str]:
    if cause.start_before != cause.start_after:
        yield f"before {clean(cause.start_before) or 'it starts'}"
        yield f"then {clean(cause.start_after) or 'it starts'}"
        return
    others = 0
    for pod in cause.pods:
        before, after = pod.before or "not asked", pod.after or "not asked"
        if before != after:
            yield clean(f"{_name(pod)}: {before}; then {after}")
        elif len(cause.pods) <= _MOST_NAMES:
            yield clean(f"{_name(pod)}: {before}")
        else:
            others += 1
    if others:
        yield f"besides {plural(others, 'other pod')} (-o json lists them)"


def _hops(hops: Sequence[HopPart]) -> Iterator[str]:
    for hop in hops:
        parts = [f"rejects {_names(hop.rejected)}"] if hop.rejected else []
        parts += [f"moves {_names(hop.moved)}"] if hop.moved else []
        told = joined(parts) or "starts, and all pods stay as they are"
        told = told if hop.start_error is None else f"does not start: {clean(hop.start_error)}"
        yield f"{hop.from_} to {hop.to}: {told}"


def _names(pods: Sequence[PodPart | UpgradedPodPart]) -> str:
    names = [_name(pod) for pod in pods]
    more = len(names) - _MOST_NAMES
    return joined([*names[:_MOST_NAMES], f"{more} more"] if more > 0 else names)


def _files(upgrade: UpgradeDocument) -> Iterator[str]:
    for one in upgrade.state_files:
        reads = f"{upgrade.to} reads {', '.join(one.read_after)} and writes {one.written_after}"
        text = f"{one.file}: {upgrade.from_} writes {one.written_before}; {reads}"
        if one.file not in (CPU_FILE, MEMORY_FILE) and one.written_after not in one.read_before:
            text += f"; after a rollback {upgrade.from_} reads the amounts in it alone, not the names and specs of pods"
        yield text


def _rollback(upgrade: UpgradeDocument, rollback: RollbackPart) -> Iterator[RenderableType]:
    old, new = upgrade.from_, upgrade.to
    if rollback.start_error is not None and rollback.start_error == upgrade.start_error_before:
        yield Text(f"{old} does not start before the upgrade either.")
        return
    if rollback.start_error is not None:
        yield Text(f"{old} does not start on the files of {new}: {clean(rollback.start_error)}")
        yield Text("Keep a copy of both state files from before the upgrade, or drain the node before the rollback.")
        return
    affected = [one for one in rollback.pods if one.outcome != PodVerdict.KEPT]
    if not affected:
        yield Text(f"{old} starts on the files of {new}, and all pods keep their CPUs and memory.")
        return
    yield Text(f"{old} starts on the files of {new}, but {_affected(affected)} of {plural(len(rollback.pods), 'pod')}:")
    yield _table(affected)


def upgrades_parts(upgrades: Sequence[UpgradeDocument]) -> Iterator[RenderableType]:
    """Yield one line for each of several nodes."""
    table = new_table("node", "from", "to", "safe", "what changes")
    for upgrade in upgrades:
        cells = map(Text, (upgrade.from_, upgrade.to, "yes" if upgrade.safe else "no"))
        table.add_row(Breaking(clean(upgrade.node)), *cells, Breaking(_summary(upgrade)))
    safe = sum(upgrade.safe for upgrade in upgrades)
    yield from (table, Text(""), Text(f"{safe} of {plural(len(upgrades), 'node')} safe."))


def _summary(upgrade: UpgradeDocument) -> str:
    if upgrade.start_error is not None:
        return clean(f"does not start: {upgrade.start_error}")
    parts = []
    for outcome, words in ((PodVerdict.REJECTED, "rejects"), (PodVerdict.MOVED, "moves")):
        pods = [one for one in upgrade.pods if one.running and one.outcome == outcome]
        parts += [f"{words} {_names(pods)}"] if pods else []
    parts += ["does not start a second time"] if upgrade.next_start_error is not None else []
    if not parts and upgrade.changed:
        parts.append("new pods are decided differently")
    causes = joined(list(dict.fromkeys(cause.name for cause in upgrade.causes)))
    return f"{'; '.join(parts) or 'nothing'}{f' ({causes})' if causes else ''}"


def headline_text(upgrade: UpgradeDocument) -> str:
    """Return the verdict in one or two sentences; where the new kubelet does not start, its message follows."""
    if upgrade.start_error is not None:
        return "The new kubelet does not start:"
    running = [one for one in upgrade.pods if one.running]
    affected = [one for one in running if one.outcome != PodVerdict.KEPT]
    if not running:
        start = "The new kubelet starts."
    elif not affected:
        them = "the running pod keeps its" if len(running) == 1 else f"all {len(running)} running pods keep their"
        start = f"The new kubelet starts, and {them} CPUs and memory."
    else:
        start = f"The new kubelet starts, but {_affected(affected)} of {plural(len(running), 'running pod')}."
    if not upgrade.changed:
        return f"{start} {'A restart of the old one does the same' if affected else 'Nothing is decided differently'}."
    better = sum(one.changed for one in running if one.outcome == PodVerdict.KEPT)
    if better:
        return f"{start} The old kubelet, started again, decides differently about {better} of them."
    return start if affected else f"{start} New pods are decided differently."


def _affected(affected: Sequence[UpgradedPodPart]) -> str:
    """Return what becomes of pods that do not keep their CPUs and memory, such as ``rejects 1 and moves 2``."""
    outcomes = [one.outcome for one in affected]
    words = (
        (PodVerdict.REJECTED, "rejects {}"),
        (PodVerdict.MOVED, "moves {}"),
        (PodVerdict.NOT_ASKED, "does not return before {}"),
    )
    return joined([text.format(outcomes.count(one)) for one, text in words if one in outcomes])


_MEANS: Final = {("failCgroupV1", "true"): ": with control groups v1 the kubelet does not start"}
"""What a new default does to a node, where its name does not say it."""


def setting_text(change: differing.SettingChangePart) -> str:
    """Return a setting that another release takes otherwise, as one line.

    >>> change = differing.SettingChangePart("failCgroupV1", differing.SettingEffect.DEFAULT, "false", "true")
    >>> setting_text(change)
    'failCgroupV1: default false, then true: with control groups v1 the kubelet does not start'
    """
    match change.effect:
        case differing.SettingEffect.REFUSED:
            words = f"refused; {change.before}, then {change.after}"
        case differing.SettingEffect.IGNORED:
            words = "then an unknown field, which is ignored"
        case differing.SettingEffect.TAKES_EFFECT:
            words = f"takes effect; {change.before}, then {change.after}"
        case differing.SettingEffect.DEFAULT:
            words = f"default {change.before}, then {change.after}{_MEANS.get((change.name, change.after), '')}"
        case _:
            words = f"{change.before}, then {change.after}"
    return f"{change.name}: {words}"


def settings_texts(changes: Sequence[differing.SettingChangePart]) -> list[str]:
    """Return settings as lines; gates that are only on or off by default are listed together."""
    defaults = [one for one in changes if one.effect == differing.SettingEffect.DEFAULT]
    gates = [one for one in defaults if one.name.startswith(_GATES)]
    lines = [setting_text(one) for one in changes if one not in gates]
    for words, after in (("on by default", "on"), ("off by default", "off"), ("not known", differing.UNKNOWN)):
        named = [
            one.name.removeprefix(_GATES) + (" (locked)" if one.after.endswith("locked") else "")
            for one in gates
            if one.after == after or after in one.after.split()[1:]
        ]
        if named:
            lines.append(f"Feature gates that are {words} then: {joined(named)}")
    return lines
