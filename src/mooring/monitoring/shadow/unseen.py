"""What a kubelet has done, as seen from outside: its state, and what became of every pod that is bound to its node.

Source: kubelet v1.37.1, pkg/kubelet/kubelet.go (rejectPod); spec: metrics.md section 3.

What is known of the pods over the observations that are judged together.

Much of it comes late: which pods were refused, and that there were any which no observation shows.

Which pods may have been on a node, or not, when its kubelet was asked about a pod that it refused.

Between two observations the active pods are known only in part: pods have left at some time, others came and went
unseen, and a kubelet counts the requests of a refused pod again while it ends that pod. What the managers gave such a
pod is not released until then.

Source: kubelet v1.37.1, pkg/kubelet/kubelet_pods.go (filterOutInactivePods): a failed pod that a kubelet is ending is
active.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial, reduce
from itertools import chain, combinations, islice, product
from typing import Any, Final, NamedTuple, TypeVar

from mooring.engine.core.pod import Pod
from mooring.engine.devicemanager.state import Holdings
from mooring.engine.kubelet.admit import AdmitMode, added, admit
from mooring.engine.kubelet.kubelet import Kubelet
from mooring.engine.node.resources import POD_LEVEL, allocatable, pod_requests
from mooring.inputs.decoding.fields import as_mapping, mapping_at, text_at, texts_at
from mooring.inputs.pods.cluster_objects import REJECTED
from mooring.inputs.pods.defaults import PodGates
from mooring.inputs.pods.pods import MIRROR, pod_from_object
from mooring.published.objects import NodeFacts, NodeState, PodKey
from mooring.published.restored import holds, kind_of, restored

UNRECOVERED: Final = re.compile(
    r"Unexpected error while attempting to recover from admission failure: preemption: .*\(res: (?P<resource>[^,]+),"
)
"""Message about a critical pod for which there is no room, and for which ending other pods would not make enough.

Source: kubelet v1.37.1, pkg/kubelet/preemption/preemption.go (HandleAdmissionFailure).
"""
_CRITICAL: Final = 2_000_000_000
_SOURCE = "kubernetes.io/config.source"


@dataclass(frozen=True, slots=True)
class ObservedPod:
    """A pod that is bound to the node, as the API server has it."""

    pod: Pod
    content: Mapping[str, Any]
    """The object."""
    ran: bool = False
    """Whether its status names containers that were made, so that it was admitted."""
    reason: str = ""
    """Of the refusal; empty where it was not refused."""
    message: str = ""
    """Of the refusal, without the words that the kubelet puts before it."""
    leaving: bool = False
    """Whether it is deleted or has ended: the kubelet releases what it holds now or soon."""
    deleted: bool = False
    """Whether it is deleted: the kubelet ends it, though it was refused."""

    @property
    def is_of_amounts(self) -> bool:
        """Whether it was refused because of the sums of what active pods request; no manager decides that."""
        return self.reason.startswith("OutOf") or UNRECOVERED.match(self.message) is not None

    @property
    def created(self) -> str:
        """When it was created, in a form that sorts; a kubelet that starts admits its pods in this order.

        Empty for a static pod: the time is that of its mirror, and its manifest has none, which comes first. Source:
        kubelet v1.37.1, pkg/kubelet/kubelet.go (HandlePodAdditions).
        """
        metadata = mapping_at(self.content, "metadata")
        return "" if MIRROR in texts_at(metadata, "annotations") else text_at(metadata, "creationTimestamp")


@dataclass(frozen=True, slots=True)
class ObservedNode:
    """A kubelet and its pods at one moment."""

    facts: NodeFacts
    state: NodeState
    starts: int
    """How often the kubelet has started while it was observed."""
    pods: Mapping[str, ObservedPod]
    """By uid; those included that are gone and that the state still names."""
    holding: frozenset[str] = frozenset()
    """Uids of the pods that hold all exclusive CPUs, memory and devices that their containers are to have."""
    at: float = 0.0
    """When it was seen first, in seconds since 1970."""
    left: Holdings = field(default_factory=dict)
    """Devices that the kubelet's record says pods have that are gone."""

    @property
    def listed(self) -> frozenset[str]:
        """Uids of the pods that the kubelet lists: those that it is deciding about, too."""
        return frozenset(key.uid for key in self.state.pods if key.uid)

    @property
    def held(self) -> frozenset[str]:
        """Uids of the pods that it lists and that were not refused, as far as is known."""
        return frozenset(uid for uid in self.listed if uid not in self.pods or not self.pods[uid].reason)

    @property
    def waiting(self) -> frozenset[str]:
        """Uids of the pods that it lists and has not decided about, as far as is known."""
        return frozenset(uid for uid in self.listed if uid in self.pods and not self.is_decided(uid))

    def runs(self, uid: str) -> bool:
        """Tell whether a pod was admitted and runs; a kubelet that starts later can refuse it still."""
        return uid in self.pods and self.pods[uid].ran and not self.pods[uid].reason

    def is_decided(self, uid: str) -> bool:
        """Tell whether what became of a pod is known: it was refused, it holds all, or a container was made."""
        seen = self.pods[uid]
        return bool(seen.reason) or seen.ran or uid in self.holding


