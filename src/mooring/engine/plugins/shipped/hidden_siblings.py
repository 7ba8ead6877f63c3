"""Hidden siblings: a container gets one thread of each core, and the others are not assigned as long as it runs.

Two threads of one core share its execution units and its first caches. Whoever wants the whole core for one thread
(latency, licences, side channels) switches SMT off for the whole machine today, or requests twice the CPUs and leaves
half of them idle (kubernetes/kubernetes#74471 requests it by pod). Here the other threads
are withheld as siblings: the host counts hints without them, and keeps those of the chosen cores unassigned.
"""

from __future__ import annotations

from collections.abc import Mapping

from mooring.engine.core.cpuset import CPUSet
from mooring.engine.plugins.shipped import ON, annotated, check_fields, nothing_for, word
from mooring.engine.plugins.values import CPURequest, Withheld, hookimpl

ANNOTATION = "mooring/hide-siblings"
_RESERVED = "reserved"


class HiddenSiblings:
    """Leaves one thread of each core that is entirely free."""

    def __init__(self, settings: Mapping[str, object]) -> None:
        check_fields(settings, {"default"})
        self.default = word(settings, "default", ("off", "on"), "off")

    @hookimpl
    def filter_cpus(self, request: CPURequest) -> Withheld | None:
        """Withhold the threads of half-used cores, and of free ones all but the first."""
        if request.purpose == _RESERVED or request.pod is None:
            return None
        wish = annotated(request.pod, ANNOTATION, request.container)
        if wish is not None and wish not in ON:
            return nothing_for(request, ANNOTATION, wish, ON)
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
