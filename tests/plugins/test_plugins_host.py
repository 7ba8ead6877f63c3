"""The host: who is asked about what, and what counts of the answers."""

from __future__ import annotations

from dataclasses import replace

import pytest
from tests.node.nodes import config, machine
from tests.plugins.made_plugins import POD, answering, choice, cpus, free, host_on, plugin, raising, wanted

from mooring.engine.core.bits import CPUMask, NUMAMask
from mooring.engine.core.config import MooringConfig
from mooring.engine.core.cpuset import CPUSet
from mooring.engine.core.machineinfo import CoreKind, CPUFacts
from mooring.engine.core.pod import Pod
from mooring.engine.cpumanager.options import TakeError
from mooring.engine.cpumanager.policy import CPUsChosen
from mooring.engine.cpumanager.state import CPUState
from mooring.engine.extensions.owners import with_hidden
from mooring.engine.node.settings import Settings, build_settings
from mooring.engine.plugins import AffinityRequest, CPURequest, Holder, PodView
from mooring.engine.plugins.facts import PluginFailed
from mooring.engine.topologymanager.hints import Hint

ALL = "0-11"
FIRST, SECOND, THIRD = (Pod(uid, uid) for uid in ("u1", "u2", "u3"))


def test_without_filters_all_that_is_free_is_usable() -> None:
    host = host_on("2S12", plugin("scores", pre_score=raising(ValueError())))
    assert host.usable(free(ALL), wanted(2, "3-11"), None) == cpus("3-11").mask


def test_hints_count_what_filters_leave() -> None:
    host = host_on("2S12", plugin("filters", filter_cpus=answering(cpus("0-5,700"))))
    assert host.usable(free(ALL), wanted(2, "3-11"), None) == cpus("6-11").mask


def test_holders_are_reported_with_their_pods() -> None:
    seen: list[tuple[Holder, ...]] = []
    host = host_on("2S12", plugin("looks", pre_score=lambda request: seen.append(request.holders())))
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
    host = host_on("2S12", plugin("looks", pre_score=lambda request: seen.append(request.machine.reserved)))
    for one in (host, host.reserving(CPUMask(0b11))):
        one.chosen(free(ALL), wanted(1, ALL), None)
    assert seen == [CPUSet(), cpus("0-1")]


# sort_pods


def test_waiting_pods_keep_their_order_without_an_opinion() -> None:
    pods = [SECOND, FIRST]
    assert host_on("2S12", plugin("x", score_set=answering(1))).ordered(pods) == pods
    assert host_on("2S12", plugin("x", sort_pods=answering(None))).ordered(pods) == pods


def test_each_sorter_sees_the_order_of_the_one_before() -> None:
    def backwards(pods: tuple[PodView, ...]) -> list[str]:
        return [pod.uid for pod in reversed(pods)]

    seen: list[list[str]] = []

    def look(pods: tuple[PodView, ...]) -> None:
        seen.append([pod.uid for pod in pods])

    host = host_on("2S12", plugin("a", sort_pods=backwards), plugin("b", sort_pods=look))
    assert host.ordered([FIRST, SECOND, THIRD]) == [THIRD, SECOND, FIRST]
    assert seen == [["u3", "u2", "u1"]]


@pytest.mark.parametrize("answer", [["u1"], ["u1", "u1"], ["u1", "u2", "u2"], ["u1", "u4"], ["u2", "u1", "u3"]])
def test_an_order_that_loses_or_makes_up_pods_is_left_out(answer: list[str]) -> None:
    facts: list[object] = []
    host = host_on("2S12", plugin("bad", sort_pods=answering(answer)))
    assert host.ordered([FIRST, SECOND], facts.append) == [FIRST, SECOND]
    assert facts == [PluginFailed("", "", "bad", "sort_pods", "it left pods out, repeated some or added others")]


def test_pods_that_cannot_be_told_apart_keep_their_order() -> None:
    twin = replace(FIRST, name="twin")
    host = host_on("2S12", plugin("x", sort_pods=lambda pods: [pod.uid for pod in reversed(pods)]))
    assert host.ordered([FIRST, twin, SECOND]) == [FIRST, twin, SECOND]


# choose_affinity


def test_who_lets_cpus_come_first_gets_their_nodes() -> None:
    seen: list[AffinityRequest] = []

    def first(request: AffinityRequest) -> frozenset[int] | None:
        seen.append(request)
        return request.of_cpus.nodes

    merged, alone = Hint(NUMAMask(0b11), preferred=False), Hint(NUMAMask(0b1), preferred=True)
    host = host_on("2S12", plugin("quiet", choose_affinity=answering(None)), plugin("first", choose_affinity=first))
    assert host.affinity(POD, "app", "best-effort", merged, alone, None) == ("first", alone)
    assert (seen[0].merged.nodes, seen[0].of_cpus.nodes) == (frozenset({0, 1}), frozenset({0}))


def test_nodes_that_are_not_those_of_the_cpus_are_left_out() -> None:
    facts: list[object] = []
    merged, alone = Hint(NUMAMask(0b11), preferred=False), Hint(NUMAMask(0b1), preferred=True)
    host = host_on("2S12", plugin("bad", choose_affinity=answering(frozenset({1}))))
    assert host.affinity(POD, "app", "best-effort", merged, alone, facts.append) is None
    why = "it chose the NUMA nodes [1], which are not those of the CPU manager"
    assert facts == [PluginFailed("uid", "app", "bad", "choose_affinity", why)]


# A node's host.


def test_kinds_and_isolated_cpus_of_the_machine_are_reported() -> None:
    seen: list[CPURequest] = []
    kinds = (CoreKind(10, cpus("0-3")), CoreKind(5, cpus("4-7")))
    info = replace(machine(1, 4), facts=CPUFacts(kinds, cpus("6")))

    def look(request: CPURequest) -> None:
        seen.append(request)

    plugins = choice(plugin("looks", filter_cpus=look))
    found = build_settings(
        replace(config(), cpu_manager_policy="static", reserved_system_cpus="", kube_reserved={"cpu": "1"}),
        MooringConfig(plugins=plugins),
        info,
    )
    assert isinstance(found, Settings)
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
    host = replace(host_on("2S12", plugin("x", score_set=answering(None))), keeps_hints=True)
    state = with_hidden(
        CPUState("static", cpus("1-11").mask, {"uid": {"first": CPUMask(1)}}), "uid", "first", CPUMask(64)
    )
    text = "not enough cpus available to satisfy request: requested=3, available=0"
    rest = replace(wanted(3, "1,3,5"), affinity=NUMAMask(0b1))
    assert host.chosen(state, rest, None) == TakeError(text)
    assert isinstance(host.chosen(state, replace(rest, affinity=None), None), CPUsChosen | None)
