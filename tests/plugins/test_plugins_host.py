"""The host and its pipeline: who is asked about what, each step, and what the host holds plugins to."""

from __future__ import annotations

from dataclasses import replace

import pytest
from tests.node.nodes import config, machine, settings_of
from tests.plugins.made_plugins import POD, answering, choice, cpus, free, host_on, plugin, raising, wanted

from mooring.engine.core.bits import CPUMask, NUMAMask
from mooring.engine.core.config import ChosenPlugin, MooringConfig, PluginPlacement
from mooring.engine.core.cpuset import CPUSet
from mooring.engine.core.decision import AllocationError
from mooring.engine.core.machineinfo import CPUFacts, CPUKind
from mooring.engine.core.pod import Pod
from mooring.engine.cpumanager.options import TakeRules
from mooring.engine.cpumanager.policy import CPUsChosen, CPUsWanted
from mooring.engine.cpumanager.state import CPUState
from mooring.engine.extensions.owners import with_hidden
from mooring.engine.plugins import (
    AffinityRequest,
    CPURequest,
    Holder,
    PodView,
    Room,
    Selected,
    Withheld,
    kubelet_choice,
)
from mooring.engine.plugins.facts import PluginFailed, PluginFiltered, PluginMadeRoom, PluginsChose, PluginScored
from mooring.engine.topologymanager.hints import Hint

ALL = "0-11"
WHOLE = TakeRules(whole_cores=True)


def run(
    *plugins: ChosenPlugin, need: int = 2, pool: str = ALL, near: str = "", rules: TakeRules | None = None, **how: bool
) -> tuple[CPUsChosen | AllocationError | None, list[object]]:
    """Return what the plugins come to, and what was told."""
    facts: list[object] = []
    host = replace(host_on(*plugins, rules=rules), **how)  # type: ignore[arg-type]  # keeps_hints
    return host.chosen(free(pool), wanted(need, pool, near), facts.append), facts


def taken(answer: object) -> str:
    assert isinstance(answer, CPUsChosen), answer
    return str(CPUSet(answer.cpus))


def whys(facts: list[object]) -> list[str]:
    return [fact.why for fact in facts if isinstance(fact, PluginFailed)]


def test_without_an_opinion_the_kubelets_rules_choose() -> None:
    quiet = plugin("quiet", filter_cpus=answering(None), pre_score=answering(None), select_cpus=answering(None))
    assert run(quiet) == (None, [])
    assert run(plugin("waits", sort_pods=answering(["uid"]))) == (None, [])


def test_what_a_filter_withholds_is_not_given() -> None:
    answer, facts = run(plugin("no-low", filter_cpus=answering(Withheld(cpus("0-3,6-9"), "kept"))))
    assert taken(answer) == "4,10"
    assert facts[0] == PluginFiltered("uid", "app", "no-low", cpus("0-3,6-9").mask, "kept")


def test_later_filters_see_what_earlier_ones_left_and_say_only_what_is_new() -> None:
    seen: list[CPUSet] = []

    def second(request: CPURequest) -> CPUSet:
        seen.append(request.available)
        return cpus("0-1,300")

    answer, facts = run(plugin("a", filter_cpus=answering(cpus("0"))), plugin("b", filter_cpus=second))
    assert seen == [cpus("1-11")]
    assert [fact.cpus for fact in facts if isinstance(fact, PluginFiltered)] == [0b1, 0b10]
    assert isinstance(answer, CPUsChosen)


def test_too_few_left_is_a_refusal_in_the_kubelets_words() -> None:
    answer, _ = run(plugin("greedy", filter_cpus=answering(cpus("1-11"))))
    assert answer == AllocationError("not enough cpus available to satisfy request: requested=2, available=1")


