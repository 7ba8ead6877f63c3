"""Several simulations that differ in one thing, on one core or on many: the figures are the same.

Trials run through :mod:`concurrent.futures`, in processes of this machine or, where a Dask scheduler is named, on its
workers. A trial is a value and its figures are values, so that neither where nor in which order they run changes them.

Trials that have finished, in a folder: a run that was broken off goes on where it ended.

A trial is found again by a digest of all that its figures depend on: cluster, work, strategy, seed, and Mooring's own
source code. The folder can be shared by runs, copied and emptied.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import BrokenExecutor, Executor, as_completed
from contextlib import contextmanager
from dataclasses import dataclass, fields, is_dataclass
from enum import Enum
from functools import lru_cache
from hashlib import blake2b
from math import fsum
from pathlib import Path
from typing import Any, Final

import msgspec

import mooring
from mooring.engine.core.errors import InputError
from mooring.fleet.cluster import NodeCluster, Work
from mooring.fleet.documents import TrialPart
from mooring.fleet.scheduler.strategy import Strategy
from mooring.fleet.simulation import Simulation, answer_of
from mooring.lazy import lazily
from mooring.service.daemon import worker_processes

with lazily():
    import distributed


MOST_ATTEMPTS: Final = 4
"""Pools of processes that are tried when workers die."""


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
    """What is compared of a simulation."""

    trial: TrialPart
    refused: Mapping[str, int]
    """Code of the cause -> pods."""

    @property
    def admitted(self) -> int:
        """Pods that a kubelet admitted."""
        return self.trial.pods.admitted

    @property
    def without_node(self) -> int:
        """Pods that no node took, or whose node has no room for them."""
        return self.trial.pods.waits + self.trial.pods.left + self.trial.pods.held

    @property
    def stranded_cpus(self) -> float:
        """Share of all CPUs, over time."""
        return fsum(use.stranded for use in self.trial.uses if use.resource == "cpu")


def run_trial(trial: FleetTrial) -> Figures:
    """Run one simulation."""
    answer = answer_of(Simulation(trial.cluster, trial.work, trial.strategy, trial.seed).run())
    refused = sum((Counter(group.refused) for group in answer.groups), Counter[str]())
    part = TrialPart(trial.variant, trial.seed, answer.nodes, answer.pods, answer.waited, answer.uses)
    return Figures(part, dict(sorted(refused.items())))


def run_trials(
    trials: Sequence[FleetTrial], jobs: int = 1, dask: str = "", store: FinishedTrials | None = None
) -> Iterator[tuple[int, Figures]]:
    """Run simulations, and yield the place of each among the trials with its figures, as they finish.

    Args:
        trials: what is asked for.
        jobs: processes.
        dask: address of a Dask scheduler; empty for processes of this machine.
        store: trials that have finished are taken from it, and others go into it.

    Raises:
        InputError: a kubelet does not start, the scheduler cannot be reached, or workers die again and again.
    """
    missing: dict[int, FleetTrial] = {}
    for place, trial in enumerate(trials):
        found = store.find(trial) if store is not None else None
        if found is None:
            missing[place] = trial
        else:
            yield place, found
    for place, figures in _ran(missing, jobs, dask):
        if store is not None:
            store.keep(trials[place], figures)
        yield place, figures


def _ran(trials: Mapping[int, FleetTrial], jobs: int, dask: str) -> Iterator[tuple[int, Figures]]:
    if not dask and (jobs <= 1 or len(trials) <= 1):
        yield from ((place, run_trial(trial)) for place, trial in trials.items())
        return
    left = dict(trials)
    for _ in range(MOST_ATTEMPTS):
        with _executor(jobs, dask) as executor:
            futures = {executor.submit(run_trial, trial): place for place, trial in left.items()}
            try:
                for future in as_completed(futures):
                    figures = future.result()
                    del left[futures[future]]
                    yield futures[future], figures
            except BrokenExecutor:
                # A worker was killed, for want of memory perhaps: what it had, others do.
                continue
        return
    raise InputError(
        f"workers died {MOST_ATTEMPTS} times; {len(left)} simulations are left",
        source="--jobs",
        remedy="give fewer --jobs, so that each has more memory",
    )


@contextmanager
def _executor(jobs: int, dask: str) -> Iterator[Executor]:
    if not dask:
        with worker_processes(jobs) as pool:
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


_BYTES = 16


class FinishedTrials:
    """Figures of trials in a folder."""

    def __init__(self, folder: str) -> None:
        """Make the folder where it is missing.

        Args:
            folder: its path.

        Raises:
            InputError: it cannot be made or written.
        """
        self._folder = Path(folder)
        self._parts = Digests()
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
            writable = os.access(self._folder, os.W_OK)
        except OSError as error:
            raise InputError(f"cannot be made: {error.strerror}", source=folder, remedy="name a folder") from None
        if not writable:
            raise InputError("cannot be written", source=folder, remedy="name a folder of your own")

    def find(self, trial: FleetTrial) -> Figures | None:
        """Return the figures of a trial; None where it has not finished, or its file is not whole."""
        try:
            found = msgspec.json.decode(self._file(trial).read_bytes(), type=Figures)
        except (OSError, msgspec.MsgspecError):
            return None
        found.trial.variant = trial.variant
        return found

    def keep(self, trial: FleetTrial, figures: Figures) -> None:
        """Write the figures of a trial; a file is there whole or not at all."""
        file = self._file(trial)
        half = file.with_suffix(f".{os.getpid()}")
        half.write_bytes(msgspec.json.encode(figures))
        half.replace(file)

    def _file(self, trial: FleetTrial) -> Path:
        parts = (trial.cluster, trial.work, trial.strategy, trial.seed, program_digest())
        return self._folder / f"{self._parts.of(parts)}.json"


class Digests:
    """Digests of values; what several values share is read once."""

    def __init__(self) -> None:
        """Begin without any."""
        self._known: dict[int, tuple[object, bytes]] = {}

    def of(self, value: object) -> str:
        """Return the digest of a value, the same in every process."""
        return self._digest(value).hex()

    def _digest(self, value: object) -> bytes:
        # A value stays alive beside its digest, so that no other one gets its identity.
        known = self._known.get(id(value))
        if known is None:
            known = self._known[id(value)] = value, blake2b(self._bytes(value), digest_size=_BYTES).digest()
        return known[1]

    def _bytes(self, value: object) -> bytes:
        if isinstance(value, Enum):
            return repr((type(value).__name__, value.name)).encode()
        if is_dataclass(value) and not isinstance(value, type):
            named = [(one.name, getattr(value, one.name)) for one in fields(value) if one.repr or one.compare]
            return type(value).__name__.encode() + b"".join(name.encode() + self._digest(part) for name, part in named)
        if isinstance(value, Mapping):
            pairs = sorted(self._digest(key) + self._digest(part) for key, part in value.items())
            return b"mapping" + b"".join(pairs)
        if isinstance(value, (set, frozenset)):
            return b"set" + b"".join(sorted(self._digest(part) for part in value))
        if isinstance(value, (tuple, list)):
            return b"list" + b"".join(self._digest(part) for part in value)
        return repr(value).encode()


@lru_cache(maxsize=1)
def program_digest() -> str:
    """Return a digest of Mooring's source code: another program may find other figures."""
    root, digest = Path(mooring.__file__).parent, blake2b(digest_size=_BYTES)
    for file in sorted(root.rglob("*.py")):
        digest.update(file.relative_to(root).as_posix().encode() + file.read_bytes())
    return digest.hexdigest()
