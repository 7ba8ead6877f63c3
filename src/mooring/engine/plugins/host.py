"""The host: asks the plugins of a node for the CPU manager and the topology manager, and keeps what both promise.

The pipeline: filter, make room, score CPUs, select, score sets. What the host holds a plugin to stands next to the
step: only CPUs that may be given, exactly as many as wanted, whole cores where the policy option says so.

Source: CPU Manager Plugin Model (proposal), both placements; spec: resize.md section 7.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType

from mooring.engine.core.bits import CPUMask, NUMAMask, mask_of
from mooring.engine.core.config import PluginChoice, PluginPlacement
from mooring.engine.core.cpuset import CPUSet
from mooring.engine.core.decision import AllocationError, Observer
from mooring.engine.core.pod import Pod
from mooring.engine.cpumanager.packed import refused_outright
from mooring.engine.cpumanager.policy import CPUsChosen, CPUsWanted, Purpose
from mooring.engine.cpumanager.state import CPUState
from mooring.engine.extensions.choosing import Pipeline
from mooring.engine.extensions.owners import hidden_of_pod
from mooring.engine.plugins import facts
from mooring.engine.plugins.asking import (
    Asking,
    BadAnswerError,
    as_nodes,
    as_order,
    as_room,
    as_score,
    as_scores,
    as_selected,
    as_withheld,
)
from mooring.engine.plugins.values import (
    AffinityRequest,
    CPURequest,
    Holder,
    MachineView,
    Selected,
    is_whole,
    levels_of,
    numa_choice,
    pod_view,
    scored_choice,
)
from mooring.engine.topologymanager.hints import Hint
from mooring.lazy import dataclass, field, replace

_CHOOSING = frozenset({"filter_cpus", "post_filter", "pre_score", "select_cpus", "score_set"})
_TELLING_APART = frozenset({"filter_cpus", "pre_score"})


@dataclass(frozen=True, slots=True)
class PluginHost(Pipeline):
    """The plugins of one node, on its machine: the chooser of its CPU manager."""

    choice: PluginChoice
    machine: MachineView = field(repr=False)
    active: Mapping[str, Pod] = field(default_factory=dict, repr=False)
    keeps_hints: bool = False
    """Whether what the hint points to was promised (topology manager policies restricted and single-numa-node): CPUs of
    other NUMA nodes would break the promise, and the pod would be refused by the next restart."""

    @property
    def counts_cores(self) -> bool:
        """Whether a plugin tells single CPUs apart, so that the kubelet's average of the machine says nothing."""
        return bool(self.names(PluginPlacement.CPU_MANAGER, _TELLING_APART))

    @property
    def withholds(self) -> bool:
        """Whether a plugin may withhold CPUs in the CPU manager."""
        return bool(self.names(PluginPlacement.CPU_MANAGER, frozenset({"filter_cpus"})))

    def among(self, active: Mapping[str, Pod]) -> PluginHost:
        """Return the host that knows the active pods."""
        return replace(self, active=active)

    def reserving(self, reserved: CPUMask) -> PluginHost:
        """Return the host that knows the CPUs of the system."""
        return replace(self, machine=replace(self.machine, reserved=CPUSet(reserved)))

    def usable(self, state: CPUState, wanted: CPUsWanted, observer: Observer | None) -> CPUMask:
        """Return the mask of those CPUs of the pool that may be given."""
        asking = self._asking(PluginPlacement.CPU_MANAGER, wanted, observer)
        if not asking.of("filter_cpus"):
            return wanted.pool
        request = self._request(state, wanted)
        left = asking.within_budget(lambda: filtered(asking, request))
        return wanted.pool if left is None else left[0].available.mask

    def chosen(
        self, state: CPUState, wanted: CPUsWanted, observer: Observer | None
    ) -> CPUsChosen | AllocationError | None:
        """Run the pipeline inside the CPU manager."""
        short = self.keeps_hints and wanted.affinity is not None and wanted.near.bit_count() < wanted.need
        if short and hidden_of_pod(state, wanted.uid):
            # Threads that the pod's other containers hide were not counted when the nodes were promised.
            count = wanted.near.bit_count()
            text = f"not enough cpus available to satisfy request: requested={wanted.need}, available={count}"
            return AllocationError(text)
        return self._piped(PluginPlacement.CPU_MANAGER, state, wanted, observer)

    def hinted(self, state: CPUState, wanted: CPUsWanted, observer: Observer | None) -> NUMAMask | None:
        """Run the pipeline as a hint provider: return the mask of the NUMA nodes of its choice, None for no opinion."""
        found = self._piped(PluginPlacement.HINT_PROVIDER, state, wanted, observer)
        if not isinstance(found, CPUsChosen):
            return None
        return NUMAMask(
            mask_of(node for node, cpus in self.machine.numa.items() if node >= 0 and cpus.mask & found.cpus)
        )

    def takes_part(self, placement: PluginPlacement) -> bool:
        """Tell whether a plugin of a placement takes part in the choice."""
        return bool(self.names(placement))

    def has_point(self, point: str) -> bool:
        """Tell whether any plugin implements an extension point."""
        return any(point in plugin.points for plugin in self.choice.plugins)

    def names(self, placement: PluginPlacement, points: frozenset[str] = _CHOOSING) -> tuple[str, ...]:
        """Return the names of the plugins of a placement that implement any of some points, those of the choice."""
        mine = (plugin for plugin in self.choice.plugins if plugin.placement is placement)
        return tuple(plugin.name for plugin in mine if plugin.points.keys() & points)

    def affinity(
        self, pod: Pod, container: str, policy: str, merged: Hint, of_cpus: Hint, observer: Observer | None
    ) -> tuple[str, Hint] | None:
        """Let plugins put the CPU manager's own choice of NUMA nodes in the place of the merged one (best-effort only).

        Returns:
            The plugin that did, and the hint; None when none did.
        """
        asking = Asking(self.choice, pod.uid, container, observer)
        request = AffinityRequest(pod_view(pod), container, policy, numa_choice(merged), numa_choice(of_cpus))

        def work() -> tuple[str, Hint] | None:
            for plugin in asking.of("choose_affinity"):
                nodes = asking.ask(plugin, "choose_affinity", as_nodes, request=request)
                if nodes is None:
                    continue
                if nodes != request.of_cpus.nodes:
                    why = f"it chose the NUMA nodes {sorted(nodes)}, which are not those of the CPU manager"
                    asking.fail(plugin.name, "choose_affinity", why)
                    continue
                return plugin.name, of_cpus
            return None

        return asking.within_budget(work)

    def ordered(self, pods: Sequence[Pod], observer: Observer | None = None) -> list[Pod]:
        """Return pods that wait in the order in which they are to be admitted."""
        asking = Asking(self.choice, "", "", observer)
        by_uid = {pod.uid: pod for pod in pods}
        if len(by_uid) != len(pods):
            # Of two pods with one uid an answer could name only one.
            return list(pods)

        def work() -> list[str]:
            order = list(by_uid)
            for plugin in asking.of("sort_pods"):
                views = tuple(pod_view(by_uid[uid]) for uid in order)
                answer = asking.ask(plugin, "sort_pods", as_order, pods=views)
                if answer is None:
                    continue
                if len(answer) != len(order) or set(answer) != by_uid.keys():
                    asking.fail(plugin.name, "sort_pods", "it left pods out, repeated some or added others")
                    continue
                order = list(answer)
            return order

        order = asking.within_budget(work) if asking.of("sort_pods") else None
        return list(pods) if order is None else [by_uid[uid] for uid in order]

    def _piped(
        self, placement: PluginPlacement, state: CPUState, wanted: CPUsWanted, observer: Observer | None
    ) -> CPUsChosen | AllocationError | None:
        asking = self._asking(placement, wanted, observer)
        if not asking.choice.plugins:
            return None
        request = self._request(state, wanted)
        return asking.within_budget(lambda: selected_by(asking, request))

    def _asking(self, placement: PluginPlacement, wanted: CPUsWanted, observer: Observer | None) -> Asking:
        mine = tuple(plugin for plugin in self.choice.plugins if plugin.placement == placement)
        return Asking(replace(self.choice, plugins=mine), wanted.uid, wanted.container, observer)

    def _request(self, state: CPUState, wanted: CPUsWanted) -> CPURequest:
        bound = self.keeps_hints and wanted.near.bit_count() >= wanted.need

        def holders() -> tuple[Holder, ...]:
            pods = {uid: pod_view(pod) for uid, pod in self.active.items() if uid in state.assignments}
            return tuple(
                Holder(uid, container, CPUSet(cpus), pods.get(uid))
                for uid, containers in state.assignments.items()
                for container, cpus in containers.items()
            )

        return CPURequest(
            purpose=wanted.purpose.value,
            pod=pod_view(wanted.pod) if wanted.pod is not None else None,
            container=wanted.container,
            need=wanted.need,
            available=CPUSet(wanted.near if bound else wanted.pool),
            near=CPUSet(wanted.near & wanted.pool),
            shared=CPUSet(state.default),
            machine=self.machine,
            holders=holders,
        )


