"""Core kinds: performance or efficiency cores for a pod, and for the system.

Hybrid processors have cores of several speeds, and only the fast ones have two threads. No kubelet knows them: it hands
out both to one container, and counts by an average that gives CPUs twice or tears cores apart
(kubernetes/kubernetes#140495, containers/nri-plugins#341). The kinds are those that discovery finds: by the kernel's
``cpu_core`` and ``cpu_atom``, by capacity, by clock.

With more than two kinds the fastest is performance, and all others are efficiency: pods get the faster of these first,
the system the slowest (the low-power cores of an Intel Core Ultra lie outside of the L3). Where it is unknown which
kind is faster, there is one kind for all.
"""

from __future__ import annotations

from collections.abc import Mapping

from mooring.engine.core.cpuset import CPUSet
from mooring.engine.plugins.shipped import annotated, check_fields, flag, nothing_for, outside, word
from mooring.engine.plugins.values import CPURequest, MachineView, Withheld, can_hold, hookimpl

ANNOTATION = "mooring/core-kind"
PERFORMANCE, EFFICIENCY, ANY = "performance", "efficiency", "any"
KINDS = (PERFORMANCE, EFFICIENCY, ANY)
_RESERVED = "reserved"


class CoreKinds:
    """Keeps containers on cores of one kind."""

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
        if not self.is_strict or request.purpose == _RESERVED or ANY in wishes.values():
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
        if request.purpose == _RESERVED:
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
        if request.purpose == _RESERVED:
            return {_RESERVED: self.reserved}
        found = annotated(request.pod, ANNOTATION, request.container)
        wishes = {ANNOTATION: self.default if found is None else found}
        if not request.container and request.pod is not None and not request.pod.is_pod_level:
            wishes |= {
                name: value for name, value in request.pod.annotations.items() if name.startswith(f"{ANNOTATION}.")
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
