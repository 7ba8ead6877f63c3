"""What is proposed works: applied, and planned anew, it admits the pod and keeps all others."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import assume, event, given
from hypothesis import strategies as st
from tests.laws.questions_anywhere import LAW, questions_anywhere
from tests.planner.change_questions import tight_questions

from mooring.answers.base.changes.change import AGAIN, applied
from mooring.answers.base.changes.nearest import nearest_changes
from mooring.answers.base.changes.order import PodRemoval
from mooring.answers.base.changes.search import holding
from mooring.answers.base.plan import AnyPlan, Plan, Question, make_plan
from mooring.answers.capacity.answer import capacity_of
from mooring.answers.capacity.eviction import Subject, replica
from mooring.engine.core.pod import Pod

ANYWHERE = questions_anywhere() | tight_questions()


def running_in(plan: AnyPlan) -> set[str]:
    """Return the uids of the pods that run when all were asked."""
    return {answer.pod.uid for answer in plan.answers if answer.admitted} - plan.left


def refused_in(plan: AnyPlan) -> list[Pod]:
    """Return the pods that were asked and not admitted."""
    return [answer.pod for answer in plan.answers if not answer.admitted]


@LAW
@given(ANYWHERE)
def test_a_proposed_change_admits_the_pod_and_keeps_all_others(question: Question) -> None:
    plan = make_plan(question)
    pods = refused_in(plan) if isinstance(plan, Plan) else [*plan.unasked][:1]
    assume(pods)
    for pod in pods:
        for proposal in nearest_changes(question, pod.uid, limit=100):
            event(proposal.changes[0].kind)
            after = make_plan(applied(question, proposal.changes))
            gone = {change.pod.uid for change in proposal.changes if isinstance(change, PodRemoval)}
            back = {
                f"{change.pod.uid}{AGAIN}"
                for change in proposal.changes
                if isinstance(change, PodRemoval) and change.comes_back
            }
            assert {pod.uid} | (running_in(plan) - gone) | back <= running_in(after), proposal
            answer = next(one for one in after.answers if one.pod.uid == pod.uid)
            assert holding(answer.decision) == holding(proposal.decision), proposal


@LAW
@given(questions_anywhere(), st.data())
def test_a_proposed_eviction_admits_the_replica_and_keeps_all_others(question: Question, data: st.DataObject) -> None:
    # Plugins that order pods could ask about the replica before the pods that are to end.
    assume(not any("sort_pods" in plugin.points for plugin in question.mooring.plugins.plugins))
    shape = replace(data.draw(st.sampled_from(question.pods)), uid="shape", name="shape")
    capacity = capacity_of(Subject(shape, question))
    assume(capacity.can_be_asked)
    assert isinstance(capacity.plan, Plan)
    node = capacity.plan.kubelet.node
    fit = tuple(one.pod for one in capacity.replicas)
    for advice in capacity.document.advice:
        before = fit[: advice.replica - 1]
        wanted = replica(shape, advice.replica, node.active)
        for eviction in advice.evictions:
            event(advice.goal)
            gone = tuple(pod.uid for pod in eviction.pods)
            ended = replace(
                question, pods=(*question.pods, *before, wanted), leaving={**question.leaving, wanted.uid: gone}
            )
            after = make_plan(ended)
            assert wanted.uid in running_in(after), (advice.goal, eviction)
            assert running_in(capacity.plan) | {one.uid for one in before} <= running_in(after) | set(gone)
