"""Every break of a law is the work of a named defect of v1.37.1; with all of them fixed there is none."""

from __future__ import annotations

import pytest
from hypothesis import event, given, settings
from hypothesis import strategies as st
from tests.cpumanager.pods import container, guaranteed
from tests.laws.laws_whole_node import cpu_breaks, placement_breaks
from tests.laws.stories import ALPHA, configurations, machines, pods

from mooring.engine.core.bits import list_text
from mooring.engine.core.config import FIXABLE_DEFECTS, KubeletConfig, MooringConfig
from mooring.engine.core.decision import StartRefusal
from mooring.engine.core.machineinfo import Core, MachineInfo, NUMANode
from mooring.engine.cpumanager.options import ALIGN_BY_SOCKET
from mooring.engine.kubelet.admit import AdmitMode
from mooring.engine.kubelet.events import Admit, Remove, Restart, run
from mooring.engine.kubelet.kubelet import Kubelet, StateTexts
from mooring.engine.kubelet.start import start_kubelet
from mooring.engine.node import Node
from mooring.inputs.machines.compact import parse_compact

SIZES = "sizes"
"""Breaks of the laws of ownership and placement: only average-sizes does that."""

LOOP = "loop"
"""Admissions that would not return: only the two loops do that, claim-loop through saved-combo."""

FILES = "files"
"""Files that a restart changes: nothing does that."""

RESTART = "restart"
"""Restarts that reject a running pod: with align-by-socket, or when a CPU has two owners."""

Story = Admit | Remove | Restart

CULPRITS = {
    SIZES: frozenset({"average-sizes"}),
    LOOP: frozenset({"group-loop", "claim-loop"}),
    RESTART: frozenset({"average-sizes", "socket-restart"}),
    FILES: frozenset(),
}


def first_break(info: MachineInfo, config: KubeletConfig, story: list[Story], fixed: frozenset[str]) -> str:
    """Tell the story and return the kind of the first break, or an empty text."""
    kubelet = start_kubelet(info, config, MooringConfig(fixed_defects=fixed), StateTexts())
    assert isinstance(kubelet, Kubelet), kubelet
    for one in run(kubelet, story, AdmitMode.MANAGERS):
        node, is_restart = one.before.node, isinstance(one.event, Restart)
        if one.result.refusal is not None:
            empty = not node.cpu.default and "default cpuset cannot be empty" in one.result.refusal.message
            return "" if empty else SIZES
        for told in one.result.admissions:
            if told.decision.endless is not None:
                return LOOP
            if is_restart and not told.admitted:
                return RESTART
            if not is_restart and any(placement_breaks(node.settings, told.pod, told.decision)):
                return SIZES
        if any(cpu_breaks(one.after.node)):
            return SIZES
        if is_restart and one.after.files != one.before.files:
            return FILES
    return ""


@st.composite
def stories(draw: st.DrawFn) -> list[Story]:
    uids = [f"u{number}" for number in range(draw(st.integers(1, 7)))]
    story: list[Story] = []
    for uid in uids:
        story.append(Admit(draw(pods(uid))))
        if draw(st.integers(0, 3)) == 0:
            story.append(Remove(draw(st.sampled_from(uids))) if draw(st.booleans()) else Restart())
    return story


@settings(max_examples=120)
@given(st.data(), machines(), stories())
def test_every_break_of_a_law_has_its_defect_and_fixed_there_is_none(
    data: st.DataObject, info: MachineInfo, story: list[Story]
) -> None:
    config = data.draw(configurations(info))
    assert first_break(info, config, [*story, Restart()], FIXABLE_DEFECTS) == ""
    found = first_break(info, config, story, frozenset())
    event(f"break: {found}")
    if found:
        assert first_break(info, config, story, CULPRITS[found]) != found