def test_room_is_made_only_of_what_was_withheld_and_only_until_it_is_enough() -> None:
    late: list[object] = []
    answer, facts = run(
        plugin("strict", filter_cpus=answering(cpus("0-11"))),
        plugin("kind", post_filter=answering(Room(cpus("3,9,500"), "enough"))),
        plugin("kinder", post_filter=lambda **asked: late.append(asked)),
    )
    assert taken(answer) == "3,9"
    assert PluginMadeRoom("uid", "app", "kind", cpus("3,9").mask, "enough") in facts
    run(plugin("x", filter_cpus=answering(cpus("0")), post_filter=lambda **asked: late.append(asked)))
    assert late == []


def test_best_scores_are_taken_first_and_the_kubelets_rules_choose_among_equal_ones() -> None:
    scores = dict.fromkeys([2, 8, 3, 9], 1.0) | {5: 2.0, 900: 99.0}
    answer, facts = run(plugin("scorer", pre_score=answering(scores)), need=3)
    assert taken(answer) == "3,5,9"
    assert facts[0] == PluginScored("uid", "app", "scorer", {2.0: cpus("5").mask, 1.0: cpus("2-3,8-9").mask})


def test_scores_count_with_their_weights() -> None:
    one = plugin("one", pre_score=answering({4: 1.0, 10: 1.0}), weight=3)
    two = plugin("two", pre_score=answering({5: 2.0, 11: 2.0}))
    assert taken(run(one, two)[0]) == "4,10"


def test_the_hint_comes_before_scores() -> None:
    answer, _ = run(plugin("odd", pre_score=answering({1: 9.0, 7: 9.0})), near="0,2,4,6,8,10")
    assert taken(answer) == "0,6"


def test_a_selection_counts_and_sees_the_sums_of_scores() -> None:
    seen: list[object] = []

    def select(scores: object, **_asked: object) -> CPUSet:
        seen.append(dict(scores))  # type: ignore[call-overload]  # a mapping
        return cpus("1,4")

    score = plugin("score", pre_score=answering({1: 1.5}), weight=2)
    answer, facts = run(score, plugin("select", select_cpus=select))
    assert (taken(answer), seen) == ("1,4", [{1: 3.0}])
    chose = facts[-1]
    assert isinstance(chose, PluginsChose)
    assert chose.chosen.plugin == "select"


@pytest.mark.parametrize(
    ("answer", "why"),
    [
        (cpus("1"), "it selected 1 CPUs where 2 are wanted"),
        (cpus("1-3"), "it selected 3 CPUs where 2 are wanted"),
        (cpus("1,12"), "it selected the CPUs 12, which may not be given"),
        (cpus("1,11"), "it selected the CPUs 11, which may not be given"),
        (Selected(cpus("1-2"), cpus("2,7")), "it hides the CPUs 2,7, of which some are given or not free"),
        (Selected(cpus("1-2"), cpus("7,11")), "it hides the CPUs 7,11, of which some are given or not free"),
        (Selected(cpus("1-2"), cpus("7,10")), "it hides the CPUs 7,10, of which some are on other cores"),
        ({1, 2}, "it answered with a set where a CPUSet belongs"),
    ],
)
def test_a_selection_that_breaks_a_promise_is_left_out(answer: object, why: str) -> None:
    found, facts = run(plugin("bad", select_cpus=answering(answer)), pool="0-10")
    assert found is None
    assert whys(facts) == [why]


def test_parts_of_cores_are_left_out_where_whole_cores_are_promised() -> None:
    found, facts = run(plugin("bad", select_cpus=answering(cpus("1-2"))), rules=WHOLE)
    assert (found, whys(facts)) == (None, ["it selected the CPUs 1-2, which are no whole cores (full-pcpus-only)"])
    found, facts = run(plugin("good", select_cpus=answering(Selected(cpus("1-2"), cpus("7-8")))), rules=WHOLE)
    assert (found, whys(facts)) == (CPUsChosen(cpus("1-2").mask, cpus("7-8").mask), [])


def test_only_containers_can_hide_threads() -> None:
    host = host_on(plugin("hides", select_cpus=answering(Selected(cpus("1"), cpus("7")))))
    facts: list[object] = []
    found = host.chosen(free(ALL), wanted(1, ALL, container=""), facts.append)
    assert (found, whys(facts)) == (None, ["it hides CPUs of a request for pod, where only containers can"])


