"""What a machine and its owners become: uses, marks, colours, words."""

from __future__ import annotations

from dataclasses import replace

import pytest
from tests.render.sample_machines import SampleShape, hybrid, regular

from mooring.engine.core.cpuset import CPUSet
from mooring.engine.core.machine import HardwareNode, Machine
from mooring.engine.core.machineinfo import Core, MachineInfo, NUMANode
from mooring.views.build import CPUOwner, Pools, build_view
from mooring.views.view import BoxKind, BoxView, CPUUse, CPUView, NodeView

EIGHT = regular(SampleShape(sockets=1, nodes=1, cores=4), "eight")


def cpus(text: str) -> CPUSet:
    return CPUSet.parse(text)


def uses(view: NodeView) -> dict[int, CPUUse]:
    return {cpu.cpu: cpu.use for cpu in view.cpus()}


def cpu_of(view: NodeView, number: int) -> CPUView:
    return next(cpu for cpu in view.cpus() if cpu.cpu == number)


def names(box: BoxView) -> list[tuple[BoxKind, int | None]]:
    return [(label.kind, label.id) for label in box.labels]


def test_without_a_configuration_every_cpu_is_shared() -> None:
    assert set(uses(build_view(EIGHT)).values()) == {CPUUse.SHARED}


def test_under_the_static_policy_cpus_are_reserved_free_or_exclusive() -> None:
    owner = CPUOwner("ns/pod/c", "u", cpus("2-3,6-7"))
    view = build_view(EIGHT, owners=[owner], pools=Pools(cpus("0,4"), cpus("0-1,4-5"), cpus("1,5")))
    assert uses(view) == {
        **dict.fromkeys((0, 4), CPUUse.RESERVED),
        **dict.fromkeys((1, 5), CPUUse.FREE),
        **dict.fromkeys((2, 3, 6, 7), CPUUse.EXCLUSIVE),
    }


def test_the_legend_counts_every_use_once_and_tells_strict_reservation() -> None:
    loose = build_view(EIGHT, pools=Pools(cpus("0,4"), cpus("0-7"), cpus("1-3,5-7")))
    strict = build_view(EIGHT, pools=Pools(cpus("0,4"), cpus("1-3,5-7"), cpus("1-3,5-7")))
    assert [(entry.use, entry.count, str(entry.cpus)) for entry in loose.legend] == [
        (CPUUse.RESERVED, 2, "0,4"),
        (CPUUse.FREE, 6, "1-3,5-7"),
    ]
    assert "pods without exclusive CPUs" in loose.legend[0].meaning
    assert "no pod" in strict.legend[0].meaning


def test_a_cpu_in_no_pool_and_nobodys_hands_is_left_out() -> None:
    assert uses(build_view(EIGHT, pools=Pools(shared=cpus("0-6"))))[7] is CPUUse.LEFT_OUT


def test_a_cpu_of_two_pods_is_contested_and_names_both() -> None:
    view = build_view(EIGHT, owners=[CPUOwner("ns/a/c", "u1", cpus("1-2")), CPUOwner("ns/b/c", "u2", cpus("2-3"))])
    assert cpu_of(view, 2).use is CPUUse.CONTESTED
    assert {cpu_of(view, 2).owner, *cpu_of(view, 2).other_owners} == {0, 1}
    assert cpu_of(view, 1).use is CPUUse.EXCLUSIVE


def test_of_two_containers_of_one_pod_the_later_is_drawn() -> None:
    view = build_view(EIGHT, owners=[CPUOwner("ns/a/init", "u", cpus("1-3")), CPUOwner("ns/a/app", "u", cpus("2-3"))])
    assert cpu_of(view, 2) == replace(cpu_of(view, 2), use=CPUUse.EXCLUSIVE, owner=1, other_owners=(0,))
    assert any("last of them" in line for line in view.caption)


