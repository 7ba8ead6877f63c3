"""Pointing, keys, marking, sorting and filtering; and that everybody can do it."""

from __future__ import annotations

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Page
from tests.browser.conftest import Open

FOCUSED = "document.activeElement.dataset.cpu"


def violations(page: Page) -> list[str]:
    """Return what axe-core objects to: the rule, and the elements."""
    found = Axe().run(page).response["violations"]
    return [f"{rule['id']}: {[node['target'] for node in rule['nodes']][:3]}" for rule in found]


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
@pytest.mark.parametrize("name", ["example", "devices", "hybrid", "refused"])
def test_axe_finds_nothing_to_object_to(visit: Open, name: str, dark: bool) -> None:
    seen = visit(name, dark=dark)
    assert violations(seen.page) == []


@pytest.mark.parametrize("width", [360, 1280])
def test_axe_finds_nothing_to_object_to_while_the_page_is_used(visit: Open, width: int) -> None:
    page = visit("example", width=width).page
    page.locator("#step").fill("4")
    page.locator("#pods [data-mark='1']").click()
    page.locator(f".map.{'wide' if width > 760 else 'narrow'} .cell[data-cpu='16']").hover()
    assert page.locator("#details").is_visible()
    assert violations(page) == []


def test_the_theme_can_be_chosen_against_the_system(visit: Open) -> None:
    ground = "getComputedStyle(document.documentElement).backgroundColor"
    page = visit("hybrid", dark=True).page
    dark = page.evaluate(ground)
    page.locator("#theme").select_option("light")
    light = page.evaluate(ground)
    assert light == "rgb(255, 255, 255)"
    assert light != dark
    assert violations(page) == []
    page.locator("#theme").select_option("dark")
    assert page.evaluate(ground) == dark
    page.locator("#theme").select_option("")
    assert page.evaluate(ground) == dark


def test_pointing_at_a_cpu_tells_everything_about_it(visit: Open) -> None:
    page = visit("example").page
    page.locator(".map.wide .cell[data-cpu='136']").hover()
    assert page.locator("#details").inner_text().split() == [
        *("CPU", "136", "use", "exclusive", "owner", "core/upf-0/forwarder", "core", "CPUs", "8,136"),
        *("L3", "1", "NUMA", "node", "0", "socket", "0"),
    ]
    page.keyboard.press("Escape")
    assert not page.locator("#details").is_visible()


def test_keys_go_through_the_map_and_the_details_follow(visit: Open) -> None:
    page = visit("example").page
    assert page.locator(".map.wide .cell[tabindex='0']").count() == 1
    page.locator(".map.wide .cell[tabindex='0']").focus()
    visited = [page.evaluate(FOCUSED)]
    for key in ("ArrowRight", "ArrowDown", "ArrowDown", "ArrowLeft", "End", "Home"):
        page.keyboard.press(key)
        visited.append(page.evaluate(FOCUSED))
    assert visited == ["0", "1", "129", "5", "4", "255", "0"]
    assert page.locator("#details strong").text_content() == "CPU 0"
    label = page.locator(".map.wide .cell[data-cpu='0']").get_attribute("aria-label")
    assert label == "CPU 0: reserved; core of CPU 0, L3 0, NUMA node 0, socket 0"


def test_every_control_can_be_reached_by_the_tab_key_in_reading_order(visit: Open) -> None:
    page = visit("devices").page
    order = []
    for _ in range(60):
        page.keyboard.press("Tab")
        order.append(page.evaluate("document.activeElement.id || document.activeElement.getAttribute('class') || ''"))
    wanted = [
        "skip",
        "theme",
        "step-first",
        "step-play",
        "step",
        "cell",
        "pod-filter",
        "pod-search",
        "step-a",
        "step-b",
    ]
    positions = [next(place for place, found in enumerate(order) if found == name) for name in wanted]
    assert positions == sorted(positions)


def test_marking_a_pod_marks_its_cpus_and_nothing_else(visit: Open) -> None:
    page = visit("example").page
    marked = "[...document.querySelectorAll('.map.wide .cell.marked')].map(cell => Number(cell.dataset.cpu))"
    button = page.locator("#pods [data-mark]", has_text="core/upf-1")
    button.click()
    assert set(page.evaluate(marked)) == {*range(16, 24), *range(144, 152)}
    assert button.get_attribute("aria-pressed") == "true"
    page.locator("#step").fill("1")
    assert page.evaluate(marked) == []
    page.locator("#step").fill("11")
    page.locator("#pod-none").click()
    assert page.evaluate(marked) == []
    page.locator(".map.wide .cell[data-cpu='8']").focus()
    page.keyboard.press("Enter")
    assert set(page.evaluate(marked)) == {*range(8, 16), *range(136, 144)}


def test_pods_are_filtered_by_verdict_and_by_words(visit: Open) -> None:
    page = visit("example").page
    rows = page.locator("#pods tbody tr:visible")
    page.locator("#pod-filter").select_option("rejected")
    assert [name.strip() for name in rows.locator("[data-mark]").all_text_contents()] == [
        "ai/inference",
        "core/timekeeper",
        "hpc/solver",
    ]
    assert page.locator("#pod-count").text_content() == "3 of 11 pods"
    page.locator("#pod-search").fill("smt 3 exclusive")
    assert rows.locator("[data-mark]").all_text_contents() == ["core/timekeeper"]
    page.locator("#pod-search").fill("")
    page.locator("#pod-filter").select_option("")
    assert page.locator("#pod-count").text_content() == "11 pods"


def test_columns_sort_up_and_down_and_say_so(visit: Open) -> None:
    page = visit("example").page
    head = page.locator("#pods th", has_text="CPUs")
    figures = "[...document.querySelectorAll('#pods tbody tr')].map(row => Number(row.cells[3].dataset.sort))"
    for direction in ("ascending", "descending"):
        head.locator("button").click()
        assert head.get_attribute("aria-sort") == direction
        found = page.evaluate(figures)
        assert found == sorted(found, reverse=direction == "descending")
    page.locator("#pods th button", has_text="Pod").click()
    names = page.locator("#pods [data-mark]").all_text_contents()
    assert names == sorted(names)
    assert page.locator("#pods th[aria-sort]").count() == 1
