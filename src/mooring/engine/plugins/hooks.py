"""The extension points: what plugins may implement. A plugin takes those arguments that it wants, by name.

The eight points of the CPU Manager Plugin Model (proposal) in the order in which they are asked, and one more:
``choose_affinity``, without which a preferred choice of CPUs cannot win against other providers. Whatever a plugin
answers is checked; one that fails, answers wrongly or takes too long is named in a finding, and its answer is left out.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pluggy

from mooring.engine.core.cpuset import CPUSet
from mooring.engine.plugins.values import AffinityRequest, Change, CPURequest, PodView, Room, Selected, Withheld

PROJECT = "mooring"

hookimpl = pluggy.HookimplMarker(PROJECT)
"""Marks a plugin's method (or a module's function) as its answer at the extension point of the same name."""
_hookspec = pluggy.HookspecMarker(PROJECT)


class CPUPluginPoints:
    """The extension points. ``None`` as an answer always means: no opinion."""

    @_hookspec
    def sort_pods(self, pods: tuple[PodView, ...]) -> Sequence[str] | None:
        """Return the uids of pods that wait, in the order in which they are to be admitted.

        Asked where several pods wait at once; running pods keep their order.
        """

    @_hookspec
    def filter_cpus(self, request: CPURequest) -> CPUSet | Withheld | None:
        """Return CPUs that this pod may not get. Hints do not count them either."""

    @_hookspec
    def post_filter(self, request: CPURequest, withheld: CPUSet) -> CPUSet | Room | None:
        """Make room when too few CPUs are left: return withheld ones that may be given after all.

        ``request.available`` has what is left, ``withheld`` what filters took.
        """

    @_hookspec
    def pre_score(self, request: CPURequest) -> Mapping[int, float] | None:
        """Return a score for each of the available CPUs, as a ``dict``; higher is better, a missing one counts 0."""

    @_hookspec
    def select_cpus(self, request: CPURequest, scores: Mapping[int, float]) -> CPUSet | Selected | None:
        """Return the best set that the sums of all scores allow, of exactly ``request.need`` available CPUs."""

    @_hookspec
    def score_set(self, request: CPURequest, candidate: CPUSet) -> float | None:
        """Return a score for one candidate set; higher is better."""

    @_hookspec
    def allocated(self, change: Change) -> None:
        """Receive that a container got CPUs; what is returned or raised changes nothing."""

    @_hookspec
    def deallocated(self, change: Change) -> None:
        """Receive that a container released CPUs; what is returned or raised changes nothing."""

    @_hookspec
    def choose_affinity(self, request: AffinityRequest) -> frozenset[int] | None:
        """Return other NUMA nodes than the merged ones; only with the policy best-effort.

        They must be those that the CPU manager alone would have.
        """


POINTS = (
    "sort_pods",
    "filter_cpus",
    "post_filter",
    "pre_score",
    "select_cpus",
    "score_set",
    "allocated",
    "deallocated",
    "choose_affinity",
)
"""In the order in which they are asked."""
