"""The search for the nearest change in its plainest form: every change there is, each answered by a whole plan.

Nothing here is shared with the search, except the changes themselves and how they are applied.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from copy import deepcopy
from dataclasses import replace
from itertools import combinations
from typing import Any

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from tests.planner.change_questions import questions, refused, tight_questions

from mooring.answers.base.answering import Answer
from mooring.answers.base.changes.change import AGAIN, Cost, PlannedChange, PodRef, applied
from mooring.answers.base.changes.configuration import ConfigField
from mooring.answers.base.changes.nearest import FAMILIES, nearest_changes
from mooring.answers.base.changes.order import EarlierTurn, PodRemoval
from mooring.answers.base.changes.requests import Amount, MoreDevices, with_amount
from mooring.answers.base.changes.search import begin, begun, followed, holding
from mooring.answers.base.plan import AnyPlan, Question, RefusedPlan, make_plan
from mooring.answers.whatif.answer import understood
from mooring.engine.core.config import KubeletConfig
from mooring.engine.core.decision import StartRefusal
from mooring.engine.core.errors import InputError
from mooring.engine.core.pod import Pod, QoS
from mooring.engine.core.quantity import Quantity
from mooring.engine.cpumanager.options import ALPHA, OPTION_GROUPS
from mooring.engine.node.resources import pod_requests
from mooring.inputs.machines.compact import parse_compact
from mooring.inputs.pods.defaults import PodGates
from mooring.inputs.pods.pods import pod_from_object

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


# Every change that is proposed works, and no cheaper one of the searched kinds was missed.


ANY = questions() | tight_questions()
FEW = settings(deadline=None, max_examples=25)


@settings(deadline=None, max_examples=60)
@given(ANY)
def test_the_course_is_the_plan(question: Question) -> None:
    plan, start = make_plan(question), begin(question)
    if isinstance(start, StartRefusal) or isinstance(plan, RefusedPlan):
        assert isinstance(plan, RefusedPlan)
        assert plan.refusal == start
        return
    course = followed(*start, question.leaving)
    assert course is not None
    for answer in plan.answers:
        if answer.crash:
            assert answer.pod.uid not in course.decisions
            continue
        decision = course.decisions[answer.pod.uid]
        assert decision.admitted is answer.admitted
        assert decision.rejection == answer.decision.rejection
        assert holding(decision) == holding(answer.decision)
    if not plan.unasked:
        assert course.after.node.cpu == plan.kubelet.node.cpu or not all(one.admitted for one in plan.answers)


@FEW
@given(ANY)
def test_every_proposal_applied_admits_the_pod_and_everybody_else(question: Question) -> None:
    plan = make_plan(question)
    assume(not plan.is_yes)
    was = {answer.pod.uid for answer in plan.answers if answer.admitted}
    for pod in refused(question):
        for proposal in nearest_changes(question, pod.uid, limit=100):
            after = make_plan(applied(question, proposal.changes))
            now = {answer.pod.uid for answer in after.answers if answer.admitted and answer.pod.uid not in after.left}
            removals = [change for change in proposal.changes if isinstance(change, PodRemoval)]
            gone = {change.pod.uid for change in removals}
            back = {f"{change.pod.uid}{AGAIN}" for change in removals if change.comes_back}
            assert pod.uid in now, proposal
            assert (was - gone) | back <= now, proposal
            answer = next(one for one in after.answers if one.pod.uid == pod.uid)
            assert holding(answer.decision) == holding(proposal.decision), proposal


@settings(deadline=None, max_examples=30)
@given(questions(most=4) | tight_questions())
def test_no_cheaper_change_of_the_searched_kinds_is_missed(question: Question) -> None:
    plan = make_plan(question)
    assume(not isinstance(plan, RefusedPlan))
    for pod in refused(question)[:1]:
        found = nearest_changes(question, pod.uid, limit=100)
        least = min((proposal.cost for proposal in found), default=None)
        for changes in plain_changes(question, pod):
            cost = plain_cost(question, plan, pod, changes)
            assert cost is None or (least is not None and least <= cost), (changes, cost, least)


@settings(deadline=None, max_examples=15)
@given(ANY)
def test_proposals_are_ranked_by_cost_and_a_lower_limit_gives_the_first_of_them(question: Question) -> None:
    for pod in refused(question):
        every = nearest_changes(question, pod.uid, limit=100)
        assert [proposal.cost for proposal in every] == sorted(proposal.cost for proposal in every)
        for limit in (1, 3):
            assert nearest_changes(question, pod.uid, limit) == every[:limit]


@FEW
@given(ANY)
def test_what_a_family_costs_at_least_is_what_its_members_cost(question: Question) -> None:
    for pod in refused(question):
        search = begun(question, pod.uid)
        if search is None or isinstance(search, StartRefusal):
            continue
        for least, family in FAMILIES:
            assert all(least <= proposal.cost for proposal in family(search))


@FEW
@given(ANY)
def test_the_options_of_a_proposal_mean_its_changes(question: Question) -> None:
    for pod in refused(question):
        for proposal in nearest_changes(question, pod.uid, limit=100):
            read = [change for option, text in proposal.options for change in understood(question, option, text)]
            assert tuple(read) == proposal.changes


@FEW
@given(ANY, st.data())
def test_an_admitted_pod_needs_no_change(question: Question, data: st.DataObject) -> None:
    plan = make_plan(question)
    admitted = [answer.pod for answer in plan.answers if answer.admitted]
    assume(admitted)
    assert nearest_changes(question, data.draw(st.sampled_from(admitted)).uid) == ()


# Another amount makes of a pod the one that its manifest describes with that amount.


THREADED = replace(parse_compact("sockets=2 cores=8 threads=2 memory=32Gi"), findings=())
CONFIG = KubeletConfig(
    cpu_manager_policy="static",
    reserved_system_cpus="0,8",
    topology_manager_policy="restricted",
    topology_manager_scope="pod",
    feature_gates={"PodLevelResourceManagers": True},
)


def manifest(whole: dict[str, Any], **limits: dict[str, Any]) -> dict[str, Any]:
    containers = [{"name": name, "resources": {"limits": amounts}} for name, amounts in limits.items()]
    return {"metadata": {"name": "pl"}, "spec": {"resources": whole, "containers": containers}}


FOUR = {"cpu": 4, "memory": "1Gi"}
WHOLE = {"limits": {"cpu": 8, "memory": "4Gi"}}
LIMITS = manifest(WHOLE, a=FOUR, b={"cpu": 4, "memory": "3Gi"})
REQUESTS = manifest({"requests": {"cpu": 6, "memory": "2Gi"}}, a=FOUR, b={"cpu": 2, "memory": "1Gi"})
NOTHING_SHARED = manifest(WHOLE, a=FOUR, b={"cpu": 4, "memory": "2Gi"}, c={"memory": "1Gi"})
"""The containers with exclusive CPUs use all CPUs of the pod."""


def edited(content: dict[str, Any], container: str, part: str, resource: str, amount: str) -> dict[str, Any]:
    changed = deepcopy(content)
    spec = changed["spec"]
    places = {"": spec["resources"], **{one["name"]: one["resources"] for one in spec["containers"]}}
    places[container].setdefault(part, {})[resource] = amount
    return changed


def test_an_amount_at_pod_level_is_no_default_any_more() -> None:
    pod = pod_from_object(REQUESTS, source="pod.yaml")
    more = with_amount(pod, "", "cpu", Quantity.parse("7"), PodGates())
    assert more == pod_from_object(edited(REQUESTS, "", "requests", "cpu", "7"), source="pod.yaml")
    less = with_amount(more, "b", "cpu", Quantity.parse("1"), PodGates())
    assert less.resources is not None
    assert less.resources.requests["cpu"] == Quantity.parse("7")


def test_a_stored_pod_keeps_its_resources() -> None:
    stored = pod_from_object({**LIMITS, "status": {"qosClass": "Guaranteed"}}, source="pod.yaml")
    assert with_amount(stored, "a", "cpu", Quantity.parse("2"), PodGates()).resources == stored.resources


def test_no_change_is_proposed_that_makes_the_pod_burstable() -> None:
    pod = pod_from_object(NOTHING_SHARED, source="pod.yaml")
    assert pod.qos is QoS.GUARANTEED
    found = nearest_changes(Question(THREADED, CONFIG, pods=(pod,)), pod.uid, 100)
    assert found
    assert not any(isinstance(change, Amount) and change.container for one in found for change in one.changes)


def test_a_default_above_the_limit_of_the_pod_is_refused() -> None:
    pod = pod_from_object(LIMITS, source="pod.yaml")
    with pytest.raises(InputError, match="above the limit"):
        with_amount(pod, "a", "cpu", Quantity.parse("5"), PodGates())
