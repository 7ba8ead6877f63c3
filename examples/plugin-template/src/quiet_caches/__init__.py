"""Gives pods CPUs in caches that the fewest others use: a plugin of Mooring."""

from __future__ import annotations

from collections.abc import Mapping

from mooring.engine.plugins import CPURequest, InputError, hookimpl

ANNOTATION = "example.org/quiet"


class QuietCaches:
    """Scores each free CPU by how many CPUs of its uncore cache others have for themselves."""

    def __init__(self, settings: Mapping[str, object]) -> None:
        """Understand the settings: ``always``, whether pods without the annotation count too."""
        for name in settings:
            if name != "always":
                raise InputError("is not known", field=name, remedy="known is always")
        always = settings.get("always", False)
        if not isinstance(always, bool):
            raise InputError("is neither true nor false", field="always", remedy="write always: true")
        self._always = always

    @hookimpl
    def pre_score(self, request: CPURequest) -> dict[int, float] | None:
        """Score the free CPUs; the host takes the best ones, by the kubelet's rules among equal ones."""
        if request.pod is None:
            return None
        if request.pod.annotations.get(ANNOTATION, "") != "true" and not self._always:
            return None
        others = [holder.cpus for holder in request.holders() if holder.uid != request.pod.uid]
        scores = {}
        for cache in request.machine.caches.values():
            taken = sum(len(cache & cpus) for cpus in others)
            scores |= {cpu: float(-taken) for cpu in cache & request.available}
        return scores