def test_an_owned_cpu_that_is_offline_is_drawn_as_offline_with_its_owner() -> None:
    machine = hybrid()
    assert machine.hardware is not None
    gone = replace(machine.hardware, cpus=machine.hardware.cpus[:18], offline=cpus("18-19"))
    view = build_view(replace(machine, hardware=gone), owners=[CPUOwner("ns/a/c", "u", cpus("17-18,77"))])
    assert {cpu.cpu: cpu.owner for cpu in view.cpus() if cpu.use is CPUUse.OFFLINE} == {18: 0, 19: None, 77: 0}
    assert names(view.boxes[-1]) == [(BoxKind.OFFLINE, None)]


def test_containers_of_one_pod_share_a_colour_and_have_marks_of_their_own() -> None:
    owners = [
        CPUOwner("ns/a/x", "u1", cpus("1")),
        CPUOwner("ns/b/x", "u2", cpus("2")),
        CPUOwner("ns/a/y", "u1", cpus("3")),
    ]
    view = build_view(EIGHT, owners=owners)
    assert [owner.colour for owner in view.owners] == [0, 1, 0]
    assert [owner.mark for owner in view.owners] == ["a", "b", "c"]


def test_owners_know_the_numa_nodes_of_their_cpus_and_memory() -> None:
    machine = regular(SampleShape(sockets=2, cores=2))
    view = build_view(machine, owners=[CPUOwner("ns/a/c", "u", cpus("1-2"), memory_nodes=(1, 0))])
    assert view.owners[0].cpu_nodes == (0, 1)
    assert view.owners[0].memory_nodes == (0, 1)


def test_coinciding_socket_node_and_cache_share_one_box() -> None:
    (box,) = build_view(EIGHT).boxes
    assert names(box) == [(BoxKind.SOCKET, 0), (BoxKind.NUMA, 0), (BoxKind.L3, 0)]
    assert [[cpu.cpu for cpu in core.cpus] for core in box.cores] == [[0, 4], [1, 5], [2, 6], [3, 7]]


def test_a_socket_of_several_nodes_holds_them_and_the_memory_near_it() -> None:
    first, second = build_view(regular(SampleShape(sockets=2, nodes=2, cores=2, memory_only=1))).boxes
    assert names(first) == [(BoxKind.SOCKET, 0)]
    assert [names(child) for child in first.children] == [
        [(BoxKind.NUMA, 0), (BoxKind.L3, 0)],
        [(BoxKind.NUMA, 1), (BoxKind.L3, 1)],
        [(BoxKind.NUMA, 4)],
    ]
    assert [child.labels[0].id for child in second.children] == [2, 3, 5]


