"""What the managers did, in plain words."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from mooring.engine.core.bits import list_text, members
from mooring.engine.core.topology import Topology
from mooring.engine.cpumanager.facts import CPUPinningFailed, ExistingCPUsKept, PodShareCut, WholeCoresChecked
from mooring.engine.devicemanager.facts import DevicesTaken
from mooring.engine.memorymanager.facts import MemoryAssigned, MemoryPinningFailed
from mooring.engine.plugins.facts import (
    Candidate,
    PluginChoseAffinity,
    PluginFailed,
    PluginFiltered,
    PluginMadeRoom,
    PluginsChose,
    PluginScored,
    PluginStep,
)
from mooring.explanations.phrases import amounts_text, joined, nodes, nodes_of, plural
from mooring.explanations.story import NO, YES, Line, Pick, Run, Step, Taking

_RULES = {
    "sockets": ("a whole socket", "whole sockets"),
    "numa-nodes": ("a whole NUMA node", "whole NUMA nodes"),
    "uncore-caches": ("a whole uncore cache", "whole uncore caches"),
    "part-of-uncore-cache": ("part of one uncore cache", "part of one uncore cache"),
    "cores": ("a whole core", "whole cores"),
    "cpus": ("a single CPU", "single CPUs"),
    "cpus-spread": ("a single CPU", "single CPUs across cores"),
}

_PLACES = {"hint": "inside the hint", "anywhere": "from anywhere", "partition": "from the CPUs of the pod"}

_WAYS = {
    "affinity": "on the NUMA nodes of the topology manager's hint",
    "default": "on NUMA nodes that the memory manager chose, because the topology manager gave no hint",
    "extended": "on more NUMA nodes than the topology manager's hint, which has too little free",
}


def step_line(step: Step, topology: Topology | None) -> Line:
    """Return what was done in one step, with how below."""
    match step:
        case WholeCoresChecked():
            line = _whole_cores(step)
        case Taking():
            line = _taking(step, topology)
        case ExistingCPUsKept():
            line = Line(f"keeps its CPUs: {list_text(step.cpus)}", mark=YES)
        case CPUPinningFailed():
            line = Line(f"CPUs cannot be allocated: {step.error}", mark=NO)
        case MemoryAssigned() if not step.error:
            amounts = amounts_text({block.type: block.size for block in step.blocks})
            below = (Line(_WAYS[step.way], detail=True),)
            line = Line(f"gets {amounts} on {nodes(members(step.mask))}", below, mark=YES)
        case MemoryAssigned() | MemoryPinningFailed():
            line = Line(f"memory cannot be allocated: {step.error.removeprefix('[memorymanager] ')}", mark=NO)
        case DevicesTaken() if step.error:
            line = Line(f"{step.resource} cannot be allocated: {step.error}", mark=NO)
        case DevicesTaken():
            where = f" on {nodes(members(step.near))}" if step.near else ""
            line = Line(f"gets {joined(step.taken)} of {step.resource}{where}", mark=YES)
        case PodShareCut():
            what = "for itself" if step.exclusive else "to share with the pod's other containers"
            line = Line(f"has {list_text(step.cpus) or 'no CPU'} of the pod's CPUs {what}", mark=YES)
        case _:
            line = plugin_line(step)
    return line


def _whole_cores(step: WholeCoresChecked) -> Line:
    if step.passed:
        text = (
            f"full-pcpus-only: {step.need} is a multiple of {step.group}, and {step.available} CPUs are on free cores"
        )
        return Line(text, detail=True)
    if step.need % step.group:
        return Line(
            f"full-pcpus-only rejects: {step.need} is not a multiple of the {step.group} CPUs of a core", mark=NO
        )
    text = f"full-pcpus-only rejects: only {step.available} CPUs are in the shared pool on cores without a reserved CPU"
    return Line(text, mark=NO)


def _taking(step: Taking, topology: Topology | None) -> Line:
    below = tuple(line for run in step.runs for line in _run(run, step, topology))
    if step.error:
        return Line(f"CPUs cannot be allocated: {step.error}", below, mark=NO)
    where = f" on {nodes(nodes_of(topology, step.taken))}" if topology is not None else ""
    left = step.reusable & step.taken
    again = f"; {list_text(left)} reused from an init container" if left else ""
    return Line(f"gets {plural(step.taken.bit_count(), 'CPU')}{where}: {list_text(step.taken)}{again}", below, mark=YES)


def _run(run: Run, step: Taking, topology: Topology | None) -> Iterator[Line]:
    place = _PLACES[run.place]
    if run.place == "hint" and step.affinity is not None:
        place = f"{place} ({nodes(members(step.affinity))})"
    if run.place == "anywhere" and step.affinity is not None:
        place = f"{place} else, because the hint has too few"
    chosen = run.distribution
    if chosen is not None:
        lost = (
            ""
            if chosen.nodes == chosen.found
            else f" ({nodes(chosen.found)} scored best, but the kubelet loses that result)"
        )
        rest = f", the remaining {chosen.rest} from {nodes(chosen.takers)}" if chosen.rest and chosen.takers else ""
        yield Line(
            f"distributed {place}: {plural(chosen.share, 'CPU')} from each of {nodes(chosen.nodes)}{lost}{rest}",
            tuple(Line(_share(pick), detail=True) for pick in run.picks),
        )
        return
    for pick in run.picks:
        yield Line(f"{_elements(pick, topology)} {place}: {list_text(pick.cpus)}")


def _share(pick: Pick) -> str:
    what = "the rest" if pick.rule == "rest" else "the share"
    return f"{what} of {nodes([pick.node or 0])}: {list_text(pick.cpus)}"


def _elements(pick: Pick, topology: Topology | None) -> str:
    one, several = _RULES[pick.rule]
    if topology is None:
        return several
    elements = {
        "sockets": topology.sockets,
        "numa-nodes": topology.numa,
        "uncore-caches": topology.uncores,
        "cores": topology.cores,
    }.get(pick.rule)
    if elements is None:
        number = pick.cpus.bit_count() if pick.rule.startswith("cpus") else 1
    else:
        number = sum(1 for mask in elements.values() if mask & pick.cpus)
    return one if number == 1 else f"{number} {several}" if pick.rule != "part-of-uncore-cache" else several


LEVELS = 4
"""How many levels of scores, and how many other proposals, a line names."""


def plugin_line(step: PluginStep) -> Line:
    """Return which plugin did what."""
    match step:
        case PluginFiltered():
            return Line(f"{step.plugin} withholds {_cpus(step.cpus)}{_because(step.because)}")
        case PluginMadeRoom():
            return Line(f"{step.plugin} releases {_cpus(step.cpus)} after all{_because(step.because)}")
        case PluginScored() if len(step.levels) == 1:
            return Line(f"{step.plugin} scores {list_text(next(iter(step.levels.values())))} alike", detail=True)
        case PluginScored():
            return Line(f"{step.plugin} prefers {_ordered(step.levels)}")
        case PluginsChose():
            return _chose(step)
        case PluginChoseAffinity():
            return Line(f"{step.plugin} replaces {_where(step.merged)} by {_where(step.nodes)}")
        case PluginFailed():
            return Line(f"{step.plugin} failed at {step.point}, and its answer is ignored: {step.why}")


def _because(because: str) -> str:
    return f": {because}" if because else ""


def _cpus(cpus: int) -> str:
    return f"{plural(cpus.bit_count(), 'CPU')} ({list_text(cpus)})" if cpus else "no CPUs"


def _ordered(levels: Mapping[float, int]) -> str:
    first, *others = [list_text(cpus) for cpus in levels.values()]
    rest = others[: LEVELS - 1]
    more = ", and so on" if len(others) > len(rest) else ""
    return f"{first} to {', then '.join(rest)}{more}"


def _chose(step: PluginsChose) -> Line:
    chosen = step.chosen
    hides = f"; {list_text(chosen.hidden)} on the same cores stay idle" if chosen.hidden else ""
    among = f", of {plural(len(step.candidates), 'proposal')}" if len(step.candidates) > 1 else ""
    text = f"{_proposer(chosen)}{_points(chosen)}{among}: {list_text(chosen.cpus)}{hides}"
    if step.as_hint:
        text = f"as a hint, {text}"
    return Line(text, tuple(_others(step)))


def _others(step: PluginsChose) -> Iterator[Line]:
    others = [one for one in step.candidates if one != step.chosen]
    for one in others[:LEVELS]:
        yield Line(f"not {list_text(one.cpus)}, {_proposer(one)}{_points(one)}", detail=True)
    if len(others) > LEVELS:
        yield Line(f"nor {plural(len(others) - LEVELS, 'other')}", detail=True)


def _proposer(one: Candidate) -> str:
    return f"chosen by {one.plugin}" if one.plugin else "best scores first, by the kubelet's rules among equal ones"


def _points(one: Candidate) -> str:
    if not one.scores:
        return ""
    return f" (score {', '.join(f'{score:.4g} by {plugin}' for plugin, score in one.scores.items())})"


def _where(mask: int | None) -> str:
    return nodes(members(mask)) if mask else "any NUMA node"
