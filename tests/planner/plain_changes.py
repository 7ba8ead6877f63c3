"""The search for the nearest change in its plainest form: every change there is, each answered by a whole plan.

Nothing here is shared with the search, except the changes themselves and how they are applied.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import combinations

from mooring.answers.base.answering import Answer
from mooring.answers.base.changes.change import Cost, PlannedChange, PodRef, applied
from mooring.answers.base.changes.configuration import ConfigField
from mooring.answers.base.changes.order import EarlierTurn, PodRemoval
from mooring.answers.base.changes.requests import Amount, MoreDevices
from mooring.answers.base.plan import AnyPlan, Question, make_plan
from mooring.engine.core.config import KubeletConfig
from mooring.engine.core.errors import InputError
from mooring.engine.core.pod import Pod
from mooring.engine.core.quantity import Quantity
from mooring.engine.cpumanager.options import ALPHA, OPTION_GROUPS
from mooring.engine.node.resources import pod_requests

STEP = 32 * 2**20
"""Amounts of memory are tried in these steps."""

FIELDS = (
    *(("topologyManagerPolicy", policy) for policy in ("none", "best-effort", "restricted", "single-numa-node")),
    *(("topologyManagerScope", scope) for scope in ("container", "pod")),
)


def plain_changes(question: Question, pod: Pod) -> Iterator[tuple[PlannedChange, ...]]:
    """Yield the changes of the documented kinds, except those that make a manager's policy ``none``."""
    yield from _amounts(pod)
    for field, value in FIELDS:
        yield (ConfigField(field, value),)
    for name, group in OPTION_GROUPS.items():
        gate = (ConfigField("featureGates.CPUManagerPolicyAlphaOptions", "true"),) if group == ALPHA else ()
        for value in ("true", "false"):
            yield (*gate, ConfigField(f"cpuManagerPolicyOptions.{name}", value))
    for value in ("true", "false"):
        yield (ConfigField("topologyManagerPolicyOptions.prefer-closest-numa-nodes", value),)
    for resource in question.devices:
        for node in question.machine.info.topology:
            yield (MoreDevices(resource, node.node_id),)
    if pod not in question.pods:
        return
    here = _ref(pod)
    earlier = question.pods[: question.pods.index(pod)]
    for other in earlier:
        yield (EarlierTurn(here, _ref(other)),)
    running = (*question.active, *earlier)
    for other in running:
        yield (PodRemoval(_ref(other), here),)
        yield (PodRemoval(_ref(other), here, comes_back=True),)
    for one, other in combinations(running, 2):
        yield PodRemoval(_ref(one), here), PodRemoval(_ref(other), here)


def _ref(pod: Pod) -> PodRef:
    return PodRef(pod.uid, f"{pod.namespace}/{pod.name}")


def _amounts(pod: Pod) -> Iterator[tuple[PlannedChange, ...]]:
    asked = [(container.name, container.requests) for container in pod.containers]
    if pod.resources is not None:
        asked.append(("", pod.resources.requests))
    for name, requests in asked:
        for resource, quantity in requests.items():
            if resource == "cpu":
                amounts = [count for count in range(1, quantity.units + 2) if count != quantity.units]
            elif "/" in resource:
                amounts = list(range(1, quantity.units))
            else:
                amounts = [*range(STEP, quantity.units, STEP), *([] if name else [quantity.units + STEP])]
            for amount in amounts:
                yield (Amount(_ref(pod), name, resource, Quantity.parse(str(amount))),)


def plain_cost(question: Question, before: AnyPlan, pod: Pod, changes: Sequence[PlannedChange]) -> Cost | None:
    """Return what changes cost when they admit the pod and keep all others; None when they do not."""
    try:
        after = make_plan(applied(question, changes))
    except InputError:
        return None
    old = {answer.pod.uid: answer for answer in before.answers}
    new = {answer.pod.uid: answer for answer in after.answers}
    gone = [change.pod.uid for change in changes if isinstance(change, PodRemoval)]
    if any(not old[uid].admitted for uid in gone):
        return None
    for uid in [pod.uid, *(uid for uid, answer in old.items() if answer.admitted and uid not in gone)]:
        if uid not in new or not new[uid].admitted or uid in after.left:
            return None
    if any(not answer.admitted for uid, answer in new.items() if uid not in old):
        return None
    order = [answer.pod.uid for answer in before.answers]
    earlier = [uid for uid in order[: order.index(pod.uid)] if old[uid].admitted]
    touched = len(gone) + sum(1 for uid in earlier if uid not in gone and _got(old[uid]) != _got(new[uid]))
    added = sum(isinstance(change, MoreDevices) for change in changes)
    devices = cpus = size = 0
    for change in changes:
        if isinstance(change, Amount):
            lost = _lost(pod, change)
            cpus += lost if change.resource == "cpu" else 0
            devices += lost if "/" in change.resource else 0
            size += lost if change.resource != "cpu" and "/" not in change.resource else 0
        if isinstance(change, PodRemoval) and not change.comes_back:
            requests = pod_requests(old[change.pod.uid].pod)
            cpus += requests.get("cpu", 0)
            devices += sum(amount for resource, amount in requests.items() if "/" in resource)
            size += sum(amount for resource, amount in requests.items() if resource.startswith(("memory", "huge")))
    restarts = any(isinstance(change, ConfigField) for change in changes)
    promised, kept = (_promises(one.config) for one in (question, applied(question, changes)))
    return Cost(len(_alone(promised - kept)), touched, int(restarts), 0, added, devices, cpus, size)


def _alone(lost: set[str]) -> set[str]:
    """Return what is lost without what follows from it."""
    if "exclusive" in lost:
        lost -= {"full-pcpus-only", "strict-cpu-reservation", "nodes"}
    return lost - {"single-numa-node", "pod", "nodes"} if "restricted" in lost else lost


def _promises(config: KubeletConfig) -> set[str]:
    """Return what a configuration guarantees, by the names of its settings."""
    is_static = config.cpu_manager_policy == "static"
    options = [name for name, text in config.cpu_manager_policy_options.items() if is_static and text == "true"]
    found = {"exclusive"} if is_static else set()
    found |= {"memory"} if config.memory_manager_policy == "Static" else set()
    found |= {"full-pcpus-only", "strict-cpu-reservation"}.intersection(options)
    policy = config.topology_manager_policy
    if policy in ("restricted", "single-numa-node"):
        found |= {policy, "restricted"}
        found |= {"pod"} if config.topology_manager_scope == "pod" else set()
        found |= {"nodes"} if is_static and "align-by-socket" not in options else set()
    return found


def _lost(pod: Pod, change: Amount) -> int:
    asked = {container.name: container.requests for container in pod.containers}
    if pod.resources is not None:
        asked[""] = pod.resources.requests
    before = asked[change.container][change.resource]
    if change.resource == "cpu":
        return max(0, before.milli - change.amount.milli)
    return max(0, before.units - change.amount.units)


def _got(answer: Answer) -> object:
    decision = answer.decision
    return decision.pod, dict(decision.containers), {name: dict(held) for name, held in decision.devices.items()}
