"""A story as a tree of lines in plain words, the most important first; hints and their merge.

What the managers did, in plain words.
"""

from __future__ import annotations

from collections.abc import Iterator

from mooring.engine.core.bits import list_text, members
from mooring.engine.core.pod import Pod
from mooring.engine.core.topology import Topology
from mooring.engine.cpumanager.facts import CPUPinningFailed, ExistingCPUsKept, PodShareCut, WholeCoresChecked
from mooring.engine.devicemanager.facts import DeviceHintsAsked, DevicesTaken
from mooring.engine.extensions.facts import CPUsBroken, CPUsReplaced, OfflineCPUsLeftOut
from mooring.engine.extensions.owners import HeldClaim
from mooring.engine.memorymanager.facts import MemoryAssigned, MemoryPinningFailed
from mooring.engine.memorymanager.policy import is_memory
from mooring.engine.node.facts import PodNotSupported, PodWithdrawn
from mooring.engine.plugins import facts as plugins
from mooring.engine.topologymanager.facts import HintsMerged
from mooring.engine.topologymanager.merge import SINGLE_NUMA_NODE
from mooring.explanations.chapters import is_followed
from mooring.explanations.phrases import (
    amounts_text,
    joined,
    node_sets,
    nodes,
    nodes_of,
    per_node,
    plural,
    positions,
    size,
)
from mooring.explanations.remarks import left_out_words, loss_words
from mooring.explanations.story import (
    NO,
    YES,
    Chapter,
    ClaimsInvolved,
    Line,
    Opinion,
    Pick,
    PodVerdict,
    Run,
    Step,
    Story,
    Taking,
)
from mooring.lazy import replace


def opinion_line(opinion: Opinion, policy: str) -> Line:
    """Return what one provider said, with what it said it from below."""
    alone = "" if opinion.suffices else f"; {policy} rejects that"
    if isinstance(opinion.asked, DeviceHintsAsked) and opinion.asked.follows:
        where = positions(opinion.asked.free)
        text = f"{opinion.resource}: {where}, which CPUs and memory follow{alone}"
        return Line(text, mark="" if opinion.suffices else NO)
    below = []
    kinds = {kind for types in opinion.free.values() for kind in types}
    for kind in sorted(kinds, key=lambda kind: (kind != opinion.resource, kind)):
        free = per_node(
            {node: types.get(kind, 0) for node, types in opinion.free.items()}, size if is_memory(kind) else str
        )
        below.append(Line(f"free{'' if kind == opinion.resource else f' {kind}'}: {free}"))
    if opinion.bound:
        where = nodes(members(opinion.bound))
        below.append(Line(f"must include {where}, where earlier containers of the pod have CPUs"))
    below += [Line(f"{nodes(group)} serve memory as one group") for group in opinion.groups]
    amounts = [
        f"{size(amount) if is_memory(kind) else amount}{f' of {kind}' if kind != opinion.resource else ''}"
        for kind, amount in opinion.need.items()
    ]
    label = f"{opinion.resource} ({', '.join(amounts)})" if amounts else opinion.resource
    return Line(f"{label}: {_said(opinion, policy)}{alone}", tuple(below), mark="" if opinion.suffices else NO)


def _said(opinion: Opinion, policy: str) -> str:
    if opinion.indifferent:
        if opinion.nothing_fits:
            return f"{_nothing_fits(opinion)}, which counts as no preference until memory is allocated"
        return "any NUMA node works"
    if not opinion.narrowest:
        because = ": it already holds a different number" if opinion.held and opinion.need else ""
        if not opinion.held and not opinion.need:
            because = ": nothing would be left for the containers that share"
        return f"no set of NUMA nodes works{because}"
    if not opinion.suffices or not opinion.preferred:
        least = f"at least {plural(opinion.narrowest, 'NUMA node')}"
        by_number = policy == SINGLE_NUMA_NODE and opinion.narrowest > 1 and not opinion.suffices
        more = "" if by_number else ", more than on an empty machine"
        return f"{least if opinion.suffices else f'needs {least}'}{more}"
    if opinion.count is None:
        number, those = opinion.preferred[0].bit_count(), nodes(members(opinion.together))
        return f"preferred: any of {those}" if number == 1 else f"preferred: sets of {number} of {those}"
    wanted = f"preferred: {node_sets(opinion.preferred)}"
    others = opinion.count - len(opinion.preferred)
    return f"{wanted}; {others} other {'set also works' if others == 1 else 'sets also work'}" if others else wanted


def _nothing_fits(opinion: Opinion) -> str:
    """Say what is missing: memory, or a set of NUMA nodes that may serve it (spec: memory-manager.md section 4)."""
    sums = {kind: sum(types.get(kind, 0) for types in opinion.free.values()) for kind in opinion.need}
    if any(sums[kind] < amount for kind, amount in opinion.need.items()) or not opinion.serving:
        return "no set of NUMA nodes has enough"
    together = joined([f"{size(amount)} of {kind}" for kind, amount in sums.items()])
    serving = f"{nodes(members(opinion.serving))} {'serves' if opinion.serving.bit_count() == 1 else 'serve'}"
    return f"{nodes(opinion.free)} together have {together}, but {serving} other containers and cannot join a new group"


