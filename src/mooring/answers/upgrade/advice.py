"""What to do before an upgrade. Every advice was followed in the engine first, and is given only where it helps.

A kubelet that does not start comes first: its configuration, then the state files. Then come pods that it rejects or
moves.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Annotated, Final, TypeAlias

from msgspec import structs

from mooring.answers.base.plan import AnyPlan, RefusedPlan, start_error
from mooring.answers.upgrade.differences import Cause, gates_for
from mooring.answers.upgrade.node import KubeletSetup, UpgradedNode, UpgradeSituation, pod_upgrades
from mooring.documents.plan import Count, DocumentPart, one_of, told
from mooring.engine.core.bits import list_text
from mooring.engine.core.config import KubeletConfig
from mooring.engine.kubelet.kubelet import StateTexts
from mooring.engine.node.settings import CPU_FILE, MEMORY_FILE
from mooring.engine.releases.config_fields import CHECKED_FIELDS, CPU_OPTIONS, TOPOLOGY_OPTIONS, unknown_flag
from mooring.engine.releases.gates import known_gates
from mooring.engine.releases.rule import ReleaseRule
from mooring.explanations.phrases import joined, plural
from mooring.explanations.story import PodVerdict

REMOVE_FLAGS, REMOVE_GATES, SET_GATES = "remove flags", "remove gates", "set gates"
REMOVE_FIELD, REMOVE_OPTION, RESERVE_CPUS = "remove field", "remove option", "reserve CPUs"
RECREATE_PODS, DRAIN = "recreate pods", "drain"
_TEXTS: Final[Mapping[str, str]] = {
    REMOVE_FLAGS: "Remove {names}.",
    REMOVE_GATES: "Remove {names} from featureGates.",
    SET_GATES: "Set featureGates: {{{settings}}}.",
    REMOVE_FIELD: "Remove {names} from the KubeletConfiguration.",
    REMOVE_OPTION: "Remove {names} from cpuManagerPolicyOptions.",
    RESERVE_CPUS: "Set reservedSystemCPUs: {names}, as the old kubelet chooses them.",
    RECREATE_PODS: "Evict {names} before the upgrade, and create {them} again after it.",
    DRAIN: f"Drain the node, stop the old kubelet, delete {CPU_FILE} and {MEMORY_FILE}, and start the new kubelet.",
}
"""What is to be done -> in words."""


class UpgradeAdvicePart(DocumentPart):
    """Something to do before the upgrade; it was tried."""

    kind: Annotated[str, one_of(*_TEXTS)]
    names: Annotated[
        list[str], told("Flags with their files, gates, a field, an option, CPUs, or pods as NAMESPACE/NAME.")
    ]
    text: Annotated[str, told("One or two sentences.")]
    kept: Annotated[Count, told("Running pods that then keep what they have.")]
    moved: Annotated[Count, told("Running pods that then get other CPUs or memory.")]
    rejected: Count


def _advice(kind: str, names: Sequence[str], *, value: bool = False) -> UpgradeAdvicePart:
    """Return an advice before anything is counted.

    Args:
        kind: what is to be done.
        names: with what.
        value: what gates are set to.
    """
    settings = ", ".join(f"{name}: {str(value).lower()}" for name in names)
    them = "it" if len(names) == 1 else "them"
    text = _TEXTS[kind].format(names=joined(list(names)), settings=settings, them=them)
    return UpgradeAdvicePart(kind, list(names), text, 0, 0, 0)


def _with_effect(advice: UpgradeAdvicePart, kept: int, moved: int, rejected: int) -> UpgradeAdvicePart:
    """Return an advice with what becomes of the running pods when it and all before it are done.

    Args:
        advice: what to do.
        kept: how many running pods keep what they have.
        moved: how many get other CPUs or memory, or are created again.
        rejected: how many are rejected.
    """
    total = kept + moved + rejected
    if not total:
        effect = "The kubelet then starts."
    elif kept == total:
        them = "The running pod then keeps its" if total == 1 else f"All {total} running pods then keep their"
        effect = f"{them} CPUs and memory."
    else:
        parts = [f"{kept} of {plural(total, 'running pod')} then keep their CPUs and memory"] if kept else []
        parts += [f"{moved} {'gets' if moved == 1 else 'get'} other CPUs or memory"] if moved else []
        parts += [f"{rejected} {'is' if rejected == 1 else 'are'} rejected"] if rejected else []
        effect = f"{joined(parts)}."
    text = f"{advice.text} {effect[0].upper()}{effect[1:]}"
    return structs.replace(advice, text=text, kept=kept, moved=moved, rejected=rejected)


@dataclass(frozen=True, slots=True)
class _Attempt:
    """An upgrade after some advice was followed."""

    node: UpgradedNode
    old: KubeletSetup
    new: KubeletSetup
    before: AnyPlan
    """The restart of the old kubelet."""
    plan: AnyPlan
    """The restart of the new one."""

    def with_config(self, config: KubeletConfig) -> _Attempt:
        """Return the upgrade to a kubelet with another configuration."""
        new = replace(self.new, config=config)
        return replace(self, new=new, plan=self.node.plan(UpgradeSituation.RESTART, new))

    @property
    def starts(self) -> bool:
        """Tell whether the new kubelet starts."""
        return not start_error(self.plan)

    @property
    def uids(self) -> tuple[str, ...]:
        """The pods that run before the upgrade."""
        return tuple(pod.uid for pod in self.node.pods_of(self.old).running)

    @property
    def is_harmless(self) -> bool:
        """Tell whether the running pods keep what a restart of the old kubelet leaves them."""
        upgrades = pod_upgrades(self.before, self.plan, self.uids)
        return self.starts and not any(one.is_affected for one in upgrades if one.running)

    def counted(self, advice: UpgradeAdvicePart, again: int = 0) -> UpgradeAdvicePart:
        """Return an advice with what becomes of the pods that run, of which ``again`` are created again."""
        outcomes = [one.outcome for one in pod_upgrades(self.before, self.plan, self.uids) if one.running]
        kept, moved, rejected = (
            outcomes.count(one) for one in (PodVerdict.KEPT, PodVerdict.MOVED, PodVerdict.REJECTED)
        )
        if not self.starts:
            return structs.replace(advice, kept=kept, moved=moved + again, rejected=rejected)
        return _with_effect(advice, kept, moved + again, rejected)


_Changed: TypeAlias = tuple[UpgradeAdvicePart, KubeletConfig]
_Change: TypeAlias = Callable[[KubeletSetup], _Changed | None]


def advices(
    node: UpgradedNode,
    kubelets: tuple[KubeletSetup, KubeletSetup],
    plans: tuple[AnyPlan, AnyPlan],
    found: Iterable[Cause],
) -> list[UpgradeAdvicePart]:
    """Return what to do before the upgrade, in this order; nothing where nothing is known to help.

    Args:
        node: before the upgrade.
        kubelets: the old one and the new one.
        plans: their restarts.
        found: why they decide differently about the running pods.
    """
    attempt, given = _Attempt(node, *kubelets, *plans), list[UpgradeAdvicePart]()
    gates = _without_unknown_flags, _without_refused_gates, _with_dependents_off
    fields = (partial(_without_field, name) for name in (*_FIELDS, *(one.name for one in CHECKED_FIELDS)))
    changes: tuple[_Change, ...] = (*gates, partial(_with_reserved_cpus, plans[0]), *fields)
    for change in changes:
        changed = None if attempt.starts else change(attempt.new)
        after = None if changed is None else attempt.with_config(changed[1])
        if changed is not None and after is not None and start_error(after.plan) != start_error(attempt.plan):
            attempt = after
            given.append(attempt.counted(changed[0]))
    if not attempt.starts:
        drained = _drained(attempt)
        return [] if drained is None else [*given, drained]
    if attempt.is_harmless:
        return given
    return [*given, *_for_pods(attempt, found)]


def _without_unknown_flags(new: KubeletSetup) -> _Changed | None:
    checked = new.config.checked
    unknown = tuple(one for one in checked.flags if unknown_flag([one.written], new.release.name))
    names = tuple(f"{one.written} from {one.source}" for one in unknown)
    kept = replace(checked, flags=tuple(one for one in checked.flags if one not in unknown))
    return (_advice(REMOVE_FLAGS, names), replace(new.config, checked=kept)) if names else None


def _without_refused_gates(new: KubeletSetup) -> _Changed | None:
    known, configured = known_gates(new.release.name), new.config.feature_gates
    kept = {
        name: on
        for name, on in configured.items()
        if name in known and (not known[name].locked or known[name].default == on)
    }
    names = tuple(sorted(configured.keys() - kept.keys()))
    return (_advice(REMOVE_GATES, names), replace(new.config, feature_gates=kept)) if names else None


def _with_dependents_off(new: KubeletSetup) -> _Changed | None:
    """Switch off what depends on gates that the configuration switches off."""
    configured = new.config.feature_gates
    more: dict[str, bool] = {}
    for name, on in sorted(configured.items()):
        if not on:
            more |= gates_for(name, new.config, new.release, value=False) or {}
    names = tuple(sorted(more.keys() - configured.keys()))
    gates: Mapping[str, bool] = {**configured, **dict.fromkeys(names, False)}
    return (_advice(SET_GATES, names), replace(new.config, feature_gates=gates)) if names else None


def _with_reserved_cpus(before: AnyPlan, new: KubeletSetup) -> _Changed | None:
    """Name the CPUs that the old kubelet reserves by their number, because the new one may choose others."""
    config = new.config
    is_named = config.reserved_system_cpus or config.system_reserved_cgroup or config.kube_reserved_cgroup
    if is_named or isinstance(before, RefusedPlan) or before.kubelet.settings.cpu is None:
        return None
    cpus = list_text(before.kubelet.settings.cpu.reserved)
    return _advice(RESERVE_CPUS, (cpus,)), replace(config, reserved_system_cpus=cpus)


_FIELDS: Final[Mapping[str, str]] = {
    "the null of a duration": "null_duration",
    CPU_OPTIONS: "cpu_options_empty",
    TOPOLOGY_OPTIONS: "topology_options_empty",
}
"""What is removed, in words -> the member that says that it stands there; other fields have a value."""


def _without_field(field: str, new: KubeletSetup) -> _Changed | None:
    checked = new.config.checked
    if field in _FIELDS:
        kept = replace(checked, **{_FIELDS[field]: False})  # type: ignore[arg-type]
    else:
        kept = replace(checked, values={name: value for name, value in checked.values.items() if name != field})
    return None if kept == checked else (_advice(REMOVE_FIELD, (field,)), replace(new.config, checked=kept))


def _drained(attempt: _Attempt) -> UpgradeAdvicePart | None:
    """Return the advice to drain the node and to delete its state files; None where the kubelet does not start then."""
    emptied = replace(attempt.node, files=StateTexts()).leaving_out(attempt.uids)
    plan = emptied.arriving_again(attempt.uids, attempt.node).plan(UpgradeSituation.RESTART, attempt.new)
    if isinstance(plan, RefusedPlan):
        return None
    admitted = [answer.admitted for answer in plan.answers if answer.pod.uid in attempt.uids]
    return _with_effect(_advice(DRAIN, ()), 0, sum(admitted), len(attempt.uids) - sum(admitted))


def _for_pods(attempt: _Attempt, found: Iterable[Cause]) -> Iterator[UpgradeAdvicePart]:
    """Yield each setting that keeps running pods as they are; else what admits those that are rejected."""
    harmless = [
        after.counted(advice)
        for advice, config in _other_settings(attempt.new, found)
        if (after := attempt.with_config(config)).is_harmless
    ]
    yield from harmless
    upgrades = list(pod_upgrades(attempt.before, attempt.plan, attempt.uids))
    rejected = [one for one in upgrades if one.running and one.outcome == PodVerdict.REJECTED]
    if harmless or not rejected:
        return
    uids = [pod.uid for pod in rejected]
    node = attempt.node.without_pods(uids, attempt.old).arriving_again(uids, attempt.node)
    plan = node.plan(UpgradeSituation.RESTART, attempt.new)
    if not start_error(plan) and all(answer.admitted for answer in plan.answers):
        advice = _advice(RECREATE_PODS, [f"{pod.namespace}/{pod.name}" for pod in rejected])
        yield replace(attempt, node=node, plan=plan).counted(advice, len(uids))
    else:
        drained = _drained(attempt)
        yield from [] if drained is None or drained.rejected else [drained]


def _other_settings(new: KubeletSetup, found: Iterable[Cause]) -> Iterator[_Changed]:
    """Yield configurations in which a gate or option is otherwise by which pods are decided differently."""
    config, seen = new.config, set[str]()
    for factor, _ in found:
        if not isinstance(factor, ReleaseRule):
            name, before = factor
            gates = gates_for(name, config, new.release, value=before)
            if gates is not None and seen.isdisjoint(gates):
                advice = _advice(SET_GATES, sorted(gates), value=before)
                yield advice, replace(config, feature_gates={**config.feature_gates, **gates})
                seen |= gates.keys()
            continue
        for option in factor.options:
            if option in config.cpu_manager_policy_options and option not in seen:
                options = {name: text for name, text in config.cpu_manager_policy_options.items() if name != option}
                advice = _advice(REMOVE_OPTION, (option,))
                yield advice, replace(config, cpu_manager_policy_options=options)
                seen.add(option)
