"""What plugins did, in plain words (extension plugins)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from mooring.core.bits import list_text, members
from mooring.explain.phrases import count, nodes
from mooring.explain.story import PluginStep
from mooring.explain.tree import Line
from mooring.plugins.facts import (
    Candidate,
    PluginChoseAffinity,
    PluginFailed,
    PluginFiltered,
    PluginMadeRoom,
    PluginsChose,
    PluginScored,
)

LEVELS = 4
"""How many levels of scores, and how many other proposals, a line names."""


def plugin_line(step: PluginStep) -> Line:
    """Return which plugin did what."""
    match step:
        case PluginFiltered():
            return Line(f"{step.plugin} withholds {withheld_words(step)}")
        case PluginMadeRoom():
            return Line(f"{step.plugin} gives {_cpus(step.cpus)} back after all{_because(step.because)}")
        case PluginScored():
            return _scored(step)
        case PluginsChose():
            return _chose(step)
        case PluginChoseAffinity():
            return Line(f"{step.plugin} puts {_where(step.nodes)} in the place of {_where(step.merged)}")
        case PluginFailed():
            return Line(f"{step.plugin} failed at {step.point}, and its answer is left out: {step.why}")


def withheld_words(fact: PluginFiltered) -> str:
    """Return which CPUs were withheld and why, without the plugin's name."""
    return f"{_cpus(fact.cpus)}{_because(fact.because)}"


def _because(because: str) -> str:
    return f": {because}" if because else ""


def _cpus(cpus: int) -> str:
    return f"{count(cpus.bit_count(), 'CPU')} ({list_text(cpus)})" if cpus else "no CPUs"


def _scored(step: PluginScored) -> Line:
    levels = step.levels
    if len(levels) == 1:
        return Line(f"{step.plugin} scores {list_text(next(iter(levels.values())))} alike", detail=True)
    return Line(f"{step.plugin} prefers {_ordered(levels)}")


def _ordered(levels: Mapping[float, int]) -> str:
    first, *others = [list_text(cpus) for cpus in levels.values()]
    rest = others[: LEVELS - 1]
    more = ", and so on" if len(others) > len(rest) else ""
    return f"{first} to {', then '.join(rest)}{more}"


def _chose(step: PluginsChose) -> Line:
    chosen = step.chosen
    hides = f"; {list_text(chosen.hidden)} on the same cores stay idle" if chosen.hidden else ""
    among = f", of {count(len(step.candidates), 'proposal')}" if len(step.candidates) > 1 else ""
    text = f"{_proposer(chosen)}{_points(chosen)}{among}: {list_text(chosen.cpus)}{hides}"
    if step.as_hint:
        text = f"as a hint, {text}"
    return Line(text, tuple(_others(step)))


def _others(step: PluginsChose) -> Iterator[Line]:
    others = [one for one in step.candidates if one != step.chosen]
    for one in others[:LEVELS]:
        yield Line(f"not {list_text(one.cpus)}, {_proposer(one)}{_points(one)}", detail=True)
    if len(others) > LEVELS:
        yield Line(f"nor {count(len(others) - LEVELS, 'other')}", detail=True)


def _proposer(one: Candidate) -> str:
    return f"chosen by {one.plugin}" if one.plugin else "best scores first, by the kubelet's rules among equal ones"


def _points(one: Candidate) -> str:
    if not one.scores:
        return ""
    return f" (score {', '.join(f'{score:.4g} by {plugin}' for plugin, score in one.scores.items())})"


def _where(mask: int | None) -> str:
    return nodes(members(mask)) if mask else "any NUMA node"
