"""``mooring explain -o json``: a story, what can be explained, or the page of a code, as a document."""

from __future__ import annotations

from collections.abc import Sequence

from mooring.answers.base.plan import AnyPlan, archive_of
from mooring.documents import explanation as parts
from mooring.documents.facts import fact_members
from mooring.engine.core.bits import list_text
from mooring.engine.core.release import NEWEST, Release
from mooring.engine.core.topology import Topology
from mooring.engine.extensions.owners import HeldClaim
from mooring.explanations.codes import CodePage
from mooring.explanations.lines import story_lines
from mooring.explanations.story import Line, Story


def explanation_document(
    story: Story,
    machine: str,
    topology: Topology | None,
    nearest: Sequence[parts.ProposalPart] = (),
    release: Release = NEWEST,
) -> parts.ExplanationDocument:
    """Return the document of a story.

    Args:
        story: of the pod.
        machine: name of the machine.
        topology: of the node; None when the kubelet would not start.
        nearest: changes that would admit the pod.
        release: of the kubelet that decided.
    """
    document = parts.ExplanationDocument(
        kubelet=release.tag,
        machine=machine,
        uid=story.pod.uid,
        namespace=story.pod.namespace,
        name=story.pod.name,
        container=story.container,
        verdict=story.verdict,
        running=story.running,
        code=story.why.code,
        why=story.why.sentence,
        remedy=story.why.remedy,
        reason=story.reason,
        message=story.message,
        proposals=list(nearest),
        remarks=[parts.RemarkPart(remark.code, remark.sentence, remark.remedy) for remark in story.remarks],
        story=[_line(line) for line in story_lines(story, topology)],
        claims=parts.StoryClaimsPart(
            own=[_claim(claim) for claim in story.claims.own],
            in_the_way=[_claim(claim) for claim in story.claims.in_the_way],
        ),
        facts=[fact_members(fact) for fact in story.facts],
    )
    document.circumstances = story.circumstances
    return document


def _claim(claim: HeldClaim) -> parts.ClaimPart:
    return parts.ClaimPart(claim.uid, claim.namespace, claim.name, list_text(claim.cpus))


def _line(line: Line) -> parts.StoryLinePart:
    return parts.StoryLinePart(line.text, line.mark, line.detail, [_line(child) for child in line.children])


def page_document(page: CodePage) -> parts.CodePageDocument:
    """Return the page about a code; its text is Markdown."""
    return parts.CodePageDocument(code=page.code, title=page.title, text=page.text)


def explanation_list(plan: AnyPlan) -> parts.ExplanationListDocument:
    """Return what can be explained of a plan (``mooring explain -o json`` when every pod runs)."""
    document = parts.ExplanationListDocument(
        kubelet=plan.release.tag,
        machine=plan.machine.name,
        pods=[
            parts.ExplainablePodPart(
                uid=answer.pod.uid,
                namespace=answer.pod.namespace,
                name=answer.pod.name,
                admitted=answer.admitted,
                code=answer.code,
                why=answer.why,
            )
            for answer in plan.answers
        ],
    )
    document.archive = archive_of(plan.findings)
    return document
