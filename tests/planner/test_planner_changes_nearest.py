"""Every change that is proposed works, and no cheaper one of the searched kinds was missed."""

from __future__ import annotations

from hypothesis import assume, given, settings
from hypothesis import strategies as st
from tests.planner.change_questions import questions, refused, tight_questions
from tests.planner.plain_changes import plain_changes, plain_cost

from mooring.answers.base.changes.change import AGAIN, applied
from mooring.answers.base.changes.nearest import FAMILIES, nearest_changes, understood
from mooring.answers.base.changes.order import PodRemoval
from mooring.answers.base.changes.search import begin, begun, followed, holding
from mooring.answers.base.plan import Question, RefusedPlan, make_plan
from mooring.engine.core.decision import StartRefusal

ANY = questions() | tight_questions()


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


@settings(deadline=None, max_examples=25)
@given(ANY)
def test_every_proposal_applied_admits_the_pod_and_everybody_else(question: Question) -> None:
    plan = make_plan(question)
    assume(not plan.is_yes)
    was = {answer.pod.uid for answer in plan.answers if answer.admitted}
    for pod in refused(question):
        for proposal in nearest_changes(question, pod.uid, limit=100):
            after = make_plan(applied(question, proposal.changes))
            now = {answer.pod.uid for answer in after.answers if answer.admitted and answer.pod.uid not in after.left}
            gone = {change.pod.uid for change in proposal.changes if isinstance(change, PodRemoval)}
            back = {
                f"{change.pod.uid}{AGAIN}"
                for change in proposal.changes
                if isinstance(change, PodRemoval) and change.comes_back
            }
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


@settings(deadline=None, max_examples=25)
@given(ANY)
def test_what_a_family_costs_at_least_is_what_its_members_cost(question: Question) -> None:
    for pod in refused(question):
        search = begun(question, pod.uid)
        if search is None or isinstance(search, StartRefusal):
            continue
        for least, family in FAMILIES:
            assert all(least <= proposal.cost for proposal in family(search))


@settings(deadline=None, max_examples=25)
@given(ANY)
def test_the_options_of_a_proposal_mean_its_changes(question: Question) -> None:
    for pod in refused(question):
        for proposal in nearest_changes(question, pod.uid, limit=100):
            read = [change for option, text in proposal.options for change in understood(question, option, text)]
            assert tuple(read) == proposal.changes


@settings(deadline=None, max_examples=25)
@given(ANY, st.data())
def test_an_admitted_pod_needs_no_change(question: Question, data: st.DataObject) -> None:
    plan = make_plan(question)
    admitted = [answer.pod for answer in plan.answers if answer.admitted]
    assume(admitted)
    assert nearest_changes(question, data.draw(st.sampled_from(admitted)).uid) == ()
