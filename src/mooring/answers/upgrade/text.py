"""``mooring upgrade -o text`` and ``-o wide``: the answer for people."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from mooring.answers.upgrade.causes import Cause
from mooring.answers.upgrade.decisions import PodUpgrade, UpgradeOutcome
from mooring.answers.upgrade.node import UpgradeSituation
from mooring.answers.upgrade.settings import SettingEffect
from mooring.answers.upgrade.upgrade import Hop, Upgrade, UpgradeRollback
from mooring.answers.upgrade.wording import (
    advice_text,
    affected_text,
    answer_text,
    factor_words,
    headline_text,
    placements_text,
    settings_texts,
)
from mooring.cli.terminal import text_for
from mooring.engine.core.errors import clean
from mooring.engine.core.pod import Pod
from mooring.engine.releases.rule import ReleaseRule
from mooring.explain.phrases import joined, plural
from mooring.views.console import Breaking, new_table

_INDENT = (0, 0, 0, 2)
_MOST_NAMES = 5
_SITUATIONS = {
    UpgradeSituation.RESTART: "when the kubelet starts on the state files",
    UpgradeSituation.RECREATED: "when the pods are created anew on the empty node",
}


def upgrade_text(upgrade: Upgrade, *, wide: bool, to: str) -> str:
    """Return the answer as text for the terminal, or without any styling for the file ``to``."""
    return text_for(Group(*_parts(upgrade, wide=wide)), to)


def _parts(upgrade: Upgrade, *, wide: bool) -> Iterator[RenderableType]:
    name = clean(upgrade.node.name or upgrade.node.machine.name)
    yield Text.assemble((name, "bold"), f": kubelet {upgrade.old.release} to {upgrade.new.release}")
    yield Text(headline_text(upgrade), "bold")
    if upgrade.plan.refusal is not None:
        yield Padding(Text(f"{clean(upgrade.plan.refusal.message)} [{upgrade.plan.refusal_code}]"), _INDENT)
    if upgrade.before.refusal is not None:
        yield Text(f"Kubelet {upgrade.old.release} does not start either: {clean(upgrade.before.refusal.message)}")
    shown = [one for one in upgrade.pods if wide or one.changed or one.outcome is not UpgradeOutcome.KEPT]
    if shown and (upgrade.plan.refusal is None or wide):
        yield from _section("Pods", _table(shown))
    if upgrade.recreated and upgrade.plan.refusal is None:
        yield from _section("Pods, if all were created anew on the empty node", _table(upgrade.recreated))
    if upgrade.causes:
        yield from _section("Why", *(part for cause in upgrade.causes for part in _cause(upgrade, cause)))
    settings = [one for one in upgrade.settings if wide or one.effect is not SettingEffect.GROUP]
    if settings:
        yield from _section("Settings", *(Text(line) for line in settings_texts(settings)))
    if upgrade.advice:
        yield from _section("Do first (each was tried)", *_numbered([advice_text(one) for one in upgrade.advice]))
    if upgrade.hops:
        yield from _section("Through every minor release", *(Text(_hop(hop)) for hop in upgrade.hops))
    yield from _section("State files", *(Text(line) for line in _files(upgrade)))
    if upgrade.rollback is not None:
        yield from _section("Rollback", *_rollback(upgrade, upgrade.rollback))


def _section(title: str, *parts: RenderableType) -> Iterator[RenderableType]:
    yield Text("")
    yield Text(title, "bold")
    yield from (Padding(part, _INDENT) for part in parts)


def _table(pods: Sequence[PodUpgrade]) -> Table:
    table = new_table("pod", "before", "after")
    for one in pods:
        before = placements_text(one.before, one.before_pod) if one.before else "–"
        table.add_row(Breaking(_name(one.pod)), Text(clean(before)), Text(clean(_after(one))))
    return table


def _after(one: PodUpgrade) -> str:
    note = "" if one.changed or one.outcome is UpgradeOutcome.KEPT else " (as after a restart of the old kubelet)"
    match one.outcome:
        case UpgradeOutcome.KEPT:
            return "the same" if not one.changed else "the same; the old kubelet, started again, decides differently"
        case UpgradeOutcome.MOVED:
            return f"{placements_text(one.after, one.after_pod)}{note}"
        case UpgradeOutcome.ADMITTED:
            return placements_text(one.after, one.after_pod)
        case UpgradeOutcome.REJECTED:
            return f"rejected, {one.reason}: {one.message}{note}"
        case UpgradeOutcome.NOT_ASKED:
            return "not asked"


def _name(pod: Pod) -> str:
    return clean(f"{pod.namespace}/{pod.name}")


def _cause(upgrade: Upgrade, cause: Cause) -> Iterator[RenderableType]:
    factor = cause.factor
    before, after = factor_words(factor, forward=upgrade.is_forward)
    span = f" ({factor.span})" if isinstance(factor, ReleaseRule) else ""
    yield Text.assemble((f"{factor.name}{span}", "bold"), f": {before}. Then: {after}.")
    if isinstance(factor, ReleaseRule):
        yield Padding(Text(f"Source: {factor.source}", "dim"), _INDENT)
    shown = list(_example(cause))
    if shown:
        yield Padding(Text(f"Example, {_SITUATIONS[cause.situation]}:", "dim"), _INDENT)
        yield from (Padding(Text(line), (0, 0, 0, 4)) for line in shown)


def _example(cause: Cause) -> Iterator[str]:
    if cause.before.refusal != cause.after.refusal:
        for words, plan in (("before", cause.before), ("then", cause.after)):
            yield f"{words} {'it starts' if plan.refusal is None else clean(plan.refusal.message)}"
        return
    answers = {answer.pod.uid: answer_text(answer) for answer in cause.before.answers}
    later = {answer.pod.uid: answer_text(answer) for answer in cause.after.answers}
    others = 0
    for pod in cause.pods:
        before, after = answers.get(pod.uid, "not asked"), later.get(pod.uid, "not asked")
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


def _hop(hop: Hop) -> str:
    if hop.refusal is not None:
        return f"{hop.before} to {hop.after}: does not start: {clean(hop.refusal.message)}"
    parts = [f"rejects {_names(hop.rejected)}"] if hop.rejected else []
    parts += [f"moves {_names(hop.moved)}"] if hop.moved else []
    return f"{hop.before} to {hop.after}: {joined(parts) or 'starts, and all pods stay as they are'}"


def _names(pods: Sequence[Pod]) -> str:
    names = [_name(pod) for pod in pods]
    more = len(names) - _MOST_NAMES
    return joined([*names[:_MOST_NAMES], f"{more} more"] if more > 0 else names)


def _files(upgrade: Upgrade) -> Iterator[str]:
    for one in upgrade.files:
        yield (
            f"{one.file}: {upgrade.old.release} writes {one.written_before}; {upgrade.new.release} reads "
            f"{', '.join(one.read_after)} and writes {one.written_after}"
        )


def _rollback(upgrade: Upgrade, rollback: UpgradeRollback) -> Iterator[RenderableType]:
    old, new = upgrade.old.release, upgrade.new.release
    if rollback.refusal is not None and rollback.refusal == upgrade.before.refusal:
        yield Text(f"{old} does not start before the upgrade either.")
        return
    if rollback.refusal is not None:
        yield Text(f"{old} does not start on the files of {new}: {clean(rollback.refusal.message)}")
        yield Text("Keep a copy of both state files from before the upgrade, or drain the node before the rollback.")
        return
    affected = [one for one in rollback.pods if one.outcome is not UpgradeOutcome.KEPT]
    if not affected:
        yield Text(f"{old} starts on the files of {new}, and all pods keep their CPUs and memory.")
        return
    yield Text(
        f"{old} starts on the files of {new}, but {affected_text(affected)} of {plural(len(rollback.pods), 'pod')}:"
    )
    yield _table(affected)


def upgrades_text(upgrades: Sequence[Upgrade], to: str) -> str:
    """Return one line for each of several nodes."""
    table = new_table("node", "from", "to", "safe", "what changes")
    for upgrade in upgrades:
        table.add_row(
            Breaking(clean(upgrade.node.name)),
            Text(str(upgrade.old.release)),
            Text(str(upgrade.new.release)),
            Text("yes" if upgrade.is_safe else "no"),
            Breaking(_summary(upgrade)),
        )
    safe = sum(upgrade.is_safe for upgrade in upgrades)
    return text_for(Group(table, Text(""), Text(f"{safe} of {plural(len(upgrades), 'node')} safe.")), to)


def _summary(upgrade: Upgrade) -> str:
    if upgrade.plan.refusal is not None:
        return clean(f"does not start: {upgrade.plan.refusal.message}")
    changed = [one for one in upgrade.pods if one.running and one.changed]
    parts = []
    for outcome, words in ((UpgradeOutcome.REJECTED, "rejects"), (UpgradeOutcome.MOVED, "moves")):
        pods = [one.pod for one in changed if one.outcome is outcome]
        parts += [f"{words} {_names(pods)}"] if pods else []
    if not parts and upgrade.changed:
        parts.append("new pods are decided differently")
    causes = joined(list(dict.fromkeys(cause.factor.name for cause in upgrade.causes)))
    return f"{'; '.join(parts) or 'nothing'}{f' ({causes})' if causes else ''}"
