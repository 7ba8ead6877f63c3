"""Isolated CPUs: pods that want CPUs which the kernel keeps out of scheduling (isolcpus), and pods that must not.

The kernel puts no task on such a CPU by itself and balances none away. For a program that pins its own threads that is
what it needs; a program that leaves its threads to the kernel has all of them on one CPU there. The kubelet knows
nothing of isolation and hands the CPUs out like others (kubernetes/community#2435, kubernetes/kubernetes#87862).
"""

from __future__ import annotations

from collections.abc import Mapping

from mooring.engine.plugins.shipped import annotated, check_fields, nothing_for, outside, word
from mooring.engine.plugins.values import CPURequest, Withheld, hookimpl

ANNOTATION = "mooring/isolated-cpus"
PREFER, REQUIRE, AVOID, ANY = "prefer", "require", "avoid", "any"
MODES = (PREFER, REQUIRE, AVOID, ANY)
_RESERVED = "reserved"


class IsolatedCPUs:
    """Gives isolated CPUs to those who want them."""

    def __init__(self, settings: Mapping[str, object]) -> None:
        check_fields(settings, {"mode"})
        self.mode = word(settings, "mode", MODES, AVOID)

    @hookimpl
    def filter_cpus(self, request: CPURequest) -> Withheld | None:
        """With ``require`` withhold all other CPUs."""
        wish = self._wish(request)
        if wish not in MODES:
            return nothing_for(request, ANNOTATION, wish, MODES)
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
        if request.purpose == _RESERVED:
            # The system leaves its tasks to the kernel, which would never put one there.
            return AVOID
        found = annotated(request.pod, ANNOTATION, request.container)
        return self.mode if found is None else found