def test_what_the_topology_manager_promised_is_kept() -> None:
    far = plugin("far", select_cpus=answering(cpus("1,7")))
    assert taken(run(far, near="0,2,4,6,8,10")[0]) == "1,7"
    found, facts = run(far, near="0,2,4,6,8,10", keeps_hints=True)
    assert (found, whys(facts)) == (None, ["it selected the CPUs 1,7, which may not be given"])
    # A filter that takes back what hints were made of refuses the pod rather than to break the promise.
    lies = plugin("lies", filter_cpus=answering(cpus("0,2,4,6,8")))
    assert isinstance(run(lies, near="0,2,4,6,8,10", keeps_hints=True)[0], AllocationError)
    # Where the hint has not enough itself, the kubelet takes the rest from anywhere, and so may plugins.
    assert taken(run(far, near="0", keeps_hints=True)[0]) == "1,7"


def test_judges_choose_among_proposals_of_plugins_and_of_the_host() -> None:
    judge = plugin("judge", score_set=lambda candidate, **_asked: float(candidate == cpus("3,9")))
    other = plugin("other", select_cpus=answering(cpus("3,9")))
    answer, facts = run(judge, plugin("first", select_cpus=answering(cpus("1,7"))), other)
    assert taken(answer) == "3,9"
    chose = facts[-1]
    assert isinstance(chose, PluginsChose)
    assert [one.plugin for one in chose.candidates[:2]] == ["first", "other"]
    assert "" in {one.plugin for one in chose.candidates}
    assert chose.chosen.scores == {"judge": 1.0}


def test_a_judge_that_fails_half_way_has_judged_nobody() -> None:
    def judge(candidate: CPUSet, **_asked: object) -> float:
        if candidate == cpus("1,7"):
            return 100.0
        raise ValueError

    first, second = (plugin(name, select_cpus=answering(cpus(set_))) for name, set_ in (("a", "0,6"), ("b", "1,7")))
    backwards = plugin("judge", score_set=judge)
    answer, facts = run(second, first, backwards)
    assert whys(facts) == ["it raised ValueError: "]
    assert taken(answer) == "1,7"
    chose = facts[-1]
    assert isinstance(chose, PluginsChose)
    assert all(one.scores is None for one in chose.candidates)


def test_a_plugin_that_failed_is_not_asked_again_about_the_same() -> None:
    bad = plugin("bad", filter_cpus=raising(OSError("disk")), pre_score=answering({5: 1.0}))
    assert run(bad) == (None, [PluginFailed("uid", "app", "bad", "filter_cpus", "it raised OSError: disk")])


def test_plugins_see_values_and_nothing_of_the_engine() -> None:
    seen: list[CPURequest] = []

    def look(request: CPURequest) -> None:
        seen.append(request)
        for mapping in (request.machine.numa, request.machine.cores, request.machine.topology.places):
            with pytest.raises(TypeError):
                mapping[0] = CPUSet()  # type: ignore[index]  # that is the point
        assert request.pod is not None
        with pytest.raises(TypeError):
            request.pod.annotations["team"] = "red"  # type: ignore[index]  # that is the point
        with pytest.raises(AttributeError):
            request.need = 0  # type: ignore[misc]  # that is the point

    answer, facts = run(plugin("looks", filter_cpus=look))
    assert (answer, facts) == (None, [])
    (request,) = seen
    assert (request.purpose, request.container, request.need) == ("container", "app", 2)
    assert request.pod == PodView("uid", POD.namespace, "pod", POD.qos.value, {"team": "blue"}, 7)
    assert request.machine.whole_cores(cpus("0-2,6,7")) == cpus("0-1,6-7")


def test_the_kubelets_rules_are_there_for_plugins() -> None:
    def select(request: CPURequest, **_asked: object) -> CPUSet | None:
        return kubelet_choice(request, cpus("2-5,8-11"))

    assert taken(run(plugin("p", select_cpus=select))[0]) == "2,8"


