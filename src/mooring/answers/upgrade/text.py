"""``mooring upgrade -o text`` and ``-o wide``: the answer for people."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from rich.console import RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from mooring.answers.upgrade import differences as differing
from mooring.answers.upgrade.answer import HopPart, RollbackPart, UpgradeDocument
from mooring.answers.upgrade.causes import ExamplePodPart, UpgradeCausePart, placements_text
from mooring.answers.upgrade.node import UpgradeSituation
from mooring.documents.plan import PodPart
from mooring.engine.core.errors import clean
from mooring.engine.node.settings import CPU_FILE, MEMORY_FILE
from mooring.explanations.phrases import joined, plural
from mooring.explanations.story import PodVerdict
from mooring.views.console import Breaking, new_table

_INDENT = (0, 0, 0, 2)
_MOST_NAMES = 5
_GATES = "featureGates."
_SITUATIONS = {
    UpgradeSituation.RESTART.value: "when the kubelet starts on the state files",
    UpgradeSituation.RECREATED.value: "when the pods are created anew on the empty node",
}


def upgrade_parts(upgrade: UpgradeDocument, *, wide: bool) -> Iterator[RenderableType]:
    """Yield the answer for people."""
    name = clean(upgrade.node or upgrade.machine)
    yield Text.assemble((name, "bold"), f": kubelet {upgrade.from_} to {upgrade.to}")
    yield Text(headline_text(upgrade), "bold")
    if upgrade.start_error is not None:
        yield Padding(Text(f"{clean(upgrade.start_error)} [{upgrade.start_error_code}]"), _INDENT)
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
        yield from _section("Do first (each was tried)", *_numbered([one.text for one in upgrade.advice]))
    if upgrade.hops:
        yield from _section("Through every minor release", *(Text(_hop(hop)) for hop in upgrade.hops))
    yield from _section("State files", *(Text(line) for line in _files(upgrade)))
    if upgrade.rollback is not None:
        yield from _section("Rollback", *_rollback(upgrade, upgrade.rollback))


def _section(title: str, *parts: RenderableType) -> Iterator[RenderableType]:
    yield Text("")
    yield Text(title, "bold")
    yield from (Padding(part, _INDENT) for part in parts)


def _table(pods: Sequence[differing.UpgradedPodPart]) -> Table:
    table = new_table("pod", "before", "after")
    for one in pods:
        before = placements_text(one.before, one.pod_before) if one.before else "–"
        table.add_row(Breaking(_name(one)), Text(clean(before)), Text(clean(_after(one))))
    return table


def _after(one: differing.UpgradedPodPart) -> str:
    note = "" if one.changed or one.outcome == PodVerdict.KEPT else " (as after a restart of the old kubelet)"
    match one.outcome:
        case PodVerdict.KEPT:
            return "the same" if not one.changed else "the same; the old kubelet, started again, decides differently"
        case PodVerdict.MOVED:
            return f"{placements_text(one.after, one.pod_after)}{note}"
        case PodVerdict.ADMITTED:
            return placements_text(one.after, one.pod_after)
        case PodVerdict.REJECTED:
            return f"rejected, {one.reason}: {one.message}{note}"
        case _:
            return "not asked"


def _name(pod: PodPart | differing.UpgradedPodPart | ExamplePodPart) -> str:
    return clean(f"{pod.namespace}/{pod.name}")


def _cause(cause: UpgradeCausePart) -> Iterator[RenderableType]:
    span = f" ({cause.releases})" if cause.releases else ""
    yield Text.assemble((f"{cause.name}{span}", "bold"), f": {cause.before}. Then: {cause.after}.")
    if cause.releases:
        yield Padding(Text(f"Source: {cause.source}", "dim"), _INDENT)
    shown = list(_example(cause))
    if shown:
        yield Padding(Text(f"Example, {_SITUATIONS[cause.situation]}:", "dim"), _INDENT)
        yield from (Padding(Text(line), (0, 0, 0, 4)) for line in shown)


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


def _numbered(lines: Sequence[str]) -> Iterator[RenderableType]:
    if len(lines) == 1:
        yield Text(clean(lines[0]))
        return
    yield from (Text(f"{number}. {clean(line)}") for number, line in enumerate(lines, 1))


def _hop(hop: HopPart) -> str:
    if hop.start_error is not None:
        return f"{hop.from_} to {hop.to}: does not start: {clean(hop.start_error)}"
    parts = [f"rejects {_names(hop.rejected)}"] if hop.rejected else []
    parts += [f"moves {_names(hop.moved)}"] if hop.moved else []
    return f"{hop.from_} to {hop.to}: {joined(parts) or 'starts, and all pods stay as they are'}"


def _names(pods: Sequence[PodPart | differing.UpgradedPodPart]) -> str:
    names = [_name(pod) for pod in pods]
    more = len(names) - _MOST_NAMES
    return joined([*names[:_MOST_NAMES], f"{more} more"] if more > 0 else names)


def _files(upgrade: UpgradeDocument) -> Iterator[str]:
    for one in upgrade.state_files:
        yield (
            f"{one.file}: {upgrade.from_} writes {one.written_before}; {upgrade.to} reads "
            f"{', '.join(one.read_after)} and writes {one.written_after}{_downgraded(upgrade, one)}"
        )


def _downgraded(upgrade: UpgradeDocument, formats: differing.StateFileFormatsPart) -> str:
    if formats.file in (CPU_FILE, MEMORY_FILE) or formats.written_after in formats.read_before:
        return ""
    return f"; after a rollback {upgrade.from_} reads the amounts in it alone, not the names and specs of pods"


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


def _affected(affected: Sequence[differing.UpgradedPodPart]) -> str:
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
    lines = [setting_text(one) for one in changes if not _is_default_gate(one)]
    for words, switch in (("on", " on"), ("off", " off")):
        gates = [one for one in changes if _is_default_gate(one) and f"{one.after} ".find(f"{switch} ") >= 0]
        if gates:
            lines.append(f"Feature gates that are {words} by default then: {joined([_gate(one) for one in gates])}")
    gone = [one for one in changes if _is_default_gate(one) and one.after == differing.UNKNOWN]
    if gone:
        lines.append(f"Feature gates that are not known then: {joined([_gate(one) for one in gone])}")
    return lines


def _is_default_gate(change: differing.SettingChangePart) -> bool:
    return change.effect == differing.SettingEffect.DEFAULT and change.name.startswith(_GATES)


def _gate(change: differing.SettingChangePart) -> str:
    return change.name.removeprefix(_GATES) + (" (locked)" if change.after.endswith("locked") else "")
