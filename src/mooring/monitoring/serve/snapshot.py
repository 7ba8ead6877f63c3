"""A node at one moment, as its page shows it, and what of it a person may see.

Of an agent's status: what holds what, what waits, drift and repairs. Of files: a plan, its pods explained, and what
would happen to other pods. Beside the pods, findings, and to whom they may be shown.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final, TypeAlias

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
from mooring.engine.node.hotplug import hotplug_findings
from mooring.inputs.decoding.documents import documents_in
from mooring.inputs.pods.defaults import PodGates
from mooring.inputs.pods.pod_files import PodOrigin, pods_with_origins
from mooring.service.daemon import present_moment
from mooring.views.decision import DecisionView, decision_view
from mooring.views.view import NodeView

MayList: TypeAlias = Callable[[str], bool]
"""Tells whether a person may list the pods of a namespace."""
HIDDEN = "pod of another namespace"
ANY = "*"
"""Namespace of notices that can name pods of any namespace; none has this name, so only people who may list all pods
may list its pods."""


@dataclass(frozen=True, slots=True)
class ShownPod:
    """A pod of the node."""

    namespace: str
    name: str
    uid: str
    verdict: str
    admitted: bool
    holds: tuple[str, ...] = ()
    """What its containers have, a line each."""
    code: str = ""
    why: str = ""
    since: float = field(default=0.0, compare=False)
    """Unix time of the refusal: that of its status, or when it was first seen refused."""
    asked: Pod | None = field(default=None, compare=False, repr=False)
    """What the node is asked again to explain it; None for a pod of the plan."""


@dataclass(frozen=True, slots=True)
class NodeNotice:
    """Something to know about the node."""

    text: str
    warning: bool = False
    namespace: str = ""
    """Of the pods that it names; empty where it names none, :data:`ANY` for several or unknown ones."""
    brief: str = ""
    """What others are shown instead; empty for nothing."""
    due: float = field(default=0.0, compare=False)
    """Unix time at which it happens; 0 for what is so already."""

    def seen_by(self, may_list: MayList) -> NodeNotice | None:
        """Return what a person may see of it."""
        if not self.namespace or may_list(self.namespace):
            return self
        return NodeNotice(self.brief, self.warning) if self.brief else None


@dataclass(frozen=True, slots=True)
class NodeSnapshot:
    """A node at one moment; equal ones show the same."""

    view: NodeView
    pods: tuple[ShownPod, ...] = ()
    notices: tuple[NodeNotice, ...] = ()
    plan: AnyPlan | None = field(default=None, compare=False, repr=False)
    """From which pods are explained; None where only an agent's status is known."""
    question: Question | None = field(default=None, compare=False, repr=False)
    """What is asked again with other pods."""
    number: int = field(default=0, compare=False)
    """Place in a recording: from 1, growing."""
    at: float = field(default=0.0, compare=False)
    """Unix time when it was new there."""

    def seen_by(self, may_list: MayList) -> NodeSnapshot:
        """Return what a person may see: pods of other namespaces have no name, and nothing is said about them."""
        if all(may_list(namespace) for namespace in self._named):
            return self
        names = {
            owner.label: (owner.label if may_list(_namespace_of(owner.label)) else f"{HIDDEN} ({place + 1})")
            for place, owner in enumerate(self.view.owners)
        }
        owners = tuple(
            owner if names[owner.label] == owner.label else replace(owner, label=names[owner.label], forms=(HIDDEN,))
            for owner in self.view.owners
        )
        devices = tuple(
            replace(one, owner=names.get(one.owner, HIDDEN if one.owner else "")) for one in self.view.devices
        )
        rejected = tuple(one for one in self.view.rejected if may_list(one.name.partition("/")[0]))
        # Headline and further captions can name any pod.
        view = replace(
            self.view, owners=owners, devices=devices, rejected=rejected, caption=self.view.caption[:1], headline=""
        )
        return replace(
            self,
            view=view,
            pods=tuple(one for one in self.pods if may_list(one.namespace)),
            notices=tuple(seen for one in self.notices if (seen := one.seen_by(may_list)) is not None),
        )

    @property
    def namespaces(self) -> set[str]:
        """Those of its pods, and of what it says about others."""
        return self._named - {ANY}

    @property
    def _named(self) -> set[str]:
        found = {pod.namespace for pod in self.pods} | {_namespace_of(owner.label) for owner in self.view.owners}
        found |= {one.name.partition("/")[0] for one in self.view.rejected}
        return (found | {one.namespace for one in self.notices}) - {""}

    def dated(self, before: tuple[ShownPod, ...], now: float) -> NodeSnapshot:
        """Return it as new now, and its pods as refused since then, as far as the pods before do not know it."""
        known = {pod.uid: pod.since for pod in before if not pod.admitted}
        dated = (pod if pod.admitted or pod.since else replace(pod, since=known.get(pod.uid, now)) for pod in self.pods)
        return replace(self, pods=tuple(dated), at=now)

    def bare(self) -> NodeSnapshot:
        """Return it as it is recorded: without what only the present can be asked."""
        return replace(self, plan=None, question=None)


def _released(namespace: str, owner: str, cpus: str, due: float) -> NodeNotice:
    """Return that a container, ``namespace/pod/container``, releases CPUs when a delay is over."""
    return NodeNotice(f"{owner} releases CPUs {cpus}", namespace=namespace, due=due)


