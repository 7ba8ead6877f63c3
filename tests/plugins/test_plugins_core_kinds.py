"""The plugins core-kinds and isolated-cpus: CPUs of the right kind, the right number, nothing twice."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.plugins.plugged_nodes import (
    LAKEFIELD,
    STATIC,
    WHOLE,
    breaks,
    cpus_of,
    machine_named,
    named,
    node_on,
    pod,
    reserved_of,
    with_facts,
)

from mooring.engine.core.config import KubeletConfig
from mooring.engine.core.cpuset import CPUSet
from mooring.engine.core.errors import InputError
from mooring.engine.core.machine import Machine
from mooring.engine.core.pod import Pod
from mooring.engine.kubelet.kubelet import Kubelet
from mooring.engine.plugins.facts import PluginFailed, PluginFiltered
from mooring.inputs.configuration.mooring_config import plugin_choice

HYBRID = ("i7-1370p", LAKEFIELD, "20em64t-hybrid-1p6c2t+2ca4co1t", "synth-arrowlake225u", "nvidia-dgx-gb10")
UNEVEN = (*HYBRID, "fakeheterocpunuma", "64intel64-fakeKNL-SNC4-hybrid")
SPREAD = replace(STATIC, cpu_manager_policy_options={"distribute-cpus-across-numa": "true"})
CONFIGS = {"packed": STATIC, "whole": WHOLE, "distributed": SPREAD}


def kinds_of(kubelet: Kubelet) -> tuple[CPUSet, CPUSet]:
    """Return performance and efficiency cores as the machine's facts have them."""
    found = sorted(kubelet.info.facts.kinds, key=lambda kind: kind.efficiency)
    return found[-1].cpus, found[0].cpus


@pytest.mark.parametrize("machine", HYBRID)
def test_a_pod_gets_cores_of_its_kind(machine: str) -> None:
    kubelet = node_on(machine, "core-kinds")
    fast, slow = kinds_of(kubelet)
    kubelet, first = kubelet.admit(pod("fast", 1, core_kind="performance"))
    kubelet, second = kubelet.admit(pod("slow", 2, core_kind="efficiency"))
    assert cpus_of(first) <= fast
    assert cpus_of(second) <= slow
    assert not list(breaks(kubelet.node))


@pytest.mark.parametrize("machine", HYBRID)
def test_the_system_gets_slow_cores_and_the_pool_keeps_them(machine: str) -> None:
    kubelet = node_on(machine, named("core-kinds", default="performance"))
    fast, slow = kinds_of(kubelet)
    assert reserved_of(kubelet) <= slow
    kubelet, decision = kubelet.admit(pod("web", len(fast)))
    assert cpus_of(decision) == fast
    assert CPUSet(kubelet.node.cpu.default) == slow


def test_a_list_of_reserved_cpus_stays_as_it_is() -> None:
    config = KubeletConfig(cpu_manager_policy="static", reserved_system_cpus="0-1")
    kubelet = node_on("i7-1370p", "core-kinds", config=config)
    assert reserved_of(kubelet) == CPUSet.parse("0-1")


def test_reserved_cpus_can_be_fast_ones_or_whatever_the_kubelet_takes() -> None:
    without = node_on("i7-1370p", "kubelet-rules")
    assert reserved_of(node_on("i7-1370p", named("core-kinds", reserved="performance"))) <= CPUSet.parse("0-11")
    assert reserved_of(node_on("i7-1370p", named("core-kinds", reserved="any"))) == reserved_of(without)


def test_without_strict_another_kind_serves_before_a_mixture_and_a_mixture_before_a_refusal() -> None:
    kubelet = node_on("i7-1370p", "core-kinds")
    kubelet, _ = kubelet.admit(pod("one", 10, core_kind="performance"))
    kubelet, other = kubelet.admit(pod("two", 4, core_kind="performance"))
    assert cpus_of(other) <= CPUSet.parse("12-19")
    kubelet, mixed = kubelet.admit(pod("three", 5, core_kind="performance"))
    assert cpus_of(mixed) & CPUSet.parse("0-11")
    assert cpus_of(mixed) & CPUSet.parse("12-19")


def test_the_annotation_of_a_container_wins() -> None:
    kubelet = node_on("i7-1370p", named("core-kinds", strict=True))
    _, decision = kubelet.admit(pod("web", 2, 2, core_kind="performance", core_kind__c1="efficiency"))
    assert cpus_of(decision, "c0") <= CPUSet.parse("0-11")
    assert cpus_of(decision, "c1") <= CPUSet.parse("12-19")


