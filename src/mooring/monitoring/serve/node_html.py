"""The pages and parts of a node as HTML, from the pictures and templates of ``render``."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from mooring.answers.base.report import report_of
from mooring.monitoring.serve.node_plan import PodStory, WhatIf
from mooring.monitoring.serve.recording import Recorded
from mooring.monitoring.serve.snapshot import NodeSnapshot
from mooring.views.html.document import html_text, page_text, part_text
from mooring.views.svg.decision import decision_svg
from mooring.views.svg.elements import PATTERNS, style_sheet
from mooring.views.svg.picture import svg_text
from mooring.views.view import NodeView, OwnerView

_WIDTH = 1144
"""Pixels that the page has for a picture."""


@dataclass(frozen=True, slots=True)
class Addresses:
    """Where the page's script finds what, relative to the page."""

    events: str = "events"
    body: str = "body"
    pod: str = "pod"
    whatif: str = "whatif"
    up: str = ""
    """Page of the cluster; empty where there is none."""


def picture(view: NodeView) -> str:
    """Return the picture of a node without the styles that the page has."""
    return svg_text(view, _WIDTH).replace(style_sheet(), "").replace(PATTERNS, "")


def body_html(seen: Recorded, *, current: bool, trouble: str = "") -> str:
    """Return the part of the page that changes."""
    shown = seen.snapshot
    owners: dict[str, list[OwnerView]] = {pod.uid: [] for pod in shown.pods}
    for owner in shown.view.owners:
        owners.get(owner.uid, []).append(owner)
    return part_text(
        "node-body.html",
        shown=shown,
        picture=picture(shown.view),
        owners=owners,
        current=current,
        trouble=trouble,
        at=seen.at,
    )


def node_page(seen: Recorded, content: str, first: int, addresses: Addresses, assets: tuple[str, str]) -> str:
    """Return the page of a node.

    Args:
        seen: the newest snapshot.
        content: its body.
        first: number of the oldest one.
        addresses: of its parts.
        assets: addresses of styles and script.
    """
    view = seen.snapshot.view
    styles, script = assets
    return part_text(
        "serve-node.html",
        title=view.name or "Node",
        styles=styles,
        script=script,
        patterns=PATTERNS,
        content=content,
        number=seen.number,
        first=first,
        can_ask=seen.snapshot.question is not None,
        events=addresses.events,
        body=addresses.body,
        pod=addresses.pod,
        whatif=addresses.whatif,
        up=addresses.up,
    )


@dataclass(frozen=True, slots=True)
class _DrawnStory:
    name: str
    verdict: str
    code: str
    why: str
    remedy: str
    message: str
    nearest: tuple[str, ...]
    decision: str


def stories_html(stories: Sequence[PodStory], view: NodeView | None = None) -> str:
    """Return explanations of pods, with the picture of the node where there is one."""
    drawn = [
        _DrawnStory(
            one.name,
            one.verdict,
            one.code,
            one.why,
            one.remedy,
            one.message,
            one.nearest,
            "" if one.decision is None else decision_svg(one.decision).replace(style_sheet(), "").replace(PATTERNS, ""),
        )
        for one in stories
    ]
    return part_text("pod-story.html", stories=drawn, picture="" if view is None else picture(view))


def what_if_html(answer: WhatIf) -> str:
    """Return what would happen to pods."""
    return stories_html(answer.stories, answer.view)


def problem_html(problem: str) -> str:
    """Return one line about what cannot be answered."""
    return part_text("problem.html", problem=problem)


def exported(snapshot: NodeSnapshot) -> str:
    """Return a node as one file: the report of its plan, or what an agent says where no plan is known."""
    if snapshot.plan is not None:
        return html_text(report_of(snapshot.plan))
    content = body_html(Recorded(1, 0.0, snapshot), current=True)
    return page_text("serve-export.html", title=snapshot.view.name or "Node", content=content, patterns=PATTERNS)