def observed_pod(content: Mapping[str, Any], gates: PodGates) -> ObservedPod:
    """Return a pod of the API server with what its status says of its admission.

    Args:
        content: the object.
        gates: of the node.

    Raises:
        InputError: it is no pod.

    >>> refused = {
    ...     "metadata": {"name": "big", "uid": "1"},
    ...     "spec": {"containers": [{"name": "main"}]},
    ...     "status": {"phase": "Failed", "reason": "OutOfcpu", "message": "Pod was rejected: Node didn't have enough"},
    ... }
    >>> seen = observed_pod(refused, PodGates())
    >>> seen.reason, seen.message, seen.leaving
    ('OutOfcpu', "Node didn't have enough", True)
    """
    status = mapping_at(content, "status")
    # What the kubelet has written there since is no part of what it was asked for.
    asked = {**content, "status": {name: status[name] for name in ("qosClass",) if name in status}}
    pod = pod_from_object(asked, source="the API server", gates=gates)
    phase, reason, message = (text_at(status, name) for name in ("phase", "reason", "message"))
    is_refused = phase == "Failed" and message.startswith(REJECTED)
    is_deleted = "deletionTimestamp" in mapping_at(content, "metadata")
    made = (as_mapping(one).get("containerID") for one in status.get("containerStatuses") or ())
    ran = phase in {"Running", "Succeeded"} or any(made)
    return ObservedPod(
        pod,
        content,
        ran=ran,
        reason=reason if is_refused else "",
        message=message.removeprefix(REJECTED) if is_refused else "",
        leaving=phase in {"Failed", "Succeeded"} or is_deleted,
        deleted=is_deleted,
    )


def is_critical(pod: Pod) -> bool:
    """Tell whether a kubelet ends other pods where there is no room for this one: a static pod, or one of the system's.

    Source: kubelet v1.37.1, pkg/kubelet/types/pod_update.go (IsCriticalPod).
    """
    is_static = MIRROR in pod.annotations or pod.annotations.get(_SOURCE, "api") != "api"
    return is_static or pod.priority >= _CRITICAL


@dataclass(slots=True)
class Window:
    """The pods by what became of them."""

    pods: Mapping[str, ObservedPod]
    refused: dict[str, ObservedPod]
    """By uid; those that were not decided before."""
    possible: dict[str, ObservedPod]
    """Pods that were admitted and that no observation lists, or that were gone before anything was told of them."""
    waiting: dict[str, ObservedPod]
    """Pods that the kubelet lists and has not decided about at the end, as far as is known."""
    ran: frozenset[str]
    """Uids of pods that ran before they were refused: their kubelet started again."""
    traced: Mapping[str, int] = field(default_factory=dict)
    """Number of the observation that shows first what a refused pod left behind, by uid."""
    used: set[str] = field(default_factory=set)
    """Uids of the pods that are asked about in intervals that were found."""

    def known_at(self, look: ObservedNode) -> Window:
        """Return what is known of the pods, without those that nothing was known of at an observation."""
        refused, possible = (
            {uid: one for uid, one in pods.items() if uid in look.pods} for pods in (self.refused, self.possible)
        )
        return replace(self, refused=refused, possible=possible)

    def asked_between(self, begin: int, end: int) -> Window:
        """Return what is known of the pods, without refused ones that were asked about before or later.

        What such a pod left behind is seen first by the look that follows.
        """
        others = {uid for uid, first in self.traced.items() if not begin < first <= end}
        return replace(self, used=self.used | others)


