"""A node at one moment, as its page shows it; and what of it a person may see.

A node from the status of its agent: what holds what, what waits, drift and repairs.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, TypeAlias

from mooring.answers.base.plan import AnyPlan, Question
from mooring.engine.core.pod import Pod
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
class PendingRelease:
    """CPUs that a container releases when a delay is over."""

    namespace: str
    owner: str
    """``namespace/pod/container``."""
    cpus: str
    due: float = field(compare=False)
    """Unix time."""


@dataclass(frozen=True, slots=True)
class NodeNotice:
    """Something to know about the node."""

    text: str
    warning: bool = False
    namespace: str = ""
    """Of the pods that it names; empty where it names none, :data:`ANY` for several or unknown ones."""
    brief: str = ""
    """What others are shown instead; empty for nothing."""

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
    pending: tuple[PendingRelease, ...] = ()
    notices: tuple[NodeNotice, ...] = ()
    plan: AnyPlan | None = field(default=None, compare=False, repr=False)
    """From which pods are explained; None where only an agent's status is known."""
    question: Question | None = field(default=None, compare=False, repr=False)
    """What is asked again with other pods."""

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
        return NodeSnapshot(
            view,
            tuple(one for one in self.pods if may_list(one.namespace)),
            tuple(one for one in self.pending if may_list(one.namespace)),
            tuple(seen for one in self.notices if (seen := one.seen_by(may_list)) is not None),
            self.plan,
            self.question,
        )

    @property
    def namespaces(self) -> set[str]:
        """Those of its pods, and of what it says about others."""
        return self._named - {ANY}

    @property
    def _named(self) -> set[str]:
        found = {pod.namespace for pod in self.pods} | {_namespace_of(owner.label) for owner in self.view.owners}
        found |= {one.name.partition("/")[0] for one in self.view.rejected}
        found |= {one.namespace for one in self.pending} | {one.namespace for one in self.notices}
        return found - {""}

    def dated(self, before: tuple[ShownPod, ...], now: float) -> NodeSnapshot:
        """Return it with the times since when its pods are refused, as far as the pods before do not know them."""
        known = {pod.uid: pod.since for pod in before if not pod.admitted}
        dated = (pod if pod.admitted or pod.since else replace(pod, since=known.get(pod.uid, now)) for pod in self.pods)
        return replace(self, pods=tuple(dated))

    def bare(self) -> NodeSnapshot:
        """Return it as it is recorded: without what only the present can be asked."""
        return replace(self, plan=None, question=None)


def _namespace_of(label: str) -> str:
    return label.removeprefix("claim ").partition("/")[0]


def snapshot_of_status(view: NodeView, document: Mapping[str, Any]) -> NodeSnapshot:
    """Return the node of an agent.

    Args:
        view: its picture.
        document: the agent's status, of kind ``AgentStatus``.
    """
    return NodeSnapshot(view, tuple(_pods(document)), tuple(_pending(document)), tuple(_notices(document)))


def _pods(document: Mapping[str, Any]) -> Iterator[ShownPod]:
    for pod in document["pods"]:
        holds = tuple(_held(one) for one in pod["containers"])
        yield ShownPod(pod["namespace"], pod["name"], pod["uid"], "running", admitted=True, holds=holds)
    for pod in document["held"]:
        yield ShownPod(
            pod["namespace"], pod["name"], pod["uid"], pod["reason"], admitted=False, why=f"{pod['message']}."
        )


def _held(container: Mapping[str, Any]) -> str:
    words = [f"CPUs {container['cpus']}" if container["cpus"] else "shared pool"]
    words += [f"memory of NUMA {container['mems']}"] if container["mems"] else []
    words += [f"devices {', '.join(one['id'] for one in container['devices'])}"] if container.get("devices") else []
    words += [f"offline {container['lost']}"] if container.get("lost") else []
    words += [f"until CPUs {container['original']} are online"] if container.get("original") else []
    return f"{container['name']}: {'; '.join(words)}"


def _pending(document: Mapping[str, Any]) -> Iterator[PendingRelease]:
    now = time.time()
    for pod in document["pods"]:
        for container in pod["containers"]:
            if pending := container.get("pending"):
                owner = f"{pod['namespace']}/{pod['name']}/{container['name']}"
                yield PendingRelease(
                    pod["namespace"], owner, pending["releases"], round(now + pending["secondsLeft"], 1)
                )


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
