"""Questions about small nodes, drawn at random, with a pod that may not be admitted."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import strategies as st
from tests.laws.strategies_whole_node import configurations, hardware, pods

from mooring.answers.base.plan import Question, make_plan
from mooring.engine.core.config import KubeletConfig
from mooring.engine.core.machine import Machine
from mooring.engine.core.pod import Pod
from mooring.inputs.machines.compact import parse_compact


@st.composite
def tight_questions(draw: st.DrawFn) -> Question:
    """Draw nodes that are nearly filled by pods that need one NUMA node each: what fits depends on the order."""
    nodes, cores = draw(st.integers(2, 3)), draw(st.integers(3, 5))
    machine = parse_compact(f"sockets=1 numa={nodes} cores={nodes * cores} threads=1 memory={nodes}Gi distances=10,20")
    left = nodes * cores - 1
    pods: list[Pod] = []
    while left > 0 and len(pods) < 7:
        count = draw(st.integers(1, cores))
        pods.append(guaranteed(f"pod-{len(pods)}", count))
        left -= count
    config = KubeletConfig(
        cpu_manager_policy="static", reserved_system_cpus="0", topology_manager_policy="single-numa-node"
    )
    return Question(replace(machine, findings=()), config, pods=tuple(pods))


def guaranteed(name: str, cpus: int, memory: str = "16Mi") -> Pod:
    """Return a Guaranteed pod with one container."""
    made = Pod.of(name, cpus, memory)
    return replace(made, uid=f"default_{name}", containers=(replace(made.containers[0], name="app"),))


@st.composite
def questions(draw: st.DrawFn, most: int = 5) -> Question:
    """Draw a node and up to ``most`` pods; some may run already, with or without the state files that tell so."""
    found = draw(hardware())
    config = draw(configurations())
    drawn = [draw(pods(f"pod-{number}")) for number in range(draw(st.integers(1, most)))]
    question = Question(Machine("drawn", found.info), config, devices=found.devices)
    running = draw(st.integers(0, 2))
    if not running:
        return replace(question, pods=tuple(drawn))
    before = make_plan(replace(question, pods=tuple(drawn[:running])))
    active = tuple(answer.pod for answer in before.answers if answer.admitted)
    files = before.files if draw(st.booleans()) else question.files
    return replace(question, active=active, pods=tuple(drawn[running:]), files=files)


def refused(question: Question) -> list[Pod]:
    """Return the pods that were asked and not admitted."""
    return [answer.pod for answer in make_plan(question).answers if not answer.admitted]
