"""The report of a simulated cluster in a browser: one click from a node to its picture, from a pod to its reason."""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import expect
from tests.browser.conftest import Open, Visit
from tests.fleet.clusters import arrival, asked, cluster, group

from mooring.fleet.cluster import work_of
from mooring.fleet.nodes import NodeHistory
from mooring.fleet.page import fleet_page_text
from mooring.fleet.simulation import Simulation, answer_of

HOSTILE = "<img src=x onerror=window.hacked=1>"
WORK = [
    *(arrival(f"p{number}", asked(str(1 + number % 3)), at=number, runs=40.0) for number in range(40)),
    arrival("six", asked("6"), at=20.0, owner="web"),
    arrival(HOSTILE, asked("9"), at=30.0),
]

OpenFleet = Callable[..., Visit]


@pytest.fixture(scope="session")
def page_text() -> str:
    history = NodeHistory()
    result = Simulation(cluster(group("a", 6), group("b", 300, gpus=0)), work_of("w", WORK), history=history).run()
    return fleet_page_text(answer_of(result), result, history)


@pytest.fixture
def fleet(visit: Open, page_text: str) -> OpenFleet:
    def opened(*, dark: bool = False, width: int = 1280) -> Visit:
        seen = visit("hybrid", text=page_text, dark=dark, width=width)
        seen.page.wait_for_selector("html[data-ready]")
        return seen

    return opened


def point(seen: Visit, row: int, moment: int) -> tuple[float, float]:
    """Return the place of a cell in the window."""
    svg = seen.page.locator(".heatmap").first
    box = svg.bounding_box()
    assert box is not None
    data = svg.evaluate("(svg) => ({...svg.dataset, width: svg.viewBox.baseVal.width})")
    scale = box["width"] / data["width"]
    x = float(data["left"]) + (moment + 0.5) * float(data["column"])
    y = float(data["tops"].split()[row]) + float(data["row"]) / 2
    return box["x"] + x * scale, box["y"] + y * scale


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
def test_the_page_is_alone_silent_and_accessible(fleet: OpenFleet, dark: bool) -> None:
    seen = fleet(dark=dark)
    seen.page.mouse.click(*point(seen, 0, 30))
    seen.page.wait_for_selector("#node-now svg.mooring")
    seen.page.locator("#unhappy button").first.click()
    seen.page.wait_for_selector("#pod-body svg.mooring")
    assert seen.complaints == []
    assert seen.requests == [seen.page.url]
    found = Axe().run(seen.page)
    assert found.violations_count == 0, found.generate_report()
    seen.shot(f"fleet-{'dark' if dark else 'light'}")


def test_a_click_on_a_cell_opens_the_picture_of_its_node(fleet: OpenFleet) -> None:
    seen = fleet()
    seen.page.mouse.click(*point(seen, 0, 50))
    seen.page.wait_for_selector("#node-now svg.mooring")
    assert (seen.page.locator("#node-title").text_content() or "").startswith("a-")
    assert seen.page.locator("#node-now .cpu").count() == 8


def test_a_row_of_several_nodes_lets_the_reader_choose_one(fleet: OpenFleet) -> None:
    seen = fleet()
    rows = seen.page.evaluate("JSON.parse(document.getElementById('data').textContent).rows.map((row) => row.length)")
    place = next(place for place, count in enumerate(rows) if count > 1)
    seen.page.mouse.click(*point(seen, place, 50))
    seen.page.locator("#node-matches button").first.click()
    seen.page.wait_for_selector("#node-now svg.mooring")
    assert seen.page.locator("#node").is_visible()


def test_keys_go_over_the_cells_and_open_a_node(fleet: OpenFleet) -> None:
    seen = fleet()
    seen.page.locator(".heatmap").first.focus()
    seen.page.keyboard.press("ArrowLeft")
    before = seen.page.locator("#heat-words").text_content()
    seen.page.keyboard.press("ArrowDown")
    assert seen.page.locator("#heat-words").text_content() != before
    seen.page.keyboard.press("Enter")
    seen.page.wait_for_selector("#node-now svg.mooring")


def test_the_slider_goes_through_the_moments_of_a_node(fleet: OpenFleet) -> None:
    seen = fleet()
    seen.page.locator("#node-search").fill("a-0")
    seen.page.locator("#node-matches button").first.click()
    seen.page.wait_for_selector("#node-now svg.mooring")
    for moment in ("0", "30"):
        seen.page.locator("#moment").fill(moment)
        expect(seen.page.locator("#moment")).to_have_value(moment)
    expect(seen.page.locator("#node-title")).to_have_text(re.compile("a-0 at"))
    expect(seen.page.locator("#node-now svg.mooring")).to_have_count(1)


def test_a_click_on_a_pod_explains_it(fleet: OpenFleet) -> None:
    seen = fleet()
    seen.page.locator("#unhappy button", has_text="default/six").click()
    seen.page.wait_for_selector("#pod-body svg.mooring")
    assert "MOOR-102" in (seen.page.locator("#pod-body").text_content() or "")


def test_a_pod_of_a_hostile_name_that_waits_is_found_and_explained(fleet: OpenFleet) -> None:
    seen = fleet()
    seen.page.locator("#pod-search").fill("onerror")
    seen.page.locator("#pod-matches button").first.click()
    expect(seen.page.locator("#pod-body")).to_contain_text("too little free cpu")
    assert seen.page.evaluate("window.hacked") is None
    assert seen.complaints == []


def test_another_resource_has_a_map_of_its_own(fleet: OpenFleet) -> None:
    seen = fleet()
    seen.page.locator("#resource").select_option(label="memory")
    assert seen.page.locator(".heat[data-resource=memory]").is_visible()
    assert not seen.page.locator(".heat[data-resource=cpu]").is_visible()


@pytest.mark.parametrize("width", [320, 768])
def test_a_narrow_window_scrolls_pictures_only(fleet: OpenFleet, width: int) -> None:
    seen = fleet(width=width)
    assert seen.page.evaluate("document.documentElement.scrollWidth") <= width
