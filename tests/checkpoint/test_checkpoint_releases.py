"""Pending releases in ``cpu_manager_state`` (KEP-6122): they come back, and nobody else stumbles over them."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.faults import inner_text

from mooring.engine.checkpoint.checksum import data_checksum
from mooring.engine.checkpoint.cpu_file import cpu_state_text, cpu_text_v2, cpu_text_v3, load_cpu_state
from mooring.engine.core.bits import NO_CPUS, CPUMask
from mooring.engine.core.decision import StartRefusal
from mooring.engine.core.moment import Moment
from mooring.engine.cpumanager.state import CPUState, PreAssignment

BOOT = "11111111-2222-3333-4444-555555555555"
PENDING = PreAssignment(CPUMask(0b0000_0110), Moment(7_500_000_000, BOOT), is_written=True)
STATE = CPUState(
    "static",
    CPUMask(0b1110_0001),
    {"uid": {"app": CPUMask(0b0001_1110)}},
    baselines={"uid": {"app": CPUMask(0b0000_0010)}},
    pre_assignments={"uid": {"app": PENDING}},
)

words = st.text('<>&"\\ \n\x00é\u2028😀a-0', min_size=1, max_size=5)
moments = st.builds(Moment, st.integers(0, 2**62), words | st.just(BOOT))


@st.composite
def states(draw: st.DrawFn) -> CPUState:
    """Return states some of whose containers are about to give CPUs back."""
    held: dict[str, dict[str, CPUMask]] = {}
    baselines: dict[str, dict[str, CPUMask]] = {}
    pending: dict[str, dict[str, PreAssignment]] = {}
    for pod in draw(st.sets(words, min_size=1, max_size=3)):
        for name in draw(st.sets(words, min_size=1, max_size=3)):
            baseline = CPUMask(draw(st.integers(1, 2**20 - 1)))
            kept = baseline | draw(st.integers(0, 2**20 - 1))
            held.setdefault(pod, {})[name] = kept
            baselines.setdefault(pod, {})[name] = baseline
            more = draw(st.integers(0, 2**20 - 1)) & ~kept
            if more:
                held[pod][name] = kept | more
                pending.setdefault(pod, {})[name] = PreAssignment(kept, draw(moments), draw(st.booleans()))
    return CPUState("static", CPUMask(draw(st.integers(0, 2**20 - 1))), held, {}, baselines, pending)


def text_of(state: CPUState) -> str:
    return cpu_state_text(state, pod_level=False, baselines=True)


def loaded(text: str, *, releases: bool = True) -> CPUState:
    state = load_cpu_state(text, policy="static", pod_level=False, baselines=True, releases=releases)
    assert isinstance(state, CPUState), state
    return state


def written(state: CPUState) -> CPUState:
    """Return what of a state the file keeps: releases of the node's own delay are in memory only."""
    kept = {
        pod: {name: pre for name, pre in held.items() if pre.is_written} for pod, held in state.pre_assignments.items()
    }
    return replace(state, pre_assignments={pod: held for pod, held in kept.items() if held})


def test_the_data_names_cpus_time_since_boot_and_boot() -> None:
    data = json.loads(json.loads(text_of(STATE))["data"])
    assert data["preAssignments"] == {"uid": {"app": {"cpuSet": "1-2", "applyAt": 7_500_000_000, "bootId": BOOT}}}
    assert data["entries"] == {"uid": {"app": "1-4"}}


@given(states())
def test_a_written_state_reads_back(state: CPUState) -> None:
    assert loaded(text_of(state)) == written(state)


@given(states())
def test_a_kubelet_reads_the_same_state_without_the_releases(state: CPUState) -> None:
    """A node is rolled back in the middle of a delay: v1.37.1 finds all CPUs where they are."""
    seen = loaded(text_of(state), releases=False)
    assert seen == replace(state, pre_assignments={})
    assert "preAssignments" not in text_of(seen)
    assert loaded(text_of(seen)) == seen


@given(states())
def test_formats_of_older_kubelets_know_nothing_of_releases(state: CPUState) -> None:
    bare = replace(state, baselines={}, pre_assignments={})
    assert cpu_text_v2(state) == cpu_text_v2(bare)
    assert cpu_text_v3(state) == cpu_text_v3(bare)


@pytest.mark.parametrize(
    "changed",
    [
        replace(STATE, assignments={}),
        replace(STATE, assignments={"uid": {"app": CPUMask(0b0110)}}),
        replace(STATE, assignments={"uid": {"app": CPUMask(0b1100)}}),
        replace(STATE, baselines={"uid": {"app": CPUMask(0b1000)}}),
        replace(STATE, pre_assignments={"uid": {"app": replace(PENDING, cpus=NO_CPUS)}}),
    ],
    ids=["no entry", "nothing to give back", "not its own CPUs", "below the baseline", "all CPUs"],
)
def test_a_release_that_does_not_fit_its_container_is_dropped(changed: CPUState) -> None:
    assert loaded(text_of(changed)).pre_assignments == {}


def test_a_release_that_is_no_cpu_list_stops_the_start_and_only_with_the_extension() -> None:
    text = text_of(replace(STATE, default=NO_CPUS, assignments={}, baselines={}))
    data = json.loads(text)["data"].replace('"1-2"', '"1-x"')
    outer = json.loads(text) | {"data": data}

    text = json.dumps(outer | {"dataChecksum": data_checksum(data)})
    refusal = load_cpu_state(text, policy="static", pod_level=False, baselines=True, releases=True)
    assert isinstance(refusal, StartRefusal)
    assert inner_text(refusal).startswith(
        'could not parse pre-assigned cpuset "1-x" for container "app" in pod "uid": strconv.Atoi'
    ), refusal.message
    assert loaded(text, releases=False).pre_assignments == {}
