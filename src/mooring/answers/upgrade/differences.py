"""What another release takes or decides otherwise: settings and state files, and what becomes of each running pod.

What the data of :mod:`mooring.engine.releases` says, as far as this configuration is concerned. Whether the kubelet
starts is not decided here.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from enum import StrEnum
from typing import Annotated, TypeAlias

from mooring.answers.base.answering import Answer
from mooring.answers.base.plan import AnyPlan, RefusedPlan
from mooring.answers.base.plan_document import differing, placement_part
from mooring.documents.plan import Code, DocumentPart, PlacementPart, PodPart, one_of, told
from mooring.engine.checkpoint.formats import ACTUATED_FILE, ALLOCATED_FILE
from mooring.engine.core.config import KubeletConfig
from mooring.engine.core.decision import Placement
from mooring.engine.core.pod import Pod
from mooring.engine.core.release import MANAGER_GATES, SWITCHES, FeatureGates, Gate, Release
from mooring.engine.node.node import placements_of
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
from mooring.engine.releases.rule import standing
from mooring.explanations.story import PodVerdict

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
        *_configured_gates(config, old, new),
        *_gate_defaults(config, old, new),
        *_options(CPU_OPTIONS, config.cpu_manager_policy_options, CPU_OPTION_HISTORY, old, new),
        *_options(TOPOLOGY_OPTIONS, config.topology_manager_policy_options, TOPOLOGY_OPTION_HISTORY, old, new),
        *_fields(fields, old, new),
    ]


def _configured_gates(config: KubeletConfig, old: Release, new: Release) -> Iterator[SettingChangePart]:
    before, after = known_gates(old.name).gates, known_gates(new.name).gates
    for name, value in sorted(config.feature_gates.items()):
        was_refused, is_refused = _is_refused(before.get(name), value), _is_refused(after.get(name), value)
        if is_refused != was_refused:
            effect = SettingEffect.REFUSED if is_refused else SettingEffect.TAKES_EFFECT
            yield SettingChangePart(f"featureGates.{name}", effect, _words(before.get(name)), _words(after.get(name)))


def _is_refused(gate: Gate | None, value: bool) -> bool:  # noqa: FBT001 - the value of a gate
    return gate is None or (gate.locked and value != gate.default)


def _gate_defaults(config: KubeletConfig, old: Release, new: Release) -> Iterator[SettingChangePart]:
    """Yield the gates of the resource managers that are not set, and on in one release only."""
    for name in sorted(MANAGER_GATES - set(config.feature_gates)):
        if gate_value(name, config, old) != gate_value(name, config, new):
            before, after = (known_gates(one.name).gates.get(name) for one in (old, new))
            yield SettingChangePart(f"featureGates.{name}", SettingEffect.DEFAULT, _words(before), _words(after))


def gate_value(name: str, config: KubeletConfig, release: Release) -> bool:
    """Return whether a gate is on; one that the release does not know is off, unless its feature is always on there."""
    gate = known_gates(release.name).gates.get(name)
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


class UpgradedPodPart(DocumentPart, kw_only=True):
    """What becomes of a pod."""

    uid: str
    namespace: str
    name: str
    running: Annotated[bool, told("Whether it runs before; otherwise it is admitted after the restart.")]
    outcome: Annotated[str, one_of("kept", "moved", "admitted", "rejected", "not asked")]
    changed: Annotated[bool, told("Whether the old kubelet, started again, would decide otherwise.")]
    admitted: bool
    reason: Annotated[str, told("The kubelet's; empty for admitted pods.")] = ""
    message: Annotated[str, told("The kubelet's; empty for admitted pods.")] = ""
    why: Annotated[str, told("One sentence for people; empty for admitted pods.")] = ""
    code: Code = ""
    before: Annotated[
        dict[str, PlacementPart],
        told("Container -> its CPUs and memory before the upgrade; empty where it had no place."),
    ]
    pod_before: Annotated[PlacementPart, told("The partition of the pod as a whole.")]
    after: Annotated[
        dict[str, PlacementPart],
        told("Container -> its CPUs and memory afterwards; empty if not admitted."),
    ]
    pod_after: Annotated[PlacementPart, told("The partition of the pod as a whole.")]

    @property
    def is_affected(self) -> bool:
        """Tell whether the pod does not keep what it has, and a restart of the old kubelet would not do the same."""
        return self.changed and self.outcome != PodVerdict.KEPT

    @property
    def as_pod(self) -> PodPart:
        """Its name."""
        return PodPart(self.uid, self.namespace, self.name)


_Placed: TypeAlias = tuple[Mapping[str, Placement], Placement]
"""What each container has, and the pod as a whole."""
_NOWHERE: _Placed = {}, Placement()


def pod_upgrades(old: AnyPlan, new: AnyPlan, running: Collection[str]) -> Iterator[UpgradedPodPart]:
    """Yield what becomes of the pods of a restart.

    Args:
        old: the restart of the old kubelet.
        new: the restart of the new kubelet on the same files.
        running: uids of the pods that run before.
    """
    before, different = {answer.pod.uid: answer for answer in old.answers}, differing(old, new)
    for answer in new.answers:
        decision, pod = answer.decision, answer.pod
        held = _held(old, new, answer, before.get(pod.uid))
        placed = (decision.containers, decision.pod) if decision.admitted else _NOWHERE
        same = (dict(placed[0]), placed[1]) == (dict(held[0]), held[1])
        outcome = PodVerdict.ADMITTED if not held[0] else PodVerdict.KEPT if same else PodVerdict.MOVED
        outcome = outcome if decision.admitted else PodVerdict.REJECTED
        part = _part(pod, outcome, held, placed, running=answer.running, changed=pod.uid in different)
        if not decision.admitted:
            defect = "" if decision.endless is None else decision.endless.defect
            part.reason = decision.reason or ("crash" if answer.crash else defect)
            part.message, part.why, part.code = decision.message or answer.crash, answer.why, answer.code
        yield part
    unasked_before = {pod.uid for pod in old.unasked}
    for pod in new.unasked:
        is_running = pod.uid in running
        held = placements(old, pod) if is_running else _NOWHERE
        changed = pod.uid not in unasked_before
        yield _part(pod, PodVerdict.NOT_ASKED, held, _NOWHERE, running=is_running, changed=changed)


def _part(
    pod: Pod, outcome: PodVerdict, held: _Placed, placed: _Placed, *, running: bool, changed: bool
) -> UpgradedPodPart:
    return UpgradedPodPart(
        uid=pod.uid,
        namespace=pod.namespace,
        name=pod.name,
        running=running,
        outcome=outcome.value,
        changed=changed,
        admitted=outcome not in (PodVerdict.REJECTED, PodVerdict.NOT_ASKED),
        before={name: placement_part(one) for name, one in held[0].items()},
        pod_before=placement_part(held[1]),
        after={name: placement_part(one) for name, one in placed[0].items()},
        pod_after=placement_part(placed[1]),
    )


def _held(old: AnyPlan, new: AnyPlan, answer: Answer, earlier: Answer | None) -> _Placed:
    """Return what a pod has before the upgrade: by the state files, or as the old kubelet decides about a new pod."""
    if answer.running:
        return placements(new if isinstance(old, RefusedPlan) else old, answer.pod)
    if earlier is None or not earlier.admitted:
        return _NOWHERE
    return earlier.decision.containers, earlier.decision.pod


def placements(plan: AnyPlan, pod: Pod) -> _Placed:
    """Return what a pod has by the state files with which a plan begins."""
    return _NOWHERE if isinstance(plan, RefusedPlan) else placements_of(plan.began.node.providers, pod)
