"""A node from its files: a plan as a snapshot, its pods explained, and what would happen to other pods.

What is known of a node besides its pods, from a plan: its findings, and to whom they may be shown.
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Final

from mooring.answers.base.changes.nearest import nearest_changes, price_words
from mooring.answers.base.picture import devices_before, plan_view
from mooring.answers.base.plan import AnyPlan, Plan, Question, RefusedPlan, make_plan
from mooring.answers.base.pods import explain
from mooring.answers.base.rows import admitted_rows, l3_caches, pod_name, verdict_of
from mooring.engine.core.bits import list_text
from mooring.engine.core.errors import InputError
from mooring.engine.core.machine import Finding
from mooring.engine.core.moment import SECOND
from mooring.engine.core.pod import Pod
from mooring.engine.extensions.owners import state_owner
from mooring.engine.kubelet.kubelet import Kubelet
from mooring.engine.node.hotplug import hotplug_findings
from mooring.inputs.decoding.documents import documents_in
from mooring.inputs.pods.defaults import PodGates
from mooring.inputs.pods.pod_files import PodOrigin, pods_with_origins
from mooring.monitoring.serve.snapshot import ANY, NodeNotice, NodeSnapshot, PendingRelease, ShownPod
from mooring.service.daemon import present_moment
from mooring.views.decision import DecisionView, decision_view
from mooring.views.view import NodeView, PlacementRow

_OWNER: Final = re.compile(r"(?:claim )?([a-z0-9-]+)/")
"""How the subject begins that is a pod, one of its containers or a claim. Domains of resources have a dot, which names
of namespaces cannot have."""
_QUOTING: Final = ("plugin ", "state files")
"""How the subjects begin of findings with the words of a plugin, or with uids of the state files."""


def plan_notices(plan: AnyPlan) -> Iterator[NodeNotice]:
    """Yield what a page shows of a plan besides its pods, each with the namespace of the pods that it names."""
    pods = {answer.pod.uid: answer.pod for answer in plan.answers} | {pod.uid: pod for pod in plan.unasked}
    names = {f"{pod.namespace}/{pod.name}": pod.namespace for pod in pods.values()}
    if isinstance(plan, RefusedPlan):
        brief = "The kubelet would not start"
        yield NodeNotice(f"{brief}: {plan.refusal.message}", True, ANY, brief)
    offline = hotplug_findings(plan.kubelet.node) if isinstance(plan, Plan) else []
    for one in plan.findings:
        if one not in offline:
            text = one.message if one.message.startswith(one.subject) else f"{one.subject}: {one.message}"
            yield NodeNotice(text, one.severity == "warning", _namespace(one, names))
    for one in offline:
        yield NodeNotice(f"{one.subject} {one.message}", True, _namespace(one, names))


def _namespace(finding: Finding, names: Mapping[str, str]) -> str:
    """Return the namespace of the pods that a finding names, empty where it names none."""
    if finding.subject.startswith(_QUOTING):
        return ANY
    text = f"{finding.subject} {finding.message}"
    named = {namespace for name, namespace in names.items() if name in text}
    if owner := _OWNER.match(finding.subject):
        named.add(owner[1])
    return named.pop() if len(named) == 1 else ANY if named else ""


MOST_PODS = 50
"""Pods of a manifest that are asked about at once."""


@dataclass(frozen=True, slots=True)
class PodStory:
    """Why a pod is where it is, or nowhere."""

    name: str
    verdict: str
    code: str
    why: str
    remedy: str
    message: str
    """The kubelet's."""
    nearest: tuple[str, ...]
    """Changes that would admit it."""
    decision: DecisionView | None

    def without_names(self) -> PodStory:
        """Return it without what can name other pods."""
        return replace(self, nearest=(), remedy="", decision=None)


def snapshot_of(question: Question) -> NodeSnapshot:
    """Return a node as its files have it."""
    plan = make_plan(question)
    notices = tuple(plan_notices(plan))
    if isinstance(plan, RefusedPlan):
        return NodeSnapshot(plan_view(plan), notices=notices, plan=plan, question=question)
    return NodeSnapshot(
        plan_view(plan, now=present_moment()),
        tuple(_pods(plan)),
        tuple(_pending(plan, plan.kubelet)),
        notices,
        plan,
        question,
    )


