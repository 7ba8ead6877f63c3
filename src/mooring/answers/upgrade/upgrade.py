"""An upgrade of a node's kubelet: what starts, what becomes of the pods, why, what to do first, and the way back."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from mooring.answers.base.outcome import decided
from mooring.answers.base.plan import Plan
from mooring.answers.upgrade.advice import UpgradeAdvice, advices
from mooring.answers.upgrade.causes import Cause, causes
from mooring.answers.upgrade.decisions import PodUpgrade, UpgradeOutcome, pod_upgrades
from mooring.answers.upgrade.node import KubeletSetup, PodReader, UpgradedNode, UpgradeSituation
from mooring.answers.upgrade.settings import ReleaseSetting, StateFileFormats, setting_changes, state_file_formats
from mooring.engine.core.decision import StartRefusal
from mooring.engine.core.machine import Finding
from mooring.engine.core.pod import Pod
from mooring.engine.core.release import Release
from mooring.engine.kubelet.kubelet import StateTexts, cpu_text, memory_text
from mooring.engine.releases.catalog import RELEASES
from mooring.engine.releases.rule import RELEASE_NAMES


@dataclass(frozen=True, slots=True)
class Hop:
    """One step of an upgrade that goes through every minor release, on the files that the release before wrote."""

    before: Release
    after: Release
    refusal: StartRefusal | None
    rejected: tuple[Pod, ...] = ()
    """Pods that ran and are rejected here; they are gone in the following steps."""
    moved: tuple[Pod, ...] = ()


@dataclass(frozen=True, slots=True)
class UpgradeRollback:
    """The old kubelet started on the files that the new one has written."""

    refusal: StartRefusal | None
    pods: tuple[PodUpgrade, ...] = ()
    """What becomes of the pods that run on the new kubelet, against what they have there."""


@dataclass(frozen=True, slots=True)
class Upgrade:
    """What another release of the kubelet does with a node."""

    node: UpgradedNode
    old: KubeletSetup
    new: KubeletSetup
    before: Plan
    """The restart of the old kubelet."""
    plan: Plan
    """The restart of the new one on the same files."""
    pods: tuple[PodUpgrade, ...]
    settings: tuple[ReleaseSetting, ...]
    files: tuple[StateFileFormats, ...]
    causes: tuple[Cause, ...]
    recreated: tuple[PodUpgrade, ...]
    """Pods about which the releases decide differently when all are created anew on the empty node."""
    advice: tuple[UpgradeAdvice, ...]
    hops: tuple[Hop, ...]
    """Every minor release on the way; empty when the upgrade is one step."""
    rollback: UpgradeRollback | None
    """None when the new kubelet does not start."""
    changed: bool
    """Whether anything is decided differently, at the restart or about pods that are created anew."""

    @property
    def is_safe(self) -> bool:
        """Tell whether the new kubelet starts and no running pod loses by it, as against a restart of the old one."""
        return self.plan.refusal is None and not any(pod.is_affected for pod in self.pods if pod.running)

    @property
    def is_forward(self) -> bool:
        """Tell whether the new release is the later one."""
        return RELEASE_NAMES.index(self.old.release.name) <= RELEASE_NAMES.index(self.new.release.name)

    @property
    def findings(self) -> tuple[Finding, ...]:
        """What a reader of the answer should know."""
        return (*self.node.findings, *self.plan.findings)


def upgrade_of(node: UpgradedNode, old: Release, new: Release, first: PodReader | None = None) -> Upgrade:
    """Upgrade the kubelet of a node, or downgrade it.

    Args:
        node: its pods run, on state files of the old kubelet; without files the old kubelet admits them first.
        old: the release that runs.
        new: the release that replaces it.
        first: reads pods that the old kubelet admits first, besides the running ones.
    """
    from_setup, to_setup = KubeletSetup(old, node.config), KubeletSetup(new, node.config)
    node = node.prepared(from_setup, first)
    before, after = node.plan(UpgradeSituation.RESTART, from_setup), node.plan(UpgradeSituation.RESTART, to_setup)
    found = tuple(causes(node, from_setup, to_setup, UpgradeSituation.RESTART))
    anew = node.plan(UpgradeSituation.RECREATED, from_setup), node.plan(UpgradeSituation.RECREATED, to_setup)
    named = {cause.factor for cause in found}
    more = (
        cause for cause in causes(node, from_setup, to_setup, UpgradeSituation.RECREATED) if cause.factor not in named
    )
    return Upgrade(
        node=node,
        old=from_setup,
        new=to_setup,
        before=before,
        plan=after,
        pods=tuple(pod_upgrades(before, after, {pod.uid for pod in node.pods_of(from_setup).running})),
        settings=setting_changes(node.config, node.fields, old, new),
        files=state_file_formats(node.config, old, new),
        causes=(*found, *more),
        recreated=tuple(one for one in pod_upgrades(anew[0], anew[1], ()) if one.changed),
        advice=advices(node, (from_setup, to_setup), (before, after), found),
        hops=tuple(_hops(node, from_setup, to_setup)),
        rollback=_rollback(node, from_setup, to_setup, after),
        changed=decided(before) != decided(after) or decided(anew[0]) != decided(anew[1]),
    )


def _hops(node: UpgradedNode, old: KubeletSetup, new: KubeletSetup) -> Iterator[Hop]:
    first, last = (RELEASE_NAMES.index(setup.release.name) for setup in (old, new))
    if abs(last - first) < 2:
        return
    step = 1 if last > first else -1
    node = node.without_arriving()
    before = old
    for place in range(first + step, last + step, step):
        after = replace(old, release=RELEASES[RELEASE_NAMES[place]])
        plans = node.plan(UpgradeSituation.RESTART, before), node.plan(UpgradeSituation.RESTART, after)
        found = list(pod_upgrades(*plans, ()))
        rejected = tuple(one.pod for one in found if one.outcome is UpgradeOutcome.REJECTED)
        moved = tuple(one.pod for one in found if one.outcome is UpgradeOutcome.MOVED)
        yield Hop(before.release, after.release, plans[1].refusal, rejected, moved)
        if plans[1].refusal is not None:
            return
        node = replace(node, files=_written(plans[1])).leaving_out([pod.uid for pod in rejected])
        before = after


def _rollback(node: UpgradedNode, old: KubeletSetup, new: KubeletSetup, plan: Plan) -> UpgradeRollback | None:
    if plan.refusal is not None:
        return None
    rejected = [answer.pod.uid for answer in plan.answers if not answer.admitted]
    after = replace(node, files=_written(plan)).leaving_out(rejected).all_running()
    plans = after.plan(UpgradeSituation.RESTART, new), after.plan(UpgradeSituation.RESTART, old)
    uids = {pod.uid for pod in after.pods_of(new).running}
    return UpgradeRollback(plans[1].refusal, tuple(pod_upgrades(*plans, uids)))


def _written(plan: Plan) -> StateTexts:
    """Return the state files as a kubelet writes them at the next change; a start alone leaves them as they are."""
    kubelet = plan.kubelet
    if kubelet is None:
        return plan.files
    memory = None if plan.files.memory is None else memory_text(kubelet.settings, kubelet.node.memory)
    return StateTexts(cpu_text(kubelet.settings, kubelet.node.cpu), memory)
