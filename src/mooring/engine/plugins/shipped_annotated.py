"""Plugins that come with Mooring and do what a pod wishes by an annotation."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from mooring.engine.plugins import CPURequest, CPUSet, MachineView, PodView, Withheld, can_hold, hookimpl
from mooring.engine.plugins.values import RESERVED, check_fields, flag, word


def annotated(pod: PodView | None, annotation: str, container: str) -> str | None:
    """Return what an annotation says of a container: ``annotation.container`` wins over the pod's ``annotation``.

    >>> annotated(PodView("1", "default", "web", "Guaranteed", {"a": "x", "a.db": "y"}), "a", "db")
    'y'
    """
    if pod is None:
        return None
    own = pod.annotations.get(f"{annotation}.{container}") if container else None
    return pod.annotations.get(annotation) if own is None else own


def nothing_for(request: CPURequest, annotation: str, value: str, words: Collection[str]) -> Withheld:
    """Withhold everything from a pod whose annotation says what there is not.

    To ignore it would place the pod where its author did not want it, without a report.
    """
    because = f"{annotation}: {value[:40]!r} is none of {', '.join(words)}"
    return Withheld(request.available, because)


def outside(request: CPURequest, cpus: CPUSet, because: str) -> Withheld | None:
    """Withhold all but some CPUs; None when there are no others."""
    others = request.available - cpus
    return Withheld(others, because) if others else None


CORE_KIND = "mooring/core-kind"
PERFORMANCE, EFFICIENCY, ANY = "performance", "efficiency", "any"
KINDS = (PERFORMANCE, EFFICIENCY, ANY)


class CoreKinds:
    """Keeps containers on cores of one kind.

    Performance or efficiency cores for a pod, and for the system.

    Hybrid processors have cores of several speeds, and only the fast ones have two threads. No kubelet knows them: it
    hands out both to one container, and counts by an average that gives CPUs twice or tears cores apart
    (kubernetes/kubernetes#140495, containers/nri-plugins#341). The kinds are those that discovery finds: by the
    kernel's ``cpu_core`` and ``cpu_atom``, by capacity, by clock.

    With more than two kinds the fastest is performance, and all others are efficiency: pods get the faster of these
    first, the system the slowest (the low-power cores of an Intel Core Ultra lie outside of the L3). Where it is
    unknown which kind is faster, there is one kind for all.
    """

    def __init__(self, settings: Mapping[str, object]) -> None:
        check_fields(settings, {"default", "reserved", "strict"})
        self.default = word(settings, "default", KINDS, ANY)
        self.reserved = word(settings, "reserved", KINDS, EFFICIENCY)
        self.is_strict = flag(settings, "strict", default=False)

    @hookimpl
    def filter_cpus(self, request: CPURequest) -> Withheld | None:
        """With ``strict`` withhold the cores of other kinds."""
        wishes = self._wishes(request)
        for annotation, wish in wishes.items():
            if wish not in KINDS:
                return nothing_for(request, annotation, wish, KINDS)
        if not self.is_strict or request.purpose == RESERVED or ANY in wishes.values():
            return None
        fitting = CPUSet()
        for wish in wishes.values():
            fitting |= _of_kind(request.machine, wish)
        names = " or ".join(dict.fromkeys(wishes.values()))
        return outside(request, fitting, f"they are on cores of another kind than {names}")

    @hookimpl
    def pre_score(self, request: CPURequest) -> dict[int, float]:
        """Score the kind that is wished best; another that can hold all before a mixture.

        All CPUs have a score, also where nothing is wished: so the host counts cores as they are.
        """
        wish = next(iter(self._wishes(request).values()))
        ranks = _ranked(request.machine)
        if wish == ANY or not ranks:
            return dict.fromkeys(request.available, 0.0)
        if request.purpose == RESERVED:
            # The system's CPUs: the slowest first, or the fastest.
            ordered = ranks if wish == PERFORMANCE else ranks[::-1]
            return {cpu: -float(step) for step, cpus in enumerate(ordered) for cpu in cpus & request.available}
        groups = [
            _of_kind(request.machine, kind) for kind in (wish, EFFICIENCY if wish == PERFORMANCE else PERFORMANCE)
        ]
        around = request.near if len(request.near) >= request.need else request.available
        # One kind is worth more than the wished one: threads of uneven speed wait for each other.
        groups.sort(key=lambda cpus: not can_hold(request, cpus & around))
        scores = {cpu: 10.0 * (len(groups) - step) for step, cpus in enumerate(groups) for cpu in cpus}
        for step, cpus in enumerate(ranks):
            for cpu in cpus:
                scores[cpu] -= step
        return {cpu: scores.get(cpu, 0.0) for cpu in request.available}

    def _wishes(self, request: CPURequest) -> dict[str, str]:
        """Return what is wished, by the annotation that says so; of a whole pod what its containers wish, too."""
        if request.purpose == RESERVED:
            return {RESERVED: self.reserved}
        found = annotated(request.pod, CORE_KIND, request.container)
        wishes = {CORE_KIND: self.default if found is None else found}
        if not request.container and request.pod is not None and not request.pod.is_pod_level:
            wishes |= {
                name: value for name, value in request.pod.annotations.items() if name.startswith(f"{CORE_KIND}.")
            }
        return wishes


def _of_kind(machine: MachineView, kind: str) -> CPUSet:
    """Return the CPUs of a kind; all of them where kinds cannot be told apart."""
    ranks = _ranked(machine)
    if not ranks or kind == ANY:
        return machine.cpus
    if kind == PERFORMANCE:
        return ranks[0]
    slower = CPUSet()
    for cpus in ranks[1:]:
        slower |= cpus
    return slower


def _ranked(machine: MachineView) -> list[CPUSet]:
    """Return the CPUs of each kind, the fastest first; nothing where there is one kind, or ranks are unknown."""
    kinds = {rank: cpus & machine.cpus for rank, cpus in machine.kinds.items() if cpus & machine.cpus}
    if len(kinds) < 2 or min(kinds) < 0:
        return []
    return [kinds[rank] for rank in sorted(kinds, reverse=True)]


HIDE_SIBLINGS = "mooring/hide-siblings"
SWITCHED = ("true", "false")


class HiddenSiblings:
    """Leaves one thread of each core that is entirely free.

    A container gets one thread of each core, and the others are not assigned as long as it runs.

    Two threads of one core share its execution units and its first caches. Users who need the whole core for one thread
    (latency, licences, side channels) switch SMT off for the whole machine today, or request twice the CPUs and
    leave half of them idle (kubernetes/kubernetes#74471 requests it by pod). Here the other threads are withheld as
    siblings: the host counts hints without them, and keeps those of the chosen cores unassigned.
    """

    def __init__(self, settings: Mapping[str, object]) -> None:
        check_fields(settings, {"default"})
        self.default = word(settings, "default", ("off", "on"), "off")

    @hookimpl
    def filter_cpus(self, request: CPURequest) -> Withheld | None:
        """Withhold the threads of half-used cores, and of free ones all but the first."""
        if request.purpose == RESERVED or request.pod is None:
            return None
        wish = annotated(request.pod, HIDE_SIBLINGS, request.container)
        if wish is not None and wish not in SWITCHED:
            return nothing_for(request, HIDE_SIBLINGS, wish, SWITCHED)
        if request.pod.is_pod_level:
            if wish != "true":
                return None
            # Its CPUs are cut among its containers after they were chosen, and may be so through cores.
            return Withheld(request.available, "siblings cannot be hidden in a pod with resources as a whole")
        if wish == "false" or (wish is None and self.default == "off"):
            return None
        free = request.machine.whole_cores(request.available)
        firsts = CPUSet.from_ids(first for first, core in request.machine.cores.items() if core <= free)
        siblings = request.available - firsts
        return Withheld(siblings, "one thread of each free core is given", as_siblings=True) if siblings else None


ISOLATED_CPUS = "mooring/isolated-cpus"
PREFER, REQUIRE, AVOID = "prefer", "require", "avoid"
MODES = (PREFER, REQUIRE, AVOID, ANY)


class IsolatedCPUs:
    """Gives isolated CPUs to those who want them.

    Pods that want CPUs which the kernel keeps out of scheduling (isolcpus), and pods that must not.

    The kernel puts no task on such a CPU by itself and balances none away. For a program that pins its own threads that
    is what it needs; a program that leaves its threads to the kernel has all of them on one CPU there. The kubelet
    knows nothing of isolation and hands the CPUs out like others (kubernetes/community#2435,
    kubernetes/kubernetes#87862).
    """

    def __init__(self, settings: Mapping[str, object]) -> None:
        check_fields(settings, {"mode"})
        self.mode = word(settings, "mode", MODES, AVOID)

    @hookimpl
    def filter_cpus(self, request: CPURequest) -> Withheld | None:
        """With ``require`` withhold all other CPUs."""
        wish = self._wish(request)
        if wish not in MODES:
            return nothing_for(request, ISOLATED_CPUS, wish, MODES)
        if wish != REQUIRE:
            return None
        isolated = request.machine.isolated
        return outside(request, isolated, "they are not isolated" if isolated else "no CPU is isolated here")

    @hookimpl
    def pre_score(self, request: CPURequest) -> dict[int, float] | None:
        """With ``prefer`` and ``avoid`` score isolated CPUs."""
        score = {PREFER: 1.0, AVOID: -1.0}.get(self._wish(request), 0.0)
        isolated = request.available & request.machine.isolated
        return dict.fromkeys(isolated, score) if isolated and score else None

    def _wish(self, request: CPURequest) -> str:
        if request.purpose == RESERVED:
            # The system leaves its tasks to the kernel, which would never put one there.
            return AVOID
        found = annotated(request.pod, ISOLATED_CPUS, request.container)
        return self.mode if found is None else found


SPREAD_GROUP = "mooring/spread-group"
CACHE, NUMA, SOCKET = "cache", "numa", "socket"
DOMAINS = (CACHE, NUMA, SOCKET)


class Spread:
    """Keeps pods of a group apart.

    Pods of one group get different caches, NUMA nodes or sockets.

    Replicas that are bound by cache or by the bandwidth of memory slow each other down when they share it, and the
    kubelet packs them onto one L3 or one NUMA node. The option prefer-align-cpus-by-uncorecache keeps each of them
    within one cache, yet nothing keeps two apart (kubernetes/enhancements#4800, known limits). A group is named by an
    annotation and counts within its namespace; containers of one pod may share.
    """

    def __init__(self, settings: Mapping[str, object]) -> None:
        check_fields(settings, {"domain", "strict"})
        self.domain = word(settings, "domain", DOMAINS, CACHE)
        self.is_strict = flag(settings, "strict", default=False)

    @hookimpl
    def filter_cpus(self, request: CPURequest) -> Withheld | None:
        """With ``strict`` withhold the domains in which others of the group are."""
        if not self.is_strict:
            return None
        taken = CPUSet()
        for domain, pods in self._occupied(request).items():
            if pods:
                taken |= domain
        taken &= request.available
        group = _group(request)
        return Withheld(taken, f"others of the group {group[:40]} are on the same {self.domain}") if taken else None

    @hookimpl
    def pre_score(self, request: CPURequest) -> dict[int, float] | None:
        """Score the CPUs of a domain lower for each other pod of the group in it."""
        occupied = self._occupied(request)
        scores = {cpu: -float(pods) for domain, pods in occupied.items() if pods for cpu in domain & request.available}
        return scores or None

    @hookimpl
    def score_set(self, request: CPURequest, candidate: CPUSet) -> float | None:
        """Score a set lower for each other pod of the group beside it, and for each domain beyond the first.

        A pod across two domains leaves neither of them to the next pod of the group.
        """
        if not _group(request):
            return None
        touched = {domain: pods for domain, pods in self._occupied(request).items() if domain & candidate}
        return 0.0 - sum(touched.values()) - (len(touched) - 1) / (2.0 * len(request.machine.cpus))

    def _occupied(self, request: CPURequest) -> dict[CPUSet, int]:
        """Return how many other pods of the group have CPUs in each domain; nothing for an owner without a group."""
        group = _group(request)
        if not group or request.pod is None:
            return {}
        theirs: dict[str, CPUSet] = {}
        for holder in request.holders():
            pod = holder.pod
            if pod is None or pod.uid == request.pod.uid or pod.namespace != request.pod.namespace:
                continue
            if pod.annotations.get(SPREAD_GROUP) == group:
                theirs[pod.uid] = theirs.get(pod.uid, CPUSet()) | holder.cpus
        machine = request.machine
        sets = {CACHE: machine.caches, NUMA: machine.numa, SOCKET: machine.sockets}[self.domain]
        return {domain: sum(1 for cpus in theirs.values() if cpus & domain) for domain in list(sets.values())}


def _group(request: CPURequest) -> str:
    return request.pod.annotations.get(SPREAD_GROUP, "") if request.pod is not None else ""
