"""The page opens from a file, alone, quickly, and says nothing that it should not."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest
from tests.browser.conftest import Open

from mooring.views.html import html_text
from mooring.views.svg.picture import svg_text

NAMES = ("example", "devices", "large", "hybrid", "refused")
HOSTILE = "</script><script>window.hacked=1</script><img src=x onerror=window.hacked=2>\"'&"


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
@pytest.mark.parametrize("name", NAMES)
def test_a_report_opens_without_a_complaint_and_asks_for_nothing_else(visit: Open, name: str, dark: bool) -> None:
    seen = visit(name, dark=dark)
    assert seen.page.evaluate("document.documentElement.dataset.ready") == "yes"
    assert seen.complaints == []
    assert seen.requests == [seen.page.url]
    assert seen.page.url.startswith("file:///")
    seen.shot(f"{name}-{'dark' if dark else 'light'}")


@pytest.mark.parametrize("width", [320, 360, 768, 1024])
@pytest.mark.parametrize("name", NAMES)
def test_a_narrow_window_needs_no_scrolling_sideways(visit: Open, name: str, width: int) -> None:
    seen = visit(name, width=width)
    assert seen.page.evaluate("document.documentElement.scrollWidth") <= width
    if width == 360:
        seen.shot(f"{name}-narrow")


def test_512_cpus_and_200_pods_stay_small_and_open_at_once(visit: Open) -> None:
    seen = visit("large")
    page, picture = html_text(seen.report).encode(), svg_text(seen.report.node).encode()
    assert len(list(seen.report.node.cpus())) == 512
    assert len(seen.report.pods) == 200
    assert len(page) < 2_000_000
    assert len(picture) < 500_000
    ready = seen.page.evaluate("performance.getEntriesByName('interactive')[0].startTime")
    painted = seen.page.evaluate(
        "new Promise(done => requestAnimationFrame(() => setTimeout(() => done(performance.now()))))"
    )
    step = seen.page.evaluate(
        "(() => { const start = performance.now(); document.getElementById('step-first').click();"
        " return performance.now() - start; })()"
    )
    print(f"\n512 CPUs, 200 pods: HTML {len(page):,} bytes, SVG {len(picture):,} bytes;", end=" ")
    print(f"interactive after {ready:.0f} ms, painted by {painted:.0f} ms, all steps back in {step:.0f} ms")


def test_names_from_outside_are_texts_and_nothing_more(visit: Open) -> None:
    report = visit("example").report
    owners = tuple(replace(owner, label=f"ns/{HOSTILE}/{index}") for index, owner in enumerate(report.node.owners))
    hostile = replace(
        report,
        node=replace(report.node, name=f"<b>&{HOSTILE}", headline=HOSTILE, subtitle=HOSTILE, owners=owners),
        pods=tuple(replace(pod, name=HOSTILE, why=HOSTILE, message=HOSTILE) for pod in report.pods),
        facts=((HOSTILE, HOSTILE),),
    )
    seen = visit(hostile)
    seen.page.locator("#step").fill("2")
    seen.page.locator(".map.wide .cell[data-cpu='8']").hover()
    assert seen.page.evaluate("window.hacked") is None
    assert seen.complaints == []
    # Words with amounts are no name, so that the text of the machine is in no title.
    assert HOSTILE in (seen.page.locator("body").text_content() or "")
    assert HOSTILE in (seen.page.locator("#details").text_content() or "")


def test_what_slipped_through_the_escaping_could_still_do_nothing(visit: Open) -> None:
    report = visit("hybrid").report
    text = html_text(report)
    broken = text.replace("<main>", f"<main>{HOSTILE}<p style='color:red' id=styled>x</p>", 1)
    seen = visit(report, text=broken)
    assert seen.page.evaluate("document.documentElement.dataset.ready") == "yes"
    assert seen.page.evaluate("window.hacked") is None
    assert any("Content Security Policy" in complaint for complaint in seen.complaints)
    assert seen.refused == seen.requests[1:]
    assert seen.page.evaluate("getComputedStyle(document.getElementById('styled')).color") != "rgb(255, 0, 0)"


def test_without_a_script_the_end_is_shown_and_nothing_that_needs_one(visit: Open) -> None:
    seen = visit("example", script=False)
    assert seen.page.locator("noscript").is_visible()
    assert seen.page.locator(".map.wide .cell").count() == 256
    assert seen.page.locator("#pods tbody tr").count() == 11
    assert not seen.page.locator("#steps").is_visible()
    assert not seen.page.locator("#theme").is_visible()
    names = set(re.findall(r"core/upf-\d", seen.page.locator(".map.wide").text_content() or ""))
    assert names == {"core/upf-0", "core/upf-1", "core/upf-2"}


def test_who_wants_no_motion_gets_none(visit: Open) -> None:
    moving = "getComputedStyle(document.querySelector('.cell')).transitionDuration"
    assert visit("hybrid").page.evaluate(moving) != "0s"
    assert visit("hybrid", still=True).page.evaluate(moving) in ("0s", "1e-05s")
