"""What another release takes or decides otherwise: settings, state files, and the rules and gates behind decisions.

Settings and files are what the data of :mod:`mooring.engine.releases` says, as far as this configuration is concerned.
Whether the kubelet starts is not decided here.

A rule or the default of a gate is a cause when plans with it as in the old release and as in the new one differ,
everything else being equal. The example is then asked with fewer and fewer pods.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from enum import StrEnum
from typing import Annotated, TypeAlias

from mooring.answers.base.answering import Answer
from mooring.answers.base.plan import AnyPlan, start_error
from mooring.answers.base.plan_document import decided, placement_part
from mooring.answers.upgrade.node import KubeletSetup, UpgradedNode, UpgradeSituation
from mooring.documents.plan import DocumentPart, PlacementPart, one_of, told
from mooring.engine.checkpoint.formats import ACTUATED_FILE, ALLOCATED_FILE
from mooring.engine.core.config import KubeletConfig
from mooring.engine.core.cpuset import CPUSet
from mooring.engine.core.pod import Pod
from mooring.engine.core.release import MANAGER_GATES, SWITCHES, FeatureGates, Gate, Release
from mooring.engine.node.settings import CPU_FILE, MEMORY_FILE
from mooring.engine.releases.catalog import pod_file_versions, state_file_rules
from mooring.engine.releases.config_fields import (
    CPU_OPTIONS,
    DEFAULT_HISTORY,
    FIELDS_SINCE,
    TOPOLOGY_OPTIONS,
    later_fields,
)
from mooring.engine.releases.gates import CPU_OPTION_HISTORY, TOPOLOGY_OPTION_HISTORY, known_gates
from mooring.engine.releases.rule import ReleaseRule, standing
from mooring.engine.releases.rules import RULES
from mooring.explanations.phrases import cpus_text, nodes

POD_LEVEL_GATE = "PodLevelResourceManagers"
UNKNOWN = "not known"


class SettingEffect(StrEnum):
    """What another release does with a setting."""

    REFUSED = "refused"
    """The kubelet does not start with it."""
    IGNORED = "ignored"
    """It is an unknown field."""
    TAKES_EFFECT = "takes effect"
    """It was an unknown field before."""
    DEFAULT = "default"
    """It is not set, and its default is another one."""
    GROUP = "group"
    """The policy option needs another gate, or none any more."""
    COMPUTED = "computed"
    """The kubelet makes it of other settings, and comes to another result."""


class SettingChangePart(DocumentPart):
    """A setting that the new release takes otherwise."""

    name: Annotated[str, told("Such as featureGates.MemoryManager or failCgroupV1.")]
    effect: Annotated[str, one_of("refused", "ignored", "takes effect", "default", "group", "computed")]
    before: str
    after: str


def setting_changes(
    config: KubeletConfig, fields: frozenset[str], old: Release, new: Release
) -> list[SettingChangePart]:
    """Return the settings that a release takes otherwise than another one.

    Args:
        config: of the node's kubelet.
        fields: names of the fields that the configuration sets.
        old: before the upgrade.
        new: after it.
    """
    return [
        *_gates(config, old, new),
        *_options(CPU_OPTIONS, config.cpu_manager_policy_options, CPU_OPTION_HISTORY, old, new),
        *_options(TOPOLOGY_OPTIONS, config.topology_manager_policy_options, TOPOLOGY_OPTION_HISTORY, old, new),
        *_fields(fields, old, new),
    ]


def _gates(config: KubeletConfig, old: Release, new: Release) -> Iterator[SettingChangePart]:
    """Yield configured gates that one release refuses, and managers' gates that are not set, and on in one alone."""
    before, after = known_gates(old.name), known_gates(new.name)
    for name, value in sorted(config.feature_gates.items()):
        was_refused, is_refused = _is_refused(before.get(name), value), _is_refused(after.get(name), value)
        if is_refused != was_refused:
            effect = SettingEffect.REFUSED if is_refused else SettingEffect.TAKES_EFFECT
            yield SettingChangePart(f"featureGates.{name}", effect, _words(before.get(name)), _words(after.get(name)))
    for name in sorted(MANAGER_GATES - set(config.feature_gates)):
        if gate_value(name, config, old) != gate_value(name, config, new):
            words = _words(before.get(name)), _words(after.get(name))
            yield SettingChangePart(f"featureGates.{name}", SettingEffect.DEFAULT, *words)


def _is_refused(gate: Gate | None, value: bool) -> bool:  # noqa: FBT001 - the value of a gate
    return gate is None or (gate.locked and value != gate.default)


def gate_value(name: str, config: KubeletConfig, release: Release) -> bool:
    """Return whether a gate is on; one that the release does not know is off, unless its feature is always on there."""
    gate = known_gates(release.name).get(name)
    if gate is None:
        return FeatureGates({})[name]
    configured = config.feature_gates
    return configured.get(name, configured.get(SWITCHES.get(gate.stage, ""), gate.default))


def _words(gate: Gate | None) -> str:
    if gate is None:
        return UNKNOWN
    return f"{gate.stage.value} {'on' if gate.default else 'off'}{' locked' if gate.locked else ''}"


def _options(
    field: str, configured: Mapping[str, str], histories: Mapping[str, str], old: Release, new: Release
) -> Iterator[SettingChangePart]:
    for name in configured:
        history = histories.get(name, "")
        before, after = (standing(history, one.name) or UNKNOWN for one in (old, new))
        if before == after:
            continue
        effect = SettingEffect.REFUSED if after == UNKNOWN else SettingEffect.GROUP
        yield SettingChangePart(f"{field}.{name}", effect, before, after)


