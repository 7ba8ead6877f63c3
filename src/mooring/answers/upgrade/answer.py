"""An upgrade of a node's kubelet: what starts, what becomes of the pods, why, what to do first, and the way back.

The nodes that ``mooring upgrade`` is asked about: one, several archives, or the nodes of a cluster.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated, Literal

from msgspec import field

from mooring.answers.base.answering import next_start_error
from mooring.answers.base.inputs import configuration as configuration_inputs
from mooring.answers.base.inputs.checks import check_strict
from mooring.answers.base.inputs.configuration import node_versions
from mooring.answers.base.inputs.node import NodeInputs, read_inputs
from mooring.answers.base.plan import AnyPlan, Plan, RefusedPlan, start_error
from mooring.answers.base.plan_document import decided
from mooring.answers.upgrade import differences as differing
from mooring.answers.upgrade.advice import UpgradeAdvicePart, advices
from mooring.answers.upgrade.node import (
    KubeletSetup,
    NodePods,
    PodReader,
    UpgradedNode,
    UpgradedPodPart,
    UpgradeSituation,
    pod_upgrades,
)
from mooring.cli.options import NodeOptions
from mooring.documents import plan as parts
from mooring.engine.core.bits import list_text
from mooring.engine.core.errors import InputError
from mooring.engine.core.machine import Finding
from mooring.engine.core.release import Release
from mooring.engine.kubelet.kubelet import StateTexts, cpu_text, memory_text
from mooring.engine.releases.catalog import RELEASES
from mooring.engine.releases.rule import RELEASE_NAMES
from mooring.explanations.story import PodVerdict
from mooring.inputs.decoding.fields import ignore
from mooring.inputs.pods.defaults import PodGates


class HopPart(parts.DocumentPart, kw_only=True):
    """One step of an upgrade that goes through every minor release."""

    from_: parts.KubeletRelease = field(name="from")
    to: parts.KubeletRelease
    start_error: Annotated[str | None, parts.told("Null when the kubelet starts.")]
    rejected: list[parts.PodPart]
    moved: list[parts.PodPart]


class RollbackPart(parts.DocumentPart):
    """The old kubelet on the files of the new one."""

    start_error: Annotated[str | None, parts.told("Null when the old kubelet starts on these files.")]
    pods: Annotated[list[UpgradedPodPart], parts.told("The pods that run on the new kubelet.")]


class UpgradeDocument(parts.DocumentPart, kw_only=True):
    """What mooring upgrade -o json prints: what another release of the kubelet does with a node."""

    api_version: parts.APIVersion = parts.API_VERSION
    kind: Literal["Upgrade"] = "Upgrade"
    node: Annotated[str, parts.told("The node's name; empty where it is not known.")]
    machine: str
    from_: parts.KubeletRelease = field(name="from")
    to: parts.KubeletRelease
    changed: Annotated[
        bool, parts.told("Whether anything is decided differently: the start, a pod, or a pod created anew.")
    ]
    safe: Annotated[
        bool, parts.told("Whether it starts, every running pod keeps what it has, and it starts again after that.")
    ]
    start_error: Annotated[str | None, parts.told("Why the new kubelet does not start; null when it does.")]
    start_error_stage: Annotated[str, parts.told("Empty when it starts.")]
    start_error_code: parts.Code
    remedy: Annotated[str, parts.told("What to do about it in general; advice has what was tried here.")]
    start_error_before: Annotated[str | None, parts.told("Why the old kubelet does not start; null if it does.")]
    pods: Annotated[list[UpgradedPodPart], parts.told("Running pods in order, then those that are admitted.")]
    shared_pool: Annotated[parts.CPUList, parts.told("After the restart; empty when the kubelet does not start.")]
    cpu_manager_state: Annotated[str, parts.told("Text of the state file after the restart.")]
    memory_manager_state: Annotated[str, parts.told("Text of the state file after the restart.")]
    settings: list[differing.SettingChangePart]
    state_files: list[differing.StateFileFormatsPart]
    causes: list[differing.UpgradeCausePart]
    recreated: Annotated[
        list[UpgradedPodPart],
        parts.told("Pods that the releases decide differently about when all are created on the empty node."),
    ]
    advice: list[UpgradeAdvicePart]
    hops: Annotated[list[HopPart], parts.told("Empty when the upgrade is one step.")]
    rollback: Annotated[RollbackPart | None, parts.told("Null when the new kubelet does not start.")]
    findings: list[parts.FindingPart]
    next_start_error: Annotated[
        str | None, parts.told("Why the new kubelet does not start once more after its first start; else null.")
    ] = None


class UpgradedNodePart(parts.DocumentPart, kw_only=True):
    """One node of several."""

    node: str
    from_: parts.KubeletRelease = field(name="from")
    to: parts.KubeletRelease
    safe: bool
    changed: bool
    start_error: str | None
    kept: Annotated[parts.Count, parts.told("Running pods that keep what they have.")]
    moved: parts.Count
    rejected: list[parts.PodPart]
    causes: Annotated[list[str], parts.told("Names of rules and gates.")]


class UpgradeListDocument(parts.DocumentPart, kw_only=True):
    """What mooring upgrade -o json prints for several nodes."""

    api_version: parts.APIVersion = parts.API_VERSION
    kind: Literal["UpgradeList"] = "UpgradeList"
    nodes: list[UpgradedNodePart]
    findings: list[parts.FindingPart]


def upgrade_of(
    node: UpgradedNode, old: Release, new: Release, first: PodReader | None = None
) -> tuple[AnyPlan, UpgradeDocument]:
    """Upgrade the kubelet of a node, or downgrade it; return its restart, and the whole answer.

    Args:
        node: its pods run, on state files of the old kubelet; without files the old kubelet admits them first.
        old: the release that runs.
        new: the release that replaces it.
        first: reads pods that the old kubelet admits first, besides the running ones.
    """
    from_setup, to_setup = KubeletSetup(old, node.config), KubeletSetup(new, node.config)
    node = node.prepared(from_setup, first)
    before, after = node.plan(UpgradeSituation.RESTART, from_setup), node.plan(UpgradeSituation.RESTART, to_setup)
    found = list(differing.causes(node, from_setup, to_setup, UpgradeSituation.RESTART))
    anew = node.plan(UpgradeSituation.RECREATED, from_setup), node.plan(UpgradeSituation.RECREATED, to_setup)
    named = {factor for factor, _ in found}
    more = differing.causes(node, from_setup, to_setup, UpgradeSituation.RECREATED)
    pods = list(pod_upgrades(before, after, {pod.uid for pod in node.pods_of(from_setup).running}))
    refused = after if isinstance(after, RefusedPlan) else None
    again = next_start_error(after.kubelet) or None if isinstance(after, Plan) else None
    kept = all(pod.outcome == PodVerdict.KEPT for pod in pods if pod.running)
    return after, UpgradeDocument(
        node=node.name,
        machine=node.machine.name,
        from_=old.tag,
        to=new.tag,
        changed=decided(before) != decided(after) or decided(anew[0]) != decided(anew[1]),
        safe=refused is None and again is None and kept,
        start_error=_error(after),
        start_error_stage="" if refused is None else refused.refusal.stage,
        start_error_code="" if refused is None else refused.refusal.code,
        remedy="" if refused is None else refused.remedy,
        start_error_before=_error(before),
        pods=pods,
        shared_pool=str(after.kubelet.node.shared_pool) if isinstance(after, Plan) else "",
        cpu_manager_state=after.files.cpu or "",
        memory_manager_state=after.files.memory or "",
        settings=[*differing.setting_changes(node.config, node.fields, old, new), *_reserved(*anew)],
        state_files=differing.state_file_formats(node.config, old, new),
        causes=[*(part for _, part in found), *(part for factor, part in more if factor not in named)],
        recreated=[one for one in pod_upgrades(anew[0], anew[1], ()) if one.changed],
        advice=advices(node, (from_setup, to_setup), (before, after), found),
        hops=list(_hops(node, from_setup, to_setup)),
        rollback=_rollback(node, from_setup, to_setup, after),
        findings=parts.finding_parts([*node.findings, *after.findings]),
        next_start_error=again,
    )


def _reserved(*plans: AnyPlan) -> Iterator[differing.SettingChangePart]:
    """Yield the CPUs that are reserved by their number, where the new kubelet chooses others."""
    cpus = [
        list_text(plan.kubelet.settings.cpu.reserved)
        for plan in plans
        if isinstance(plan, Plan) and plan.kubelet.settings.cpu is not None
    ]
    if len(set(cpus)) > 1:
        yield differing.SettingChangePart("reserved CPUs", differing.SettingEffect.COMPUTED.value, *cpus)


def upgrade_list(upgrades: Sequence[UpgradeDocument]) -> UpgradeListDocument:
    """Return what the upgrades of several nodes come to."""
    nodes = []
    for upgrade in upgrades:
        running = [one for one in upgrade.pods if one.running]
        outcomes = [one.outcome for one in running]
        nodes.append(
            UpgradedNodePart(
                node=upgrade.node,
                from_=upgrade.from_,
                to=upgrade.to,
                safe=upgrade.safe,
                changed=upgrade.changed,
                start_error=upgrade.start_error,
                kept=outcomes.count(PodVerdict.KEPT),
                moved=outcomes.count(PodVerdict.MOVED),
                rejected=[one.as_pod for one in running if one.outcome == PodVerdict.REJECTED],
                causes=[one.name for one in upgrade.causes],
            )
        )
    return UpgradeListDocument(nodes=nodes, findings=[finding for one in upgrades for finding in one.findings])


def _error(plan: AnyPlan) -> str | None:
    return start_error(plan) or None


def _hops(node: UpgradedNode, old: KubeletSetup, new: KubeletSetup) -> Iterator[HopPart]:
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
        rejected = [one.as_pod for one in found if one.outcome == PodVerdict.REJECTED]
        moved = [one.as_pod for one in found if one.outcome == PodVerdict.MOVED]
        yield HopPart(
            from_=before.release.tag, to=after.release.tag, start_error=_error(plans[1]), rejected=rejected, moved=moved
        )
        if isinstance(plans[1], RefusedPlan):
            return
        node = replace(node, files=_written(plans[1])).leaving_out([pod.uid for pod in rejected])
        before = after


def _rollback(node: UpgradedNode, old: KubeletSetup, new: KubeletSetup, plan: AnyPlan) -> RollbackPart | None:
    if isinstance(plan, RefusedPlan):
        return None
    rejected = [answer.pod.uid for answer in plan.answers if not answer.admitted]
    after = replace(node, files=_written(plan)).leaving_out(rejected).all_running()
    plans = after.plan(UpgradeSituation.RESTART, new), after.plan(UpgradeSituation.RESTART, old)
    uids = {pod.uid for pod in after.pods_of(new).running}
    return RollbackPart(_error(plans[1]), list(pod_upgrades(*plans, uids)))


def _written(plan: AnyPlan) -> StateTexts:
    """Return the state files as a kubelet writes them at the next change; a start alone leaves them as they are."""
    if isinstance(plan, RefusedPlan):
        return plan.files
    kubelet = plan.kubelet
    memory = None if plan.files.memory is None else memory_text(kubelet.settings, kubelet.node.memory)
    return StateTexts(cpu_text(kubelet.settings, kubelet.node.cpu), memory)


if TYPE_CHECKING:
    from mooring.engine.releases.catalog import ChosenRelease
    from mooring.inputs.decoding.fields import Report


def upgrades_of(
    options: NodeOptions, archives: Sequence[str], new: ChosenRelease
) -> Iterator[tuple[AnyPlan, UpgradeDocument]]:
    """Yield the upgrade of each node that the options describe.

    Args:
        options: the shared options; ``kubelet_version`` is the release before the upgrade.
        archives: node archives; with several each is a node.
        new: the release after the upgrade.

    Raises:
        InputError: something cannot be read or understood, or the release before is not known.
    """
    for archive in archives or ("",):
        for inputs in _nodes(read_inputs(replace(options, node=archive))):
            yield _upgrade(inputs, new)


def _nodes(inputs: NodeInputs) -> Iterator[NodeInputs]:
    """Yield the inputs of each node of a cluster, or what was given for one node."""
    options = inputs.options
    if inputs.archive is None and not options.active and node_versions(inputs.manifests):
        # A cluster's list of nodes and pods: the pods run.
        options = replace(options, active=options.manifests, manifests=())
        inputs = replace(inputs, options=options, listed=inputs.manifests, manifests=())
    names = [options.node_name] if options.node_name else list(node_versions(inputs.listed))
    if inputs.archive is not None or not names:
        yield inputs
        return
    for name in names:
        of_node = replace(options, node_name=name)
        yield replace(inputs, options=of_node, release=configuration_inputs.read_release(of_node, None, inputs.listed))


def _upgrade(inputs: NodeInputs, new: ChosenRelease) -> tuple[AnyPlan, UpgradeDocument]:
    if not inputs.release.source:
        remedy = "name the release of the node's kubelet, such as 1.34"
        raise InputError("is missing", source="--kubelet-version", remedy=remedy)
    old, configuration = inputs.release.release, inputs.configuration
    mooring = replace(configuration.mooring, release=old)
    noticed: list[Finding] = [*inputs.findings, *new.findings]
    active, pods = inputs.pods(PodGates.of_node(configuration.kubelet, mooring), noticed.append)
    devices, _ = inputs.devices((*active.running, *active.bound, *pods, *active.pending))
    if inputs.options.strict:
        check_strict(noticed)

    def read(gates: PodGates, report: Report = ignore) -> NodePods:
        active, _ = inputs.pods(gates, report)
        return NodePods(active.running, (*active.bound, *active.pending))

    def first(gates: PodGates) -> NodePods:
        return NodePods(tuple(inputs.pods(gates, ignore)[1]))

    node = UpgradedNode(
        name=inputs.options.node_name or ("" if inputs.archive is None else inputs.archive.about.node),
        machine=inputs.machine,
        config=configuration.kubelet,
        pods=read,
        mooring=mooring,
        files=inputs.state,
        devices=devices.devices,
        held=devices.held,
        claimed=devices.claimed,
        fields=configuration.fields,
        findings=tuple(noticed),
    )
    return upgrade_of(node, old, new.release, first if inputs.manifests else None)
