"""One question, one answer: plan, search, comparison, capacity, replay, agent and extender decide alike."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import assume, event, given
from hypothesis import strategies as st
from tests.laws.questions_anywhere import LAW, planned, questions_anywhere
from tests.planner.change_questions import tight_questions
from tests.planner.compared import run_trial

from mooring.agent.nri.types import PodSandbox, RuntimeContainer
from mooring.agent.reactor.create_container import create_container
from mooring.agent.reactor.response import Adjusted, Refused
from mooring.agent.state import AgentState
from mooring.answers.base.answering import Answer
from mooring.answers.base.changes.change import AGAIN, applied
from mooring.answers.base.changes.nearest import nearest_changes
from mooring.answers.base.changes.order import PodRemoval
from mooring.answers.base.changes.search import begin, followed, holding
from mooring.answers.base.plan import AnyPlan, Plan, Question, make_plan, opened_for
from mooring.answers.base.scenario import replay_scenario
from mooring.answers.base.trace import Trace, TraceStep, shapes, trace_of
from mooring.answers.capacity.answer import capacity_of
from mooring.answers.capacity.eviction import Subject, replica
from mooring.answers.compare.answer import judge
from mooring.answers.compare.trial import SharedKubelet, Trial, is_alike_in_both_scopes, run_trials
from mooring.answers.compare.variant import Dimension, Variant, option_sets
from mooring.cluster.extender.deciding import Decider
from mooring.cluster.extender.possible_nodes import PossibleNodes
from mooring.engine.core.config import PLUGINS
from mooring.engine.core.pod import Pod
from mooring.engine.kubelet.admit import shape_of
from mooring.engine.kubelet.events import Admit, Offline, Readmit, Remove, Restart, after_event
from mooring.engine.kubelet.kubelet import Kubelet
from mooring.engine.node import Decision
from mooring.explanations.story import PodVerdict
from mooring.inputs.pods.scenario import Scenario
from mooring.published.objects import NodeFacts, NodeState, PodKey
from mooring.published.possible_kubelets import NodeKnowledge
from mooring.published.restored import NodeKind, kind_of


def last_answer(question: Question, plan: Plan) -> tuple[Kubelet, Answer]:
    """Return the kubelet before the last pod was asked, and the answer."""
    assume(plan.answers and not plan.unasked and not plan.answers[-1].running)
    *_, before, _ = plan.kubelets()
    # Before the first new pod CPUs go offline.
    return before.offline(question.offline.mask)[0] if question.offline else before, plan.answers[-1]


def verdict(decision: Decision) -> object:
    """Return what was decided: admitted or why not, and what the pod holds."""
    return decision.admitted, decision.reason, decision.message, holding(decision)


@LAW
@given(questions_anywhere())
def test_the_search_decides_as_the_plan(question: Question) -> None:
    plan, start = planned(question), begin(question)
    assert isinstance(start, tuple)
    course = followed(*start, question.leaving)
    assert course is not None
    for answer in plan.answers:
        if answer.crash:
            assert answer.pod.uid not in course.decisions
        elif question.offline:
            # A plan corrects its answers about sets that lost CPUs later.
            assert course.decisions[answer.pod.uid].admitted is answer.admitted
        else:
            assert verdict(course.decisions[answer.pod.uid]) == verdict(answer.decision)
    assert plan.kubelet is not None
    if not plan.unasked:
        assert course.after.settled().node == plan.kubelet.node


@LAW
@given(questions_anywhere())
def test_a_comparison_decides_as_the_plan(question: Question) -> None:
    plan = planned(question)
    variant = Variant("x", question.machine, question.config, question.mooring, question.devices)
    trial = run_trial(trace_of(question), variant)
    returned = [answer for answer in plan.answers if answer.decision.endless is None]
    assert [(one.pod.uid, one.decision.admitted, one.decision.reason) for one in trial.admissions] == [
        (answer.pod.uid, answer.admitted, answer.decision.reason) for answer in returned
    ]
    assert isinstance(trial.end, PodVerdict) is (len(returned) < len(plan.answers))
    if isinstance(trial.end, SharedKubelet):
        assert trial.end.kubelet.node == plan.kubelet.node
        assert trial.end.kubelet.files == plan.files


@LAW
@given(questions_anywhere())
def test_capacity_decides_about_one_more_pod_as_the_plan(question: Question) -> None:
    assume(PLUGINS not in question.mooring.extensions)
    _, answer = last_answer(question, planned(question))
    capacity = capacity_of(Subject(answer.pod, replace(question, pods=question.pods[:-1])), limit=1)
    assume(capacity.can_be_asked)
    event(f"admitted {answer.admitted}")
    if answer.admitted:
        (replica,) = capacity.replicas
        assert holding(replica.decision) == holding(answer.decision)
    else:
        refused = capacity.document.next
        assert refused is not None
        assert (refused.reason, refused.code) == (answer.decision.reason, answer.code)


@LAW
@given(questions_anywhere())
def test_a_replay_decides_as_the_plan_until_the_node_resources_check_refuses(question: Question) -> None:
    # A replay ends at a crash.
    plan = planned(replace(question, stop_at_crash=True))
    offline = (Offline(question.offline),) if question.offline else ()
    pods = tuple(answer.pod for answer in plan.answers if not answer.running)
    scenario = Scenario(
        id="x",
        machine="m",
        kubelet=question.config,
        mooring=question.mooring,
        files={
            name: text
            for name, text in (
                ("cpu_manager_state", question.files.cpu),
                ("memory_manager_state", question.files.memory),
            )
            if text is not None
        },
        active=question.active,
        devices={
            resource: [{"id": one.id, "numa": one.numa if one.numa is None else list(one.numa)} for one in devices]
            for resource, devices in question.devices.items()
        },
        steps=(*offline, *(Admit(pod) for pod in pods)),
        expect={},
        note="",
        raw={},
    )
    # Pods of the files that do not run are adopted by a plan, and stale for a kubelet that is told of none.
    assume(not opened_for(question)[1])
    told = replay_scenario(scenario, {"m": question.machine.info})
    assume("unsupported" not in told)
    outcome = told["expect"]
    steps = [*outcome["start"].get("readmitted", []), *outcome.get("steps", [])[len(offline) :]]
    for answer, step in zip(plan.answers, steps, strict=False):
        if answer.decision.reason.startswith("OutOf"):
            return
        assert (step["admitted"], step.get("reason", "")) == (answer.admitted, answer.decision.reason)
        if answer.admitted and not question.offline:
            cpus = {name: str(placement.cpus) for name, placement in answer.decision.containers.items()}
            assert {name: one["cpus"] for name, one in step["containers"].items()} == cpus
    assert len(steps) >= len([answer for answer in plan.answers if not answer.never_returns])


@LAW
@given(questions_anywhere())
def test_the_agent_decides_as_the_managers_of_the_plan(question: Question) -> None:
    before, answer = last_answer(question, planned(question))
    assume(not answer.decision.reason.startswith("OutOf"))
    pod = answer.pod
    first = RuntimeContainer("c", "s", pod.containers[0].name)
    made = create_container(AgentState(before), PodSandbox("s", pod.uid, pod.name, pod.namespace), first, pod)
    assume(not isinstance(made.answer, Refused) or not made.answer.text.startswith("EmptySharedPool"))
    event(f"admitted {answer.admitted}")
    assert isinstance(made.answer, Adjusted) is answer.admitted
    if not answer.admitted and answer.decision.rejection is not None:
        assert made.state.held[pod.uid].rejection == answer.decision.rejection
    if answer.admitted:
        after = made.state.kubelet.node.cpu
        assert after.assignments.get(answer.pod.uid) == answer.decided.cpu.assignments.get(answer.pod.uid)


@LAW
@given(questions_anywhere())
def test_the_extender_decides_as_the_plan(question: Question) -> None:
    before, answer = last_answer(question, planned(question))
    before = before.settled()
    assume(not set(opened_for(question)[1]) - {pod.uid for pod in question.pods})
    facts = NodeFacts(question.machine.info, question.config, question.mooring)
    kind = kind_of("facts", facts)
    assert isinstance(kind, NodeKind)
    pods = dict(before.node.active)
    state = NodeState(
        "node",
        "facts",
        before.files,
        before.node.providers.devices,
        tuple(PodKey(pod.namespace, pod.name, pod.uid) for pod in pods.values()),
        offline=before.node.cpu.offline,
        displaced=before.node.cpu.displaced,
    )
    outlook = PossibleNodes().of(NodeKnowledge(kind, state, pods, ()))
    # A kubelet would not start on some states, as with strict-cpu-reservation and an empty shared pool.
    assume(not outlook.trouble)
    found = Decider().answer(outlook, shape_of(answer.pod))
    event(f"admitted {answer.admitted}")
    assert found.admitted is answer.admitted
    assert found.reason == answer.decision.reason
    assert found.code == ("" if answer.admitted else answer.code)


@LAW
@given(questions_anywhere())
def test_events_one_by_one_are_the_plan(question: Question) -> None:
    assume(PLUGINS not in question.mooring.extensions)
    plan = planned(question)
    kubelet, _ = opened_for(question)
    assert isinstance(kubelet, Kubelet)
    offline = (Offline(question.offline),) if question.offline else ()
    events = (*map(Readmit, question.active), *offline, *map(Admit, question.pods))
    answers = iter(plan.answers)
    for one in events:
        kubelet, result = after_event(kubelet, one)
        for admission in result.admissions:
            answer = next(answers)
            assert (admission.pod, admission.admitted) == (answer.pod, answer.admitted)
        if result.is_last:
            break
    assert next(answers, None) is None


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


TOPOLOGY = (Dimension.TOPOLOGY_POLICY, Dimension.TOPOLOGY_SCOPE, Dimension.TOPOLOGY_OPTIONS)


@st.composite
def traces(draw: st.DrawFn) -> tuple[Question, Trace]:
    """Draw a node with pods that come, end and come again, and a kubelet that restarts in between."""
    question = draw(questions_anywhere())
    steps = [*trace_of(question).steps]
    for _ in range(draw(st.integers(0, 3))):
        pod = draw(st.sampled_from([*question.pods, *question.active]))
        changes: list[TraceStep] = [Remove(pod.uid), Restart(), Admit(pod)]
        steps.insert(draw(st.integers(0, len(steps))), draw(st.sampled_from(changes)))
    return question, replace(trace_of(question), steps=tuple(steps), waits=False)


def variants_of(question: Question) -> dict[int, Variant]:
    given_one = Variant("x", question.machine, question.config, question.mooring, question.devices)
    made = option_sets(question.config, TOPOLOGY, len(question.machine.info.topology), question.mooring.release)
    found = {number: replace(given_one, config=config) for number, config in enumerate(made)}
    first = found[0].shared_by
    # Plugins may read any setting: such variants share nothing.
    return {number: one for number, one in found.items() if one.shared_by == first}


def what_is_left(shared: SharedKubelet) -> object:
    """Return the node without the settings, and its files."""
    node = shared.kubelet.node
    return node.providers, node.active, node.started, node.stored_hints, shared.kubelet.files, shared.kubelet.used


def by_variant(trials: list[Trial]) -> dict[int, tuple[object, ...]]:
    return {
        position: (
            [(one.pod.uid, one.running, one.crashes, one.exclusive, one.memory) for one in trial.admissions],
            what_is_left(trial.end) if isinstance(trial.end, SharedKubelet) else trial.end,
        )
        for trial in trials
        for position in trial.variants
    }


@LAW
@given(traces())
def test_variants_that_share_a_trial_do_what_each_does_alone(asked: tuple[Question, Trace]) -> None:
    question, trace = asked
    variants = variants_of(question)
    alone = [run_trials(trace, {number: one}) for number, one in variants.items()]
    assert by_variant(list(run_trials(trace, variants))) == by_variant([trial for one in alone for trial in one])


@LAW
@given(traces())
def test_variants_that_share_a_trial_have_the_outcome_that_each_has_alone(asked: tuple[Question, Trace]) -> None:
    question, trace = asked
    variants, filling = variants_of(question), shapes(trace)
    alone = [judge(trace, {number: one}, filling) for number, one in variants.items()]
    assert judge(trace, variants, filling) == {number: found for one in alone for number, found in one.items()}


@LAW
@given(questions_anywhere())
def test_a_new_pod_with_one_container_gets_the_same_hints_in_both_scopes(question: Question) -> None:
    def hints(pod: Pod, scope: str) -> object:
        config = replace(question.config, topology_manager_policy="best-effort", topology_manager_scope=scope)
        start, _ = opened_for(replace(question, config=config))
        if not isinstance(start, Kubelet) or not is_alike_in_both_scopes(pod, start.node.providers):
            return None
        _, decision = start.decide(pod)
        # A pod whose devices the kubelet beside the agent refuses is asked about no further.
        given_ones = decision.pod_hints if scope == "pod" else (decision.hints or {}).get(pod.containers[0].name)
        return given_ones, decision.affinity, decision.containers, decision.reason, decision.message

    for pod in question.pods:
        assert hints(pod, "pod") == hints(pod, "container")