def _fields(fields: frozenset[str], old: Release, new: Release) -> Iterator[SettingChangePart]:
    missing_before, missing_after = later_fields(old.name), later_fields(new.name)
    for name in sorted(fields & FIELDS_SINCE.keys()):
        if (name in missing_before) != (name in missing_after):
            effect = SettingEffect.IGNORED if name in missing_after else SettingEffect.TAKES_EFFECT
            words = [UNKNOWN if name in missing else "known" for missing in (missing_before, missing_after)]
            yield SettingChangePart(name, effect, words[0], words[1])
    for name, history in sorted(DEFAULT_HISTORY.items()):
        before, after = standing(history, old.name), standing(history, new.name)
        if name not in fields and before and after and before != after:
            yield SettingChangePart(name, SettingEffect.DEFAULT, before, after)


class StateFileFormatsPart(DocumentPart):
    """The formats of a state file."""

    file: str
    written_before: str
    read_after: Annotated[list[str], told("What the new release reads, in order.")]
    written_after: str
    read_before: Annotated[list[str], told("What the old release reads after a rollback, in order.")]


def state_file_formats(config: KubeletConfig, old: Release, new: Release) -> list[StateFileFormatsPart]:
    """Return the formats of the managers' files, and of those of allocated and actuated pods where they change."""
    was, then = pod_file_versions(old.name), pod_file_versions(new.name)
    before, after = (
        state_file_rules(one.name, pod_level=gate_value(POD_LEVEL_GATE, config, one)) for one in (old, new)
    )
    return [
        StateFileFormatsPart(file, was.written, list(then.read), then.written, list(was.read))
        for file, was, then in ((CPU_FILE, before.cpu, after.cpu), (MEMORY_FILE, before.memory, after.memory))
    ] + [
        StateFileFormatsPart(file, was[0], list(then[1]), then[0], list(was[1]))
        for file in (ALLOCATED_FILE, ACTUATED_FILE)
        if was[0] != then[0]
    ]


MOST_TRIALS = 60
"""How often an example is asked with fewer pods; it has more than the fewest on a full node of which it needs most."""


Factor: TypeAlias = ReleaseRule | tuple[str, bool]
"""A rule; or a gate that the configuration does not set, with its default before, which is another in the new release.
"""


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
        # Two kubelets that differ in a rule or gate alone
        for base, plan, like in ((new, plans[1], old), (old, plans[0], new)):
            other = with_factor(base, factor, like)
            if other is not None and decided(node.plan(situation, other)) != decided(plan):
                pair = (other, base) if like is old else (base, other)
                yield factor, _example(node, situation, factor, old, pair)
                break


def _factors(old: KubeletSetup, new: KubeletSetup) -> Iterator[Factor]:
    different = {*old.release.rules.names()} ^ {*new.release.rules.names()}
    yield from (rule for rule in RULES if rule.name in different)
    for name in sorted(MANAGER_GATES - set(new.config.feature_gates)):
        before, after = (gate_value(name, new.config, setup.release) for setup in (old, new))
        if before != after:
            yield name, before


def with_factor(setup: KubeletSetup, factor: Factor, like: KubeletSetup) -> KubeletSetup | None:
    """Return a kubelet with a rule or gate as in another release; None where it cannot be set."""
    if isinstance(factor, ReleaseRule):
        field = factor.name.replace("-", "_")
        rules = replace(setup.release.rules, **{field: getattr(like.release.rules, field)})
        return replace(setup, release=replace(setup.release, rules=rules))
    name, _ = factor
    gates = gates_for(name, setup.config, setup.release, value=gate_value(name, like.config, like.release))
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
        gate = known.get(gate_name)
        if gate is None or (gate.locked and gate.default != value):
            return None
        wanted[gate_name] = value
        related = gate.needs if value else tuple(one for one, its in known.items() if gate_name in its.needs)
        pending += [one for one in related if one not in wanted and gate_value(one, config, release) != value]
    return wanted


def _example(
    node: UpgradedNode,
    situation: UpgradeSituation,
    factor: Factor,
    old: KubeletSetup,
    pair: tuple[KubeletSetup, KubeletSetup],
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
    answers, later = ({answer.pod.uid: answer_text(answer) for answer in plan.answers} for plan in (before, after))
    if isinstance(factor, ReleaseRule):
        in_place = before.release.rules, factor.name.replace("-", "_")
        words = (factor.says, factor.instead) if getattr(*in_place) else (factor.instead, factor.says)
        kind, name, releases, source = "rule", factor.name, factor.span, factor.source
    else:
        name, is_on = factor
        words = ("on by default", "off by default") if is_on else ("off by default", "on by default")
        kind, releases, source = "gate", "", "feature gates; spec: releases.md section 2"
    return UpgradeCausePart(
        kind=kind,
        name=name,
        before=words[0],
        after=words[1],
        releases=releases,
        source=source,
        situation=situation.value,
        machine=node.machine.name,
        pods=[
            ExamplePodPart(pod.uid, pod.namespace, pod.name, answers.get(pod.uid, ""), later.get(pod.uid, ""))
            for pod in pods
        ],
        start_before=start_error(before),
        start_after=start_error(after),
    )


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
