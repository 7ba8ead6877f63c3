"""Why CPUs and memory could not follow the devices that are held, in plain words (extension device-alignment)."""

from __future__ import annotations

from collections.abc import Iterable

from mooring.engine.core.bits import members
from mooring.engine.devicemanager.facts import DeviceHintsAsked
from mooring.engine.topologymanager.merge import RESTRICTED, SINGLE_NUMA_NODE
from mooring.explain import reason as code
from mooring.explain.opinions import CPU, MEMORY
from mooring.explain.phrases import amounts_text, joined, node_sets, plural, positions, who
from mooring.explain.reason import Reason
from mooring.explain.story import Chapter, Opinion


def is_followed(opinion: Opinion) -> bool:
    """Tell whether an opinion is about devices that are held, and that CPUs and memory follow."""
    return isinstance(opinion.asked, DeviceHintsAsked) and opinion.asked.follows


def follows_words(resource: str, chapters: Iterable[Chapter]) -> str:
    """Return what devices of a resource mean for CPUs and memory of an admitted pod; empty where nothing follows them.

    Args:
        resource: of a device plugin, or a DRA driver.
        chapters: of the pod.
    """
    merges = [
        chapter.merge
        for chapter in chapters
        for opinion in chapter.opinions
        if chapter.merge is not None and opinion.resource == resource and is_followed(opinion)
    ]
    if not merges:
        return ""
    if all(merge.result.preferred for merge in merges):
        return ", which CPUs and memory follow"
    return f", which CPUs and memory cannot all follow; {merges[0].policy} admits that"


def why_followed(chapter: Chapter, policy: str) -> Reason | None:
    """Return the reason for a refusal that devices cause; None when no device is followed, or something else does.

    Args:
        chapter: in which the pod was refused.
        policy: the node's topology policy.
    """
    tied = [opinion for opinion in chapter.opinions if is_followed(opinion)]
    if not tied or chapter.merge is None:
        return None
    ruled = chapter.merge.policy
    home = set.intersection(*(_wanted(opinion, ruled) for opinion in tied))
    holds = f"{who(chapter.container)} holds {joined([_held(opinion) for opinion in tied])}"
    if not home:
        return Reason(
            code.HELD_APART,
            f"{holds}: no set of NUMA nodes suits all of them, which {ruled} requires.",
            "Request devices that are near one another, for example by matchAttribute in a claim, or let CPUs and "
            f"memory ignore some of them ({_or_looser(policy)}).",
        )
    others = [opinion for opinion in chapter.opinions if opinion not in tied and not opinion.indifferent]
    if not all(opinion.suffices for opinion in others):
        return None
    far = [opinion for opinion in others if not _wanted(opinion, ruled) & home] or others
    gets = joined([f"{_amount(opinion)} only on {node_sets(sorted(_wanted(opinion, ruled)))}" for opinion in far])
    return Reason(
        code.FAR_FROM_DEVICES,
        f"{holds}, but can get {gets}; {ruled} requires one place for all of them.",
        "Remove a pod that has CPUs or memory where the devices are, request less, or let CPUs and memory come from "
        f"elsewhere ({_or_looser(policy)}).",
    )


def _or_looser(policy: str) -> str:
    if policy in (RESTRICTED, SINGLE_NUMA_NODE):
        return "deviceAlignment ignore, or topologyManagerPolicy best-effort"
    return "deviceAlignment follow instead of require"


def _held(opinion: Opinion) -> str:
    if not isinstance(opinion.asked, DeviceHintsAsked):
        return opinion.resource
    return f"{opinion.resource} {positions(opinion.asked.free)}"


def _wanted(opinion: Opinion, policy: str) -> set[int]:
    """Return the sets of NUMA nodes that the policy would admit for one resource."""
    if policy != SINGLE_NUMA_NODE:
        return {*opinion.preferred}
    return {1 << node for node in members(opinion.alone)}


def _amount(opinion: Opinion) -> str:
    if opinion.resource == CPU:
        return plural(opinion.need.get(CPU, 0), "exclusive CPU")
    return amounts_text(opinion.need) if opinion.resource == MEMORY else opinion.resource