def uneven() -> MachineInfo:
    """Two sockets with two NUMA nodes each, of one and of two CPUs."""
    cpus = ((3,), (0, 5), (2,), (1, 4))
    return MachineInfo(
        num_cores=6,
        num_sockets=2,
        memory_capacity=2**34,
        topology=tuple(
            NUMANode(node, 2**30, cores=tuple(Core(cpu, (cpu,), node // 2) for cpu in own))
            for node, own in enumerate(cpus)
        ),
    )


EVEN = parse_compact("sockets=2 numa=4 cores=8 threads=2").info


@pytest.mark.parametrize(
    ("info", "reserved", "asked", "ended", "held"),
    [
        (uneven(), "3", ["4"], [], "0-2,4"),
        (EVEN, "0", ["2", "2", "3", "7"], ["p1"], "2-3,6,8,10-11,14"),
    ],
    ids=["nodes of 1, 2, 1 and 2 CPUs", "four nodes of 4 CPUs"],
)
def test_a_restart_rejects_a_pod_that_align_by_socket_put_on_more_nodes_and_fixed_it_does_not(
    info: MachineInfo, reserved: str, asked: list[str], ended: list[str], held: str
) -> None:
    config = KubeletConfig(
        cpu_manager_policy="static",
        cpu_manager_policy_options={ALIGN_BY_SOCKET: "true"},
        topology_manager_policy="restricted",
        reserved_system_cpus=reserved,
        feature_gates=ALPHA,
    )
    pods_of = [guaranteed(f"p{number}", container("x", cpu)) for number, cpu in enumerate(asked)]
    last = pods_of.pop()
    story: list[Story] = [*map(Admit, pods_of), *map(Remove, ended), Admit(last), Restart()]

    node = Node.fresh(info, config)
    for pod in pods_of:
        node, _ = node.admit(pod)
    for uid in ended:
        node, _ = node.remove(uid)
    node, _ = node.admit(last)
    assert list_text(node.cpu.assignments[last.uid]["x"]) == held

    assert first_break(info, config, story, frozenset()) == RESTART
    assert first_break(info, config, story, FIXABLE_DEFECTS - {"socket-restart"}) == RESTART
    assert first_break(info, config, story, frozenset({"socket-restart"})) == ""


def hybrid() -> MachineInfo:
    """Eight cores of one thread and eight of two, as a PC of 24 CPUs has them."""
    single = [Core(number, (number,), 0) for number in range(8)]
    double = [Core(number, (number, number + 8), 0) for number in range(8, 16)]
    return MachineInfo(24, 1, 2**34, (NUMANode(0, 2**34, cores=(*single, *double)),))


def test_average_sizes_give_a_cpu_to_two_owners_and_fixed_they_do_not() -> None:
    """Reserved 0,1 and requests 6, 4, 7, 5 (spec: README.md section 5, recorded)."""
    config = KubeletConfig(cpu_manager_policy="static", reserved_system_cpus="0-1")

    def told(*fixed: str) -> tuple[list[str], list[str]]:
        node = Node.fresh(hybrid(), config, MooringConfig(fixed_defects=frozenset(fixed)))
        for uid, cpu in (("a", "6"), ("b", "4"), ("c", "7"), ("d", "5")):
            node, decision = node.admit(guaranteed(uid, container("x", cpu)))
            assert decision.admitted
        return [list_text(sets["x"]) for sets in node.cpu.assignments.values()], list(cpu_breaks(node))

    given, breaks = told()
    assert given == ["2-7", "8-9,16-17", "10-13,18-20", "13-15,21-22"]
    assert breaks == ["cpu: d shares 13 with another pod"]
    given, breaks = told("average-sizes")
    assert breaks == []
    assert sum(len(text) > 0 for text in given) == 4


def test_once_two_pods_own_a_cpu_the_pool_loses_its_meaning() -> None:
    """What the defect does next: the first owner that goes leaves the CPU to the pool while the other runs on it."""
    config = KubeletConfig(cpu_manager_policy="static", reserved_system_cpus="0-1")
    node = Node.fresh(hybrid(), config)
    for uid, cpu in (("a", "6"), ("b", "4"), ("c", "7"), ("d", "5")):
        node, _ = node.admit(guaranteed(uid, container("x", cpu)))
    node, _ = node.remove("c")
    assert "cpu: d holds 13, which is in the shared pool" in list(cpu_breaks(node))
    refused = node.restart()
    assert isinstance(refused, StartRefusal)
    assert 'pod: d, container: x cpuset: "13-15,21-22" overlaps with default cpuset' in refused.message
