"""What plans decide, to be compared, and what becomes of each running pod."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from enum import Enum

from mooring.answers.base.answering import Answer
from mooring.answers.base.outcome import decided_about
from mooring.answers.base.plan import Plan
from mooring.engine.core.decision import Placement
from mooring.engine.core.pod import Pod
from mooring.engine.node.node import placements_of


class UpgradeOutcome(Enum):
    """What becomes of a pod in an upgrade."""

    KEPT = "kept"
    """It keeps its CPUs and memory."""
    MOVED = "moved"
    """It is admitted with other CPUs or memory."""
    ADMITTED = "admitted"
    """It is admitted, and had no place before."""
    REJECTED = "rejected"
    NOT_ASKED = "not asked"
    """The kubelet does not start, or does not return from an admission before."""


@dataclass(frozen=True, slots=True)
class PodUpgrade:
    """What becomes of one pod when the kubelet of another release starts."""

    pod: Pod
    running: bool
    """Whether it runs before the upgrade; otherwise it is admitted after it."""
    outcome: UpgradeOutcome
    changed: bool
    """Whether the release decides it: the old kubelet, started again, decides differently."""
    before: Mapping[str, Placement] = field(default_factory=dict)
    """Container -> what it has before the upgrade; of an arriving pod what the old kubelet gives it."""
    before_pod: Placement = field(default_factory=Placement)
    after: Mapping[str, Placement] = field(default_factory=dict)
    """Container -> what it has afterwards; empty for a pod that is not admitted."""
    after_pod: Placement = field(default_factory=Placement)
    reason: str = ""
    """The kubelet's, of a rejected pod."""
    message: str = ""
    why: str = ""
    """One sentence in plain words."""
    code: str = ""

    @property
    def is_affected(self) -> bool:
        """Tell whether the pod does not keep what it has, and a restart of the old kubelet would not do the same."""
        return self.changed and self.outcome is not UpgradeOutcome.KEPT


def pod_upgrades(old: Plan, new: Plan, running: Collection[str]) -> Iterator[PodUpgrade]:
    """Yield what becomes of the pods of a restart.

    Args:
        old: the restart of the old kubelet.
        new: the restart of the new kubelet on the same files.
        running: uids of the pods that run before.
    """
    before = {answer.pod.uid: answer for answer in old.answers}
    for answer in new.answers:
        earlier = before.get(answer.pod.uid)
        changed = earlier is None or decided_about(earlier) != decided_about(answer)
        yield _of_answer(answer, _held(old, new, answer, earlier), changed=changed)
    unasked_before = {pod.uid for pod in old.unasked}
    for pod in new.unasked:
        is_running = pod.uid in running
        held = placements(old, pod) if is_running else ({}, Placement())
        changed = pod.uid not in unasked_before
        yield PodUpgrade(pod, is_running, UpgradeOutcome.NOT_ASKED, changed, before=held[0], before_pod=held[1])


def _of_answer(answer: Answer, held: tuple[Mapping[str, Placement], Placement], *, changed: bool) -> PodUpgrade:
    decision = answer.decision
    admitted = decision.admitted
    return PodUpgrade(
        pod=answer.pod,
        running=answer.running,
        outcome=_outcome(answer, held),
        changed=changed,
        before=held[0],
        before_pod=held[1],
        after=decision.containers if admitted else {},
        after_pod=decision.pod if admitted else Placement(),
        reason=decision.reason or ("crash" if answer.crash else decision.endless.defect if decision.endless else ""),
        message=decision.message or answer.crash,
        why=answer.why if not admitted else "",
        code=answer.code if not admitted else "",
    )


def _outcome(answer: Answer, held: tuple[Mapping[str, Placement], Placement]) -> UpgradeOutcome:
    decision = answer.decision
    if not decision.admitted:
        return UpgradeOutcome.REJECTED
    if not held[0]:
        return UpgradeOutcome.ADMITTED
    same = (dict(decision.containers), decision.pod) == (dict(held[0]), held[1])
    return UpgradeOutcome.KEPT if same else UpgradeOutcome.MOVED


def _held(old: Plan, new: Plan, answer: Answer, earlier: Answer | None) -> tuple[Mapping[str, Placement], Placement]:
    """Return what a pod has before the upgrade: by the state files, or as the old kubelet decides about a new pod."""
    if answer.running:
        return placements(old if old.began is not None else new, answer.pod)
    if earlier is None or not earlier.admitted:
        return {}, Placement()
    return earlier.decision.containers, earlier.decision.pod


def placements(plan: Plan, pod: Pod) -> tuple[Mapping[str, Placement], Placement]:
    """Return what a pod has by the state files with which a plan begins."""
    return placements_of(plan.began.node.providers, pod) if plan.began is not None else ({}, Placement())
