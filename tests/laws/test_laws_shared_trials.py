"""Variants that share a trial decide, hold and write what each of them does alone."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st
from tests.laws.questions_anywhere import LAW, questions_anywhere

from mooring.answers.base.plan import Question, opened_for
from mooring.answers.base.trace import Trace, TraceStep, shapes, trace_of
from mooring.answers.compare.measures import judge
from mooring.answers.compare.trial import SharedKubelet, Trial, is_alike_in_both_scopes, run_trials
from mooring.answers.compare.variant import Dimension, Variant, option_sets
from mooring.engine.core.pod import Pod
from mooring.engine.kubelet.events import Admit, Remove, Restart
from mooring.engine.kubelet.kubelet import Kubelet

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
        start = opened_for(replace(question, config=config)).start
        if not isinstance(start, Kubelet) or not is_alike_in_both_scopes(pod, start.node.providers):
            return None
        _, decision = start.decide(pod)
        # A pod whose devices the kubelet beside the agent refuses is asked about no further.
        given_ones = decision.pod_hints if scope == "pod" else (decision.hints or {}).get(pod.containers[0].name)
        return given_ones, decision.affinity, decision.containers, decision.reason, decision.message

    for pod in question.pods:
        assert hints(pod, "pod") == hints(pod, "container")
