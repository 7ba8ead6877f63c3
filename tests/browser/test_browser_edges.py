"""No text of a picture is cut at an edge, runs out of its box, or lies on another one."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest
from playwright.sync_api import Browser, Page
from tests.browser.conftest import SHOTS, Open
from tests.render.report_pages import report_on
from tests.render.sample_machines import pooled

from mooring.engine.core.cpuset import CPUSet
from mooring.inputs.machines.loader import load_machine
from mooring.views.build import CPUOwner, build_view
from mooring.views.decision import SIGNS, DecisionCell, DecisionPanel, DecisionRow, DecisionView, Mark
from mooring.views.devices import DeviceView
from mooring.views.svg.decision import decision_svg
from mooring.views.svg.picture import svg_text
from mooring.views.svg.plot import Kind, Plot, PlotRow, plot_svg
from mooring.views.view import MemoryUse, NodeView, RejectedPod

LONG = "n" * 63 + "/" + "web-frontend-" * 19 + "{}/" + "c" * 63
"""As long as names can be: 63 characters, 253 characters with an ordinal, 63 characters."""

SHAPES = {
    (1, 2): "sockets=1 numa=1 cores=1 threads=2 memory=1Gi",
    (1, 96): "sockets=1 numa=1 cores=96 threads=1 l3=1 memory=512Gi",
    (2, 16): "sockets=2 numa=2 cores=8 threads=2 memory=16Gi",
    (4, 64): "sockets=2 numa=4 cores=32 threads=2 l3=8 memory=1000Gi",
    (8, 256): "sockets=2 numa=8 cores=128 threads=2 l3=32 memory=512Gi",
    (12, 48): "sockets=4 numa=12 cores=48 threads=1 memory=123456Mi",
    (16, 32): "sockets=16 numa=16 cores=16 threads=2 memory=16Gi",
    (16, 1024): "sockets=2 numa=16 cores=512 threads=2 l3=64 memory=4Ti",
}
"""NUMA nodes and CPUs -> a machine."""

TROUBLES = """svg => {
  const found = [], page = svg.getBoundingClientRect();
  const frames = [...svg.querySelectorAll('rect.socket,rect.node,rect.cache')].map(one => one.getBoundingClientRect());
  const texts = [...svg.querySelectorAll('text')].filter(one => one.textContent).map(one => {
    const {left, right, top, bottom} = one.getBoundingClientRect();
    return {one, words: one.textContent.slice(0, 60), left, right, top, bottom, middle: (top + bottom) / 2};
  });
  const inside = (text, frame, slack) => text.left >= frame.left - slack && text.right <= frame.right + slack;
  for (const text of texts) {
    if (!inside(text, page, 0) || text.top < page.top || text.bottom > page.bottom) found.push(`page: ${text.words}`);
    const centre = (text.left + text.right) / 2;
    const around = (one, x) => one.left <= x && x <= one.right && one.top < text.middle && text.middle < one.bottom;
    const beside = [...text.one.parentElement.children].filter(other => other.tagName === 'rect');
    const own = beside.map(other => other.getBoundingClientRect()).filter(one => around(one, centre));
    if (own.length && text.one.parentElement !== svg && !own.every(one => inside(text, one, 1))) {
      found.push(`cell: ${text.words}`);
    }
    for (const frame of frames.filter(one => around(one, text.left))) {
      if (text.right > frame.right) found.push(`box: ${text.words}`);
    }
  }
  const turned = texts.filter(text => !text.one.closest('[transform^=rotate]')).sort((one, two) => one.top - two.top);
  for (const [index, one] of turned.entries()) {
    for (let next = index + 1; next < turned.length && turned[next].top < one.bottom - 4; next += 1) {
      const two = turned[next];
      if (one.left < two.right - 1 && two.left < one.right - 1) found.push(`overlap: ${one.words} | ${two.words}`);
    }
  }
  return found;
}"""


@pytest.fixture(scope="module")
def page(chromium: Browser) -> Iterator[Page]:
    context = chromium.new_context(viewport={"width": 1400, "height": 900})
    yield context.new_page()
    context.close()


def troubles(page: Page, picture: str, name: str) -> list[str]:
    page.set_content(f"<body style='margin:0'>{picture}</body>")
    SHOTS.mkdir(parents=True, exist_ok=True)
    page.screenshot(path=SHOTS / f"edges-{name}.png", full_page=True)
    found: list[str] = page.eval_on_selector("svg", TROUBLES)
    return found


def occupied(machine: str) -> NodeView:
    """Return a machine full of owners with names as long as they can be, and devices of every state."""
    loaded = load_machine(machine)
    cores = [
        CPUSet.from_ids(cpu.cpu for cpu in core.cpus) for box in build_view(loaded).boxes for core in box.all_cores()
    ]
    nodes = [node.id for node in build_view(loaded).numa]
    runs = [cores[start : start + 1 + start % 3] for start in range(1, len(cores), 4)]
    held = [CPUSet.from_ids(cpu for core in run for cpu in core) for run in runs]
    owners = [
        CPUOwner(LONG.format(place), f"u{place}", cpus, (0,), hypothetical=place % 5 == 4)
        for place, cpus in enumerate(held)
    ]
    owners.append(CPUOwner(LONG.format(9999), "u-nic", CPUSet(), devices=frozenset({("x.example/nic", "nic-0")})))
    devices = [DeviceView("x.example/nic", f"nic-{node}", (node,), healthy=node % 3 != 1) for node in nodes]
    devices += [DeviceView("g" * 63 + ".example/gpu", "GPU-" + "7" * 36 + str(node), (node,)) for node in nodes]
    devices += [DeviceView("x.example/vf", "0000:3b:00.1", (), address="0000:3b:00.1")]
    return build_view(
        replace(loaded, name="machine-" + "m" * 245),
        owners=owners,
        pools=pooled(cores[0], shared=CPUSet.from_ids(cpu for core in cores for cpu in core), free=cores[-1]),
        memory={node: MemoryUse(1 << 30, 1 << 29) for node in nodes},
        rejected=[RejectedPod(LONG.format(1), "TopologyAffinityError", "w" * 300)],
        subtitle="CPU manager static " * 20,
        caption=["s" * 400],
        devices=devices,
    )


@pytest.mark.parametrize("shape", SHAPES, ids=lambda shape: f"{shape[0]}-nodes-{shape[1]}-cpus")
def test_no_text_of_a_node_is_cut_at_an_edge(page: Page, shape: tuple[int, int]) -> None:
    view = occupied(SHAPES[shape])
    assert (len(view.numa), len(list(view.cpus()))) == shape
    assert troubles(page, svg_text(view), f"node-{shape[0]}-{shape[1]}") == []


@pytest.mark.parametrize("nodes", [1, 2, 8, 9, 16])
def test_no_text_of_a_decision_is_cut_at_an_edge(page: Page, nodes: int) -> None:
    texts = (("32/64 free", "12 unhealthy"), ("1-4,129-132,200-299", ""), ("1023.9 GiB free", ""), ("", ""))
    rows = tuple(
        DecisionRow(
            name,
            tuple(DecisionCell(mark, *texts[(node + place) % 4], required=node == 1) for node in range(nodes)),
            "r" * 200,
        )
        for place, (mark, name) in enumerate(zip(SIGNS, ["cpu", "vendor.example/" + "g" * 238] * 5, strict=True))
    )
    panel = DecisionPanel(LONG, tuple(range(nodes)), rows, "verdict " * 40, refused=True)
    view = DecisionView(LONG, "cause " * 60, "policies " * 40, (panel, panel), ("note " * 60, LONG))
    assert {row.cells[0].mark for row in rows} == set(Mark)
    assert troubles(page, decision_svg(view), f"decision-{nodes}") == []


@pytest.mark.parametrize("count", [0, 6, 16])
def test_no_text_of_a_comparison_is_cut_at_an_edge(page: Page, count: int) -> None:
    kinds = (Kind("admitted", "exclusive-0", ""), Kind("rejected: TopologyAffinityError", "exclusive-1", "a"))
    rows = [
        PlotRow(
            f"{rank}.",
            (LONG, "aligned by luck") if rank % 2 else (),
            is_strong=rank == 1,
            settings=tuple(rank % 2 == place % 2 for place in range(count)),
            counts=(900, 99),
            shares=((1000, 1000),) * 6,
            figures=("1024", "16.00", "+195"),
        )
        for rank in range(1, 12)
    ]
    headings = ("NUMA", "socket", "L3", "core", "memory", "devices")
    names = tuple(f"prefer-align-cpus-by-uncorecache-{place}" for place in range(count))
    plot = Plot(LONG, (LONG,), "pod", kinds, headings, ("stranded", "spread", "alike"), tuple(rows), (LONG,), names)
    assert troubles(page, plot_svg(plot), f"comparison-{count}") == []


@pytest.mark.parametrize("width", [360, 1280, 1920])
@pytest.mark.parametrize("shape", [(1, 2), (4, 64)])
def test_no_text_of_a_report_is_cut_at_an_edge(visit: Open, shape: tuple[int, int], width: int) -> None:
    seen = visit(report_on(occupied(SHAPES[shape])), width=width)
    assert seen.page.evaluate("document.documentElement.scrollWidth") <= width
    maps = seen.page.locator(f".map.{'wide' if width > 760 else 'narrow'} svg")
    assert maps.evaluate(TROUBLES) == []
    assert seen.complaints == []
    seen.shot(f"edges-report-{shape[0]}-{shape[1]}-{width}")