def window_of(before: ObservedNode, looks: Sequence[ObservedNode]) -> Window:
    """Return what is known of the pods after the last of the looks that follow an observation."""
    last = looks[-1]
    pods = {uid: one for look in (before, *looks) for uid, one in look.pods.items()}
    listed = frozenset().union(*(look.held - look.waiting for look in looks))
    pods |= last.pods
    decided = (before.held - before.waiting) | {uid for uid in before.pods if before.is_decided(uid)}
    new = {uid: one for uid, one in last.pods.items() if uid not in decided}
    ran = frozenset(uid for look in looks for uid, one in look.pods.items() if one.ran and not one.reason)
    new = {uid: one for uid, one in new.items() if (one.reason and uid not in ran) or uid not in listed}
    refused = {uid: one for uid, one in new.items() if one.reason}
    possible = {uid: one for uid, one in new.items() if not one.reason and (one.ran or one.leaving)}
    waiting = {uid: last.pods[uid] for uid in last.waiting if uid not in refused}
    numbered = tuple(enumerate(looks, 1))
    texts = {number: (look.state.files.cpu or "", look.state.files.memory or "") for number, look in numbered}
    firsts = {
        uid: next(
            (one for one, look in numbered if uid in look.left or any(f'"{uid}"' in text for text in texts[one])), 0
        )
        for uid in refused
    }
    traced = {uid: first for uid, first in firsts.items() if first and uid not in ran}
    return Window(pods, refused, possible, waiting, ran, traced)


MOST_OF_A_KIND: Final = 2
"""Pods of one kind that are tried together where the refusal does not name how much was used."""
MOST_CHOSEN: Final = 200
"""Sets of pods of all kinds that are tried for one point of an order there."""
MOST_SUMS: Final = 100_000
"""Sets of pods of which the sum is compared with the amount that a refusal names."""
MOST_NODES: Final = 80
"""Nodes that are asked for one point of an order where the refusal names how much was used."""
_USED: Final = re.compile(r"enough resource: (?P<resource>\S+), requested: \d+, used: (?P<used>\d+), ")
_Item = TypeVar("_Item")


@dataclass(frozen=True, slots=True)
class UnseenPods:
    """Pods that may have been there, or not, at a point of an order."""

    leaving: Sequence[str] = ()
    """Uids of pods that left."""
    arrived: Sequence[str] = ()
    """Uids of pods that were not created before, so that they may have come later."""
    possible: Sequence[Pod] = ()
    """Pods that came and went unseen."""
    ending: Sequence[Pod] = ()
    """Pods that were refused or are deleted: while a kubelet ends them, their requests count, again or still."""
    accepted: frozenset[str] = frozenset()
    """Uids of those among them that the managers had accepted when the node resources check refused them."""
    held: Holdings = field(default_factory=dict)
    """Devices of pods that a kubelet which has just started knew, and has not released yet."""
    has_started: bool = False
    """Whether the kubelet has just started: until a plugin registers again, none of its devices are healthy."""


class _Chosen(NamedTuple):
    """Some of these pods, together."""

    left: Sequence[str] = ()
    guests: Sequence[Pod] = ()
    ending: Sequence[Pod] = ()


def possible_nodes(kubelet: Kubelet, besides: UnseenPods, message: str) -> Iterator[Kubelet]:
    """Yield a node, and what it may have been at that point as well.

    Args:
        kubelet: the node.
        besides: pods that may have been there, or not.
        message: of the refusal. Where it names how much was used, only nodes on which that much was used follow.
    """
    yield kubelet
    devices = kubelet.node.providers.devices
    if besides.held.keys() - devices.held.keys():
        yield kubelet.with_devices(replace(devices, held={**besides.held, **devices.held}))
    if besides.has_started and devices.devices:
        unhealthy = {
            name: tuple(replace(one, healthy=False) for one in known) for name, known in devices.devices.items()
        }
        yield kubelet.with_devices(replace(devices, devices=unhealthy))
    active = kubelet.node.active
    besides = replace(
        besides,
        leaving=[uid for uid in besides.leaving if uid in active],
        possible=[pod for pod in besides.possible if pod.uid not in active],
        ending=[pod for pod in besides.ending if pod.uid not in active],
    )
    named = _USED.search(message)
    chosen: Iterator[_Chosen]
    if named is None or named["resource"] == "pods":
        few = product(_few(besides.leaving), _few(besides.possible), _few(besides.ending))
        chosen = (_Chosen(left, guests, ending) for left, guests, ending in islice(few, MOST_CHOSEN))
    else:
        chosen = islice(_with_sum(kubelet, besides, named["resource"], int(named["used"])), MOST_NODES)
    for some in chosen:
        node = kubelet.without(some.left)
        for pod in some.guests:
            node, _ = admit(node, pod, AdmitMode.TRIAL)
        used = reduce(added, map(pod_requests, some.ending), node.used)
        yield node.counting(used) if some.ending else node
        ends = reduce(partial(holding, besides.accepted), some.ending, node)
        if ends is not node:
            yield ends.counting(used)


