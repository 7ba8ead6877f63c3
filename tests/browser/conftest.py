"""One Chromium for all tests, a fresh page for each, and an ear for everything that a page complains about."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from playwright.sync_api import Browser, BrowserContext, Page, expect, sync_playwright
from tests.browser.reports import ROOT, all_reports

from mooring.views.html import html_text
from mooring.views.report import ReportView

SHOTS = ROOT / "build" / "screenshots"
FLAGS = (
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)
PATIENCE_SECONDS = 60.0
"""For what a page must come to show. Its own 5 seconds are short where other programs have the processors."""


@dataclass
class Visit:
    """An open report."""

    page: Page
    report: ReportView
    complaints: list[str] = field(default_factory=list)
    """Console messages and errors."""
    requests: list[str] = field(default_factory=list)
    """Addresses that the page asked for, its own included."""
    refused: list[str] = field(default_factory=list)
    """Those among them that the browser did not let it have."""

    def shot(self, name: str) -> None:
        """Keep a picture for people to look at."""
        SHOTS.mkdir(parents=True, exist_ok=True)
        # What lies outside the window is not drawn until somebody scrolls there.
        self.page.evaluate(
            "for (const one of document.querySelectorAll('section')) one.style.contentVisibility = 'visible'"
        )
        self.page.screenshot(path=SHOTS / f"{name}.png", full_page=True)


Open = Callable[..., Visit]


@pytest.fixture(scope="session")
def chromium() -> Iterator[Browser]:
    path = os.environ.get("MOORING_CHROMIUM") or shutil.which("chromium")
    expect.set_options(timeout=1000 * PATIENCE_SECONDS)
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, args=list(FLAGS))
        yield browser
        browser.close()


@pytest.fixture(scope="session")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("reports")


@pytest.fixture(scope="session")
def reports(folder: Path) -> Mapping[str, ReportView]:
    return all_reports(folder)


@pytest.fixture
def visit(chromium: Browser, folder: Path, reports: Mapping[str, ReportView]) -> Iterator[Open]:
    """Open a report, by its name or as it is, in a browser of some size and taste."""
    contexts: list[BrowserContext] = []

    def opened(
        report: str | ReportView,
        *,
        width: int = 1280,
        dark: bool = False,
        still: bool = False,
        script: bool = True,
        text: str = "",
    ) -> Visit:
        view = reports[report] if isinstance(report, str) else report
        context = chromium.new_context(
            viewport={"width": width, "height": 900},
            color_scheme="dark" if dark else "light",
            reduced_motion="reduce" if still else "no-preference",
            java_script_enabled=script,
        )
        context.set_default_timeout(1000 * PATIENCE_SECONDS)
        contexts.append(context)
        page = context.new_page()
        found = Visit(page, view)
        page.on("console", lambda message: found.complaints.append(message.text))
        page.on("pageerror", lambda error: found.complaints.append(str(error)))
        page.on("request", lambda request: found.requests.append(request.url))
        page.on("requestfailed", lambda request: found.refused.append(request.url))
        file = folder / f"page-{len(list(folder.iterdir()))}.html"
        file.write_text(text or html_text(view), encoding="utf-8")
        page.goto(file.as_uri())
        return found

    yield opened
    for context in contexts:
        context.close()