def _pods(plan: Plan) -> Iterator[ShownPod]:
    caches = l3_caches(plan)
    for answer in plan.answers:
        pod = answer.pod
        rows = list(admitted_rows(plan, answer, caches, why="")) if answer.admitted else []
        refusal = answer.decision.reason or verdict_of(answer)
        verdict = ("running" if answer.running else "admitted") if answer.admitted else refusal
        holds = tuple(_held_text(row) for row in rows)
        yield ShownPod(pod.namespace, pod.name, pod.uid, verdict, answer.admitted, holds, answer.code, answer.why)


def _held_text(row: PlacementRow) -> str:
    words = [f"{row.holder}: {row.verdict}"]
    words += [f"CPUs {row.cpus} on NUMA {', '.join(map(str, row.cpu_nodes))}"] if row.cpus else []
    words += [f"memory on NUMA {', '.join(map(str, row.memory_nodes))}"] if row.memory_nodes else []
    return "; ".join([*words, row.alignment] if row.alignment else words)


def _pending(plan: Plan, kubelet: Kubelet) -> Iterator[PendingRelease]:
    """Yield releases whose delay ends in the present boot of this machine."""
    now, wall = present_moment(), time.time()
    pods = {answer.pod.uid: answer.pod for answer in plan.answers}
    state = kubelet.node.cpu
    for uid, containers in state.pre_assignments.items():
        pod = pods.get(state_owner(uid).root)
        for container, pre in containers.items():
            leaving = state.assignments.get(uid, {}).get(container, pre.cpus) & ~pre.cpus
            if pod is not None and pre.apply_at.boot == now.boot:
                due = wall + max(0, pre.apply_at.since_boot - now.since_boot) / SECOND
                yield PendingRelease(
                    pod.namespace, f"{pod.namespace}/{pod.name}/{container}", list_text(leaving), round(due, 1)
                )


def story_of(plan: AnyPlan, question: Question, uid: str, asked: Pod | None = None) -> PodStory | None:
    """Return why a pod of the plan is where it is; None for a pod that is not in it.

    A pod that the node refused before is asked about again, after all that are there now.
    """
    if asked is not None:
        question = replace(question, pods=(*question.pods, asked))
        plan = make_plan(question)
    answer = next((one for one in plan.answers if one.pod.uid == uid), None)
    if answer is None or isinstance(plan, RefusedPlan):
        return None
    found = explain(plan, answer.pod)
    proposals = () if answer.admitted else nearest_changes(question, uid, 1)
    nodes = sorted(node.node_id for node in plan.machine.info.topology)
    # Cause and proposals are beside the picture.
    decision = replace(
        decision_view(found, nodes, plan.kubelet.settings.topology, (), devices_before(plan, uid)), cause=""
    )
    verdict = "admitted" if answer.admitted else verdict_of(answer)
    return PodStory(
        pod_name(answer),
        verdict,
        answer.code,
        answer.why,
        answer.remedy,
        answer.decision.message,
        tuple(" ".join(filter(None, (one.text, price_words(one)))) for one in proposals),
        decision if decision.panels else None,
    )


def what_if(question: Question, manifest: bytes) -> tuple[NodeView, list[PodStory]]:
    """Ask a node about the pods of a manifest, after all that are on it.

    Raises:
        InputError: the manifest cannot be understood, or has no pod.
    """
    gates = PodGates.of_node(question.config, question.mooring)
    pods = [pod for pod, _ in pods_in_text(manifest, gates)]
    taken = {pod.uid for pod in (*question.pods, *question.active)}
    new = [replace(pod, uid=f"{pod.uid} (asked)") if pod.uid in taken else pod for pod in pods]
    asked = replace(question, pods=(*question.pods, *new))
    plan = make_plan(asked)
    uids = [pod.uid for pod in new]
    stories = [story for uid in uids if (story := story_of(plan, asked, uid)) is not None]
    return plan_view(plan, hypothetical=frozenset(uids)), stories


def pods_in_text(manifest: bytes, gates: PodGates) -> list[tuple[Pod, PodOrigin]]:
    """Return the pods of a manifest, of which there may be :data:`MOST_PODS`, each with what it is read from.

    Raises:
        InputError: it cannot be understood, or has no pod or too many.
    """
    pods = pods_with_origins(documents_in(manifest, "manifest"), gates=gates)
    if not 0 < len(pods) <= MOST_PODS:
        problem = "has no pod" if not pods else f"has {len(pods)} pods, more than {MOST_PODS}"
        raise InputError(problem, source="manifest", remedy="paste a Pod, or a workload with a few replicas")
    return pods