def holding(accepted: frozenset[str], node: Kubelet, pod: Pod) -> Kubelet:
    """Return the node with what the managers gave a pod before it was refused, perhaps to some of its containers."""
    _, answer = admit(node, pod, AdmitMode.TRIAL)
    decided = answer.decided
    if holds(decided.node, pod.uid) is None or (answer.admitted and pod.uid not in accepted):
        return node
    return replace(decided, node=decided.node.adopt([pod]))


def _few(items: Sequence[_Item]) -> Iterator[tuple[_Item, ...]]:
    return chain.from_iterable(combinations(items, count) for count in range(MOST_OF_A_KIND + 1))


def _with_sum(kubelet: Kubelet, besides: UnseenPods, resource: str, used: int) -> Iterator[_Chosen]:
    """Yield the sets of pods with which this much of a resource is used, the smallest first."""
    wanted = used - kubelet.used.get(resource, 0)
    gone = dict.fromkeys([*besides.leaving, *(uid for uid in besides.arrived if uid in kubelet.node.active)])
    counted = [_Chosen(guests=(pod,)) for pod in besides.possible if _may_count(pod, kubelet, resource)]
    # The managers have released what a pod had that ends, and its requests count until it has ended.
    ending = {pod.uid: pod for pod in (*besides.ending, *besides.possible)}
    counted += [_Chosen(ending=(pod,)) for pod in ending.values() if _may_count(pod, kubelet, resource)]
    amounts = {uid: pod_requests(kubelet.node.active[uid]).get(resource, 0) for uid in gone}
    choices = (
        *((-amount, _Chosen(left=(uid,))) for uid, amount in amounts.items()),
        *((pod_requests(pod).get(resource, 0), one) for one in counted for pod in (*one.guests, *one.ending)),
    )
    # A pod that requests nothing of the resource changes no sum, but what is checked before: it may have left.
    changing, others = [one for one in choices if one[0]], _Chosen(left=[uid for uid in gone if not amounts[uid]])
    sets = chain.from_iterable(combinations(changing, count) for count in range(len(changing) + 1))
    for some in islice(sets, MOST_SUMS):
        if sum(amount for amount, _ in some) == wanted:
            together = reduce(_together, (one for _, one in some), _Chosen())
            if {pod.uid for pod in together.guests} & {pod.uid for pod in together.ending}:
                continue
            yield together
            if others.left:
                yield _together(together, others)
            if released := [uid for uid in gone if uid not in together.left]:
                ending_still = [kubelet.node.active[uid] for uid in released]
                yield _together(together, _Chosen(left=released, ending=ending_still))


def _may_count(pod: Pod, kubelet: Kubelet, resource: str) -> bool:
    """Tell whether a pod can count where the refusal names a resource: CPU and memory are checked before others."""
    before = POD_LEVEL[: POD_LEVEL.index(resource)] if resource in POD_LEVEL else POD_LEVEL
    capacity, requests = allocatable(kubelet.settings.reservation), pod_requests(pod)
    return all(requests.get(one, 0) <= capacity.get(one, 0) for one in before)


def _together(some: _Chosen, others: _Chosen) -> _Chosen:
    return _Chosen((*some.left, *others.left), (*some.guests, *others.guests), (*some.ending, *others.ending))


_ANYTHING = PodKey("", "")
"""In a state of which it is not known which pods its files may name."""


def engine_on(seen: ObservedNode, known: Mapping[str, ObservedPod], *, dropped: bool = True) -> Kubelet | str:
    """Return the engine on a state that was observed; a text says why it would not start.

    Args:
        seen: the state.
        known: what is known of its pods.
        dropped: whether the managers have dropped what pods that are gone left behind; a kubelet that starts does so
            only when it has asked about the pods that are there.
    """
    kind = kind_of(seen.state.facts, seen.facts)
    if isinstance(kind, str):
        return kind
    # A pod that is refused later can be listed while it is asked about; one that ran, when its kubelet starts again.
    listed = known.keys() & (seen.listed - seen.waiting)
    admitted = frozenset(uid for uid in listed if not known[uid].reason or seen.runs(uid))
    pods = {uid: one.pod for uid, one in known.items() if uid in admitted}
    state = replace(seen.state, pods=tuple(key for key in seen.state.pods if key.uid not in known or key.uid in pods))
    if not dropped:
        devices = replace(state.devices, held={**seen.left, **state.devices.held})
        state = replace(state, pods=(*state.pods, _ANYTHING), devices=devices)
    found = restored(kind, state, pods)
    if isinstance(found, str):
        return found
    # A kubelet that starts admits its pods in the order of their creation.
    created = {uid: one.created for uid, one in known.items()}
    active = sorted(found.node.active.items(), key=lambda item: (created.get(item[0], ""), item[0]))
    return replace(found, node=replace(found.node, active=dict(active))).counting(found.used)