def test_a_node_of_several_sockets_holds_them() -> None:
    cores = tuple(Core(0, (cpu, cpu + 1), cpu // 4) for cpu in range(0, 8, 2))
    (box,) = build_view(Machine("m", MachineInfo(8, 2, 0, (NUMANode(0, 1 << 30, cores=cores),)))).boxes
    assert names(box) == [(BoxKind.NUMA, 0)]
    assert [names(child) for child in box.children] == [[(BoxKind.SOCKET, 0)], [(BoxKind.SOCKET, 1)]]


def test_sockets_of_one_core_each_get_no_boxes_of_their_own() -> None:
    view = build_view(regular(SampleShape(sockets=4, cores=1)))
    assert [names(box) for box in view.boxes] == [[(BoxKind.NUMA, node), (BoxKind.L3, node)] for node in range(4)]
    assert view.title.startswith("4 sockets")


def test_kinds_of_cores_are_named_and_the_faster_one_is_the_performance_core() -> None:
    (box,) = build_view(hybrid()).boxes
    assert [(child.labels[0].name, len(child.cores)) for child in box.children] == [
        ("performance cores", 6),
        ("efficiency cores", 8),
    ]


def test_a_set_that_crosses_another_is_cut_and_says_so() -> None:
    machine = hybrid()
    assert machine.hardware is not None
    crossing = tuple(
        replace(cpu, package_first_cpu=0 if cpu.id < 8 else 8, package=cpu.id // 8, l3=0 if cpu.id < 12 else 12)
        for cpu in machine.hardware.cpus[:16]
    )
    hardware = replace(machine.hardware, cpus=tuple(replace(cpu, efficiency=None) for cpu in crossing))
    view = build_view(replace(machine, hardware=hardware))
    parts = {
        (label.kind, label.id, label.part): sorted(cpu.cpu for cpu in box.cpus())
        for node in view.boxes
        for outer in (node, *node.children)
        for box in (outer, *outer.children)
        for label in box.labels
        if label.part
    }
    assert parts
    assert all(kind is not BoxKind.NUMA for kind, _, _ in parts)


def test_cpus_outside_every_node_get_a_box_without_a_label() -> None:
    machine = hybrid()
    assert machine.hardware is not None
    lost = tuple(
        replace(cpu, numa=(), package_first_cpu=None, package=None, l3=None) for cpu in machine.hardware.cpus[:2]
    )
    hardware = replace(machine.hardware, cpus=(*lost, *machine.hardware.cpus[2:]))
    view = build_view(replace(machine, hardware=hardware))
    unlabelled = [box for box in view.boxes if BoxKind.NUMA not in {label.kind for label in box.labels}]
    assert {cpu.cpu for box in unlabelled for cpu in box.cpus()} >= {0, 1}
    assert cpu_of(view, 0).numa is None


@pytest.mark.parametrize(
    ("cpulists", "home"),
    [(("0-3", ""), 0), (("", "0-3"), 1), (("0-3", "0-1"), 1)],
    ids=["the listing node", "the other one", "the smaller of two"],
)
def test_the_kernels_list_decides_in_which_node_a_cpu_is_drawn(cpulists: tuple[str, str], home: int) -> None:
    machine = hybrid()
    assert machine.hardware is not None
    nodes = tuple(HardwareNode(number, 0, (), cpus(text or "0-3"), text) for number, text in enumerate(cpulists))
    two = tuple(replace(cpu, numa=(0, 1)) for cpu in machine.hardware.cpus[:2])
    view = build_view(replace(machine, hardware=replace(machine.hardware, cpus=two, nodes=nodes)))
    assert {cpu.numa for cpu in view.cpus()} == {home}


def test_figures_per_numa_node_add_up() -> None:
    owner = CPUOwner("ns/pod/c", "u", cpus("2-3"))
    view = build_view(
        regular(SampleShape(sockets=2, cores=2)),
        owners=[owner],
        pools=Pools(cpus("0,4"), cpus("0-1,4-7"), cpus("1,5-7")),
    )
    assert [dict(node.counts) for node in view.numa] == [
        {CPUUse.RESERVED: 2, CPUUse.FREE: 2},
        {CPUUse.EXCLUSIVE: 2, CPUUse.FREE: 2},
    ]


def test_a_machine_without_any_cpu_is_still_a_picture() -> None:
    view = build_view(Machine("empty", MachineInfo(0, 0, 0, ())))
    assert list(view.cpus()) == []
    assert view.boxes == ()


def test_dies_are_boxes_where_a_socket_has_several_and_an_l3_is_always_one() -> None:
    whole = hybrid()
    assert whole.hardware is not None
    one = tuple(replace(cpu, die=0, l3=cpu.core) for cpu in whole.hardware.cpus)
    single = build_view(replace(whole, hardware=replace(whole.hardware, cpus=one)))
    assert not [name for box in flat(single.boxes) for name in names(box) if name[0] is BoxKind.DIE]
    caches = [box for box in flat(single.boxes) if (BoxKind.L3, None) in names(box)]
    assert [len(box.cores) for box in caches] == [1] * len({cpu.core for cpu in one})
    two = tuple(replace(cpu, die=0 if cpu.id < 12 else 12) for cpu in whole.hardware.cpus)
    several = build_view(replace(whole, hardware=replace(whole.hardware, cpus=two)))
    dies = [box for box in flat(several.boxes) if BoxKind.DIE in {kind for kind, _ in names(box)}]
    assert [names(box)[0] for box in dies] == [(BoxKind.DIE, 0), (BoxKind.DIE, 1)]
    assert [len(list(box.cpus())) for box in dies] == [12, 8]


def flat(boxes: tuple[BoxView, ...]) -> list[BoxView]:
    return [inner for box in boxes for inner in (box, *flat(box.children))]
