"""The kubelet's own rules, said as a plugin: what one starts from, and the proof that the pipeline changes nothing.

Source: kubelet v1.37.1, cpumanager policy_static.go (allocateCPUs); spec: cpu-manager.md sections 4.2 and 5.
"""

from __future__ import annotations

from collections.abc import Mapping

from mooring.engine.core.cpuset import CPUSet
from mooring.engine.core.errors import InputError
from mooring.engine.plugins.values import CPURequest, hookimpl, kubelet_choice


class KubeletRules:
    """Selects near the hint first, then from anywhere."""

    def __init__(self, settings: Mapping[str, object]) -> None:
        for field in settings:
            raise InputError("is not known", field=field, remedy="kubelet-rules takes no settings")

    @hookimpl
    def select_cpus(self, request: CPURequest) -> CPUSet | None:
        """Take by the rules of the policy options, with the kubelet's defects."""
        count = min(request.need, len(request.near))
        close = kubelet_choice(request, request.near, count, exact=True) if request.near else CPUSet()
        if close is None:
            return None
        rest = kubelet_choice(request, request.available - close, request.need - len(close), exact=True)
        return None if rest is None else close | rest
