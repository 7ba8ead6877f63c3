"""The map after every step is what the engine says, and everything on the page follows the step."""

from __future__ import annotations

import pytest
from playwright.sync_api import Page
from tests.browser.conftest import Open, Visit
from tests.render.report_steps import cpu_states

from mooring.engine.core.cpuset import CPUSet
from mooring.views.report import ReportView, changes_between
from mooring.views.view import CPUUse, CPUView, owner_style, use_style

CELLS = """() => Object.fromEntries([...document.querySelectorAll('.map.wide .cell')].map(cell =>
  [cell.dataset.cpu, [cell.querySelector('rect').getAttribute('class'), cell.querySelector('.mark').textContent]]))"""
CHANGED = "() => [...document.querySelectorAll('.map.wide .cell.changed')].map(cell => Number(cell.dataset.cpu))"


def style_of(state: CPUView, report: ReportView) -> str:
    owned = state.use is CPUUse.EXCLUSIVE
    return owner_style(report.node.owners[state.owners[0]]) if owned else use_style(state.use)


def go_to(page: Page, step: int) -> None:
    page.locator("#step").fill(str(step))


def styles(seen: Visit) -> dict[int, str]:
    return {int(cpu): found[0] for cpu, found in seen.page.evaluate(CELLS).items()}


@pytest.mark.parametrize("name", ["example", "devices"])
def test_every_step_shows_every_cpu_as_decided_and_outlines_what_changed(visit: Open, name: str) -> None:
    seen = visit(name)
    for step in (*reversed(range(len(seen.report.steps))), *range(len(seen.report.steps))):
        go_to(seen.page, step)
        states = cpu_states(seen.report, step)
        assert styles(seen) == {cpu: style_of(state, seen.report) for cpu, state in states.items()}
        changed = changes_between(cpu_states(seen.report, step - 1), states) if step else ()
        expected = {view.cpu for views in changed for view in views}
        assert set(seen.page.evaluate(CHANGED)) == expected


def test_the_letters_are_those_of_the_owners(visit: Open) -> None:
    seen = visit("example")
    marks = {owner.mark for owner in seen.report.node.owners}
    drawn = {found[1] for found in seen.page.evaluate(CELLS).values() if found[0].startswith("exclusive")}
    assert drawn == marks


def test_the_map_comes_as_the_script_would_draw_it(visit: Open) -> None:
    seen = visit("devices")
    html = "() => document.querySelector('.map.wide').innerHTML"
    strips = (
        "() => [...document.querySelectorAll('.map.wide .strips')].map(strip => strip.querySelectorAll('g').length)"
    )
    before, bars = styles(seen), seen.page.evaluate(strips)
    assert seen.page.evaluate(html)
    go_to(seen.page, 0)
    assert styles(seen) != before
    go_to(seen.page, len(seen.report.steps) - 1)
    assert styles(seen) == before
    assert seen.page.evaluate(strips) == bars


def test_a_step_tells_pod_verdict_reason_and_why(visit: Open) -> None:
    seen = visit("example")
    for step, pod in enumerate(seen.report.pods, 1):
        go_to(seen.page, step)
        story = seen.page.locator("#step-story").text_content() or ""
        for part in (pod.name, pod.verdict, pod.reason, pod.why, pod.message, pod.code):
            assert part in story
        assert seen.page.locator("#step-number").text_content() == f"{step} of 11"
        assert seen.page.locator("#pods tr.now [data-mark]").text_content() == pod.name


def test_buttons_go_to_the_ends_and_one_step_at_a_time(visit: Open) -> None:
    page = visit("example").page
    for button, shown in (("first", 0), ("back", 0), ("on", 1), ("on", 2), ("back", 1), ("last", 11), ("on", 11)):
        page.locator(f"#step-{button}").click()
        assert page.locator("#step").input_value() == str(shown)
    page.locator("#pods [data-step='4']").click()
    assert page.locator("#step").input_value() == "4"


def test_playing_goes_from_the_start_to_the_end_and_stops(visit: Open) -> None:
    seen = visit("devices")
    page, last = seen.page, len(seen.report.steps) - 1
    page.clock.install()
    page.locator("#step-play").click()
    assert page.locator("#step").input_value() == "0"
    assert page.locator("#step-play").get_attribute("aria-label") == "Pause"
    page.clock.run_for(950)
    assert page.locator("#step").input_value() == "1"
    page.clock.run_for(900 * (last + 1))
    assert page.locator("#step").input_value() == str(last)
    assert page.locator("#step-play").get_attribute("aria-label") == "Play the steps"


def test_figures_and_bars_follow_the_step(visit: Open) -> None:
    seen = visit("devices")
    page = seen.page
    title = page.locator(".map.wide g[data-numa='1'] tspan").first
    bar = page.locator(".map.wide g[data-numa='1'] .used")
    assert (title.text_content() or "").startswith("16 of 32 free")
    assert float(bar.get_attribute("width") or 0) > 0
    assert page.locator("#devices tbody tr", has_text="gpu-1").get_by_text("ai/train-1/worker").count() == 1
    go_to(page, 0)
    assert (title.text_content() or "").startswith("32 of 32 free")
    assert float(bar.get_attribute("width") or 0) == 0
    assert page.locator("#devices tbody tr", has_text="ai/train").count() == 0
    assert "assigned 0\xa0B" in (page.locator("#memory tbody tr").nth(2).text_content() or "")
    assert page.locator(".legend .count[data-use='free']").first.text_content() == "126 CPUs"


@pytest.mark.parametrize(("first", "second"), [(0, 5), (5, 0), (1, 4), (2, 2)])
def test_differences_are_those_of_the_engine(visit: Open, first: int, second: int) -> None:
    seen = visit("devices")
    seen.page.locator("#step-a").select_option(str(first))
    seen.page.locator("#step-b").select_option(str(second))
    seen.page.locator("#outline-differences").check()
    one, two = cpu_states(seen.report, first), cpu_states(seen.report, second)
    changed = {cpu for cpu in one if one[cpu] != two[cpu]}
    assert set(seen.page.evaluate(CHANGED)) == changed
    table = seen.page.locator("#difference-tables").text_content() or ""
    for index, owner in enumerate(seen.report.node.owners):
        gained = [cpu for cpu in one if index in two[cpu].owners and index not in one[cpu].owners]
        lost = [cpu for cpu in one if index in one[cpu].owners and index not in two[cpu].owners]
        for sign, cpus in (("+", gained), ("−", lost)):
            assert not cpus or f"{sign}{len(cpus)}: {CPUSet.from_ids(cpus)}" in table
        assert (owner.label in table) == bool(gained or lost)
    if first == second:
        assert table == "Nothing differs."
