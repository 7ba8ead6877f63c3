"""The pipeline: filter, make room, score CPUs, select, score sets.

What the host holds a plugin to stands here, next to the step: only CPUs that may be given, exactly as many as wanted,
whole cores where the policy option says so.

Source: CPU Manager Plugin Model (proposal); spec: resize.md section 7.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType

from mooring.engine.core.bits import CPUMask
from mooring.engine.core.config import PluginPlacement
from mooring.engine.core.cpuset import CPUSet
from mooring.engine.cpumanager.options import TakeError
from mooring.engine.cpumanager.policy import CPUsChosen, Purpose
from mooring.engine.plugins.asking import Asking, BadAnswerError, as_room, as_score, as_scores, as_selected, as_withheld
from mooring.engine.plugins.facts import Candidate, PluginFiltered, PluginMadeRoom, PluginsChose, PluginScored
from mooring.engine.plugins.values import CPURequest, Selected, is_whole, scored_choice
from mooring.lazy import replace

__all__ = ["chosen", "usable"]

HOST = ""


def usable(asking: Asking, request: CPURequest) -> tuple[CPURequest, bool]:
    """Let plugins withhold CPUs, and make room where too few are left.

    Returns:
        The request with what is available then, and whether anything was withheld.
    """
    pool = request.available
    withheld = CPUSet()
    siblings = CPUSet()
    for plugin in asking.of("filter_cpus"):
        answer = asking.ask(plugin, "filter_cpus", as_withheld, request=request)
        cpus = answer.cpus & request.available if answer is not None else CPUSet()
        if answer is None or not cpus:
            continue
        withheld |= cpus
        if answer.as_siblings:
            siblings |= cpus
        request = replace(_left(request, pool - withheld), siblings=siblings)
        if asking.observer is not None:
            asking.observer(PluginFiltered(asking.pod, asking.container, plugin.name, cpus.mask, answer.because))
    for plugin in asking.of("post_filter") if withheld else ():
        if len(request.available) >= request.need:
            break
        room = asking.ask(plugin, "post_filter", as_room, request=request, withheld=withheld)
        cpus = room.cpus & withheld if room is not None else CPUSet()
        if room is None or not cpus:
            continue
        withheld -= cpus
        request = _left(request, pool - withheld)
        if asking.observer is not None:
            asking.observer(PluginMadeRoom(asking.pod, asking.container, plugin.name, cpus.mask, room.because))
    return replace(request, siblings=siblings & withheld), bool(withheld)


def _left(request: CPURequest, available: CPUSet) -> CPURequest:
    return replace(request, available=available, near=request.near & available)


def chosen(asking: Asking, request: CPURequest) -> CPUsChosen | TakeError | None:
    """Run the pipeline.

    Returns:
        The choice; a refusal in the kubelet's words when filters left too few CPUs; None when no plugin has an opinion.
    """
    pool = request.available
    request, took_part = usable(asking, request)
    if took_part and len(request.available) < request.need:
        count = len(request.available)
        return TakeError(f"not enough cpus available to satisfy request: requested={request.need}, available={count}")
    if len(request.available) < request.need or request.need < 1:
        # The kubelet's rules have words of their own for this.
        return None
    # The sum of all scores of each CPU; CPUs without a score are absent
    scores: dict[int, float] = {}
    for plugin in asking.of("pre_score"):
        answer = asking.ask(plugin, "pre_score", as_scores, request=request)
        weighted = {cpu: score * plugin.weight for cpu, score in (answer or {}).items() if cpu in request.available}
        for cpu, score in weighted.items():
            scores[cpu] = scores.get(cpu, 0.0) + score
        if weighted and asking.observer is not None:
            asking.observer(PluginScored(asking.pod, asking.container, plugin.name, _levels(weighted)))
    # The sets that plugins propose, as far as they keep what the host promises
    proposed = []
    seen = MappingProxyType(dict(scores))
    check = _checked(request, pool)
    for plugin in asking.of("select_cpus"):
        selected = asking.ask(plugin, "select_cpus", check, request=request, scores=seen)
        if selected is not None:
            proposed.append(Candidate(plugin.name, selected.cpus.mask, selected.hidden.mask))
    judges = asking.of("score_set")
    if not proposed or judges:
        proposed += _of_host(request, scores, took_part=took_part, alternatives=bool(judges))
    if not proposed:
        # Filters are kept: what they withheld is not taken after all because the rest was awkward. Neither is a core
        # torn apart by the kubelet's average where CPUs were distinguished.
        return TakeError("failed to allocate cpus") if took_part or scores else None
    proposed = [replace(one, hidden=one.hidden | _siblings(request, one.cpus)) for one in proposed]
    best = _best(asking, request, proposed)
    return CPUsChosen(CPUMask(best.cpus), CPUMask(best.hidden))


def _levels(scores: Mapping[int, float]) -> dict[float, CPUMask]:
    """Return score -> mask of the CPUs with it, highest first."""
    levels: dict[float, CPUMask] = {}
    for cpu, score in scores.items():
        levels[score] = CPUMask(levels.get(score, 0) | 1 << cpu)
    return dict(sorted(levels.items(), reverse=True))


def _checked(request: CPURequest, pool: CPUSet) -> Callable[[object], Selected]:
    """Return what understands a selection and holds it to the invariants."""

    def check(answer: object) -> Selected:
        selected = as_selected(answer)
        cpus, hidden = selected.cpus, selected.hidden
        if len(cpus) != request.need:
            raise BadAnswerError(f"it selected {len(cpus)} CPUs where {request.need} are wanted")
        if not cpus <= request.available:
            raise BadAnswerError(f"it selected the CPUs {cpus - request.available}, which may not be given")
        if not is_whole(request, cpus | hidden):
            raise BadAnswerError(f"it selected the CPUs {cpus}, which are no whole cores (full-pcpus-only)")
        _check_hidden(request, pool, selected)
        return selected

    return check


def _check_hidden(request: CPURequest, pool: CPUSet, selected: Selected) -> None:
    """Check that hidden threads are free, and of the cores that were selected."""
    cpus, hidden = selected.cpus, selected.hidden
    if not hidden:
        return
    if request.purpose != Purpose.CONTAINER.value:
        raise BadAnswerError(f"it hides CPUs of a request for {request.purpose}, where only containers can")
    if hidden & cpus or not hidden <= pool:
        raise BadAnswerError(f"it hides the CPUs {hidden}, of which some are given or not free")
    cores = [core for core in request.machine.cores.values() if core & cpus]
    if not hidden <= CPUSet.from_ids(cpu for core in cores for cpu in core):
        raise BadAnswerError(f"it hides the CPUs {hidden}, of which some are on other cores")


def _siblings(request: CPURequest, chosen: int) -> int:
    """Return those of the siblings that are on the chosen cores; only a container can hide them."""
    if not request.siblings or request.purpose != Purpose.CONTAINER.value:
        return 0
    return request.machine.topology.core_siblings(CPUMask(chosen)) & request.siblings.mask & ~chosen


def _of_host(
    request: CPURequest, scores: Mapping[int, float], *, took_part: bool, alternatives: bool
) -> list[Candidate]:
    """Return the host's own proposals: what the kubelet's rules take, best scores first, near the hint first."""
    if not took_part and not scores and not alternatives:
        return []
    # As in the kubelet: what the hint points to, then anywhere.
    places = [request.near] if request.near else []
    proposals = [scored_choice(request, scores, places)]
    if alternatives:
        around = request.near if len(request.near) >= request.need else request.available
        elements = [element & around for element in (*request.machine.numa.values(), *request.machine.caches.values())]
        proposals += [scored_choice(request, scores, [one]) for one in elements if len(one) >= request.need]
    found = dict.fromkeys(one.mask for one in proposals if one is not None and is_whole(request, one))
    return [Candidate(HOST, cpus) for cpus in found]


def _best(asking: Asking, request: CPURequest, proposed: list[Candidate]) -> Candidate:
    """Return the proposal with the highest score; the first one of equal ones."""
    judges = asking.of("score_set")
    judged = []
    for candidate in proposed:
        scores: dict[str, float] = {}
        for plugin in judges:
            if plugin.name in asking.failed:
                continue
            score = asking.ask(
                plugin, "score_set", as_score, request=request, candidate=CPUSet(CPUMask(candidate.cpus))
            )
            if score is not None:
                scores[plugin.name] = score * plugin.weight
        judged.append(replace(candidate, scores=scores or None))
    # A judge that fails half-way has judged nothing.
    for candidate_index, candidate in enumerate(judged):
        kept = {name: score for name, score in (candidate.scores or {}).items() if name not in asking.failed}
        judged[candidate_index] = replace(candidate, scores=kept or None)
    best = max(judged, key=lambda one: one.score)
    if asking.observer is not None:
        as_hint = any(plugin.placement is PluginPlacement.HINT_PROVIDER for plugin in asking.choice.plugins)
        asking.observer(PluginsChose(asking.pod, asking.container, tuple(judged), best, as_hint))
    return best
