"""``mooring upgrade -o json``: an upgrade as a document."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from mooring.answers.base.outcome import placement_part
from mooring.answers.base.plan_document import pod_part
from mooring.answers.upgrade.causes import Cause
from mooring.answers.upgrade.decisions import PodUpgrade, UpgradeOutcome
from mooring.answers.upgrade.upgrade import Hop, Upgrade, UpgradeRollback
from mooring.answers.upgrade.wording import advice_text, answer_text, factor_words
from mooring.documents.parts import PlacementPart, PodPart, finding_parts
from mooring.documents.upgrade import (
    ExamplePodPart,
    HopPart,
    RollbackPart,
    SettingChangePart,
    StateFileFormatsPart,
    UpgradeAdvicePart,
    UpgradeCausePart,
    UpgradedNodePart,
    UpgradeDocument,
    UpgradedPodPart,
    UpgradeListDocument,
)
from mooring.engine.core.decision import Placement, StartRefusal
from mooring.engine.core.machine import Finding
from mooring.engine.core.pod import Pod
from mooring.engine.releases.rule import ReleaseRule


def upgrade_document(upgrade: Upgrade) -> UpgradeDocument:
    """Return the document of an upgrade."""
    plan, refusal = upgrade.plan, upgrade.plan.refusal
    return UpgradeDocument(
        node=upgrade.node.name,
        machine=upgrade.node.machine.name,
        from_=upgrade.old.release.tag,
        to=upgrade.new.release.tag,
        changed=upgrade.changed,
        safe=upgrade.is_safe,
        start_error=_error(refusal),
        start_error_stage="" if refusal is None else refusal.stage,
        start_error_code=plan.refusal_code,
        remedy=plan.remedy,
        start_error_before=_error(upgrade.before.refusal),
        pods=[_pod(one) for one in upgrade.pods],
        shared_pool="" if plan.kubelet is None else str(plan.kubelet.node.shared_pool),
        cpu_manager_state=plan.files.cpu or "",
        memory_manager_state=plan.files.memory or "",
        settings=[SettingChangePart(one.name, one.effect.value, one.before, one.after) for one in upgrade.settings],
        state_files=[
            StateFileFormatsPart(
                one.file, one.written_before, list(one.read_after), one.written_after, list(one.read_before)
            )
            for one in upgrade.files
        ],
        causes=[_cause(upgrade, one) for one in upgrade.causes],
        recreated=[_pod(one) for one in upgrade.recreated],
        advice=[
            UpgradeAdvicePart(one.kind.value, list(one.names), advice_text(one), one.kept, one.moved, one.rejected)
            for one in upgrade.advice
        ],
        hops=[_hop(one) for one in upgrade.hops],
        rollback=None if upgrade.rollback is None else _rollback(upgrade.rollback),
        findings=finding_parts(upgrade.findings),
    )


def upgrade_list(upgrades: Sequence[Upgrade], findings: Iterable[Finding] = ()) -> UpgradeListDocument:
    """Return the document of the upgrades of several nodes."""
    found = [*findings, *(finding for upgrade in upgrades for finding in upgrade.findings)]
    return UpgradeListDocument(nodes=[_node(one) for one in upgrades], findings=finding_parts(found))


def _node(upgrade: Upgrade) -> UpgradedNodePart:
    running = [one for one in upgrade.pods if one.running]
    outcomes = [one.outcome for one in running]
    return UpgradedNodePart(
        node=upgrade.node.name,
        from_=upgrade.old.release.tag,
        to=upgrade.new.release.tag,
        safe=upgrade.is_safe,
        changed=upgrade.changed,
        start_error=_error(upgrade.plan.refusal),
        kept=outcomes.count(UpgradeOutcome.KEPT),
        moved=outcomes.count(UpgradeOutcome.MOVED),
        rejected=[pod_part(one.pod) for one in running if one.outcome is UpgradeOutcome.REJECTED],
        causes=[one.factor.name for one in upgrade.causes],
    )


def _error(refusal: StartRefusal | None) -> str | None:
    return None if refusal is None else refusal.message


def _pod(one: PodUpgrade) -> UpgradedPodPart:
    return UpgradedPodPart(
        uid=one.pod.uid,
        namespace=one.pod.namespace,
        name=one.pod.name,
        running=one.running,
        outcome=one.outcome.value,
        changed=one.changed,
        admitted=one.outcome not in (UpgradeOutcome.REJECTED, UpgradeOutcome.NOT_ASKED),
        reason=one.reason,
        message=one.message,
        why=one.why,
        code=one.code,
        before=_placements(one.before),
        pod_before=placement_part(one.before_pod),
        after=_placements(one.after),
        pod_after=placement_part(one.after_pod),
    )


def _placements(containers: Mapping[str, Placement]) -> dict[str, PlacementPart]:
    return {name: placement_part(placement) for name, placement in containers.items()}


def _cause(upgrade: Upgrade, cause: Cause) -> UpgradeCausePart:
    factor = cause.factor
    before, after = factor_words(factor, forward=upgrade.is_forward)
    answers = {answer.pod.uid: answer_text(answer) for answer in cause.before.answers}
    later = {answer.pod.uid: answer_text(answer) for answer in cause.after.answers}
    return UpgradeCausePart(
        kind="rule" if isinstance(factor, ReleaseRule) else "gate",
        name=factor.name,
        before=before,
        after=after,
        releases=factor.span if isinstance(factor, ReleaseRule) else "",
        source=factor.source if isinstance(factor, ReleaseRule) else "feature gates; spec: releases.md section 2",
        situation=cause.situation.value,
        machine=upgrade.node.machine.name,
        pods=[
            ExamplePodPart(pod.uid, pod.namespace, pod.name, answers.get(pod.uid, ""), later.get(pod.uid, ""))
            for pod in cause.pods
        ],
        start_before=_error(cause.before.refusal) or "",
        start_after=_error(cause.after.refusal) or "",
    )


def _hop(hop: Hop) -> HopPart:
    return HopPart(
        from_=hop.before.tag,
        to=hop.after.tag,
        start_error=_error(hop.refusal),
        rejected=_names(hop.rejected),
        moved=_names(hop.moved),
    )


def _names(pods: Iterable[Pod]) -> list[PodPart]:
    return [pod_part(pod) for pod in pods]


def _rollback(rollback: UpgradeRollback) -> RollbackPart:
    return RollbackPart(_error(rollback.refusal), [_pod(one) for one in rollback.pods])
