"""What a machine and its owners become: uses, marks, colours, words."""

from __future__ import annotations

import json
import re
from base64 import b64encode
from collections.abc import Callable, Mapping
from dataclasses import replace
from hashlib import sha256
from io import StringIO
from itertools import combinations
from pathlib import Path
from typing import Any

import pytest
from rich.color import Color, ColorSystem
from rich.console import Console
from rich.style import Style
from rich.text import Text
from tests.cli.command import GOLDEN, NODE, ROOT, mooring
from tests.render.html_page import Page
from tests.render.sample_machines import SampleShape, hybrid, regular
from tests.values import not_none

from mooring.engine.core.cpuset import CPUSet
from mooring.engine.core.machine import HardwareCPU, HardwareNode, Machine
from mooring.engine.core.machineinfo import Core, MachineInfo, NUMANode
from mooring.views.build import CPUOwner, Pools, build_view
from mooring.views.console import STYLES, write
from mooring.views.svg.elements import DARK, HATCH_OPACITY, HATCHES, LIGHT
from mooring.views.terminal import picture
from mooring.views.view import (
    OWNER_COLOURS,
    RESERVED_FILL,
    SIXTEEN,
    SIXTEEN_RESERVED,
    BoxKind,
    BoxView,
    CPUUse,
    CPUView,
    NodeView,
    contrast,
    mixed,
    text_on,
)

EIGHT = regular(SampleShape(sockets=1, nodes=1, cores=4), "eight")


def cpus(text: str) -> CPUSet:
    return CPUSet.parse(text)


def cpu_of(view: NodeView, number: int) -> CPUView:
    return next(cpu for cpu in view.cpus() if cpu.cpu == number)


def names(box: BoxView) -> list[tuple[BoxKind, int | None]]:
    return [(label.kind, label.id) for label in box.labels]


def owned(*owners: tuple[str, str, str]) -> NodeView:
    """Return the machine of eight CPUs with owners: label, uid and CPUs of each."""
    return build_view(EIGHT, owners=[CPUOwner(label, uid, cpus(held)) for label, uid, held in owners])


def laptop(change: Callable[[HardwareCPU], HardwareCPU] = lambda cpu: cpu, **more: Any) -> Machine:
    """Return the hybrid machine with its CPUs changed one by one, and other parts."""
    machine = hybrid()
    hardware = replace(not_none(machine.hardware), **more)
    return replace(machine, hardware=replace(hardware, cpus=tuple(map(change, hardware.cpus))))


HARDWARE = not_none(hybrid().hardware)


@pytest.mark.parametrize(
    ("owners", "pools", "found"),
    [
        pytest.param([], None, {CPUUse.SHARED: "0-7"}, id="no configuration"),
        pytest.param(
            [CPUOwner("ns/pod/c", "u", cpus("2-3,6-7"))],
            Pools(cpus("0,4"), cpus("0-1,4-5"), cpus("1,5")),
            {CPUUse.RESERVED: "0,4", CPUUse.FREE: "1,5", CPUUse.EXCLUSIVE: "2-3,6-7"},
            id="static policy",
        ),
        pytest.param([], Pools(shared=cpus("0-6")), {CPUUse.SHARED: "0-6", CPUUse.LEFT_OUT: "7"}, id="in no pool"),
    ],
)
def test_cpus_are_what_owners_and_pools_make_of_them(
    owners: list[CPUOwner], pools: Pools | None, found: dict[CPUUse, str]
) -> None:
    uses = {cpu.cpu: cpu.use for cpu in build_view(EIGHT, owners=owners, pools=pools).cpus()}
    assert uses == {cpu: use for use, listed in found.items() for cpu in cpus(listed)}


