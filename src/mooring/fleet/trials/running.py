"""Several simulations that differ in one thing, on one core or on many: the figures are the same.

Trials run through :mod:`concurrent.futures`, in processes of this machine or, where a Dask scheduler is named, on its
workers. A trial is a value and its figures are values, so that neither where nor in which order they run changes them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Executor, ProcessPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from mooring.core.errors import InputError
from mooring.fleet.answer import FleetAnswer, Use, answer_of
from mooring.fleet.cluster import NodeCluster
from mooring.fleet.records import Fate
from mooring.fleet.simulation import Simulation
from mooring.fleet.strategy import Strategy
from mooring.fleet.work import Work
from mooring.lazy import lazily

with lazily():
    import distributed

if TYPE_CHECKING:
    from collections.abc import Mapping


@dataclass(frozen=True, slots=True)
class FleetTrial:
    """One simulation that is asked for."""

    variant: str
    """What distinguishes it, in words; trials of one variant differ in their seeds."""
    cluster: NodeCluster
    work: Work
    strategy: Strategy
    seed: int = 0


@dataclass(frozen=True, slots=True)
class Figures:
    """What a trial came to, without its pods."""

    variant: str
    seed: int
    nodes: int
    fates: Mapping[Fate, int]
    waited: tuple[float, float, float]
    """Seconds: the median, the 99th percentile, the most."""
    uses: tuple[Use, ...]
    refused: Mapping[str, int]
    """Code of the cause -> pods."""

    @property
    def admitted(self) -> int:
        """Pods that a node took."""
        return self.fates[Fate.RAN] + self.fates[Fate.RUNS] + self.fates[Fate.EVICTED]

    @property
    def without_node(self) -> int:
        """Pods that no node took: they wait at the end, or were deleted before one did."""
        return self.fates[Fate.WAITS] + self.fates[Fate.LEFT]


def run_trial(trial: FleetTrial) -> Figures:
    """Run one simulation.

    Raises:
        InputError: a kubelet does not start.
    """
    answer = answer_of(Simulation(trial.cluster, trial.work, trial.strategy, trial.seed).run())
    return Figures(trial.variant, trial.seed, answer.nodes, answer.fates, answer.waited, answer.uses, _refusals(answer))


def _refusals(answer: FleetAnswer) -> dict[str, int]:
    refused: dict[str, int] = {}
    for group in answer.groups:
        for code, count in group.refused.items():
            refused[code] = refused.get(code, 0) + count
    return dict(sorted(refused.items()))


def run_trials(trials: Sequence[FleetTrial], jobs: int = 1, dask: str = "") -> Iterator[Figures]:
    """Run simulations, and yield their figures in the order of the trials.

    Args:
        trials: what is asked for.
        jobs: processes.
        dask: address of a Dask scheduler; empty for processes of this machine.

    Raises:
        InputError: a kubelet does not start, or the scheduler cannot be reached.
    """
    if not dask and (jobs <= 1 or len(trials) <= 1):
        yield from map(run_trial, trials)
        return
    with _executor(jobs, dask) as executor:
        yield from executor.map(run_trial, trials)


@contextmanager
def _executor(jobs: int, dask: str) -> Iterator[Executor]:
    if not dask:
        with ProcessPoolExecutor(jobs) as pool:
            yield pool
        return
    connect: Callable[..., Any] = distributed.Client
    try:
        client = connect(dask, timeout=10)
    except (OSError, ValueError) as error:
        raise InputError(
            f"no Dask scheduler answers: {error}", source=f"--dask {dask}", remedy="start one: dask scheduler"
        ) from None
    with client:
        yield client.get_executor(retries=3)
