"""Laws that hold for every machine, also for those that firmware describes wrongly."""

from __future__ import annotations

import xml.etree.ElementTree as ET
from collections import Counter
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.render.pictured import terminal_text

from mooring.engine.core.cpuset import CPUSet
from mooring.engine.core.machine import Hardware, HardwareCPU, HardwareNode, Machine
from mooring.engine.core.machineinfo import Cache, Core, MachineInfo, NUMANode
from mooring.views import terminal
from mooring.views.build import CPUOwner, Pools, build_view
from mooring.views.devices import DeviceView
from mooring.views.layout import CellMetrics, PictureLayout, PlacedBox, arrange
from mooring.views.svg.picture import cell_size, svg_text
from mooring.views.svg.picture import map_metrics as svg_metrics
from mooring.views.terminal import map_layout
from mooring.views.view import BoxKind, BoxView, NodeView
from mooring.views.wording import cpu_mark, numbers

CPU = st.integers(0, 40) | st.integers(0, 4095)
CPU_SETS = st.frozensets(CPU, max_size=8).map(CPUSet.from_ids)
SMALL = st.integers(0, 3)
DEVICES = st.lists(
    st.builds(
        DeviceView,
        st.sampled_from(["gpu", "x.example/" + "n" * 40]),
        st.text(max_size=30),
        st.lists(st.integers(0, 4), max_size=2, unique=True).map(tuple),
        st.booleans(),
    ),
    max_size=9,
    unique_by=lambda device: (device.resource, device.id),
) | st.just([DeviceView("nic", f"0000:3b:00.{number}", (0,)) for number in range(40)])
SVG = "{http://www.w3.org/2000/svg}"


@st.composite
def infos(draw: st.DrawFn) -> MachineInfo:
    nodes = []
    for number in draw(st.lists(st.integers(0, 9), max_size=4, unique=True)):
        cores = draw(st.lists(st.lists(CPU, min_size=1, max_size=4, unique=True), max_size=4))
        distances = draw(st.none() | st.lists(st.integers(10, 40), min_size=1, max_size=4).map(tuple))
        caches = st.lists(st.builds(Cache, SMALL, st.just(1 << 20), st.just("Unified"), st.just(3)), max_size=2)
        listed = tuple(Core(0, tuple(threads), draw(SMALL) - 1, tuple(draw(caches))) for threads in cores)
        nodes.append(NUMANode(number, draw(SMALL) << 30, cores=listed, distances=distances, caches=tuple(draw(caches))))
    return MachineInfo(draw(SMALL), draw(SMALL), draw(SMALL) << 30, tuple(nodes))


@st.composite
def hardwares(draw: st.DrawFn) -> Hardware:
    online = draw(st.frozensets(CPU, min_size=1, max_size=24))
    none_or_small = st.none() | SMALL
    cpus = tuple(
        HardwareCPU(
            id=cpu,
            core=draw(st.none() | st.sampled_from(sorted(online))),
            package=draw(st.none() | st.integers(-1, 3)),
            package_first_cpu=draw(none_or_small),
            numa=tuple(draw(st.lists(SMALL, max_size=2, unique=True))),
            l3=draw(none_or_small),
            die=draw(none_or_small),
            efficiency=draw(st.none() | st.integers(-1, 2)),
        )
        for cpu in sorted(online)
    )
    cpulists = st.none() | st.sampled_from(["", "0-3", "0-40"])
    nodes = tuple(
        HardwareNode(number, draw(SMALL) << 30, (), draw(CPU_SETS), draw(cpulists))
        for number in draw(st.lists(SMALL, max_size=4, unique=True))
    )
    offline = draw(CPU_SETS) - CPUSet.from_ids(online)
    everything = CPUSet.from_ids(online)
    return Hardware(cpus, everything, offline, everything, CPUSet(), nodes, None)