def test_the_systems_cpus_are_chosen_without_a_pod() -> None:
    pods: list[object] = []

    def last(request: CPURequest, **_asked: object) -> CPUSet:
        pods.append(request.pod)
        return cpus("5,11")

    host = host_on(plugin("last", select_cpus=last))
    found = host.chosen(free(ALL), CPUsWanted(2, cpus(ALL).mask), None)
    assert (found, pods) == (CPUsChosen(cpus("5,11").mask), [None])


def test_each_placement_has_its_own_plugins() -> None:
    inside = plugin("inside", select_cpus=answering(cpus("0,2")))
    hints = plugin("hints", select_cpus=answering(cpus("1,3")), placement=PluginPlacement.HINT_PROVIDER)
    host = host_on(inside, hints)
    assert taken(host.chosen(free(ALL), wanted(2, ALL), None)) == "0,2"
    assert host.hinted(free(ALL), wanted(2, ALL), None) == 0b10
    assert host.names(PluginPlacement.HINT_PROVIDER) == ("hints",)
    assert host_on(inside).hinted(free(ALL), wanted(2, ALL), None) is None


FIRST, SECOND, THIRD = (Pod(uid, uid) for uid in ("u1", "u2", "u3"))


def test_hints_count_all_that_is_free_or_what_filters_leave() -> None:
    host = host_on(plugin("scores", pre_score=raising(ValueError())))
    assert host.usable(free(ALL), wanted(2, "3-11"), None) == cpus("3-11").mask
    host = host_on(plugin("filters", filter_cpus=answering(cpus("0-5,700"))))
    assert host.usable(free(ALL), wanted(2, "3-11"), None) == cpus("6-11").mask


def test_holders_are_reported_with_their_pods() -> None:
    seen: list[tuple[Holder, ...]] = []
    host = host_on(plugin("looks", pre_score=lambda request: seen.append(request.holders())))
    state = with_hidden(
        CPUState("static", cpus("2-11").mask, {"uid": {"app": CPUMask(1)}, "gone": {"x": CPUMask(2)}}),
        "uid",
        "app",
        CPUMask(64),
    )
    host.among({"uid": POD}).chosen(state, wanted(1, "2-5"), None)
    view = PodView("uid", POD.namespace, "pod", POD.qos.value, {"team": "blue"}, 7)
    assert [(one.uid, one.container, str(one.cpus), one.pod) for one in seen[0]] == [
        ("uid", "app", "0", view),
        ("gone", "x", "1", None),
        ("hidden:uid", "app", "6", None),
    ]


def test_the_reserved_cpus_are_known_once_they_are_chosen() -> None:
    seen: list[CPUSet] = []
    host = host_on(plugin("looks", pre_score=lambda request: seen.append(request.machine.reserved)))
    for one in (host, host.reserving(CPUMask(0b11))):
        one.chosen(free(ALL), wanted(1, ALL), None)
    assert seen == [CPUSet(), cpus("0-1")]


# sort_pods


def test_waiting_pods_keep_their_order_without_an_opinion() -> None:
    pods = [SECOND, FIRST]
    assert host_on(plugin("x", score_set=answering(1))).ordered(pods) == pods
    assert host_on(plugin("x", sort_pods=answering(None))).ordered(pods) == pods


def test_each_sorter_sees_the_order_of_the_one_before() -> None:
    def backwards(pods: tuple[PodView, ...]) -> tuple[str, ...]:
        return tuple(pod.uid for pod in reversed(pods))

    seen: list[list[str]] = []

    def look(pods: tuple[PodView, ...]) -> None:
        seen.append([pod.uid for pod in pods])

    host = host_on(plugin("a", sort_pods=backwards), plugin("b", sort_pods=look))
    assert host.ordered([FIRST, SECOND, THIRD]) == [THIRD, SECOND, FIRST]
    assert seen == [["u3", "u2", "u1"]]


