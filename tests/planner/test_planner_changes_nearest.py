"""The search for the nearest change in its plainest form: every change there is, each answered by a whole plan.

Nothing here is shared with the search, except how options are read as changes, and how these are applied.
"""

from __future__ import annotations

from collections.abc import Iterator
from copy import deepcopy
from dataclasses import replace
from itertools import combinations
from typing import Any

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from tests.planner.change_questions import questions, refused, tight_questions

from mooring.answers.base.answering import Answer
from mooring.answers.base.changes.change import AGAIN, Cost, applied
from mooring.answers.base.changes.nearest import FAMILIES, nearest_changes
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
from mooring.inputs.pods.pods import pod_from_object

STEP = 32 * 2**20
"""Amounts of memory are tried in these steps."""

LEAVING = ("--remove", "--move")
FIELDS = (
    *(("topologyManagerPolicy", policy) for policy in ("none", "best-effort", "restricted", "single-numa-node")),
    *(("topologyManagerScope", scope) for scope in ("container", "pod")),
)


Options = tuple[tuple[str, str], ...]
"""Changes as options of ``mooring whatif``, each with its value."""


def plain_changes(question: Question, pod: Pod) -> Iterator[Options]:
    """Yield the changes of the documented kinds, except those that make a manager's policy ``none``."""
    yield from _amounts(pod)
    for field, value in FIELDS:
        yield (("--set", f"{field}={value}"),)
    for name, group in OPTION_GROUPS.items():
        gate = (("--set", "featureGates.CPUManagerPolicyAlphaOptions=true"),) if group == ALPHA else ()
        for value in ("true", "false"):
            yield (*gate, ("--set", f"cpuManagerPolicyOptions.{name}={value}"))
    for value in ("true", "false"):
        yield (("--set", f"topologyManagerPolicyOptions.prefer-closest-numa-nodes={value}"),)
    for resource in question.devices:
        for node in question.machine.info.topology:
            yield (("--device", f"{resource}={node.node_id}"),)
    if pod not in question.pods:
        return
    earlier = question.pods[: question.pods.index(pod)]
    for other in earlier:
        yield (("--first", f"{_name(pod)}={_name(other)}"),)
    leaving = [("--remove", f"{_name(other)}={_name(pod)}") for other in (*question.active, *earlier)]
    for one in leaving:
        yield (one,)
        yield (("--move", one[1]),)
    yield from combinations(leaving, 2)


def _name(pod: Pod) -> str:
    return f"{pod.namespace}/{pod.name}"


def _amounts(pod: Pod) -> Iterator[Options]:
    asked = [(f"{_name(pod)}/{container.name}", container.requests) for container in pod.containers]
    if pod.resources is not None:
        asked.append((_name(pod), pod.resources.requests))
    for name, requests in asked:
        for resource, quantity in requests.items():
            if resource == "cpu":
                amounts = [count for count in range(1, quantity.units + 2) if count != quantity.units]
            elif "/" in resource:
                amounts = list(range(1, quantity.units))
            else:
                more = [quantity.units + STEP] if name == _name(pod) else []
                amounts = [*range(STEP, quantity.units, STEP), *more]
            for amount in amounts:
                yield (("--ask", f"{name}:{resource}={amount}"),)


def changed(question: Question, options: Options) -> Question:
    """Return the question after the changes."""
    return applied(question, [change for option, text in options for change in understood(question, option, text)])


def plain_cost(question: Question, before: AnyPlan, pod: Pod, options: Options) -> Cost | None:
    """Return what changes cost when they admit the pod and keep all others; None when they do not."""
    try:
        after = make_plan(changed(question, options))
    except InputError:
        return None
    old = {answer.pod.uid: answer for answer in before.answers}
    new = {answer.pod.uid: answer for answer in after.answers}
    uids = {_name(one): one.uid for one in (*question.active, *question.pods)}
    going = {uids[text.partition("=")[0]]: option for option, text in options if option in LEAVING}
    gone = list(going)
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
    given = [option for option, _ in options]
    devices = cpus = size = 0
    for option, text in options:
        if option == "--ask":
            resource, lost = _lost(pod, text)
            cpus += lost if resource == "cpu" else 0
            devices += lost if "/" in resource else 0
            size += lost if resource != "cpu" and "/" not in resource else 0
    for uid in (uid for uid, option in going.items() if option == "--remove"):
        requests = pod_requests(old[uid].pod)
        cpus += requests.get("cpu", 0)
        devices += sum(amount for resource, amount in requests.items() if "/" in resource)
        size += sum(amount for resource, amount in requests.items() if resource.startswith(("memory", "huge")))
    promised, kept = (_promises(one.config) for one in (question, changed(question, options)))
    restarts, added = int("--set" in given), given.count("--device")
    return Cost(len(_alone(promised - kept)), touched, restarts, 0, added, devices, cpus, size)


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


def _lost(pod: Pod, asked: str) -> tuple[str, int]:
    """Return a resource of which a pod asks another amount, and how much less it is."""
    place, _, amount = asked.rpartition("=")
    name, _, resource = place.partition(":")
    held = {f"{_name(pod)}/{container.name}": container.requests for container in pod.containers}
    if pod.resources is not None:
        held[_name(pod)] = pod.resources.requests
    before, after = held[name][resource], Quantity.parse(amount)
    return resource, max(0, before.milli - after.milli if resource == "cpu" else before.units - after.units)


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
            uids = {_name(one): one.uid for one in (*question.active, *question.pods)}
            leaving = [(option, uids[text.partition("=")[0]]) for option, text in proposal.options if option in LEAVING]
            gone = {uid for _, uid in leaving}
            back = {f"{uid}{AGAIN}" for option, uid in leaving if option == "--move"}
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
        for options in plain_changes(question, pod):
            cost = plain_cost(question, plan, pod, options)
            assert cost is None or (least is not None and least <= cost), (options, cost, least)


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


def asking(pod: Pod, *amounts: str) -> Pod:
    """Return the pod after the changes of its amounts."""
    return changed(Question(THREADED, CONFIG, pods=(pod,)), tuple(("--ask", amount) for amount in amounts)).pods[0]


def test_an_amount_at_pod_level_is_no_default_any_more() -> None:
    pod = pod_from_object(REQUESTS, source="pod.yaml")
    more = asking(pod, "pl:cpu=7")
    assert more == pod_from_object(edited(REQUESTS, "", "requests", "cpu", "7"), source="pod.yaml")
    less = asking(more, "pl/b:cpu=1")
    assert less.resources is not None
    assert less.resources.requests["cpu"] == Quantity.parse("7")


def test_a_stored_pod_keeps_its_resources() -> None:
    stored = pod_from_object({**LIMITS, "status": {"qosClass": "Guaranteed"}}, source="pod.yaml")
    assert asking(stored, "pl/a:cpu=2").resources == stored.resources


def test_no_change_is_proposed_that_makes_the_pod_burstable() -> None:
    pod = pod_from_object(NOTHING_SHARED, source="pod.yaml")
    assert pod.qos is QoS.GUARANTEED
    found = nearest_changes(Question(THREADED, CONFIG, pods=(pod,)), pod.uid, 100)
    assert found
    assert not any(text.startswith("default/pl/") for one in found for option, text in one.options if option == "--ask")


def test_a_default_above_the_limit_of_the_pod_is_refused() -> None:
    with pytest.raises(InputError, match="above the limit"):
        asking(pod_from_object(LIMITS, source="pod.yaml"), "pl/a:cpu=5")
