"""An upgrade in words: the verdict, advice, settings, causes and placements."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from mooring.answers.base.answering import Answer
from mooring.answers.upgrade.advice import AdviceKind, UpgradeAdvice
from mooring.answers.upgrade.causes import Factor
from mooring.answers.upgrade.decisions import PodUpgrade, UpgradeOutcome
from mooring.answers.upgrade.settings import UNKNOWN, ReleaseSetting, SettingEffect
from mooring.answers.upgrade.upgrade import Upgrade
from mooring.engine.core.decision import Placement
from mooring.engine.node.start import CPU_FILE, MEMORY_FILE
from mooring.engine.releases.rule import ReleaseRule
from mooring.explain.phrases import cpus_text, joined, nodes, plural

_GATES = "featureGates."


def headline_text(upgrade: Upgrade) -> str:
    """Return the verdict in one or two sentences; where the new kubelet does not start, its message follows."""
    if upgrade.plan.refusal is not None:
        return "The new kubelet does not start:"
    running = [one for one in upgrade.pods if one.running]
    affected = [one for one in running if one.outcome is not UpgradeOutcome.KEPT]
    if not running:
        start = "The new kubelet starts."
    elif not affected:
        them = "the running pod keeps its" if len(running) == 1 else f"all {len(running)} running pods keep their"
        start = f"The new kubelet starts, and {them} CPUs and memory."
    else:
        start = f"The new kubelet starts, but {affected_text(affected)} of {plural(len(running), 'running pod')}."
    if not upgrade.changed:
        return f"{start} Nothing is decided differently."
    better = sum(one.changed for one in running if one.outcome is UpgradeOutcome.KEPT)
    if better:
        return f"{start} The old kubelet, started again, decides differently about {better} of them."
    return start if affected else f"{start} New pods are decided differently."


def affected_text(affected: Sequence[PodUpgrade]) -> str:
    """Return what becomes of pods that do not keep their CPUs and memory, such as ``rejects 1 and moves 2``."""
    outcomes = [one.outcome for one in affected]
    words = (
        (UpgradeOutcome.REJECTED, "rejects {}"),
        (UpgradeOutcome.MOVED, "moves {}"),
        (UpgradeOutcome.NOT_ASKED, "does not return before {}"),
    )
    return joined([text.format(outcomes.count(one)) for one, text in words if one in outcomes])


def advice_text(advice: UpgradeAdvice) -> str:
    """Return what to do, and what becomes of the running pods then."""
    return f"{_what(advice)} {_effect(advice)}" if advice.starts else _what(advice)


def _what(advice: UpgradeAdvice) -> str:
    names = joined(list(advice.names))
    match advice.kind:
        case AdviceKind.REMOVE_FLAGS:
            return f"Remove {names}."
        case AdviceKind.REMOVE_GATES:
            return f"Remove {names} from featureGates."
        case AdviceKind.SET_GATES:
            settings = ", ".join(f"{name}: {str(advice.value).lower()}" for name in advice.names)
            return f"Set featureGates: {{{settings}}}."
        case AdviceKind.REMOVE_FIELD:
            return f"Remove {names} from the KubeletConfiguration."
        case AdviceKind.REMOVE_OPTION:
            return f"Remove {names} from cpuManagerPolicyOptions."
        case AdviceKind.RECREATE_PODS:
            them = "it" if len(advice.names) == 1 else "them"
            return f"Evict {names} before the upgrade, and create {them} again after it."
        case AdviceKind.DRAIN:
            return (
                f"Drain the node, stop the old kubelet, delete {CPU_FILE} and {MEMORY_FILE}, and start the new kubelet."
            )


def _effect(advice: UpgradeAdvice) -> str:
    total = advice.kept + advice.moved + advice.rejected
    if not total:
        return "The kubelet then starts."
    if advice.kept == total:
        them = "The running pod then keeps its" if total == 1 else f"All {total} running pods then keep their"
        return f"{them} CPUs and memory."
    parts = [f"{advice.kept} of {plural(total, 'running pod')} then keep their CPUs and memory"] if advice.kept else []
    if advice.moved:
        parts.append(f"{advice.moved} {'gets' if advice.moved == 1 else 'get'} other CPUs or memory")
    if advice.rejected:
        parts.append(f"{advice.rejected} {'is' if advice.rejected == 1 else 'are'} rejected")
    text = joined(parts)
    return f"{text[:1].upper()}{text[1:]}."


def setting_text(change: ReleaseSetting) -> str:
    """Return a setting that another release takes otherwise, as one line.

    >>> setting_text(ReleaseSetting("failCgroupV1", SettingEffect.DEFAULT, "false", "true"))
    'failCgroupV1: default false, then true'
    """
    match change.effect:
        case SettingEffect.REFUSED:
            words = f"refused; {change.before}, then {change.after}"
        case SettingEffect.IGNORED:
            words = "then an unknown field, which is ignored"
        case SettingEffect.TAKES_EFFECT:
            words = f"takes effect; {change.before}, then {change.after}"
        case SettingEffect.DEFAULT:
            words = f"default {change.before}, then {change.after}"
        case SettingEffect.GROUP:
            words = f"{change.before}, then {change.after}"
    return f"{change.name}: {words}"


def settings_texts(changes: Sequence[ReleaseSetting]) -> list[str]:
    """Return settings as lines; gates that are only on or off by default are listed together."""
    lines = [setting_text(one) for one in changes if not _is_default_gate(one)]
    for words, switch in (("on", " on"), ("off", " off")):
        gates = [one for one in changes if _is_default_gate(one) and f"{one.after} ".find(f"{switch} ") >= 0]
        if gates:
            lines.append(f"Feature gates that are {words} by default then: {joined([_gate(one) for one in gates])}")
    gone = [one for one in changes if _is_default_gate(one) and one.after == UNKNOWN]
    if gone:
        lines.append(f"Feature gates that are not known then: {joined([_gate(one) for one in gone])}")
    return lines


def _is_default_gate(change: ReleaseSetting) -> bool:
    return change.effect is SettingEffect.DEFAULT and change.name.startswith(_GATES)


def _gate(change: ReleaseSetting) -> str:
    return change.name.removeprefix(_GATES) + (" (locked)" if change.after.endswith("locked") else "")


def factor_words(factor: Factor, *, forward: bool) -> tuple[str, str]:
    """Return what the old and the new release do.

    Args:
        factor: a rule or gate.
        forward: whether the new release is the later one.
    """
    if isinstance(factor, ReleaseRule):
        return (factor.says, factor.instead) if forward else (factor.instead, factor.says)
    return _switch(on=factor.before), _switch(on=factor.after)


def _switch(*, on: bool) -> str:
    return f"{'on' if on else 'off'} by default"


def answer_text(answer: Answer) -> str:
    """Return what is decided about a pod, short."""
    decision = answer.decision
    if answer.crash:
        return "the kubelet crashes"
    if decision.endless is not None:
        return "the kubelet does not return"
    if not decision.admitted:
        return f"rejected, {decision.reason}: {decision.message}"
    return placements_text(decision.containers, decision.pod)


def placements_text(containers: Mapping[str, Placement], pod: Placement) -> str:
    """Return what containers have; those of the shared pool without a memory assignment are left out.

    >>> placements_text({}, Placement())
    'shared pool'
    """
    parts = [f"{name} {_placement(one)}" for name, one in containers.items() if one != Placement()]
    if pod != Placement():
        parts.append(f"pod {_placement(pod)}")
    return "; ".join(parts) or "shared pool"


def _placement(placement: Placement) -> str:
    parts = [cpus_text(placement.cpus)] if placement.cpus else []
    if placement.mems:
        parts.append(f"memory of {nodes(placement.mems)}")
    return ", ".join(parts)