def test_the_legend_counts_every_use_once_and_tells_strict_reservation() -> None:
    loose = build_view(EIGHT, pools=Pools(cpus("0,4"), cpus("0-7"), cpus("1-3,5-7")))
    strict = build_view(EIGHT, pools=Pools(cpus("0,4"), cpus("1-3,5-7"), cpus("1-3,5-7")))
    assert [(use, str(cpus)) for use, (cpus, _) in loose.legend.items()] == [
        (CPUUse.RESERVED, "0,4"),
        (CPUUse.FREE, "1-3,5-7"),
    ]
    assert "pods without exclusive CPUs" in loose.legend[CPUUse.RESERVED][1]
    assert "no pod" in strict.legend[CPUUse.RESERVED][1]


def test_a_cpu_of_two_pods_is_contested_and_names_both() -> None:
    view = owned(("ns/a/c", "u1", "1-2"), ("ns/b/c", "u2", "2-3"))
    assert cpu_of(view, 2).use is CPUUse.CONTESTED
    assert {cpu_of(view, 2).owner, *cpu_of(view, 2).other_owners} == {0, 1}
    assert cpu_of(view, 1).use is CPUUse.EXCLUSIVE


def test_of_two_containers_of_one_pod_the_later_is_drawn() -> None:
    view = owned(("ns/a/init", "u", "1-3"), ("ns/a/app", "u", "2-3"))
    assert cpu_of(view, 2) == replace(cpu_of(view, 2), use=CPUUse.EXCLUSIVE, owner=1, other_owners=(0,))
    assert any("last of them" in line for line in view.caption)


def test_an_owned_cpu_that_is_offline_is_drawn_as_offline_with_its_owner() -> None:
    gone = laptop(cpus=HARDWARE.cpus[:18], offline=cpus("18-19"))
    view = build_view(gone, owners=[CPUOwner("ns/a/c", "u", cpus("17-18,77"))])
    assert {cpu.cpu: cpu.owner for cpu in view.cpus() if cpu.use is CPUUse.OFFLINE} == {18: 0, 19: None, 77: 0}
    assert names(view.boxes[-1]) == [(BoxKind.OFFLINE, None)]


