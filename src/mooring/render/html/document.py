"""The page itself: the templates in reading order, filled with the report, its styles, its data and its scripts.

The templates escape every text. The policy in the page's head lets the browser run and apply only what has the digests
of our own script and styles: a name that slipped through the escaping could still do nothing. There is no other file
and no network.
"""

from __future__ import annotations

from base64 import b64encode
from hashlib import sha256
from importlib.resources import files

from jinja2 import Environment, PackageLoader, StrictUndefined

from mooring.explain.phrases import plural
from mooring.render.html.data import data_text
from mooring.render.html.map import map_drawings
from mooring.render.html.sections import (
    container_text,
    finding_text,
    heats,
    legend_rows,
    pod_rows,
    pods_sentence,
    verdicts,
)
from mooring.render.html.style import style_text
from mooring.render.report import ReportView
from mooring.render.svg_elements import PATTERNS
from mooring.render.wording import clean, numbers

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
    return (
        _environment()
        .get_template("report.html")
        .render(
            report=report,
            node=report.node,
            policy=policy,
            styles=styles,
            script=script,
            data=data_text(report),
            patterns=PATTERNS,
            maps=map_drawings(report.node),
            legend=legend_rows(report),
            pods_sentence=pods_sentence(report),
            rows=pod_rows(report.pods),
            verdicts=verdicts(report.pods),
            heats=heats(report.distances),
        )
    )


def script_text() -> str:
    """Return the script of every report."""
    folder = files("mooring.render.html") / "assets"
    return "".join(f"{(folder / name).read_text(encoding='utf-8')}\n" for name in SCRIPTS)


def _digest(text: str) -> str:
    return f"sha256-{b64encode(sha256(text.encode()).digest()).decode()}"


def _environment() -> Environment:
    environment = Environment(
        loader=PackageLoader("mooring.render.html"),
        autoescape=True,
        finalize=_printable,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    filters = {"container_text": container_text, "finding_text": finding_text, "numbers": numbers, "plural": plural}
    environment.filters.update(filters)
    return environment


def _printable(value: object) -> object:
    # Escaping lets control characters and lone surrogates pass. What is marked as HTML is of a class of its own.
    return clean(value) if type(value) is str else value
