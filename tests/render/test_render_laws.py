"""Laws that hold for every machine, also for those that firmware describes wrongly."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from io import BytesIO, StringIO, TextIOWrapper
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rich.cells import cell_len
from rich.console import Console
from tests.render.pictured import terminal_text
from tests.render.sample_machines import SampleShape, hybrid, occupied, regular
from tests.values import not_none

from mooring.engine.core.cpuset import CPUSet
from mooring.engine.core.machine import Hardware, HardwareCPU, HardwareNode, Machine
from mooring.engine.core.machineinfo import Cache, Core, MachineInfo, NUMANode
from mooring.inputs.machines.compact import parse_compact
from mooring.views.build import CPUOwner, Pools, build_view
from mooring.views.console import Breaking, bar, plain, write
from mooring.views.devices import DeviceView
from mooring.views.layout import CellMetrics, PictureLayout, PlacedBox, arrange
from mooring.views.svg.picture import map_metrics as svg_metrics
from mooring.views.svg.picture import svg_text
from mooring.views.tables import numa_table, owners_table, placements_table
from mooring.views.terminal import map_layout, picture
from mooring.views.view import BoxKind, BoxView, CPUUse, NodeView, PlacementRow
from mooring.views.wording import MARKS, cpu_mark, cpu_sentence, numbers, owner_marks

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
LAW = settings(max_examples=20, deadline=None)


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
            patched.setattr("mooring.views.terminal.TALLEST_NUMBERED_MAP", tallest)
            layout, metrics = map_layout(view, width)
        found.append((None, layout, metrics.cell_width, 1))
    metrics = svg_metrics(view)
    found.append((metrics, arrange(view.boxes, metrics, width * 8), metrics.cell_width, metrics.cell_height))
    return found


@LAW
@given(views())
def test_every_cpu_is_drawn_once_a_box_holds_boxes_or_cores_and_numa_nodes_are_all_there(
    drawn: tuple[NodeView, set[int]],
) -> None:
    view, wanted = drawn
    assert Counter(cpu.cpu for cpu in view.cpus()) == Counter(dict.fromkeys(wanted, 1))
    labelled = set()
    waiting = list(view.boxes)
    while waiting:
        box = waiting.pop()
        assert not (box.children and box.cores)
        labelled |= {label.id for label in box.labels if label.kind is BoxKind.NUMA}
        waiting.extend(box.children)
    assert labelled == {node.id for node in view.numa}


@LAW
@given(views())
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


@LAW
@given(views(), st.integers(20, 220))
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


@LAW
@given(views(), st.integers(20, 220))
def test_every_device_is_drawn_once_in_its_smallest_box(drawn: tuple[NodeView, set[int]], width: int) -> None:
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


@LAW
@given(views(), st.integers(20, 220))
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


@LAW
@given(views(), st.integers(20, 220))
def test_nothing_in_the_terminal_covers_a_cell(drawn: tuple[NodeView, set[int]], width: int) -> None:
    view, _ = drawn
    layout, metrics = map_layout(view, width)
    if layout.width > width or metrics.label_width:
        return
    lines = terminal_text(view, width).splitlines()
    top = next(number for number, line in enumerate(lines) if not line) + 1
    for cell in layout.cells():
        shown = lines[top + cell.y].ljust(width)[cell.x : cell.x + metrics.cell_width]
        assert shown.strip() == f"{cell.view.cpu}{cpu_mark(cell.view, view)}"


@LAW
@given(views())
def test_the_svg_is_well_formed_and_has_one_number_per_cpu_and_both_pictures_are_always_the_same(
    drawn: tuple[NodeView, set[int]],
) -> None:
    view, wanted = drawn
    text = svg_text(view)
    root = ET.fromstring(text)  # noqa: S314 - our own text, and being well-formed is what is tested
    numbers = [node.text for node in root.iter(f"{SVG}text") if "cpu" in node.attrib["class"].split()]
    assert sorted(numbers, key=lambda number: int(number or "")) == [str(cpu) for cpu in sorted(wanted)]
    assert svg_text(view) == text
    assert terminal_text(view, 90) == terminal_text(view, 90)


# The terminal: golden pictures, no colour where none is wanted, widths kept.


GOLDEN = Path(__file__).parent / "golden"


def troubled() -> NodeView:
    """Return a picture with every use of CPUs in it."""
    machine = hybrid("troubled")
    whole = not_none(machine.hardware)
    hardware = replace(whole, cpus=whole.cpus[:18], offline=CPUSet.parse("18-21"))
    owners = [
        CPUOwner("ns/first/init", "u1", CPUSet.parse("4-7")),
        CPUOwner("ns/first/app", "u1", CPUSet.parse("4-9")),
        CPUOwner("ns/second", "u2", CPUSet.parse("9-11,18"), memory_nodes=(0,)),
    ]
    pools = Pools(CPUSet.parse("0-1"), CPUSet.parse("0-2,12-15"), CPUSet.parse("12-15"))
    return build_view(replace(machine, hardware=hardware), owners=owners, pools=pools)


PICTURES: dict[str, tuple[Callable[[], NodeView], int]] = {
    "hybrid-80": (lambda: occupied(hybrid()), 80),
    "memory-only-100": (lambda: occupied(regular(SampleShape(sockets=2, nodes=2, caches=2, memory_only=1))), 100),
    "memory-only-60": (lambda: occupied(regular(SampleShape(sockets=2, nodes=2, caches=2, memory_only=1))), 60),
    "marks-alone-80": (lambda: occupied(regular(SampleShape(sockets=2, caches=8, cores=16, node_memory=0))), 80),
    "troubled-90": (troubled, 90),
}


@pytest.mark.parametrize("name", PICTURES)
def test_the_picture_is_the_agreed_one(name: str) -> None:
    make, width = PICTURES[name]
    assert terminal_text(make(), width) == (GOLDEN / f"{name}.txt").read_text("utf-8")


@pytest.mark.parametrize("cpus", [8, 64, 256, 512])
@pytest.mark.parametrize("width", [60, 80, 100, 200])
def test_no_line_is_wider_than_the_terminal(cpus: int, width: int) -> None:
    shape = SampleShape(sockets=2, nodes=2, cores=cpus // 8)
    assert max(cell_len(line) for line in terminal_text(occupied(regular(shape)), width).splitlines()) <= width


def test_512_cpus_fit_on_two_screens_of_100_columns() -> None:
    lines = terminal_text(occupied(regular(SampleShape(sockets=2, caches=16, cores=8))), 100).splitlines()
    assert len([line for line in lines if line[:1] in "┏┃┗"]) <= 50


def printed(**settings: object) -> str:
    console = Console(file=StringIO(), width=100, **settings)  # type: ignore[arg-type]
    write(console, picture(occupied(hybrid()), console.width))
    assert isinstance(console.file, StringIO)
    return console.file.getvalue()


def test_colours_are_used_where_the_terminal_has_them_and_add_nothing_that_monochrome_lacks() -> None:
    coloured = printed(color_system="truecolor", force_terminal=True)
    assert "\x1b[" in coloured
    lines = [line.rstrip() for line in re.sub(r"\x1b\[[0-9;]*m", "", coloured).splitlines()]
    assert lines == terminal_text(occupied(hybrid()), 100).splitlines()


def test_no_color_and_a_file_mean_no_escape_code_at_all(monkeypatch: pytest.MonkeyPatch) -> None:
    assert "\x1b" not in printed()
    monkeypatch.setenv("NO_COLOR", "1")
    assert printed(color_system="truecolor", force_terminal=True) == terminal_text(occupied(hybrid()), 100)


def test_an_ascii_terminal_gets_ascii() -> None:
    raw = BytesIO()
    file = TextIOWrapper(raw, "ascii", write_through=True)
    write(Console(file=file, width=80), picture(occupied(hybrid()), 80))
    assert raw.getvalue().isascii()
    assert b"?" not in raw.getvalue()


def test_names_cannot_command_the_terminal() -> None:
    view = build_view(
        regular(SampleShape(), "m\x1b]0;x\x07"),
        owners=[CPUOwner("[bold]n\x1b[2J\r", "u", CPUSet.parse("1"))],
        subtitle="\x9b31m",
    )
    text = terminal_text(view)
    assert not re.search(r"[\x00-\x09\x0b-\x1f\x7f-\x9f]", text)
    assert "[bold]n" in text


# Tables: nothing cut, lists broken at commas, bars that add up.


ODD = CPUSet.from_ids(range(1, 200, 2))
ROWS = [
    PlacementRow("ml/trainer-7f9c8d5b6-x2x4z", "worker", "exclusive", True, ODD, (0, 1), (0, 1), "whole cores"),
    PlacementRow("ml/trainer-7f9c8d5b6-x2x4z", "feeder", "shared", admitted=True),
    PlacementRow("ns/one", "c", "exclusive", True, CPUSet.parse("2-3"), (0,), alignment="whole cores, one L3"),
    PlacementRow("ns/no", "", "TopologyAffinityError", admitted=False, why="40 CPUs are free in no NUMA node."),
]


@pytest.mark.parametrize("width", [40, 60, 80, 120, 200])
def test_a_plan_keeps_every_cpu_and_every_word_at_any_width(width: int) -> None:
    text = plain(placements_table(ROWS), width)
    assert max(len(line) for line in text.splitlines()) <= width
    assert "…" not in text
    assert str(ODD) in "".join(text.split())
    for word in ("worker", "feeder", "exclusive", "shared", "TopologyAffinityError", "NUMA node."):
        assert word in text


def test_the_wide_form_is_one_line_per_container_with_everything_in_it() -> None:
    lines = plain(placements_table(ROWS, wide=True), 80).splitlines()
    assert len(lines) == 1 + len(ROWS)
    assert all(row.pod in line for row, line in zip(ROWS, lines[1:], strict=True))
    assert str(ODD) in lines[1]
    assert lines[4].endswith("40 CPUs are free in no NUMA node.")
    headings = "POD CONTAINER VERDICT CPUS NUMA MEMORY HUGEPAGES DEVICES ALIGNMENT CPU LIST WHY"
    assert lines[0].split() == headings.split()


@pytest.mark.parametrize("wide", [False, True])
def test_what_a_pod_holds_as_a_whole_has_a_row_of_its_own(wide: bool) -> None:
    sets = {"": "1-4", "c": "1-2"}
    rows = [PlacementRow("ns/pl", name, "exclusive", True, CPUSet.parse(cpus)) for name, cpus in sets.items()]
    lines = plain(placements_table(rows, wide=wide), 100).splitlines()
    assert [line.split() for line in lines if "as a whole" in line and " 4 " in line and " 1-4" in line]
    assert [line.split() for line in lines if " c " in line and " 2 " in line and " 1-2" in line]


def test_a_plan_without_rows_is_empty_and_a_pod_is_named_once() -> None:
    assert plain(placements_table([]), 80) == ""
    assert plain(placements_table(ROWS), 100).count("ml/trainer-7f9c8d5b6-x2x4z") == 1


@given(st.frozensets(st.integers(0, 4095), max_size=60).map(CPUSet.from_ids), st.integers(1, 60))
def test_a_list_breaks_after_commas_and_loses_nothing(cpus: CPUSet, width: int) -> None:
    lines = plain(Breaking(str(cpus)), width).splitlines()
    assert "".join(lines) == str(cpus)
    longest = max((len(part) for part in str(cpus).split(",")), default=0) + 1
    assert all(len(line) <= width for line in lines)
    if width >= longest:
        assert all(line.endswith(",") for line in lines[:-1])


@given(st.lists(st.integers(0, 5000), min_size=1, max_size=6), st.integers(0, 3000), st.integers(1, 60))
def test_bars_are_as_long_as_their_share_and_show_the_small(amounts: list[int], rest: int, width: int) -> None:
    total = sum(amounts) + rest
    signs = "abcdef"[: len(amounts)]
    drawn = bar([(amount, sign, "") for amount, sign in zip(amounts, signs, strict=True)], total, width).plain
    shown = [sign for sign, amount in zip(signs, amounts, strict=True) if amount]
    assert len(drawn) == (max(round(sum(amounts) * width / total), len(shown)) if total else 0)
    assert all(sign in drawn for sign in shown)
    assert list(drawn) == sorted(drawn)


@pytest.mark.parametrize("width", [60, 80, 100, 160])
def test_the_numa_table_shows_every_node_and_fits(width: int) -> None:
    view = occupied(regular(SampleShape(sockets=2, nodes=2, memory_only=1)))
    lines = plain(numa_table(view, width), width).splitlines()
    assert max(len(line) for line in lines) <= width
    assert [line.split()[0] for line in lines[1:7]] == ["0", "1", "2", "3", "4", "5"]
    assert "…" not in "".join(lines)


@pytest.mark.parametrize("width", [50, 80, 120])
def test_the_owners_table_names_every_owner_with_its_cpus(width: int) -> None:
    view = occupied(hybrid())
    text = plain(owners_table(view), width)
    packed = "".join(text.split())
    for owner in view.owners:
        assert str(owner.cpus) in packed
        assert owner.label.rpartition("/")[2] in packed


# CPUs that go back when a delay is over have marks of their own.


def view(owners: int, leaving: CPUSet) -> NodeView:
    """Return a machine on which each owner has one CPU, and the first also the last CPUs."""
    machine = parse_compact("cores=64 threads=1")
    first = CPUOwner("ns/pod0/app", "0", CPUSet.parse("0,60-63"), leaving=leaving)
    others = [CPUOwner(f"ns/pod{number}/app", str(number), CPUSet.from_ids([number])) for number in range(1, owners)]
    return build_view(machine, owners=[first, *others])


@pytest.mark.parametrize("owners", [2, 26, 50])
def test_marks_of_leaving_cpus_are_nobody_elses(owners: int) -> None:
    found = view(owners, CPUSet.parse("62-63"))
    marks = {cpu.cpu: cpu_mark(cpu, found) for cpu in found.cpus() if cpu.owner is not None}
    assert marks[62] == marks[63] == marks[0].upper() != marks[0]
    assert len(set(marks.values())) == owners + 1
    assert "released when the delay is over" in next(cpu_sentence(cpu, found) for cpu in found.cpus() if cpu.leaving)
    assert "CPUs with capital letters are released" in terminal_text(found)


def test_nothing_changes_where_nothing_leaves() -> None:
    found = view(30, CPUSet())
    assert [owner.mark for owner in found.owners] == list(owner_marks(30))
    assert "capital" not in terminal_text(found)


# CPUs that are offline for now stand at their places; those that somebody has are told apart, also without colour.


def view_hotplug(offline: str = "2,6") -> NodeView:
    """Return a machine with 8 CPUs, of which an owner has 1 to 3."""
    cpus = CPUSet.parse
    pools = Pools(cpus("0"), cpus("0,4-7"), cpus("4-5,7"), cpus(offline))
    return build_view(
        parse_compact("cores=8 threads=1"), owners=[CPUOwner("ns/pod/app", "1", cpus("1-3"))], pools=pools
    )


def test_broken_and_offline_are_two_uses_with_signs_of_their_own() -> None:
    found = view_hotplug()
    uses = {cpu.cpu: cpu.use for cpu in found.cpus()}
    assert (uses[2], uses[6]) == (CPUUse.BROKEN, CPUUse.OFFLINE)
    marks = {cpu.cpu: cpu_mark(cpu, found) for cpu in found.cpus()}
    assert len({marks[cpu] for cpu in (0, 1, 2, 4, 6)}) == 5
    assert len(set(MARKS.values())) == len(MARKS)
    two = next(cpu for cpu in found.cpus() if cpu.cpu == 2)
    assert cpu_sentence(two, found).startswith("CPU 2 · offline, but held by ns/pod/app · core of CPU 2")
    assert [cpu.cpu for cpu in found.cpus()] == list(range(8))
    assert not re.search("†|offline", terminal_text(view_hotplug("")))


def test_both_pictures_have_them_in_map_and_legend() -> None:
    text = terminal_text(view_hotplug())
    assert "2†" in text
    assert "offline; its owner does without it" in " ".join(text.split())
    svg = svg_text(view_hotplug())
    classes = {name for found in re.findall(r'class="([^"]*)"', svg) for name in found.split()}
    assert {"broken", "offline"} <= classes
    assert "url(#mooring-crosses)" in svg
    assert 'id="mooring-crosses"' in svg


def test_a_cpu_of_two_pods_stays_contested() -> None:
    cpus = CPUSet.parse
    owners = [CPUOwner("a", "1", cpus("1-2")), CPUOwner("b", "2", cpus("2"))]
    found = build_view(parse_compact("cores=4 threads=1"), owners=owners, pools=Pools(offline=cpus("2")))
    assert next(cpu.use for cpu in found.cpus() if cpu.cpu == 2) is CPUUse.CONTESTED
