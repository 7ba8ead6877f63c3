"""From the facts of an answer to chapters: one for each container, and one for the pod as a whole in pod scope."""

from __future__ import annotations

from collections.abc import Sequence

from mooring.core.pod import Pod
from mooring.explain.claims import claim_of
from mooring.explain.opinions import merges_of
from mooring.explain.story import Chapter, Merge, Opinion, Step, Taking
from mooring.explain.takings import steps_of
from mooring.node.settings import Settings

POD = ""
"""The key of the chapter about the pod as a whole."""


def chapters_of(pod: Pod, facts: Sequence[object], settings: Settings) -> tuple[Chapter, ...]:
    """Return the chapters in the order in which things happened; containers that nobody looked at have none."""
    mine = [fact for fact in facts if getattr(fact, "pod", pod.uid) == pod.uid]
    merges: dict[str, tuple[Merge, tuple[Opinion, ...]]] = {}
    for container, merge, opinions in merges_of(mine, settings):
        merges[container] = (merge, opinions)
    steps: dict[str, list[Step]] = {}
    for step in steps_of(mine):
        steps.setdefault(step.container, []).append(step)
    looked_at = {getattr(fact, "container", POD) for fact in mine} | set(merges)
    names = [POD] if POD in merges or POD in steps else []
    names += [container.name for container in pod.containers if container.name in looked_at]
    return tuple(_chapter(name, pod, merges.get(name), steps.get(name, []), settings) for name in names)


def _chapter(
    name: str,
    pod: Pod,
    merged: tuple[Merge, tuple[Opinion, ...]] | None,
    steps: Sequence[Step],
    settings: Settings,
) -> Chapter:
    merge, opinions = merged if merged is not None else (None, ())
    return Chapter(name, claim_of(pod, name, settings), opinions, merge, tuple(steps))


def takings(chapters: Sequence[Chapter]) -> list[Taking]:
    """Return every taking of CPUs."""
    return [step for chapter in chapters for step in chapter.steps if isinstance(step, Taking)]
