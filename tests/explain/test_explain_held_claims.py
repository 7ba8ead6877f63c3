"""Claims of dynamic resource allocation in a story: those in the way of a refused pod, and those of the pod."""

from __future__ import annotations

from dataclasses import replace
from functools import reduce

from hypothesis import given
from hypothesis import strategies as st
from msgspec import to_builtins
from tests.planner.doctor_nodes import CONFIG, MACHINE

from mooring.answers.base.plan import Question, make_plan
from mooring.answers.base.pods import explain
from mooring.answers.explain.document import explanation_document
from mooring.engine.checkpoint.cpu_file import cpu_state_text
from mooring.engine.core.bits import CPUMask
from mooring.engine.core.config import CPU_HOTPLUG, KubeletConfig, MooringConfig
from mooring.engine.core.cpuset import CPUSet
from mooring.engine.core.machine import Machine
from mooring.engine.core.pod import Container, Pod, QoS
from mooring.engine.core.quantity import Quantity
from mooring.engine.cpumanager.state import CPUState
from mooring.engine.extensions.owners import claim_key, entry_of
from mooring.engine.kubelet.kubelet import Kubelet, StateTexts
from mooring.engine.kubelet.start import start_kubelet
from mooring.explanations.lines import story_lines
from mooring.explanations.story import Story, walk

NODE: KubeletConfig = replace(CONFIG, memory_manager_policy="None", reserved_memory=())
"""CPU 0 is reserved; 1 to 3 can be had."""


def pod(cpus: int, *, claims: tuple[str, ...] = (), uid: str = "asked") -> Pod:
    amounts = {"cpu": Quantity.parse(str(cpus)), "memory": Quantity.parse("64Mi")}
    app = Container("app", requests=amounts, limits=amounts)
    return Pod(uid, uid, "shop", (app,), QoS.GUARANTEED, claims=claims)


def claims_state(**held: int) -> CPUState:
    """Return a state in which claims, by name, hold CPUs."""
    taken = reduce(int.__or__, held.values(), 0)
    entries = {
        claim_key(f"uid-{name}"): {entry_of("shop", name, "numa0", "fast"): CPUMask(cpus)}
        for name, cpus in held.items()
    }
    return CPUState("static", CPUMask(0b1111 & ~taken), entries)


def story(state: CPUState, asked: Pod, *, config: KubeletConfig = NODE, before: tuple[Pod, ...] = ()) -> Story:
    files = StateTexts(cpu_state_text(state, pod_level=False, baselines=False))
    plan = make_plan(Question(Machine("small", MACHINE), config, pods=(*before, asked), files=files))
    return explain(plan, asked)


def told(found: Story) -> list[str]:
    return [line.text for line in walk(story_lines(found, None))]


def test_a_plan_names_claims_of_which_nothing_tells_what_they_get() -> None:
    files = StateTexts(cpu_state_text(claims_state(known=0b0010), pod_level=False, baselines=False))
    pods = pod(0, claims=("known",), uid="one"), pod(0, claims=("known", "other"), uid="two"), pod(9, claims=("no",))
    more = (
        replace(pod(0, claims=("a",), uid="three"), unmade_claims=("made",)),
        *(pod(0, claims=(uid,), uid=uid) for uid in ("gpu.example", "cpu.mooring.dev")),
    )
    claimed = {one.uid: {"app": {one.uid: frozenset({"n/d"})}} for one in more[1:]}
    question = Question(Machine("small", MACHINE), NODE, pods=(*pods, *more), files=files, claimed=claimed)
    found = [one for one in make_plan(question).findings if one.code == "MOOR-549"]
    assert [(one.subject, one.message.partition(":")[0]) for one in found] == [
        ("shop/two", "claims other"),
        ("shop/three", "claims a, made"),
        ("shop/cpu.mooring.dev", "claims cpu.mooring.dev"),
    ]


def test_a_refused_pod_is_told_the_claims_without_which_it_would_be_admitted() -> None:
    found = story(claims_state(one=0b0010, two=0b0100), pod(3))
    assert found.verdict == "rejected"
    assert [claim.name for claim in found.claims.in_the_way] == ["one", "two"]
    lines = told(found)
    assert "2 claims hold CPUs that the pod needs: it would be admitted without them" in lines
    assert "claim shop/one holds CPUs 1" in lines


