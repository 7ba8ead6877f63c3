"""What the managers did, in plain words."""

from __future__ import annotations

from collections.abc import Iterator

from mooring.engine.core.bits import list_text, members
from mooring.engine.core.topology import Topology
from mooring.engine.cpumanager.facts import CPUPinningFailed, ExistingCPUsKept, PodShareCut, WholeCoresChecked
from mooring.engine.devicemanager.facts import DevicesTaken
from mooring.engine.memorymanager.facts import MemoryAssigned, MemoryPinningFailed
from mooring.engine.plugins import facts as plugins
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
            begin = "full-pcpus-only rejects:"
            text = f"{begin} only {step.available} CPUs are in the shared pool on cores without a reserved CPU"
            if not step.passed and step.need % step.group:
                text = f"{begin} {step.need} is not a multiple of the {step.group} CPUs of a core"
            multiple = f"{step.need} is a multiple of {step.group}"
            passed = f"full-pcpus-only: {multiple}, and {step.available} CPUs are on free cores"
            line = Line(passed, detail=True) if step.passed else Line(text, mark=NO)
        case Taking():
            below = tuple(line for run in step.runs for line in _run(run, step, topology))
            where = f" on {nodes(nodes_of(topology, step.taken))}" if topology is not None else ""
            left = step.reusable & step.taken
            again = f"; {list_text(left)} reused from an init container" if left else ""
            text = f"gets {plural(step.taken.bit_count(), 'CPU')}{where}: {list_text(step.taken)}{again}"
            text = f"CPUs cannot be allocated: {step.error}" if step.error else text
            line = Line(text, below, mark=NO if step.error else YES)
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
        shares = []
        for pick in run.picks:
            what = "rest" if pick.rule == "rest" else "share"
            shares.append(Line(f"the {what} of {nodes([pick.node or 0])}: {list_text(pick.cpus)}", detail=True))
        yield Line(
            f"distributed {place}: {plural(chosen.share, 'CPU')} from each of {nodes(chosen.nodes)}{lost}{rest}",
            tuple(shares),
        )
        return
    for pick in run.picks:
        yield Line(f"{_elements(pick, topology)} {place}: {list_text(pick.cpus)}")


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


def plugin_line(step: plugins.PluginStep) -> Line:
    """Return which plugin did what."""
    match step:
        case plugins.PluginFiltered() | plugins.PluginMadeRoom():
            cpus = f"{plural(step.cpus.bit_count(), 'CPU')} ({list_text(step.cpus)})" if step.cpus else "no CPUs"
            does = f"withholds {cpus}" if isinstance(step, plugins.PluginFiltered) else f"releases {cpus} after all"
            return Line(f"{step.plugin} {does}{f': {step.because}' if step.because else ''}")
        case plugins.PluginScored() if len(step.levels) == 1:
            return Line(f"{step.plugin} scores {list_text(next(iter(step.levels.values())))} alike", detail=True)
        case plugins.PluginScored():
            first, *others = [list_text(cpus) for cpus in step.levels.values()]
            more = ", and so on" if len(others) >= LEVELS else ""
            return Line(f"{step.plugin} prefers {first} to {', then '.join(others[: LEVELS - 1])}{more}")
        case plugins.PluginsChose():
            chosen = step.chosen
            hides = f"; {list_text(chosen.hidden)} on the same cores stay idle" if chosen.hidden else ""
            among = f", of {plural(len(step.candidates), 'proposal')}" if len(step.candidates) > 1 else ""
            text = f"{_proposer(chosen)}{among}: {list_text(chosen.cpus)}{hides}"
            rest = [one for one in step.candidates if one != chosen]
            below = [Line(f"not {list_text(one.cpus)}, {_proposer(one)}", detail=True) for one in rest[:LEVELS]]
            if len(rest) > LEVELS:
                below.append(Line(f"nor {plural(len(rest) - LEVELS, 'other')}", detail=True))
            return Line(f"as a hint, {text}" if step.as_hint else text, tuple(below))
        case plugins.PluginChoseAffinity():
            before, after = (nodes(members(mask)) if mask else "any NUMA node" for mask in (step.merged, step.nodes))
            return Line(f"{step.plugin} replaces {before} by {after}")
        case plugins.PluginFailed():
            return Line(f"{step.plugin} failed at {step.point}, and its answer is ignored: {step.why}")


def _proposer(one: plugins.Candidate) -> str:
    who = f"chosen by {one.plugin}" if one.plugin else "best scores first, by the kubelet's rules among equal ones"
    points = ", ".join(f"{score:.4g} by {plugin}" for plugin, score in (one.scores or {}).items())
    return f"{who} (score {points})" if points else who
