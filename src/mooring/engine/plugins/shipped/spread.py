"""Spread: pods of one group get different caches, NUMA nodes or sockets.

Replicas that are bound by cache or by the bandwidth of memory slow each other down when they share it, and the kubelet
packs them onto one L3 or one NUMA node. The option prefer-align-cpus-by-uncorecache keeps each of them within one
cache, yet nothing keeps two apart (kubernetes/enhancements#4800, known limits). A group is named by an annotation and
counts within its namespace; containers of one pod may share.
"""

from __future__ import annotations

from collections.abc import Mapping

from mooring.engine.core.cpuset import CPUSet
from mooring.engine.plugins.shipped import check_fields, flag, word
from mooring.engine.plugins.values import CPURequest, Withheld, hookimpl

ANNOTATION = "mooring/spread-group"
CACHE, NUMA, SOCKET = "cache", "numa", "socket"
DOMAINS = (CACHE, NUMA, SOCKET)


class Spread:
    """Keeps pods of a group apart."""

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
            if pod.annotations.get(ANNOTATION) == group:
                theirs[pod.uid] = theirs.get(pod.uid, CPUSet()) | holder.cpus
        machine = request.machine
        sets = {CACHE: machine.caches, NUMA: machine.numa, SOCKET: machine.sockets}[self.domain]
        return {domain: sum(1 for cpus in theirs.values() if cpus & domain) for domain in list(sets.values())}


def _group(request: CPURequest) -> str:
    return request.pod.annotations.get(ANNOTATION, "") if request.pod is not None else ""
