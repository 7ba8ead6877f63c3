"""The playground of the site, served by a plain file server on loopback: it asks no other for anything."""

from __future__ import annotations

import runpy
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import pytest
import yaml
from playwright.sync_api import Browser, Page, expect
from tests.browser.conftest import PATIENCE_SECONDS, SHOTS
from tests.browser.reports import ROOT
from tests.browser.test_browser_reading import violations

LESSONS: list[dict[str, Any]] = yaml.safe_load((ROOT / "docs/site/playground/lessons.yaml").read_text(encoding="utf-8"))


class QuietHandler(SimpleHTTPRequestHandler):
    """Serves files, and writes no log."""

    def log_message(self, *_: object) -> None:
        """Say nothing."""


@dataclass
class Playground:
    """The open page."""

    page: Page
    origin: str
    complaints: list[str] = field(default_factory=list)
    requests: list[str] = field(default_factory=list)

    def settled(self) -> None:
        expect(self.page.locator("#answer")).to_have_attribute("aria-busy", "false", timeout=4000 * PATIENCE_SECONDS)

    def lesson(self, lesson: dict[str, Any]) -> None:
        self.page.locator(f"#lessons a[href='#{lesson['id']}']").click()
        expect(self.page.locator("#lesson-title")).to_have_text(lesson["title"])
        self.settled()


@pytest.fixture(scope="module")
def playground(chromium: Browser, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Playground]:
    site: Path = tmp_path_factory.mktemp("site")
    script = runpy.run_path(str(ROOT / "scripts" / "build_playground.py"))
    try:
        script["build"](site / "playground")
    except script["UnavailableError"] as error:
        pytest.skip(f"no playground: {error}")
    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(QuietHandler, directory=str(site)))
    Thread(target=server.serve_forever, daemon=True).start()
    origin = f"http://127.0.0.1:{server.server_port}"
    context = chromium.new_context(viewport={"width": 1400, "height": 1000})
    context.set_default_timeout(1000 * PATIENCE_SECONDS)
    opened = Playground(context.new_page(), origin)
    opened.page.on("console", lambda message: opened.complaints.append(message.text))
    opened.page.on("pageerror", lambda error: opened.complaints.append(str(error)))
    context.on("request", lambda request: opened.requests.append(request.url))
    opened.page.goto(f"{origin}/playground/index.html")
    opened.settled()
    yield opened
    context.close()
    server.shutdown()
    server.server_close()
    assert opened.complaints == []
    assert [url for url in opened.requests if not url.startswith((origin, f"blob:{origin}"))] == []


@pytest.mark.parametrize("lesson", LESSONS, ids=[lesson["id"] for lesson in LESSONS])
def test_a_lesson_shows_the_reason_and_its_fix_admits_the_pod(playground: Playground, lesson: dict[str, Any]) -> None:
    playground.lesson(lesson)
    page = playground.page
    told = page.locator("#explained")
    expect(told.locator("h2")).to_contain_text(f"{lesson['pod']} is {'rejected' if lesson['reason'] else 'admitted'}")
    expect(told).to_contain_text(lesson["reason"])
    expect(told.locator(f"a[href='../reference/codes/{lesson['code']}.html']")).not_to_have_count(0)
    expect(page.locator("#picture svg title").first).to_contain_text("admitted")
    page.locator("#fix").click()
    expect(told.locator("h2")).to_contain_text(f"{lesson['pod']} is admitted")
    expect(told.locator(f"a[href='../reference/codes/{lesson['code']}.html']")).to_have_count(0)


def test_the_picture_has_its_colours_although_the_policy_forbids_styles_in_the_page(playground: Playground) -> None:
    playground.lesson(LESSONS[1])
    cells = playground.page.locator("#picture .exclusive-0")
    expect(cells.first).to_have_css("fill", "rgb(0, 114, 178)")
    SHOTS.mkdir(parents=True, exist_ok=True)
    playground.page.screenshot(path=SHOTS / "playground.png", full_page=True)


def test_what_is_typed_is_planned_and_a_pod_is_explained_by_a_click(playground: Playground) -> None:
    page = playground.page
    playground.lesson(LESSONS[1])
    page.get_by_label("Machine: a name, or its shape").fill("epyc-7763-2s-nps4")
    page.locator("#config").fill((ROOT / "examples" / "kubelet.yaml").read_text(encoding="utf-8"))
    page.locator("#pods").fill((ROOT / "examples" / "pods.yaml").read_text(encoding="utf-8"))
    expect(page.locator("#picture svg title").first).to_contain_text("8 pods admitted, 3 rejected")
    page.get_by_role("button", name="hpc/solver").click()
    expect(page.locator("#explained h2")).to_contain_text("hpc/solver is rejected: TopologyAffinityError MOOR-102")


def test_what_cannot_be_read_is_said_and_the_page_goes_on(playground: Playground) -> None:
    page = playground.page
    playground.lesson(LESSONS[0])
    page.locator("#machine").fill("nonsense")
    expect(page.get_by_role("alert")).to_contain_text("nonsense: unknown machine")
    page.locator("#again").click()
    expect(page.locator("#error")).to_be_empty()
    expect(page.locator("#why")).to_contain_text("request 2 or 4")


def test_plugins_are_found(playground: Playground) -> None:
    page = playground.page
    page.locator("#machine").fill("sockets=1 cores=8 threads=2 memory=32Gi")
    page.locator("#config").fill((ROOT / "examples" / "plugins" / "spread-kubelet.yaml").read_text(encoding="utf-8"))
    page.locator("#pods").fill((ROOT / "examples" / "plugins" / "spread-pods.yaml").read_text(encoding="utf-8"))
    playground.settled()
    expect(page.locator("#error")).to_be_empty()


@pytest.mark.parametrize("width", [390, 1400])
def test_axe_finds_nothing_and_no_page_is_wider_than_its_window(playground: Playground, width: int) -> None:
    page = playground.page
    playground.lesson(LESSONS[9])
    page.set_viewport_size({"width": width, "height": 900})
    assert violations(page) == []
    assert page.evaluate("document.documentElement.scrollWidth") <= width


def test_the_worker_has_the_policy_of_the_page(playground: Playground) -> None:
    refused = """new Promise((resolve) => {
      self.addEventListener('securitypolicyviolation', (event) => resolve(event.effectiveDirective));
      fetch('http://localhost:9/').catch(() => {});
    })"""
    assert playground.page.workers[0].evaluate(refused) == "connect-src"
