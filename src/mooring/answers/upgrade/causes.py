"""Why two releases decide differently about a node: the named rules and gates, each with few pods that show it.

A rule or the default of a gate counts when plans with it as in the old release and as in the new one differ, everything
else being equal. The example is then asked with fewer and fewer pods.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Annotated, TypeAlias

from mooring.answers.base.answering import Answer
from mooring.answers.base.plan import AnyPlan, start_error
from mooring.answers.base.plan_document import decided, placement_part
from mooring.answers.upgrade.differences import gate_value
from mooring.answers.upgrade.node import KubeletSetup, UpgradedNode, UpgradeSituation
from mooring.documents.plan import DocumentPart, PlacementPart, one_of, told
from mooring.engine.core.config import KubeletConfig
from mooring.engine.core.cpuset import CPUSet
from mooring.engine.core.pod import Pod
from mooring.engine.core.release import MANAGER_GATES, Release
from mooring.engine.releases.gates import known_gates
from mooring.engine.releases.rule import ReleaseRule
from mooring.engine.releases.rules import RULES
from mooring.explanations.phrases import cpus_text, nodes

MOST_TRIALS = 60
"""How often an example is asked with fewer pods; it has more than the fewest on a full node of which it needs most."""


@dataclass(frozen=True, slots=True)
class GateDefault:
    """A gate that the configuration does not set, and whose default is another one in the new release."""

    name: str
    before: bool
    after: bool


Factor: TypeAlias = ReleaseRule | GateDefault


class ExamplePodPart(DocumentPart):
    """A pod of an example."""

    uid: str
    namespace: str
    name: str
    before: Annotated[str, told("What is decided with the rule or gate as in the old release.")]
    after: Annotated[str, told("The same as in the new release.")]


class UpgradeCausePart(DocumentPart, kw_only=True):
    """A rule or gate by which the releases decide differently about this node."""

    kind: Annotated[str, one_of("rule", "gate")]
    name: str
    before: Annotated[str, told("What the old release does.")]
    after: Annotated[str, told("What the new release does.")]
    releases: Annotated[str, told("The releases that follow the rule; empty for a gate.")]
    source: str
    situation: Annotated[str, one_of("restart", "recreated")]
    machine: str
    pods: Annotated[list[ExamplePodPart], told("Few pods of the node that show it, in order.")]
    start_before: Annotated[str, told("Why the kubelet does not start in the example; empty if it does.")]
    start_after: Annotated[str, told("The same with the rule or gate as in the new release.")]


Cause: TypeAlias = tuple[Factor, UpgradeCausePart]
"""A rule or gate by which the releases decide differently about this node, and an example of it."""


def causes(node: UpgradedNode, old: KubeletSetup, new: KubeletSetup, situation: UpgradeSituation) -> Iterator[Cause]:
    """Yield the causes for which an upgrade decides differently in a situation."""
    plans = node.plan(situation, old), node.plan(situation, new)
    if decided(plans[0]) == decided(plans[1]):
        return
    for factor in _factors(old, new):
        pair = _pair(node, situation, factor, (old, new), plans)
        if pair is not None:
            yield factor, _example(node, situation, factor, old, pair)


_Pair: TypeAlias = tuple[KubeletSetup, KubeletSetup]


def _factors(old: KubeletSetup, new: KubeletSetup) -> Iterator[Factor]:
    different = {*old.release.rules.names()} ^ {*new.release.rules.names()}
    yield from (rule for rule in RULES if rule.name in different)
    for name in sorted(MANAGER_GATES - set(new.config.feature_gates)):
        before, after = (gate_value(name, new.config, setup.release) for setup in (old, new))
        if before != after:
            yield GateDefault(name, before, after)


def _pair(
    node: UpgradedNode, situation: UpgradeSituation, factor: Factor, setups: _Pair, plans: tuple[AnyPlan, AnyPlan]
) -> _Pair | None:
    """Return two kubelets that differ in a rule or gate alone and decide differently; None when there are none."""
    old, new = setups
    for base, plan, of_old in ((new, plans[1], True), (old, plans[0], False)):
        other = with_factor(base, factor, old if of_old else new)
        if other is not None and decided(node.plan(situation, other)) != decided(plan):
            return (other, base) if of_old else (base, other)
    return None


def with_factor(setup: KubeletSetup, factor: Factor, like: KubeletSetup) -> KubeletSetup | None:
    """Return a kubelet with a rule or gate as in another release; None where it cannot be set."""
    if isinstance(factor, ReleaseRule):
        field = factor.name.replace("-", "_")
        rules = replace(setup.release.rules, **{field: getattr(like.release.rules, field)})
        return replace(setup, release=replace(setup.release, rules=rules))
    value = gate_value(factor.name, like.config, like.release)
    gates = gates_for(factor.name, setup.config, setup.release, value=value)
    if gates is None:
        return None
    return replace(setup, config=replace(setup.config, feature_gates={**setup.config.feature_gates, **gates}))


def gates_for(name: str, config: KubeletConfig, release: Release, *, value: bool) -> dict[str, bool] | None:
    """Return the settings that give a gate a value, with the gates that depend on it or that it needs.

    None when the release does not know one of them, or has it locked.
    """
    known = known_gates(release.name)
    wanted: dict[str, bool] = {}
    pending = [name]
    while pending:
        gate_name = pending.pop()
        gate = known.gates.get(gate_name)
        if gate is None or (gate.locked and gate.default != value):
            return None
        wanted[gate_name] = value
        related = gate.needs if value else tuple(one for one, its in known.dependent.items() if gate_name in its.needs)
        pending += [one for one in related if one not in wanted and gate_value(one, config, release) != value]
    return wanted


def _example(
    node: UpgradedNode, situation: UpgradeSituation, factor: Factor, old: KubeletSetup, pair: _Pair
) -> UpgradeCausePart:
    """Return a cause with few pods that show it, the fewest where that takes no more than :data:`MOST_TRIALS`."""
    everything = node.pods_of(old).every

    def shown(uids: Sequence[str]) -> tuple[AnyPlan, AnyPlan] | None:
        some = node.only(uids)
        if situation is UpgradeSituation.RESTART:
            some = some.prepared(old)
        before, after = (some.plan(situation, setup) for setup in pair)
        return None if decided(before) == decided(after) else (before, after)

    uids = tuple(pod.uid for pod in everything)
    plans = shown(uids)
    if plans is None:
        # The state files hold what these pods alone do not explain: the example is the node as it is.
        before, after = (node.plan(situation, setup) for setup in pair)
        return _part(node, situation, factor, everything, before, after)
    size, trials = len(uids), 0
    while size and trials < MOST_TRIALS:
        start = 0
        while start < len(uids) and trials < MOST_TRIALS:
            trials += 1
            fewer = (*uids[:start], *uids[start + size :])
            found = shown(fewer)
            if found is None:
                start += size
            else:
                uids, plans = fewer, found
        size //= 2
    return _part(node, situation, factor, [pod for pod in everything if pod.uid in uids], *plans)


def _part(
    node: UpgradedNode,
    situation: UpgradeSituation,
    factor: Factor,
    pods: Sequence[Pod],
    before: AnyPlan,
    after: AnyPlan,
) -> UpgradeCausePart:
    """Return a cause whose example is some pods of the node.

    Args:
        node: of the pods.
        situation: in which they are asked about.
        factor: the rule or gate.
        pods: few that show it.
        before: what is decided with it as in the old release.
        after: the same as in the new release, and no other difference.
    """
    is_rule = isinstance(factor, ReleaseRule)
    answers, later = ({answer.pod.uid: answer_text(answer) for answer in plan.answers} for plan in (before, after))
    if isinstance(factor, ReleaseRule):
        in_place = before.release.rules, factor.name.replace("-", "_")
        words = (factor.says, factor.instead) if getattr(*in_place) else (factor.instead, factor.says)
    else:
        words = _switch(on=factor.before), _switch(on=factor.after)
    return UpgradeCausePart(
        kind="rule" if is_rule else "gate",
        name=factor.name,
        before=words[0],
        after=words[1],
        releases=factor.span if isinstance(factor, ReleaseRule) else "",
        source=factor.source if isinstance(factor, ReleaseRule) else "feature gates; spec: releases.md section 2",
        situation=situation.value,
        machine=node.machine.name,
        pods=[
            ExamplePodPart(pod.uid, pod.namespace, pod.name, answers.get(pod.uid, ""), later.get(pod.uid, ""))
            for pod in pods
        ],
        start_before=start_error(before),
        start_after=start_error(after),
    )


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
    held = {name: placement_part(one) for name, one in decision.containers.items()}
    return placements_text(held, placement_part(decision.pod))


def placements_text(containers: Mapping[str, PlacementPart], pod: PlacementPart) -> str:
    """Return what containers have; those of the shared pool without a memory assignment are left out.

    >>> placements_text({}, PlacementPart("", ""))
    'shared pool'
    """
    parts = [f"{name} {_placement(one)}" for name, one in containers.items() if one.cpus or one.mems]
    if pod.cpus or pod.mems:
        parts.append(f"pod {_placement(pod)}")
    return "; ".join(parts) or "shared pool"


def _placement(placement: PlacementPart) -> str:
    parts = [cpus_text(CPUSet.parse(placement.cpus))] if placement.cpus else []
    if placement.mems:
        parts.append(f"memory of {nodes(map(int, placement.mems.split(',')))}")
    return ", ".join(parts)