@pytest.mark.parametrize("answer", [["u1"], ["u1", "u1"], ["u1", "u2", "u2"], ["u1", "u4"], ["u2", "u1", "u3"]])
def test_an_order_that_loses_or_makes_up_pods_is_left_out(answer: list[str]) -> None:
    facts: list[object] = []
    host = host_on(plugin("bad", sort_pods=answering(answer)))
    assert host.ordered([FIRST, SECOND], facts.append) == [FIRST, SECOND]
    assert facts == [PluginFailed("", "", "bad", "sort_pods", "it left pods out, repeated some or added others")]


def test_pods_that_cannot_be_told_apart_keep_their_order() -> None:
    twin = replace(FIRST, name="twin")
    host = host_on(plugin("x", sort_pods=lambda pods: [pod.uid for pod in reversed(pods)]))
    assert host.ordered([FIRST, twin, SECOND]) == [FIRST, twin, SECOND]


# choose_affinity


def test_who_lets_cpus_come_first_gets_their_nodes() -> None:
    seen: list[AffinityRequest] = []

    def first(request: AffinityRequest) -> frozenset[int] | None:
        seen.append(request)
        return request.of_cpus.nodes

    merged, alone = Hint(NUMAMask(0b11), preferred=False), Hint(NUMAMask(1 << 63), preferred=True)
    host = host_on(plugin("quiet", choose_affinity=answering(None)), plugin("first", choose_affinity=first))
    assert host.affinity(POD, "app", "best-effort", merged, alone, None) == ("first", alone)
    assert (seen[0].merged.nodes, seen[0].of_cpus.nodes) == (frozenset({0, 1}), frozenset({63}))


def test_nodes_that_are_not_those_of_the_cpus_are_left_out() -> None:
    facts: list[object] = []
    merged, alone = Hint(NUMAMask(0b11), preferred=False), Hint(NUMAMask(0b1), preferred=True)
    host = host_on(plugin("bad", choose_affinity=answering(frozenset({1}))))
    assert host.affinity(POD, "app", "best-effort", merged, alone, facts.append) is None
    why = "it chose the NUMA nodes [1], which are not those of the CPU manager"
    assert facts == [PluginFailed("uid", "app", "bad", "choose_affinity", why)]


# A node's host.


def test_kinds_and_isolated_cpus_of_the_machine_are_reported() -> None:
    seen: list[CPURequest] = []
    kinds = (CPUKind(10, cpus("0-3")), CPUKind(5, cpus("4-7")))
    info = replace(machine(1, 4), facts=CPUFacts(kinds, cpus("6")))

    def look(request: CPURequest) -> None:
        seen.append(request)

    kubelet = replace(config(), reserved_system_cpus="", kube_reserved={"cpu": "1"})
    found = settings_of(kubelet, info, MooringConfig(plugins=choice(plugin("looks", filter_cpus=look))))
    assert found.plugins is not None
    assert found.cpu is not None
    assert found.cpu.chooser is found.plugins
    machine_view = seen[0].machine
    assert (seen[0].purpose, dict(machine_view.kinds), machine_view.isolated) == (
        "reserved",
        {10: cpus("0-3"), 5: cpus("4-7")},
        cpus("6"),
    )


def test_promised_nodes_that_hidden_threads_have_emptied_refuse_the_rest_of_the_pod() -> None:
    host = replace(host_on(plugin("x", score_set=answering(None))), keeps_hints=True)
    state = with_hidden(
        CPUState("static", cpus("1-11").mask, {"uid": {"first": CPUMask(1)}}), "uid", "first", CPUMask(64)
    )
    text = "not enough cpus available to satisfy request: requested=3, available=0"
    rest = replace(wanted(3, "1,3,5"), affinity=NUMAMask(0b1))
    assert host.chosen(state, rest, None) == AllocationError(text)
    assert isinstance(host.chosen(state, replace(rest, affinity=None), None), CPUsChosen | None)