@pytest.mark.parametrize(("kind", "count", "group"), [("performance", 3, 2), ("performance", 5, 2)])
def test_full_pcpus_only_counts_the_threads_of_the_kind(kind: str, count: int, group: int) -> None:
    kubelet = node_on("i7-1370p", named("core-kinds", strict=True), config=WHOLE)
    _, decision = kubelet.admit(pod("web", count, core_kind=kind))
    assert decision.reason == "SMTAlignmentError"
    assert decision.message == (f"SMT Alignment Error: requested {count} cpus not multiple cpus per core = {group}")


def test_full_pcpus_only_gives_odd_numbers_on_slow_cores_and_mixtures_that_are_whole() -> None:
    kubelet = node_on("i7-1370p", "core-kinds", config=WHOLE)
    kubelet, decision = kubelet.admit(pod("slow", 3, core_kind="efficiency"))
    assert cpus_of(decision) <= CPUSet.parse("12-19")
    # Four slow cores of one thread are left: five of any kind are some of them, and never half a fast core.
    kubelet, mixed = kubelet.admit(pod("mixed", 15))
    assert len(cpus_of(mixed)) == 15
    assert not list(breaks(kubelet.node))


def test_with_three_kinds_pods_get_the_middle_and_the_system_the_slowest() -> None:
    machine = with_facts(machine_named("cores=12 memory=8Gi"), kinds={0: "10-11", 1: "4-9", 2: "0-3"})
    kubelet = node_on(machine, named("core-kinds", strict=True))
    assert reserved_of(kubelet) <= CPUSet.parse("10-11")
    kubelet, slow = kubelet.admit(pod("slow", 6, core_kind="efficiency"))
    assert cpus_of(slow) == CPUSet.parse("4-9")
    kubelet, last = kubelet.admit(pod("last", 1, core_kind="efficiency"))
    assert cpus_of(last) <= CPUSet.parse("10-11")


@pytest.mark.parametrize("kinds", [{-1: "0-3"}, {7: "0-3"}, {}])
def test_where_kinds_cannot_be_told_apart_every_wish_is_met(kinds: dict[int, str]) -> None:
    kubelet = node_on(with_facts(machine_named("cores=4 memory=8Gi"), kinds=kinds), named("core-kinds", strict=True))
    _, decision = kubelet.admit(pod("web", 3, core_kind="performance"))
    assert len(cpus_of(decision)) == 3


REQUESTS = st.lists(
    st.tuples(st.integers(1, 12), st.sampled_from(["performance", "efficiency", "any", ""]), st.booleans()),
    min_size=1,
    max_size=12,
)


@pytest.mark.parametrize("config", CONFIGS)
@pytest.mark.parametrize("machine", UNEVEN)
@given(requests=REQUESTS, strict=st.booleans())
@settings(max_examples=15, deadline=None)
def test_every_pod_has_its_number_of_its_kind_and_nothing_is_owned_twice(
    machine: str, config: str, requests: list[tuple[int, str, bool]], *, strict: bool
) -> None:
    """Law: on uneven cores, where the kubelet hands out CPUs twice; pods that leave give back all they had."""
    kubelet = empty = node_on(machine, named("core-kinds", strict=strict), config=CONFIGS[config])
    ranked = [kind for kind in kubelet.info.facts.kinds if kind.efficiency >= 0]
    facts: list[object] = []
    for index, (count, kind, leaves) in enumerate(requests):
        one = pod(f"pod-{index}", count, **({"core_kind": kind} if kind else {}))
        kubelet, decision = kubelet.admit(one, facts.append)
        assert not list(breaks(kubelet.node.settled()))
        if decision.admitted and strict and kind in ("performance", "efficiency") and ranked:
            fast, slow = kinds_of(kubelet)
            assert cpus_of(decision) <= (fast if kind == "performance" else slow)
        if leaves:
            kubelet, _ = kubelet.remove(one.uid, facts.append)
            assert not list(breaks(kubelet.node))
    assert not [fact for fact in facts if isinstance(fact, PluginFailed)]
    for uid in list(kubelet.node.active):
        kubelet, _ = kubelet.remove(uid)
    assert kubelet.node.cpu.default == empty.node.cpu.default