def filtered(asking: Asking, request: CPURequest) -> tuple[CPURequest, bool]:
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
            asking.observer(facts.PluginFiltered(asking.pod, asking.container, plugin.name, cpus.mask, answer.because))
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
            asking.observer(facts.PluginMadeRoom(asking.pod, asking.container, plugin.name, cpus.mask, room.because))
    return replace(request, siblings=siblings & withheld), bool(withheld)


def _left(request: CPURequest, available: CPUSet) -> CPURequest:
    return replace(request, available=available, near=request.near & available)


def selected_by(asking: Asking, request: CPURequest) -> CPUsChosen | AllocationError | None:
    """Run the pipeline.

    Returns:
        The choice; a refusal in the kubelet's words when filters left too few CPUs; None when no plugin has an opinion.
    """
    pool = request.available
    request, took_part = filtered(asking, request)
    refusal = refused_outright(request.available.mask, request.need)
    if took_part and refusal is not None:
        return refusal
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
            asking.observer(facts.PluginScored(asking.pod, asking.container, plugin.name, levels_of(weighted)))
    # The sets that plugins propose, as far as they keep what the host promises
    proposed = []
    seen = MappingProxyType(dict(scores))
    check = _checked(request, pool)
    for plugin in asking.of("select_cpus"):
        selected = asking.ask(plugin, "select_cpus", check, request=request, scores=seen)
        if selected is not None:
            proposed.append(facts.Candidate(plugin.name, selected.cpus.mask, selected.hidden.mask))
    judges = asking.of("score_set")
    if not proposed or judges:
        proposed += _of_host(request, scores, took_part=took_part, alternatives=bool(judges))
    if not proposed:
        # Filters are kept: what they withheld is not taken after all because the rest was awkward. Neither is a core
        # torn apart by the kubelet's average where CPUs were distinguished.
        return AllocationError("failed to allocate cpus") if took_part or scores else None
    if request.siblings and request.purpose == Purpose.CONTAINER.value:
        # Siblings on the chosen cores are hidden; only a container can hide them.
        for index, one in enumerate(proposed):
            cores = request.machine.topology.core_siblings(CPUMask(one.cpus))
            proposed[index] = replace(one, hidden=one.hidden | cores & request.siblings.mask & ~one.cpus)
    best = _best(asking, request, proposed)
    return CPUsChosen(CPUMask(best.cpus), CPUMask(best.hidden))


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
        if hidden and request.purpose != Purpose.CONTAINER.value:
            raise BadAnswerError(f"it hides CPUs of a request for {request.purpose}, where only containers can")
        if hidden & cpus or not hidden <= pool:
            raise BadAnswerError(f"it hides the CPUs {hidden}, of which some are given or not free")
        if hidden.mask & ~request.machine.topology.core_siblings(cpus.mask):
            raise BadAnswerError(f"it hides the CPUs {hidden}, of which some are on other cores")
        return selected

    return check


