"""The plugin isolated-cpus: CPUs that the kernel keeps out of scheduling are for those who want them."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.plugins.plugged_nodes import breaks, cpus_of, machine_named, named, node_on, pod, with_facts

from mooring.engine.core.cpuset import CPUSet
from mooring.engine.core.errors import InputError
from mooring.engine.core.machine import Machine
from mooring.engine.plugins.facts import PluginFiltered
from mooring.inputs.configuration.mooring_config import plugin_choice

ISOLATED = CPUSet.parse("4-7,12-15")


def machine() -> Machine:
    return with_facts(machine_named("sockets=2 cores=8 threads=2 memory=16Gi"), isolated=str(ISOLATED))


def test_by_default_isolated_cpus_are_the_last_to_be_given() -> None:
    kubelet = node_on(machine(), "isolated-cpus")
    kubelet, first = kubelet.admit(pod("first", 7))
    assert not cpus_of(first) & ISOLATED
    _, second = kubelet.admit(pod("second", 2))
    assert cpus_of(second) <= ISOLATED


def test_the_system_never_gets_them_while_there_are_others() -> None:
    reversed_ = with_facts(machine(), isolated="0-3,8-11")
    for mode in ("prefer", "require", "avoid"):
        policy = node_on(reversed_, named("isolated-cpus", mode=mode)).settings.cpu
        assert policy is not None
        assert not CPUSet(policy.reserved) & CPUSet.parse("0-3,8-11")


def test_prefer_takes_them_first_and_others_when_they_are_gone() -> None:
    kubelet = node_on(machine(), named("isolated-cpus", mode="prefer"))
    _, decision = kubelet.admit(pod("web", 10))
    assert cpus_of(decision) >= ISOLATED


def test_require_takes_no_others_and_says_why_it_refuses() -> None:
    kubelet = node_on(machine(), "isolated-cpus")
    kubelet, fits = kubelet.admit(pod("fits", 6, isolated_cpus="require"))
    assert cpus_of(fits) <= ISOLATED
    facts: list[object] = []
    _, refused = kubelet.admit(pod("more", 4, isolated_cpus="require"), facts.append)
    assert "requested=4, available=2" in refused.message
    assert [fact.because for fact in facts if isinstance(fact, PluginFiltered)] == ["they are not isolated"]


def test_where_no_cpu_is_isolated_require_refuses_and_the_rest_changes_nothing() -> None:
    plain = machine_named("sockets=2 cores=8 threads=2 memory=16Gi")
    for mode in ("prefer", "avoid", "any"):
        _, decision = node_on(plain, named("isolated-cpus", mode=mode)).admit(pod("web", 4))
        _, without = node_on(plain, "kubelet-rules").admit(pod("web", 4))
        assert decision.containers == without.containers
    facts: list[object] = []
    node_on(plain, "isolated-cpus").admit(pod("web", 4, isolated_cpus="require"), facts.append)
    assert [fact.because for fact in facts if isinstance(fact, PluginFiltered)] == ["no CPU is isolated here"]


def test_an_annotation_that_is_no_mode_is_refused() -> None:
    _, decision = node_on(machine(), "isolated-cpus").admit(pod("web", 1, isolated_cpus="yes"))
    assert not decision.admitted


def test_a_wrong_mode_is_bad_input() -> None:
    with pytest.raises(InputError, match=r"settings\.mode: 'never' is not known; write prefer or require"):
        plugin_choice({"plugins": [named("isolated-cpus", mode="never")]})


@given(st.lists(st.tuples(st.integers(1, 6), st.sampled_from(["prefer", "require", "avoid", "any"])), max_size=8))
@settings(max_examples=60, deadline=None)
def test_avoid_and_prefer_never_refuse_what_the_kubelet_admits(requests: list[tuple[int, str]]) -> None:
    kubelet = node_on(machine(), "isolated-cpus")
    for index, (count, mode) in enumerate(requests):
        free = kubelet.node.cpu.default & ~(kubelet.settings.cpu.reserved if kubelet.settings.cpu else 0)
        kubelet, decision = kubelet.admit(pod(f"pod-{index}", count, isolated_cpus=mode))
        if mode != "require":
            assert decision.admitted == (count <= free.bit_count())
        elif decision.admitted:
            assert cpus_of(decision) <= ISOLATED
        assert not list(breaks(kubelet.node.settled()))