@st.composite
def views(draw: st.DrawFn) -> tuple[NodeView, set[int]]:
    """Draw a picture and the CPUs that must be in it."""
    machine = Machine("m", draw(infos()), draw(st.none() | hardwares()))
    names = st.text(max_size=12)
    owners = draw(st.lists(st.builds(CPUOwner, names, st.sampled_from(["", "u1", "u2"]), CPU_SETS), max_size=5))
    pools = Pools(draw(CPU_SETS), draw(st.none() | CPU_SETS), draw(CPU_SETS))
    wanted = {*pools.reserved, *(pools.shared or ()), *pools.free}
    wanted |= {cpu for owner in owners for cpu in owner.cpus}
    if machine.hardware is not None:
        wanted |= {cpu.id for cpu in machine.hardware.cpus} | set(machine.hardware.offline)
    wanted |= {cpu for node in machine.info.topology for core in node.cores for cpu in core.thread_ids}
    return build_view(machine, owners=owners, pools=pools, devices=draw(DEVICES)), wanted


def layouts(view: NodeView, width: int) -> list[tuple[CellMetrics | None, PictureLayout, int, int]]:
    """Return the arrangements that the renderers use, with the size of their cells."""
    found: list[tuple[CellMetrics | None, PictureLayout, int, int]] = []
    # With numbers at any height, and with marks alone.
    for tallest in (10**6, -1):
        with pytest.MonkeyPatch.context() as patched:
            patched.setattr(terminal, "TALLEST_NUMBERED_MAP", tallest)
            layout, cells = map_layout(view, width)
        found.append((None, layout, cells.width, 1))
    metrics = svg_metrics(view, cell_size(view))
    found.append((metrics, arrange(view.boxes, metrics, width * 8), metrics.cell_width, metrics.cell_height))
    return found


@given(views())
@settings(max_examples=20, deadline=None)
def test_every_cpu_is_drawn_exactly_once(drawn: tuple[NodeView, set[int]]) -> None:
    view, wanted = drawn
    assert Counter(cpu.cpu for cpu in view.cpus()) == Counter(dict.fromkeys(wanted, 1))


@given(views())
@settings(max_examples=20, deadline=None)
def test_a_box_holds_boxes_or_cores_and_numa_nodes_are_all_there(drawn: tuple[NodeView, set[int]]) -> None:
    view, _ = drawn
    labelled = set()
    waiting = list(view.boxes)
    while waiting:
        box = waiting.pop()
        assert not (box.children and box.cores)
        labelled |= {label.id for label in box.labels if label.kind is BoxKind.NUMA}
        waiting.extend(box.children)
    assert labelled == {node.id for node in view.numa}


@given(views())
@settings(max_examples=20, deadline=None)
def test_cpus_of_a_labelled_numa_box_belong_to_that_node(drawn: tuple[NodeView, set[int]]) -> None:
    view, _ = drawn

    def check(box: BoxView, node: int | None) -> None:
        own = [label.id for label in box.labels if label.kind is BoxKind.NUMA]
        node = own[0] if own else node
        assert len(own) <= 1
        for child in box.children:
            check(child, node)
        for core in box.cores:
            assert {cpu.numa for cpu in core.cpus} == {node}

    for box in view.boxes:
        check(box, None)


@given(views(), st.integers(20, 220))
@settings(max_examples=20, deadline=None)
def test_cells_never_overlap_and_stay_inside_their_box(drawn: tuple[NodeView, set[int]], width: int) -> None:
    view, wanted = drawn
    for _, layout, cell_width, cell_height in layouts(view, width):
        assert sorted(cell.view.cpu for cell in layout.cells()) == sorted(wanted)
        spots = sorted((cell.y, cell.x) for cell in layout.cells())
        assert all(one[0] != two[0] or two[1] - one[1] >= cell_width for one, two in pairwise(spots))
        columns = sorted((cell.x, cell.y) for cell in layout.cells())
        assert all(one[0] != two[0] or two[1] - one[1] >= cell_height for one, two in pairwise(columns))
        for box in layout.boxes:
            for row in box.rows:
                assert box.x <= row.x
                assert row.x + row.width <= box.x + box.width
                assert row.y + row.height <= box.y + box.height
                for core in row.cells:
                    for cell in core:
                        assert row.x <= cell.x <= row.x + row.width - cell_width
                        assert row.y <= cell.y <= row.y + row.height - cell_height