def _of_host(
    request: CPURequest, scores: Mapping[int, float], *, took_part: bool, alternatives: bool
) -> list[facts.Candidate]:
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
    return [facts.Candidate("", cpus) for cpus in found]


def _best(asking: Asking, request: CPURequest, proposed: list[facts.Candidate]) -> facts.Candidate:
    """Return the proposal with the highest score; the first one of equal ones."""
    judges = asking.of("score_set")
    found: list[dict[str, float]] = []
    for candidate in proposed:
        scores: dict[str, float] = {}
        for plugin in judges:
            if plugin.name in asking.failed:
                continue
            cpus = CPUSet(CPUMask(candidate.cpus))
            score = asking.ask(plugin, "score_set", as_score, request=request, candidate=cpus)
            if score is not None:
                scores[plugin.name] = score * plugin.weight
        found.append(scores)
    judged = []
    for candidate, scores in zip(proposed, found, strict=True):
        # A judge that fails half-way has judged nothing.
        kept = {name: score for name, score in scores.items() if name not in asking.failed}
        judged.append(replace(candidate, scores=kept or None))
    best = max(judged, key=lambda one: one.score)
    if asking.observer is not None:
        as_hint = any(plugin.placement is PluginPlacement.HINT_PROVIDER for plugin in asking.choice.plugins)
        asking.observer(facts.PluginsChose(asking.pod, asking.container, tuple(judged), best, as_hint))
    return best