@pytest.mark.parametrize(
    ("plugin", "given_settings", "said"),
    [
        (
            "core-kinds",
            {"default": "fast"},
            r"plugins\[0\]\.settings\.default: 'fast' is not known; write performance or",
        ),
        ("core-kinds", {"strict": "yes"}, r"settings\.strict: 'yes' is neither true nor false; write true or false"),
        ("core-kinds", {"kind": "any"}, r"settings\.kind: 'kind' is not known; known are default, reserved, strict"),
        ("cpus-first", {"strict": True}, r"settings\.strict: 'strict' is not known; the plugin takes no settings"),
        ("isolated-cpus", {"mode": "never"}, r"settings\.mode: 'never' is not known; write prefer or require"),
        (
            "numa-strategy",
            {"strategy": "balanced"},
            r"settings\.strategy: 'balanced' is not known; write most-allocated or",
        ),
    ],
)
def test_bad_settings_name_field_and_remedy(plugin: str, given_settings: dict[str, object], said: str) -> None:
    with pytest.raises(InputError, match=said):
        plugin_choice({"plugins": [{"name": plugin, "settings": given_settings}]})


ISOLATED = CPUSet.parse("4-7,12-15")


def isolating() -> Machine:
    return with_facts(machine_named("sockets=2 cores=8 threads=2 memory=16Gi"), isolated=str(ISOLATED))


def test_by_default_isolated_cpus_are_the_last_to_be_given() -> None:
    kubelet = node_on(isolating(), "isolated-cpus")
    kubelet, first = kubelet.admit(pod("first", 7))
    assert not cpus_of(first) & ISOLATED
    _, second = kubelet.admit(pod("second", 2))
    assert cpus_of(second) <= ISOLATED


def test_the_system_never_gets_them_while_there_are_others() -> None:
    reversed_ = with_facts(isolating(), isolated="0-3,8-11")
    for mode in ("prefer", "require", "avoid"):
        assert not reserved_of(node_on(reversed_, named("isolated-cpus", mode=mode))) & CPUSet.parse("0-3,8-11")


UNISOLATED = machine_named("sockets=2 cores=8 threads=2 memory=16Gi")


@pytest.mark.parametrize("mode", ["prefer", "avoid", "any"])
def test_where_no_cpu_is_isolated_nothing_changes(mode: str) -> None:
    _, decision = node_on(UNISOLATED, named("isolated-cpus", mode=mode)).admit(pod("web", 4))
    _, without = node_on(UNISOLATED, "kubelet-rules").admit(pod("web", 4))
    assert decision.containers == without.containers


@pytest.mark.parametrize(
    ("machine", "plugin", "asked", "because"),
    [
        (
            "i7-1370p",
            named("core-kinds", strict=True),
            pod("web", 13, core_kind="performance"),
            "they are on cores of another kind than performance",
        ),
        (
            "i7-1370p",
            "core-kinds",
            pod("web", 2, core_kind="fast"),
            "mooring/core-kind: 'fast' is none of performance, efficiency, any",
        ),
        (isolating(), "isolated-cpus", pod("web", 9, isolated_cpus="require"), "they are not isolated"),
        (UNISOLATED, "isolated-cpus", pod("web", 4, isolated_cpus="require"), "no CPU is isolated here"),
        (
            UNISOLATED,
            "isolated-cpus",
            pod("web", 1, isolated_cpus="yes"),
            "mooring/isolated-cpus: 'yes' is none of prefer, require, avoid, any",
        ),
    ],
    ids=["another kind", "no kind", "too few isolated", "none isolated", "no mode"],
)
def test_a_refusal_says_who_withheld_what_and_why(
    machine: Machine | str, plugin: object, asked: Pod, because: str
) -> None:
    facts: list[object] = []
    _, decision = node_on(machine, plugin).admit(asked, facts.append)
    assert decision.message.startswith("Allocate failed due to not enough cpus available to satisfy request")
    assert [fact.because for fact in facts if isinstance(fact, PluginFiltered)] == [because]


def test_prefer_takes_them_first_and_others_when_they_are_gone() -> None:
    kubelet = node_on(isolating(), named("isolated-cpus", mode="prefer"))
    _, decision = kubelet.admit(pod("web", 10))
    assert cpus_of(decision) >= ISOLATED


@given(st.lists(st.tuples(st.integers(1, 6), st.sampled_from(["prefer", "require", "avoid", "any"])), max_size=8))
@settings(max_examples=60, deadline=None)
def test_avoid_and_prefer_never_refuse_what_the_kubelet_admits(requests: list[tuple[int, str]]) -> None:
    kubelet = node_on(isolating(), "isolated-cpus")
    for index, (count, mode) in enumerate(requests):
        free = kubelet.node.cpu.default & ~reserved_of(kubelet).mask
        kubelet, decision = kubelet.admit(pod(f"pod-{index}", count, isolated_cpus=mode))
        if mode != "require":
            assert decision.admitted == (count <= free.bit_count())
        elif decision.admitted:
            assert cpus_of(decision) <= ISOLATED
        assert not list(breaks(kubelet.node.settled()))