def test_only_as_many_claims_are_in_the_way_as_have_to_go() -> None:
    found = story(claims_state(one=0b0010, two=0b1100), pod(2))
    assert [claim.name for claim in found.claims.in_the_way] == ["two"]
    assert "1 claim holds CPUs that the pod needs: it would be admitted without that claim" in told(found)


def test_claims_are_not_blamed_for_a_pod_that_would_never_fit() -> None:
    found = story(claims_state(one=0b0010), pod(4))
    assert found.verdict == "rejected"
    assert found.claims.in_the_way == ()
    assert not any("needs" in line for line in told(found))
    assert "claims hold 1 CPU of the node" in told(found)


def test_claims_are_not_blamed_for_what_other_pods_took_when_their_own_cpus_do_not_suffice() -> None:
    found = story(claims_state(one=0b0010), pod(2), before=(pod(2, uid="first"),))
    assert found.verdict == "rejected"
    assert found.claims.in_the_way == ()


def test_a_pod_is_told_what_it_has_by_its_claims_and_which_hold_nothing_here() -> None:
    found = story(claims_state(one=0b0110), pod(1, claims=("one", "gpu")))
    assert found.admitted
    lines = told(found)
    assert "its claim shop/one holds CPUs 1-2" in lines
    assert "request fast: CPUs 1-2 of numa0" in lines
    assert "no CPUs of this node are held for shop/gpu, which the pod names as claims" in lines
    document = to_builtins(explanation_document(found, "small", None))
    assert document["claims"] == {
        "own": [{"uid": "uid-one", "namespace": "shop", "name": "one", "cpus": "1-2"}],
        "inTheWay": [],
    }


def test_a_claim_of_the_same_name_in_another_namespace_is_not_the_pods() -> None:
    asked = replace(pod(1, claims=("one",)), namespace="other")
    found = story(claims_state(one=0b0110), asked)
    assert (found.claims.own, found.claims.nowhere) == ((), ("one",))


def test_cpus_that_are_offline_stay_so_while_claims_are_thought_away() -> None:
    files = StateTexts(cpu_state_text(claims_state(one=0b0010), pod_level=False, baselines=False))
    mooring = MooringConfig(extensions=frozenset({CPU_HOTPLUG}), replace_offline="never")
    question = Question(Machine("small", MACHINE), NODE, mooring, pods=(pod(2),), files=files, offline=CPUSet.of(3))
    assert [claim.name for claim in explain(make_plan(question), pod(2)).claims.in_the_way] == ["one"]


@given(st.lists(st.integers(0, 3), min_size=4, max_size=4), st.integers(1, 3))
def test_without_the_claims_in_the_way_the_pod_is_admitted_and_with_any_of_them_it_is_not(
    owners: list[int], need: int
) -> None:
    held: dict[str, int] = {}
    for cpu, owner in enumerate(owners):
        if owner and cpu:
            held[f"c{owner}"] = held.get(f"c{owner}", 0) | 1 << cpu
    state = claims_state(**held)
    found = story(state, pod(need))
    start = start_kubelet(MACHINE, NODE, Question(Machine("small", MACHINE), NODE).mooring, StateTexts(_text(state)))
    assert isinstance(start, Kubelet)
    free = start
    for claim in found.claims.in_the_way:
        free = free.release(claim.uid)
    if found.claims.in_the_way:
        assert not found.admitted
        assert free.decide(pod(need))[1].admitted
        for spared in found.claims.in_the_way:
            rest = start
            for claim in found.claims.in_the_way:
                rest = rest if claim is spared else rest.release(claim.uid)
            assert not rest.decide(pod(need))[1].admitted
    elif not found.admitted:
        for name in held:
            free = free.release(f"uid-{name}")
        assert not free.decide(pod(need))[1].admitted


def _text(state: CPUState) -> str:
    return cpu_state_text(state, pod_level=False, baselines=False)