@given(views(), st.integers(20, 220))
@settings(max_examples=20, deadline=None)
def test_every_device_is_drawn_once_in_the_smallest_box_with_its_numa_nodes(
    drawn: tuple[NodeView, set[int]], width: int
) -> None:
    view, _ = drawn
    for _, layout, _, _ in layouts(view, width):
        placed = [(device, group, box) for box in layout.boxes for group in box.devices for device in group.devices]
        assert Counter(device.view for device, _, _ in placed) == Counter(view.devices)
        assert len({(device.x, device.y) for device, _, _ in placed}) == len(placed)
        for device, group, box in placed:
            assert box.x <= group.x <= device.x < box.x + box.width
            assert box.y <= group.y < device.y < box.y + box.height
            holding = [other.view for other in layout.boxes if set(device.view.numa) <= numa_nodes(other.view)]
            if device.view.numa and holding:
                assert len(numa_nodes(box.view)) == min(len(numa_nodes(other)) for other in holding)
            else:
                [label] = box.view.labels
                assert label.kind is BoxKind.DEVICES
                assert label.name == (f"Devices of NUMA {numbers(device.view.numa)}" if device.view.numa else "")


def numa_nodes(box: BoxView) -> set[int | None]:
    own = {label.id for label in box.labels if label.kind is BoxKind.NUMA}
    return own.union(*map(numa_nodes, box.children))


@given(views(), st.integers(20, 220))
@settings(max_examples=20, deadline=None)
def test_boxes_are_nested_or_apart(drawn: tuple[NodeView, set[int]], width: int) -> None:
    view, _ = drawn
    for _, layout, _, _ in layouts(view, width):
        for index, box in enumerate(layout.boxes):
            assert box.x >= 0
            assert box.y >= 0
            assert box.x + box.width <= layout.width
            assert box.y + box.height <= layout.height
            for other in layout.boxes[index + 1 :]:
                assert _apart(box, other) or (_inside(other, box) and other.depth > box.depth)


def _apart(one: PlacedBox, two: PlacedBox) -> bool:
    across = one.x + one.width <= two.x or two.x + two.width <= one.x
    return across or one.y + one.height <= two.y or two.y + two.height <= one.y


def _inside(inner: PlacedBox, outer: PlacedBox) -> bool:
    across = outer.x < inner.x + 1 and inner.x + inner.width <= outer.x + outer.width
    return across and outer.y <= inner.y and inner.y + inner.height <= outer.y + outer.height


@given(views(), st.integers(20, 220))
@settings(max_examples=20, deadline=None)
def test_nothing_in_the_terminal_covers_a_cell(drawn: tuple[NodeView, set[int]], width: int) -> None:
    view, _ = drawn
    layout, cells = map_layout(view, width)
    if layout.width > width or not cells.numbered:
        return
    lines = terminal_text(view, width).splitlines()
    top = next(number for number, line in enumerate(lines) if not line) + 1
    for cell in layout.cells():
        shown = lines[top + cell.y].ljust(width)[cell.x : cell.x + cells.width]
        assert shown.strip() == f"{cell.view.cpu}{cpu_mark(cell.view, view)}"


@given(views())
@settings(max_examples=20, deadline=None)
def test_the_svg_is_well_formed_and_has_one_number_per_cpu(drawn: tuple[NodeView, set[int]]) -> None:
    view, wanted = drawn
    root = ET.fromstring(svg_text(view))  # noqa: S314 - our own text, and being well-formed is what is tested
    numbers = [node.text for node in root.iter(f"{SVG}text") if "cpu" in node.attrib["class"].split()]
    assert sorted(numbers, key=lambda number: int(number or "")) == [str(cpu) for cpu in sorted(wanted)]


@given(views())
@settings(max_examples=20, deadline=None)
def test_the_same_view_gives_the_same_picture(drawn: tuple[NodeView, set[int]]) -> None:
    view, _ = drawn
    assert svg_text(view) == svg_text(view)
    assert terminal_text(view, 90) == terminal_text(view, 90)