def _namespace_of(label: str) -> str:
    return label.removeprefix("claim ").partition("/")[0]


def snapshot_of_status(view: NodeView, document: Mapping[str, Any]) -> NodeSnapshot:
    """Return the node of an agent.

    Args:
        view: its picture.
        document: the agent's status, of kind ``AgentStatus``.
    """
    pods: list[ShownPod] = []
    pending: list[NodeNotice] = []
    now = time.time()
    for pod in document["pods"]:
        namespace, holds = pod["namespace"], []
        for one in pod["containers"]:
            words = [f"CPUs {one['cpus']}" if one["cpus"] else "shared pool"]
            words += [f"memory of NUMA {one['mems']}"] if one["mems"] else []
            words += [f"devices {', '.join(each['id'] for each in one['devices'])}"] if one.get("devices") else []
            words += [f"offline {one['lost']}"] if one.get("lost") else []
            words += [f"until CPUs {one['original']} are online"] if one.get("original") else []
            holds.append(f"{one['name']}: {'; '.join(words)}")
            if release := one.get("pending"):
                owner, due = f"{namespace}/{pod['name']}/{one['name']}", round(now + release["secondsLeft"], 1)
                pending.append(_released(namespace, owner, release["releases"], due))
        pods.append(ShownPod(namespace, pod["name"], pod["uid"], "running", admitted=True, holds=tuple(holds)))
    pods += [
        ShownPod(pod["namespace"], pod["name"], pod["uid"], pod["reason"], admitted=False, why=f"{pod['message']}.")
        for pod in document["held"]
    ]
    return NodeSnapshot(view, tuple(pods), (*pending, *_notices(document)))


def _notices(document: Mapping[str, Any]) -> Iterator[NodeNotice]:
    # Reasons and refusals have the words of the engine and the runtime, which can name any pod.
    for reason in document["reasons"]:
        yield NodeNotice(f"Not ready: {reason}", True, ANY, "Not ready")
    if refusal := document["configuration"]["refusal"]:
        brief = "The configuration as it is now is not in force"
        yield NodeNotice(f"{brief}: {refusal}", True, ANY, brief)
    cpus, counts = document["cpus"], document["counts"]
    if cpus.get("offline"):
        yield NodeNotice(f"CPUs {cpus['offline']} are offline", warning=True)
    if cpus["overlap"]:
        yield NodeNotice(f"Other containers may run on exclusive CPUs {cpus['overlap']}", warning=True)
    for pod in document["pods"]:
        for container in pod["containers"]:
            # Yield what of a container is elsewhere than the agent placed it
            name = f"{pod['namespace']}/{pod['name']}/{container['name']}"
            told, effective = container.get("told"), container.get("effective")
            if effective and container["cpus"] and effective["cpus"] != container["cpus"]:
                text = f"{name} holds CPUs {container['cpus']}; the kernel lets it run on {effective['cpus']}"
                yield NodeNotice(text, True, pod["namespace"])
            elif told and container["cpus"] and told["cpus"] != container["cpus"]:
                text = f"{name} holds CPUs {container['cpus']}; the runtime has {told['cpus']} on record"
                yield NodeNotice(text, True, pod["namespace"])
    if counts["repairs"]:
        yield NodeNotice(f"{counts['repairs']} repairs since the agent started")
    if interrupts := document.get("interrupts"):
        moved, pending = len(interrupts["moved"]), len(interrupts["pending"])
        yield NodeNotice(f"interrupts ({interrupts['mode']}): {moved} moved, {pending} to be moved")


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
    view = plan_view(plan, now=present_moment())
    return NodeSnapshot(view, tuple(_pods(plan)), (*_pending(plan), *notices), plan, question)


def _pods(plan: Plan) -> Iterator[ShownPod]:
    caches = l3_caches(plan)
    for answer in plan.answers:
        pod = answer.pod
        holds: list[str] = []
        for row in admitted_rows(plan, answer, caches, why="") if answer.admitted else ():
            words = [f"{row.holder}: {row.verdict}"]
            words += [f"CPUs {row.cpus} on NUMA {', '.join(map(str, row.cpu_nodes))}"] if row.cpus else []
            words += [f"memory on NUMA {', '.join(map(str, row.memory_nodes))}"] if row.memory_nodes else []
            holds.append("; ".join([*words, row.alignment] if row.alignment else words))
        refusal = answer.decision.reason or verdict_of(answer)
        verdict = ("running" if answer.running else "admitted") if answer.admitted else refusal
        shown = pod.namespace, pod.name, pod.uid, verdict, answer.admitted, tuple(holds), answer.code, answer.why
        yield ShownPod(*shown)


def _pending(plan: Plan) -> Iterator[NodeNotice]:
    """Yield releases whose delay ends in the present boot of this machine."""
    now, wall = present_moment(), time.time()
    pods = {answer.pod.uid: answer.pod for answer in plan.answers}
    state = plan.kubelet.node.cpu
    for uid, containers in state.pre_assignments.items():
        pod = pods.get(state_owner(uid).root)
        for container, pre in containers.items():
            leaving = state.assignments.get(uid, {}).get(container, pre.cpus) & ~pre.cpus
            if pod is not None and pre.apply_at.boot == now.boot:
                due = round(wall + max(0, pre.apply_at.since_boot - now.since_boot) / SECOND, 1)
                owner = f"{pod.namespace}/{pod.name}/{container}"
                yield _released(pod.namespace, owner, list_text(leaving), due)


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
