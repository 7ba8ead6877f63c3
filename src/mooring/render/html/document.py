"""The page itself: its parts in reading order, its styles, its data and its scripts.

The policy in its head lets the browser run and apply only what has the digests of our own script and styles: a name
that slipped through the escaping could still do nothing. There is no other file and no network.
"""

from __future__ import annotations

from base64 import b64encode
from hashlib import sha256
from importlib.resources import files

from mooring.render.html.data import data_text
from mooring.render.html.elements import element, text_element
from mooring.render.html.map import map_html
from mooring.render.html.pods import pods_html
from mooring.render.html.sections import distances_html, facts_html, findings_html, heading_html, legend_html
from mooring.render.html.style import style_text
from mooring.render.report import ReportView

SCRIPTS = (
    "state.js",
    "words.js",
    "nodemap.js",
    "outlines.js",
    "focus.js",
    "holdings.js",
    "pods.js",
    "differences.js",
    "steps.js",
    "main.js",
)
"""The parts of the script, in their order; together they are one module."""


def html_text(report: ReportView) -> str:
    """Return the report as an HTML document; the same report gives the same bytes."""
    styles, script = f"\n{style_text()}", f"\n{script_text()}"
    policy = (
        f"default-src 'none'; script-src '{_digest(script)}'; style-src '{_digest(styles)}'; base-uri 'none'; "
        "form-action 'none'"
    )
    title = f"{report.node.name}: node report"
    head = element(
        "head",
        '<meta charset="utf-8">\n',
        element("meta", http_equiv="Content-Security-Policy", content=policy),
        '\n<meta name="viewport" content="width=device-width, initial-scale=1">\n',
        '<meta name="generator" content="Mooring">\n',
        text_element("title", title),
        f"\n<style>{styles}</style>\n",
    )
    body = element(
        "body",
        "\n",
        '<a class="skip" href="#map-title">Skip to the map</a>\n',
        f"{heading_html(report)}\n",
        f"{element('main', *_sections(report))}\n",
        f'<script type="application/json" id="data">{data_text(report)}</script>\n',
        f'<script type="module">{script}</script>\n',
    )
    return f'<!DOCTYPE html>\n<html lang="en">\n{head}\n{body}\n</html>\n'


def script_text() -> str:
    """Return the script of every report."""
    folder = files("mooring.render.html") / "assets"
    return "".join(f"{(folder / name).read_text(encoding='utf-8')}\n" for name in SCRIPTS)


def _digest(text: str) -> str:
    return f"sha256-{b64encode(sha256(text.encode()).digest()).decode()}"


def _sections(report: ReportView) -> list[str]:
    several = len(report.steps) > 1
    notice = "The page shows the node after the last step; to go through the steps, allow it its script."
    parts = [
        element("noscript", element("p", notice)) if several else "",
        element("div", "", id="steps", class_="steps script") if several else "",
        element(
            "section",
            element("h2", "Machine", id="map-title", tabindex=-1),
            map_html(report.node),
            legend_html(report),
            *(text_element("p", line, class_="quiet-text") for line in report.node.caption),
            aria_labelledby="map-title",
        ),
        pods_html(report.pods),
        _drawn("differences", "Differences between two steps") if several else "",
        _drawn("memory", "Memory") if report.accounts else "",
        _drawn("devices", "Devices") if report.devices else "",
        distances_html(report.distances),
        findings_html(report.findings),
        facts_html(report.facts),
        element("div", "", id="details", class_="details", role="tooltip", hidden=True),
    ]
    return [f"{part}\n" for part in parts if part]


def _drawn(name: str, title: str) -> str:
    """Return a section that the script fills."""
    heading = element("h2", title, id=f"{name}-title")
    return element("section", heading, element("div", "", id=name), class_="script", aria_labelledby=f"{name}-title")
