"""A node at one moment, as its page shows it; and what of it a person may see."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import TypeAlias

from mooring.answers.base.plan import Plan
from mooring.answers.base.question import Question
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
    plan: Plan | None = field(default=None, compare=False, repr=False)
    """From which pods are explained; None where only an agent's status is known."""
    question: Question | None = field(default=None, compare=False, repr=False)
    """What is asked again with other pods."""

    def seen_by(self, may_list: MayList) -> NodeSnapshot:
        """Return what a person may see: pods of other namespaces have no name, and nothing is said about them."""
        if all(may_list(namespace) for namespace in self._named):
            return self
        names = {
            owner.label: _shown_label(owner.label, may_list, place) for place, owner in enumerate(self.view.owners)
        }
        owners = tuple(
            owner if names[owner.label] == owner.label else replace(owner, label=names[owner.label], forms=(HIDDEN,))
            for owner in self.view.owners
        )
        devices = tuple(
            replace(one, owner=names.get(one.owner, HIDDEN if one.owner else "")) for one in self.view.devices
        )
        rejected = tuple(one for one in self.view.rejected if may_list(one.name.partition("/")[0]))
        view = replace(self.view, owners=owners, devices=devices, rejected=rejected, caption=self.view.caption[:1])
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

    def bare(self) -> NodeSnapshot:
        """Return it as it is recorded: without what only the present can be asked."""
        return replace(self, plan=None, question=None)


def _namespace_of(label: str) -> str:
    return label.removeprefix("claim ").partition("/")[0]


def _shown_label(label: str, may_list: MayList, place: int) -> str:
    return label if may_list(_namespace_of(label)) else f"{HIDDEN} ({place + 1})"