def test_containers_of_one_pod_share_a_colour_and_have_marks_of_their_own() -> None:
    view = owned(("ns/a/x", "u1", "1"), ("ns/b/x", "u2", "2"), ("ns/a/y", "u1", "3"))
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
    def crossing(cpu: HardwareCPU) -> HardwareCPU:
        first, l3 = 0 if cpu.id < 8 else 8, 0 if cpu.id < 12 else 12
        return replace(cpu, package_first_cpu=first, package=cpu.id // 8, l3=l3, efficiency=None)

    view = build_view(laptop(crossing, cpus=HARDWARE.cpus[:16]))
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
    nowhere: dict[str, Any] = {"numa": (), "package_first_cpu": None, "package": None, "l3": None}
    view = build_view(laptop(lambda cpu: replace(cpu, **nowhere) if cpu.id < 2 else cpu))
    unlabelled = [box for box in view.boxes if BoxKind.NUMA not in {label.kind for label in box.labels}]
    assert {cpu.cpu for box in unlabelled for cpu in box.cpus()} >= {0, 1}
    assert cpu_of(view, 0).numa is None


@pytest.mark.parametrize(
    ("cpulists", "home"),
    [(("0-3", ""), 0), (("", "0-3"), 1), (("0-3", "0-1"), 1)],
    ids=["the listing node", "the other one", "the smaller of two"],
)
def test_the_kernels_list_decides_in_which_node_a_cpu_is_drawn(cpulists: tuple[str, str], home: int) -> None:
    nodes = tuple(HardwareNode(number, 0, (), cpus(text or "0-3"), text) for number, text in enumerate(cpulists))
    view = build_view(laptop(lambda cpu: replace(cpu, numa=(0, 1)), cpus=HARDWARE.cpus[:2], nodes=nodes))
    assert {cpu.numa for cpu in view.cpus()} == {home}


def test_figures_per_numa_node_add_up() -> None:
    owner, pools = CPUOwner("ns/pod/c", "u", cpus("2-3")), Pools(cpus("0,4"), cpus("0-1,4-7"), cpus("1,5-7"))
    view = build_view(regular(SampleShape(sockets=2, cores=2)), owners=[owner], pools=pools)
    assert [dict(node.counts) for node in view.numa] == [
        {CPUUse.RESERVED: 2, CPUUse.FREE: 2},
        {CPUUse.EXCLUSIVE: 2, CPUUse.FREE: 2},
    ]


def test_a_machine_without_any_cpu_is_still_a_picture() -> None:
    view = build_view(Machine("empty", MachineInfo(0, 0, 0, ())))
    assert list(view.cpus()) == []
    assert view.boxes == ()


def test_dies_are_boxes_where_a_socket_has_several_and_an_l3_is_always_one() -> None:
    single = build_view(laptop(lambda cpu: replace(cpu, die=0, l3=cpu.core)))
    assert not [name for box in flat(single.boxes) for name in names(box) if name[0] is BoxKind.DIE]
    caches = [box for box in flat(single.boxes) if (BoxKind.L3, None) in names(box)]
    assert [len(box.cores) for box in caches] == [1] * len({cpu.core for cpu in HARDWARE.cpus})
    several = build_view(laptop(lambda cpu: replace(cpu, die=0 if cpu.id < 12 else 12)))
    dies = [box for box in flat(several.boxes) if BoxKind.DIE in {kind for kind, _ in names(box)}]
    assert [names(box)[0] for box in dies] == [(BoxKind.DIE, 0), (BoxKind.DIE, 1)]
    assert [len(list(box.cpus())) for box in dies] == [12, 8]


def flat(boxes: tuple[BoxView, ...]) -> list[BoxView]:
    return [inner for box in boxes for inner in (box, *flat(box.children))]


# The page of ``mooring upgrade`` without a browser: whole, well nested, safe.


MACHINE = ("--machine", "sockets=1 cores=4 threads=2 memory=8Gi")
HOSTILE = "\x1b]<script>alert('&')</script>\"><img src=x>"
CLUSTER = ("-f", GOLDEN / "cluster.yaml", *NODE)
CONFIG = """
kind: KubeletConfiguration
cpuManagerPolicy: static
cpuManagerPolicyOptions: {full-pcpus-only: "true"}
reservedSystemCPUs: "0,4"
"""
POD = """
{apiVersion: v1, kind: Pod, metadata: {name: big},
 spec: {containers: [{name: c, resources: {limits: {cpu: 4, memory: 1Gi}}}]}}
"""


def rejecting(tmp_path: Path) -> tuple[str | Path, ...]:
    """A rollback that rejects a pod."""
    config, pod = tmp_path / "kubelet.yaml", tmp_path / "pod.yaml"
    config.write_text(CONFIG)
    pod.write_text(POD)
    return ("upgrade", "--kubelet-version", "1.37", "1.34", "-f", pod, *MACHINE, "--config", config)


def test_the_page_has_every_part_of_the_answer_with_the_picture_and_only_its_own_styles(tmp_path: Path) -> None:
    answered = mooring(*rejecting(tmp_path), "-o", "html")
    page = Page(answered.out)
    titles = [text for tag, text in page.texts if tag == "h2"]
    assert answered.code == 1
    before, after = (
        ["Do first", "Pods", "The node after the start of the new kubelet", "Why"],
        ["State files", "Rollback"],
    )
    assert titles == [*before, "Settings", "Through every minor release", *after]
    shown = " ".join(text for _, text in page.texts)
    for words in ("rejects 1 of 1 running pod", "SMTAlignmentError", "CPUs 1-2,5-6", "smt-check-before-existing"):
        assert words in shown
    [styles] = [text for tag, text in page.texts if tag == "style"]
    digest = f"sha256-{b64encode(sha256(styles.encode()).digest()).decode()}"
    assert page.named("meta")[1]["content"] == (
        f"default-src 'none'; style-src '{digest}'; base-uri 'none'; form-action 'none'"
    )
    assert len(page.named("svg")) == 1


def test_a_kubelet_that_does_not_start_has_its_message_and_no_picture(tmp_path: Path) -> None:
    arguments = rejecting(tmp_path)
    (tmp_path / "kubelet.yaml").write_text(f"{CONFIG}featureGates: {{MemoryManager: true}}")
    page = Page(mooring("upgrade", "--kubelet-version", "1.34", *arguments[4:], "-o", "html").out)
    assert any(text.endswith("unrecognized feature gate: MemoryManager") for _, text in page.texts)
    assert page.named("svg") == []


def test_several_nodes_have_a_row_each() -> None:
    page = Page(mooring("upgrade", *CLUSTER, "-o", "html").out)
    texts = [text for tag, text in page.texts if tag in ("th", "p")]
    assert [text for text in texts if text in ("n1", "n2")] == ["n1", "n2"]
    assert "2 of 2 nodes safe." in texts


def test_names_and_messages_cannot_become_markup(tmp_path: Path) -> None:
    arguments = rejecting(tmp_path)
    hostile = json.dumps(HOSTILE)
    (tmp_path / "kubelet.yaml").write_text(CONFIG.replace("{full-pcpus-only", f"{{{hostile}: 'true', full-pcpus-only"))
    cluster = tmp_path / "cluster.yaml"
    cluster.write_text((GOLDEN / "cluster.yaml").read_text("utf-8").replace("name: n2", f"name: {hostile}"), "utf-8")
    for asked, least in ((arguments, 4), (("upgrade", "-f", cluster, *NODE), 1)):
        text = mooring(*asked, "-o", "html").out
        page = Page(text)
        assert page.named("script") == page.named("img") == []
        assert "\x1b" not in text
        assert text.count("&lt;script&gt;") >= least


def test_of_the_pages_of_upgrades_only_the_picture_is_not_escaped() -> None:
    templates = ROOT / "src" / "mooring" / "views" / "html" / "templates"
    texts = [(templates / f"{name}.html").read_text("utf-8") for name in ("upgrade", "upgrades", "findings")]
    assert re.findall(r"{{([^}]*?)\| *safe *}}", "".join(texts)) == [" picture "]


# Colours that everybody can tell apart and read on.


# Full loss of one cone class, as matrices on linear RGB: Machado, Oliveira and Fernandes, 2009, severity 1.0.
DEFICIENCIES = {
    "none": ((1, 0, 0), (0, 1, 0), (0, 0, 1)),
    "protanopia": ((0.152286, 1.052583, -0.204868), (0.114503, 0.786281, 0.099216), (-0.003882, -0.048116, 1.051998)),
    "deuteranopia": ((0.367322, 0.860646, -0.227968), (0.280085, 0.672501, 0.047413), (-0.01182, 0.04294, 0.968881)),
    "tritanopia": ((1.255528, -0.076749, -0.178779), (-0.078411, 0.930809, 0.147602), (0.004733, 0.691367, 0.3039)),
}


def seen(colour: str, matrix: tuple[tuple[float, float, float], ...]) -> tuple[float, ...]:
    """Return the CIE Lab coordinates of a colour as someone with the deficiency sees it."""
    parts = [int(colour[start : start + 2], 16) / 255 for start in (1, 3, 5)]
    linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
    red, green, blue = (
        min(1.0, max(0.0, sum(weight * part for weight, part in zip(row, linear, strict=True)))) for row in matrix
    )
    x = (0.4124 * red + 0.3576 * green + 0.1805 * blue) / 0.9505
    y = 0.2126 * red + 0.7152 * green + 0.0722 * blue
    z = (0.0193 * red + 0.1192 * green + 0.9505 * blue) / 1.089
    fx, fy, fz = (part ** (1 / 3) if part > 0.008856 else 7.787 * part + 16 / 116 for part in (x, y, z))
    return (116 * fy - 16, 500 * (fx - fy), 200 * (fy - fz))


@pytest.mark.parametrize("deficiency", DEFICIENCIES)
def test_the_first_seven_owners_differ_for_everybody(deficiency: str) -> None:
    matrix = DEFICIENCIES[deficiency]
    for one, two in combinations(OWNER_COLOURS[:7], 2):
        distance = sum((a - b) ** 2 for a, b in zip(seen(one, matrix), seen(two, matrix), strict=True)) ** 0.5
        assert distance > 8, (one, two, distance)


@pytest.mark.parametrize("colour", [*OWNER_COLOURS, RESERVED_FILL])
def test_text_on_every_fill_is_readable_also_hatched_and_with_256_colours(colour: str) -> None:
    text = text_on(colour)
    kind = "dark" if text == "#ffffff" else "light"
    few = (Color.parse(name).downgrade(ColorSystem.EIGHT_BIT).get_truecolor().hex for name in (text, colour))
    assert min(contrast(text, colour), contrast(*few)) >= 4.5
    assert colour == RESERVED_FILL or contrast(text, mixed(colour, HATCHES[kind], HATCH_OPACITY)) >= 4.5


@pytest.mark.parametrize("ground", [LIGHT, DARK], ids=["light", "dark"])
def test_text_and_borders_of_the_svg_can_be_seen_on_every_ground_they_stand_on(ground: Mapping[str, str]) -> None:
    for paper in (ground["page"], ground["socket"], ground["node"]):
        assert contrast(ground["ink"], paper) >= 7
        assert contrast(ground["quiet"], paper) >= 4.5
        assert contrast(ground["edge"], paper) >= 3
    for paper in (ground["grey"], ground["stripe"]):
        assert contrast(ground["ink"], paper) >= 4.5


def test_every_use_has_a_style_in_the_terminal() -> None:
    assert {use.value.replace(" ", "-") for use in CPUUse} - {"exclusive"} <= STYLES.keys()


# The 16 colours by their usual numbers: of xterm (its defaults), of VGA and the Linux console, and of Windows' console.
TERMINALS = {
    "xterm": "000 cd0000 00cd00 cdcd00 0000ee cd00cd 00cdcd e5e5e5 7f7f7f f00 0f0 ff0 5c5cff f0f 0ff fff",
    "VGA": "000 a00 0a0 a50 00a a0a 0aa aaa 555 f55 5f5 ff5 55f f5f 5ff fff",
    "Windows": "0c0c0c c50f1f 13a10e c19c00 0037da 881798 3a96dd ccc "
    "767676 e74856 16c60c f9f1a5 3b78ff b4009e 61d6d6 f2f2f2",
}


@pytest.mark.parametrize("terminal", TERMINALS)
def test_sixteen_colours_are_readable_on_every_terminal(terminal: str) -> None:
    doubled = (one if len(one) == 6 else "".join(sign * 2 for sign in one) for one in TERMINALS[terminal].split())
    colours = [f"#{colour}" for colour in doubled]
    pairs = [*SIXTEEN, SIXTEEN_RESERVED]
    assert len(set(pairs)) == len(pairs)
    for text, fill in pairs:
        numbers = [Color.parse(name).number or 0 for name in (text, fill)]
        assert contrast(*(colours[number] for number in numbers)) >= 4.5, (text, fill)


def test_a_terminal_of_sixteen_colours_gets_these_and_every_owner_its_own_letter() -> None:
    held = [CPUOwner(f"ns/pod-{number}/c", f"u{number}", CPUSet.from_ids([number])) for number in range(1, 24)]
    view = build_view(regular(SampleShape(cores=16)), owners=held, pools=Pools(CPUSet.parse("0,16")))
    console = Console(
        file=StringIO(), width=100, force_terminal=True, color_system="standard", legacy_windows=False, no_color=False
    )
    with console.capture() as capture:
        write(console, picture(view, 100))
    shown = Text.from_ansi(capture.get())
    allowed = {tuple(Color.parse(name).number for name in pair) for pair in (*SIXTEEN, SIXTEEN_RESERVED)}
    pairs = {
        (style.color.number, style.bgcolor.number)
        for span in shown.spans
        if isinstance(style := span.style, Style) and style.color is not None and style.bgcolor is not None
    }
    assert pairs == allowed
    assert len({owner.mark for owner in view.owners}) == 23
    assert all(f" {owner.mark} " in shown.plain for owner in view.owners)