def merge_line(merge: HintsMerged, *, by_distance: bool, score: int | None = None) -> Line:
    """Return how the opinions became one.

    Args:
        merge: of the opinions.
        by_distance: whether of equally narrow sets the closest wins.
        score: of the hint, where it has one.
    """
    mark = YES if merge.admitted else NO
    verdict = "admits" if merge.admitted else "rejects"
    # Among which sets the rule chose.
    sets, ties, told = merge.choices or (), "the closest, then the lowest" if by_distance else "the lowest", []
    if merge.rule == "preferred" and len(sets) > 1:
        told.append(f"preferred by all: {node_sets(sets)}; the narrowest, then {ties} wins")
    if merge.rule == "narrowest" and merge.policy != SINGLE_NUMA_NODE and merge.choices is not None:
        aim = plural(merge.bound, "NUMA node")
        order = f"sets of {aim} win, then smaller, then larger ones; among equal sizes {ties}"
        told.append(f"possible: {node_sets(sets)}; {order}")
    if score:
        told.append(f"score {score}: the share of these nodes that is given away; nothing decides by it")
    below = tuple(Line(text, detail=True) for text in told)
    return Line(f"{merge.policy} {verdict}: {_outcome(merge)}", below, mark=mark)


def _outcome(merge: HintsMerged) -> str:
    mask = merge.result.mask
    where = nodes(members(mask)) if mask else "all NUMA nodes"
    if merge.rule == "preferred":
        if not mask:
            return "any NUMA node works"
        return f"{where} {'is' if mask.bit_count() == 1 else 'are'} preferred by every resource"
    if merge.rule == "nothing":
        return "no combination of hints has a NUMA node in common"
    if merge.rule == "filtered":
        return "not every resource fits on one NUMA node"
    if merge.policy == SINGLE_NUMA_NODE:
        return "no NUMA node is preferred by every resource"
    return f"no set of NUMA nodes is preferred by every resource; the best of the others is {where}"


_MOST_NAMED = 6
"""How many claims one line names."""


def story_lines(story: Story, topology: Topology | None) -> tuple[Line, ...]:
    """Return the story line by line: of a refused pod first the chapter in which it was refused."""
    ordered = sorted(story.chapters, key=lambda chapter: not chapter.failed)
    lines = []
    bound = any(opinion.bound for other in story.chapters if other.failed for opinion in other.opinions)
    for chapter in ordered:
        below = [Line(f"because {chapter.because}", detail=chapter.need > 0)]
        if (merge := chapter.merge) is not None:
            for opinion in chapter.opinions:
                line = opinion_line(opinion, merge.policy)
                # Of an admitted pod the hints are shown on demand.
                is_detail = merge.admitted and not opinion.nothing_fits and not is_followed(opinion)
                below.append(replace(line, detail=is_detail))
            below.append(merge_line(merge, by_distance=chapter.by_distance, score=chapter.score))
        below += (step_line(step, topology) for step in chapter.steps)
        # Of a refused pod the containers that were served are not what it is about, unless they led to the refusal.
        led = (bound and chapter.need > 0) or any(opinion.nothing_fits for opinion in chapter.opinions)
        served = story.verdict is PodVerdict.REJECTED and not chapter.failed
        lines.append(Line(chapter_title(chapter), tuple(below), detail=served and not led))
    if any(isinstance(fact, PodWithdrawn) for fact in story.facts):
        lines.append(Line("the node resources check rejects what the resource managers admitted", mark=NO))
    if any(isinstance(fact, PodNotSupported) for fact in story.facts):
        lines.append(Line("the kubelet rejects it before it asks the resource managers", mark=NO))
    for fact in story.facts:
        if isinstance(fact, OfflineCPUsLeftOut):
            lines.append(Line(left_out_words(fact), mark=NO))
        elif isinstance(fact, CPUsBroken | CPUsReplaced) and story.container in ("", fact.container):
            lines.append(Line(loss_words(fact), mark=NO if isinstance(fact, CPUsBroken) else ""))
    lines += _claim_lines(story.claims, story.pod)
    if story.unreached and story.verdict is PodVerdict.REJECTED:
        names = joined(story.unreached)
        verb = "was" if len(story.unreached) == 1 else "were"
        lines.append(Line(f"{names} {verb} not evaluated", detail=True))
    if story.dropped:
        pods = plural(len(story.dropped), "pod")
        lines.append(Line(f"before that, resources of {pods} that ended were reclaimed", detail=True))
    return tuple(lines)


def chapter_title(chapter: Chapter) -> str:
    """Return the container of a chapter and its request."""
    name = f"container {chapter.container}" if chapter.container else "the pod as a whole"
    asks = "requests no exclusive CPUs" if chapter.failed else "runs in the shared pool"
    if any(isinstance(step, PodShareCut) for step in chapter.steps):
        asks = "shares the CPUs of its pod"
    if chapter.need:
        asks = f"requests {plural(chapter.need, 'exclusive CPU')}"
    return f"{name} {asks}"


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
            Line(f"request {request}: CPUs {list_text(cpus)} of {device}")
            for (device, request), cpus in claim.shares.items()
            if device
        )
        yield Line(f"its {_claim_text(claim)}", shares)
    if told.nowhere:
        names = joined([f"{pod.namespace}/{name}" for name in told.nowhere])
        yield Line(f"no CPUs of this node are held for {names}, which the pod names as claims", detail=True)


def _claim_text(claim: HeldClaim) -> str:
    name = f"{claim.namespace}/{claim.name}" if claim.name else claim.uid
    return f"claim {name} holds CPUs {list_text(claim.cpus)}"


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
