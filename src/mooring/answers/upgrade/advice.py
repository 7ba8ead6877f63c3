"""What to do before an upgrade. Every advice was followed in the engine first, and is given only where it helps.

A kubelet that does not start comes first: its configuration, then the state files. Then come pods that it rejects or
moves.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from enum import Enum
from typing import Final, TypeAlias

from mooring.answers.base.plan import Plan
from mooring.answers.upgrade.causes import Cause, GateDefault, gates_for
from mooring.answers.upgrade.decisions import UpgradeOutcome, pod_upgrades
from mooring.answers.upgrade.node import KubeletSetup, UpgradedNode, UpgradeSituation
from mooring.engine.core.config import CheckedFields, KubeletConfig
from mooring.engine.kubelet.kubelet import StateTexts
from mooring.engine.releases.config_fields import CHECKED_FIELDS, CPU_OPTIONS, TOPOLOGY_OPTIONS
from mooring.engine.releases.flags import unknown_flag
from mooring.engine.releases.gates import known_gates


class AdviceKind(Enum):
    """What is to be done."""

    REMOVE_FLAGS = "remove flags"
    REMOVE_GATES = "remove gates"
    SET_GATES = "set gates"
    REMOVE_FIELD = "remove field"
    REMOVE_OPTION = "remove option"
    RECREATE_PODS = "recreate pods"
    """The pods leave the node before the upgrade and are created again after it."""
    DRAIN = "drain"
    """All pods leave the node and the state files are deleted before the new kubelet starts."""


@dataclass(frozen=True, slots=True)
class UpgradeAdvice:
    """One thing to do before the upgrade, and what becomes of the pods that run when it and all before it are done."""

    kind: AdviceKind
    names: tuple[str, ...] = ()
    """Flags with their files, gates, a field, an option, or pods as NAMESPACE/NAME."""
    value: bool = False
    """What the gates are set to."""
    kept: int = 0
    """How many running pods keep what they have."""
    moved: int = 0
    """How many get other CPUs or memory, or are created again."""
    rejected: int = 0
    starts: bool = True
    """Whether the new kubelet starts then; otherwise the next advice is needed too."""


@dataclass(frozen=True, slots=True)
class _Attempt:
    """An upgrade after some advice was followed."""

    node: UpgradedNode
    old: KubeletSetup
    new: KubeletSetup
    before: Plan
    """The restart of the old kubelet."""
    plan: Plan
    """The restart of the new one."""

    def with_config(self, config: KubeletConfig) -> _Attempt:
        """Return the upgrade to a kubelet with another configuration."""
        new = replace(self.new, config=config)
        return replace(self, new=new, plan=self.node.plan(UpgradeSituation.RESTART, new))

    @property
    def starts(self) -> bool:
        """Tell whether the new kubelet starts."""
        return self.plan.refusal is None

    @property
    def uids(self) -> tuple[str, ...]:
        """The pods that run before the upgrade."""
        return tuple(pod.uid for pod in self.node.pods_of(self.old).running)

    @property
    def is_harmless(self) -> bool:
        """Tell whether the running pods keep what a restart of the old kubelet leaves them."""
        upgrades = pod_upgrades(self.before, self.plan, self.uids)
        return self.starts and not any(one.is_affected for one in upgrades if one.running)

    def counted(self, advice: UpgradeAdvice) -> UpgradeAdvice:
        """Return an advice with what becomes of the pods."""
        outcomes = [one.outcome for one in pod_upgrades(self.before, self.plan, self.uids) if one.running]
        kept, moved, rejected = (
            outcomes.count(one) for one in (UpgradeOutcome.KEPT, UpgradeOutcome.MOVED, UpgradeOutcome.REJECTED)
        )
        return replace(advice, kept=kept, moved=moved, rejected=rejected, starts=self.starts)


_Changed: TypeAlias = tuple[UpgradeAdvice, KubeletConfig]


def advices(
    node: UpgradedNode, kubelets: tuple[KubeletSetup, KubeletSetup], plans: tuple[Plan, Plan], found: Iterable[Cause]
) -> tuple[UpgradeAdvice, ...]:
    """Return what to do before the upgrade, in this order; nothing where nothing is known to help.

    Args:
        node: before the upgrade.
        kubelets: the old one and the new one.
        plans: their restarts.
        found: why they decide differently about the running pods.
    """
    attempt, given = _Attempt(node, *kubelets, *plans), list[UpgradeAdvice]()
    for change in (_without_unknown_flags, _without_refused_gates, _with_dependents_off, *_field_changes()):
        changed = None if attempt.starts else change(attempt.new)
        after = None if changed is None else attempt.with_config(changed[1])
        if changed is not None and after is not None and after.plan.refusal != attempt.plan.refusal:
            attempt = after
            given.append(attempt.counted(changed[0]))
    if not attempt.starts:
        drained = _drained(attempt)
        return () if drained is None else (*given, drained)
    if attempt.is_harmless:
        return tuple(given)
    return (*given, *_for_pods(attempt, found))


def _without_unknown_flags(new: KubeletSetup) -> _Changed | None:
    checked = new.config.checked
    unknown = tuple(one for one in checked.flags if unknown_flag([one.written], new.release.name))
    names = tuple(f"{one.written} from {one.source}" for one in unknown)
    kept = replace(checked, flags=tuple(one for one in checked.flags if one not in unknown))
    return (UpgradeAdvice(AdviceKind.REMOVE_FLAGS, names), replace(new.config, checked=kept)) if names else None


def _without_refused_gates(new: KubeletSetup) -> _Changed | None:
    known, configured = known_gates(new.release.name).gates, new.config.feature_gates
    kept = {name: on for name, on in configured.items() if name in known and _is_free(new, name, on)}
    names = tuple(sorted(configured.keys() - kept.keys()))
    return (UpgradeAdvice(AdviceKind.REMOVE_GATES, names), replace(new.config, feature_gates=kept)) if names else None


def _is_free(new: KubeletSetup, name: str, on: bool) -> bool:  # noqa: FBT001 - the value of a gate
    gate = known_gates(new.release.name).gates[name]
    return not gate.locked or gate.default == on


def _with_dependents_off(new: KubeletSetup) -> _Changed | None:
    """Switch off what depends on gates that the configuration switches off."""
    configured = new.config.feature_gates
    more: dict[str, bool] = {}
    for name, on in sorted(configured.items()):
        if not on:
            more |= gates_for(name, new.config, new.release, value=False) or {}
    names = tuple(sorted(more.keys() - configured.keys()))
    gates: Mapping[str, bool] = {**configured, **dict.fromkeys(names, False)}
    return (UpgradeAdvice(AdviceKind.SET_GATES, names), replace(new.config, feature_gates=gates)) if names else None


_FIELDS: Final[Mapping[str, str]] = {
    "null_duration": "the null of a duration",
    "cpu_options_empty": CPU_OPTIONS,
    "topology_options_empty": TOPOLOGY_OPTIONS,
}


def _field_changes() -> Iterator[Callable[[KubeletSetup], _Changed | None]]:
    defaults = CheckedFields()

    def without(name: str) -> Callable[[KubeletSetup], _Changed | None]:
        default = getattr(defaults, name)

        def change(new: KubeletSetup) -> _Changed | None:
            checked = new.config.checked
            if getattr(checked, name) == default:
                return None
            config = replace(new.config, checked=replace(checked, **{name: default}))
            return UpgradeAdvice(AdviceKind.REMOVE_FIELD, (_FIELDS[name],)), config

        return change

    def without_value(path: str) -> Callable[[KubeletSetup], _Changed | None]:
        def change(new: KubeletSetup) -> _Changed | None:
            checked = new.config.checked
            if path not in checked.values:
                return None
            kept = {name: value for name, value in checked.values.items() if name != path}
            config = replace(new.config, checked=replace(checked, values=kept))
            return UpgradeAdvice(AdviceKind.REMOVE_FIELD, (path,)), config

        return change

    yield from (without(name) for name in _FIELDS)
    yield from (without_value(one.name) for one in CHECKED_FIELDS)


def _drained(attempt: _Attempt) -> UpgradeAdvice | None:
    """Return the advice to drain the node and to delete its state files; None where the kubelet does not start then."""
    emptied = replace(attempt.node, files=StateTexts()).leaving_out(attempt.uids)
    plan = emptied.arriving_again(attempt.uids, attempt.node).plan(UpgradeSituation.RESTART, attempt.new)
    if plan.refusal is not None:
        return None
    admitted = [answer.admitted for answer in plan.answers if answer.pod.uid in attempt.uids]
    return UpgradeAdvice(AdviceKind.DRAIN, moved=sum(admitted), rejected=len(attempt.uids) - sum(admitted))


def _for_pods(attempt: _Attempt, found: Iterable[Cause]) -> Iterator[UpgradeAdvice]:
    """Yield each setting that keeps running pods as they are; else what admits those that are rejected."""
    harmless = [
        after.counted(advice)
        for advice, config in _other_settings(attempt.new, found)
        if (after := attempt.with_config(config)).is_harmless
    ]
    yield from harmless
    upgrades = list(pod_upgrades(attempt.before, attempt.plan, attempt.uids))
    rejected = [one.pod for one in upgrades if one.running and one.outcome is UpgradeOutcome.REJECTED]
    if harmless or not rejected:
        return
    uids = [pod.uid for pod in rejected]
    node = attempt.node.without_pods(uids, attempt.old).arriving_again(uids, attempt.node)
    plan = node.plan(UpgradeSituation.RESTART, attempt.new)
    if plan.refusal is None and all(answer.admitted for answer in plan.answers):
        names = tuple(f"{pod.namespace}/{pod.name}" for pod in rejected)
        advice = replace(attempt, node=node, plan=plan).counted(UpgradeAdvice(AdviceKind.RECREATE_PODS, names))
        yield replace(advice, moved=advice.moved + len(uids))
    else:
        drained = _drained(attempt)
        yield from [] if drained is None or drained.rejected else [drained]


def _other_settings(new: KubeletSetup, found: Iterable[Cause]) -> Iterator[_Changed]:
    """Yield configurations in which a gate or option is otherwise by which pods are decided differently."""
    config, seen = new.config, set[str]()
    for cause in found:
        factor = cause.factor
        if isinstance(factor, GateDefault):
            gates = gates_for(factor.name, config, new.release, value=factor.before)
            if gates is not None and seen.isdisjoint(gates):
                advice = UpgradeAdvice(AdviceKind.SET_GATES, tuple(sorted(gates)), factor.before)
                yield advice, replace(config, feature_gates={**config.feature_gates, **gates})
                seen |= gates.keys()
            continue
        for option in factor.options:
            if option in config.cpu_manager_policy_options and option not in seen:
                options = {name: text for name, text in config.cpu_manager_policy_options.items() if name != option}
                advice = UpgradeAdvice(AdviceKind.REMOVE_OPTION, (option,))
                yield advice, replace(config, cpu_manager_policy_options=options)
                seen.add(option)
