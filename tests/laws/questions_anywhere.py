"""Questions about random nodes: options, extensions, CPUs that go offline, running pods, plugins."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import HealthCheck, assume, settings
from hypothesis import strategies as st
from tests.laws.strategies_whole_node import configurations, hardware, pods

from mooring.answers.base.plan import Plan, Question, make_plan
from mooring.engine.core.config import (
    CPU_HOTPLUG,
    DEVICE_ALIGNMENT,
    FIXABLE_DEFECTS,
    MIXED_CPUS,
    PLUGINS,
    REPLACE,
    ChosenPlugin,
    MooringConfig,
    PluginChoice,
)
from mooring.engine.core.cpuset import CPUSet
from mooring.engine.core.machine import Machine
from mooring.engine.core.machineinfo import MachineInfo
from mooring.engine.plugins import CPURequest, PodView

LAW = settings(
    deadline=None, max_examples=25, suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much]
)


def planned(question: Question) -> Plan:
    """Return the plan of a question with which the kubelet starts."""
    plan = make_plan(question)
    assume(isinstance(plan, Plan))
    assert isinstance(plan, Plan)
    return plan


def _backwards(pods: tuple[PodView, ...]) -> list[str]:
    return [pod.uid for pod in reversed(pods)]


def _later_names_first(pods: tuple[PodView, ...]) -> list[str]:
    return sorted((pod.uid for pod in pods), reverse=True)


def _without_cpu_2(request: CPURequest) -> CPUSet:
    return request.available - CPUSet.of(2)


PLUGINS_DRAWN = (
    ChosenPlugin("backwards", {}, {"sort_pods": _backwards}),
    ChosenPlugin("later-names-first", {}, {"sort_pods": _later_names_first}),
    ChosenPlugin("without-cpu-2", {}, {"filter_cpus": _without_cpu_2}),
)


@st.composite
def extended(draw: st.DrawFn) -> MooringConfig:
    """Draw extensions, with plugins that order pods or leave CPUs out."""
    plugins = draw(st.lists(st.sampled_from(PLUGINS_DRAWN), max_size=2, unique_by=lambda one: one.name))
    extensions = draw(st.sets(st.sampled_from([CPU_HOTPLUG, DEVICE_ALIGNMENT, MIXED_CPUS]))) | (
        {PLUGINS} if plugins else set()
    )
    return MooringConfig(
        extensions=frozenset(extensions),
        fixed_defects=draw(st.sampled_from([frozenset(), FIXABLE_DEFECTS])),
        replace_offline=draw(st.sampled_from(REPLACE)),
        plugins=PluginChoice(tuple(plugins)),
    )


def cpus_of(info: MachineInfo) -> list[int]:
    """Return the ids of all CPUs of a machine."""
    return [cpu for node in info.topology for core in node.cores for cpu in core.thread_ids]


@st.composite
def questions_anywhere(draw: st.DrawFn, most: int = 5) -> Question:
    """Draw a node with up to ``most`` pods; the first may run already, and CPUs may go offline under them."""
    found, mooring = draw(hardware()), draw(extended())
    drawn = tuple(draw(pods(f"pod-{number}")) for number in range(draw(st.integers(1, most))))
    question = Question(
        Machine("drawn", found.info),
        replace(draw(configurations()), max_pods=draw(st.sampled_from([3, 110]))),
        mooring,
        devices=found.devices,
    )
    running = draw(st.integers(0, min(2, len(drawn) - 1)))
    if running:
        before = make_plan(replace(question, pods=drawn[:running]))
        active = tuple(answer.pod for answer in before.answers if answer.admitted)
        kept = before.files if draw(st.booleans()) else question.files
        question = replace(question, active=active, files=kept)
    offline = CPUSet()
    if CPU_HOTPLUG in mooring.extensions:
        cpus = cpus_of(found.info)
        offline = CPUSet.of(*draw(st.sets(st.sampled_from(cpus), max_size=len(cpus) // 2)))
    return replace(question, pods=drawn[running:], offline=offline)
