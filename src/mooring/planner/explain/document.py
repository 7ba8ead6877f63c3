"""``mooring explain -o json``: a story as a versioned document."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from mooring import KUBELET_VERSION
from mooring.core.bits import list_text
from mooring.core.topology import Topology
from mooring.explain.codes.pages import Page
from mooring.explain.lines import story_lines
from mooring.explain.story import Story
from mooring.explain.tree import Line
from mooring.extensions.claimed import HeldClaim
from mooring.planner.explain.facts_document import fact_document
from mooring.planner.plan import Plan
from mooring.planner.plan_document import API_VERSION

KIND = "Explanation"
LIST_KIND = "ExplanationList"
PAGE_KIND = "CodePage"


def explanation_document(
    story: Story, machine: str, topology: Topology | None, nearest: Sequence[Mapping[str, Any]] = ()
) -> dict[str, Any]:
    """Return the document; it holds nothing but dicts, lists, texts, numbers, flags and None.

    Args:
        story: of the pod.
        machine: name of the machine.
        topology: of the node; None when the kubelet would not start.
        nearest: changes that would admit the pod (:func:`mooring.planner.changes.document.proposal_fields`).
    """
    return {
        "apiVersion": API_VERSION,
        "kind": KIND,
        "kubelet": KUBELET_VERSION,
        "machine": machine,
        "uid": story.pod.uid,
        "namespace": story.pod.namespace,
        "name": story.pod.name,
        "container": story.container,
        "verdict": story.verdict,
        "running": story.running,
        "code": story.why.code,
        "why": story.why.sentence,
        "remedy": story.why.remedy,
        "reason": story.reason,
        "message": story.message,
        "proposals": list(nearest),
        "remarks": [
            {"code": remark.code, "message": remark.sentence, "remedy": remark.remedy} for remark in story.remarks
        ],
        "story": [_line(line) for line in story_lines(story, topology)],
        "claims": {
            "own": [_claim(claim) for claim in story.claims.own],
            "inTheWay": [_claim(claim) for claim in story.claims.in_the_way],
        },
        "facts": [fact_document(fact) for fact in story.facts],
    }


def _claim(claim: HeldClaim) -> dict[str, str]:
    return {"uid": claim.uid, "namespace": claim.namespace, "name": claim.name, "cpus": list_text(claim.cpus)}


def _line(line: Line) -> dict[str, Any]:
    return {
        "text": line.text,
        "mark": line.mark,
        "detail": line.detail,
        "below": [_line(child) for child in line.children],
    }


def list_document(plan: Plan) -> dict[str, Any]:
    """Return what can be explained of a plan."""
    return {
        "apiVersion": API_VERSION,
        "kind": LIST_KIND,
        "kubelet": KUBELET_VERSION,
        "machine": plan.machine.name,
        "pods": [
            {
                "uid": answer.pod.uid,
                "namespace": answer.pod.namespace,
                "name": answer.pod.name,
                "admitted": answer.admitted,
                "code": answer.code,
                "why": answer.why,
            }
            for answer in plan.answers
        ],
    }


def page_document(page: Page) -> dict[str, Any]:
    """Return the page about a code; its text is Markdown."""
    return {"apiVersion": API_VERSION, "kind": PAGE_KIND, "code": page.code, "title": page.title, "text": page.text}
