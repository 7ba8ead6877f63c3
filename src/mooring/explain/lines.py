"""A story as a tree of lines in plain words, the most important first."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from mooring.engine.core.bits import list_text
from mooring.engine.core.pod import Pod
from mooring.engine.core.topology import Topology
from mooring.engine.cpumanager.facts import PodShareCut
from mooring.engine.extensions.facts import CPUsBroken, CPUsReplaced, OfflineCPUsLeftOut
from mooring.engine.extensions.owners import HeldClaim
from mooring.engine.node.facts import PodNotSupported, PodWithdrawn
from mooring.explain.opinion_lines import merge_line, opinion_line
from mooring.explain.phrases import joined, plural
from mooring.explain.remarks import left_out_words, loss_words
from mooring.explain.step_lines import step_line
from mooring.explain.story import NO, Chapter, ClaimsInvolved, Line, PodVerdict, Story
from mooring.explain.why_followed import is_followed

_MOST_NAMED = 6
"""How many claims one line names."""


def story_lines(story: Story, topology: Topology | None) -> tuple[Line, ...]:
    """Return the story line by line: of a refused pod first the chapter in which it was refused."""
    ordered = sorted(story.chapters, key=lambda chapter: not chapter.failed)
    lines = [_chapter(chapter, story, topology) for chapter in ordered]
    if any(isinstance(fact, PodWithdrawn) for fact in story.facts):
        lines.append(Line("the node resources check rejects what the resource managers admitted", mark=NO))
    if any(isinstance(fact, PodNotSupported) for fact in story.facts):
        lines.append(Line("the kubelet rejects it before it asks the resource managers", mark=NO))
    lines += _hotplug_lines(story)
    lines += _claim_lines(story.claims, story.pod)
    if story.unreached and story.verdict is PodVerdict.REJECTED:
        names = joined(story.unreached)
        verb = "was" if len(story.unreached) == 1 else "were"
        lines.append(Line(f"{names} {verb} not evaluated", detail=True))
    if story.dropped:
        pods = plural(len(story.dropped), "pod")
        lines.append(Line(f"before that, resources of {pods} that ended were reclaimed", detail=True))
    return tuple(lines)


def _hotplug_lines(story: Story) -> Iterator[Line]:
    """Yield what offline CPUs mean for the pod (extension cpu-hotplug)."""
    for fact in story.facts:
        if isinstance(fact, OfflineCPUsLeftOut):
            yield Line(left_out_words(fact), mark=NO)
        elif isinstance(fact, CPUsBroken | CPUsReplaced) and (not story.container or fact.container == story.container):
            yield Line(loss_words(fact), mark=NO if isinstance(fact, CPUsBroken) else "")


def _chapter(chapter: Chapter, story: Story, topology: Topology | None) -> Line:
    below = (Line(f"because {chapter.request.why}", detail=chapter.request.need > 0), *_body(chapter, topology))
    # Of a refused pod the containers that were served are not what it is about, unless they bind the others.
    served = story.verdict is PodVerdict.REJECTED and not chapter.failed
    return Line(chapter_title(chapter), below, detail=served and not _matters(chapter, story))


def chapter_title(chapter: Chapter) -> str:
    """Return the container of a chapter and its request."""
    name = f"container {chapter.container}" if chapter.container else "the pod as a whole"
    return f"{name} {_asks(chapter)}"


def _asks(chapter: Chapter) -> str:
    if chapter.request.need:
        return f"requests {plural(chapter.request.need, 'exclusive CPU')}"
    if any(isinstance(step, PodShareCut) for step in chapter.steps):
        return "shares the CPUs of its pod"
    return "requests no exclusive CPUs" if chapter.failed else "runs in the shared pool"


def _matters(chapter: Chapter, story: Story) -> bool:
    """Tell whether a chapter without a refusal led to the one that has it."""
    bound = any(opinion.bound for other in story.chapters if other.failed for opinion in other.opinions)
    return (bound and chapter.request.need > 0) or any(opinion.nothing_fits for opinion in chapter.opinions)


def _body(chapter: Chapter, topology: Topology | None) -> Iterator[Line]:
    merge = chapter.merge
    if merge is not None:
        for opinion in chapter.opinions:
            line = opinion_line(opinion, merge.policy)
            # Of an admitted pod the hints are shown on demand.
            yield replace(line, detail=merge.admitted and not opinion.nothing_fits and not is_followed(opinion))
        yield merge_line(merge, by_distance=chapter.by_distance, score=chapter.score)
    for step in chapter.steps:
        yield step_line(step, topology)


def _claim_lines(told: ClaimsInvolved, pod: Pod) -> Iterator[Line]:
    """Yield what there is to tell, the cause of a refusal first."""
    if told.in_the_way:
        several = len(told.in_the_way) > 1
        claims = f"{plural(len(told.in_the_way), 'claim')} {'hold' if several else 'holds'}"
        below = tuple(Line(_claim_text(claim)) for claim in told.in_the_way[:_MOST_NAMED])
        if len(told.in_the_way) > _MOST_NAMED:
            below += (Line(f"and {len(told.in_the_way) - _MOST_NAMED} more"),)
        them = "them" if several else "that claim"
        yield Line(f"{claims} CPUs that the pod needs: it would be admitted without {them}", below, mark=NO)
    elif told.held and not told.own:
        yield Line(f"claims hold {plural(told.held, 'CPU')} of the node", detail=True)
    for claim in told.own:
        shares = tuple(
            Line(f"request {share.request}: CPUs {list_text(share.cpus)} of {share.device}")
            for share in claim.shares
            if share.device
        )
        yield Line(f"its {_claim_text(claim)}", shares)
    if told.nowhere:
        names = joined([f"{pod.namespace}/{name}" for name in told.nowhere])
        yield Line(f"no CPUs of this node are held for {names}, which the pod names as claims", detail=True)


def _claim_text(claim: HeldClaim) -> str:
    name = f"{claim.namespace}/{claim.name}" if claim.name else claim.uid
    return f"claim {name} holds CPUs {list_text(claim.cpus)}"
