"""Trials spread over worker processes.

The engine is pure Python, which threads would not make faster. Neither a package for parallel work is used, which would
be the largest dependency of the base install, nor the standard library's pool, whose workers import the program that
started them and outlive it when it is killed. What is needed is less: every worker gets its share at once and writes
outcomes into a pipe, and they are read in the order of the variants. So the answer does not depend on how many there
are, nothing can lock, and a worker whose reader is gone ends by itself.
"""

from __future__ import annotations

import pickle
import subprocess
import sys
from collections.abc import Hashable, Iterator, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from typing import IO, Self

from mooring.answers.base.trace import Trace
from mooring.answers.compare.measures import VariantOutcome, judge
from mooring.answers.compare.variant import Variant
from mooring.engine.core.pod import Pod


@dataclass(frozen=True, slots=True)
class Bench:
    """What is compared, sent whole to every worker."""

    trace: Trace
    variants: tuple[Variant, ...]
    shapes: tuple[Pod, ...]
    """Of the pods in the trace."""

    def groups(self) -> list[int]:
        """Return the number of each variant's group; variants of one group can share runs."""
        numbers: dict[Hashable, int] = {}
        return [numbers.setdefault(variant.shared_by, len(numbers)) for variant in self.variants]

    def outcomes(self, positions: Sequence[int]) -> Iterator[VariantOutcome]:
        """Run some variants through the trace, those of a group together."""
        groups = self.groups()
        members: dict[int, dict[int, Variant]] = {}
        for position in positions:
            members.setdefault(groups[position], {})[position] = self.variants[position]
        found: dict[int, VariantOutcome] = {}
        for position in positions:
            if position not in found:
                found |= judge(self.trace, members[groups[position]], self.shapes)
            yield found.pop(position)

    @property
    def work(self) -> int:
        """Steps of all trials together."""
        return len(self.variants) * (len(self.trace.steps) + len(self.trace.active))


# -P: what lies in the working directory is not imported.
COMMAND = (sys.executable, "-P", "-m", "mooring.answers.compare.worker")


GOLDEN = 2654435769
"""2^32 divided by the golden ratio: its multiples lie evenly in 32 bits, those of every n-th number too."""


def share(group: int, workers: int) -> int:
    """Return the worker that runs a group of variants.

    Combinations come in a regular order, in which every second group has an option; dealt out in turn, one worker would
    get all that take long. Multiplicative hashing deals them evenly, whatever the regularity.

    >>> [share(group, 2) for group in range(8)]
    [0, 1, 0, 1, 0, 0, 1, 0]
    """
    return (group * GOLDEN % 2**32) * workers >> 32


def outcomes_of(bench: Bench, workers: int) -> Iterator[VariantOutcome]:
    """Yield the outcome of every variant in order; the workers end when the results are no longer read."""
    dealt = [share(group, workers) for group in bench.groups()]
    with ExitStack() as stack:
        sources: list[Iterator[VariantOutcome]] = []
        for worker in range(workers):
            positions = [position for position, owner in enumerate(dealt) if owner == worker]
            pipe = stack.enter_context(_Worker(pickle.dumps((bench, positions)))).outcomes
            sources.append(_received(pipe, bench, positions))
        for owner in dealt:
            yield next(sources[owner])


def _received(pipe: IO[bytes] | None, bench: Bench, positions: Sequence[int]) -> Iterator[VariantOutcome]:
    """Yield the outcomes of a worker; where it was killed, for want of memory perhaps, this process does the rest."""
    for number in range(len(positions)):
        outcome = _read(pipe)
        if outcome is None:
            yield from bench.outcomes(positions[number:])
            return
        yield outcome


def _read(pipe: IO[bytes] | None) -> VariantOutcome | None:
    """Return the next outcome of a worker, or None when there will be no more."""
    if pipe is None:
        return None
    try:
        found = pickle.load(pipe)  # noqa: S301 - written by a process that this one started
    except (EOFError, OSError, pickle.UnpicklingError):
        return None
    return found if isinstance(found, VariantOutcome) else None


class _Worker:
    """A process with its share; it is ended when the context is left."""

    def __init__(self, share_of_work: bytes) -> None:
        self._work = share_of_work
        self._process: subprocess.Popen[bytes] | None = None
        self.outcomes: IO[bytes] | None = None

    def __enter__(self) -> Self:
        # In a group of its own: an interrupt on the keyboard is for the process that the user started.
        with suppress(OSError):
            self._process = subprocess.Popen(  # noqa: S603 - this interpreter
                COMMAND,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                process_group=0,
            )
            self.outcomes = self._process.stdout
            if self._process.stdin is not None:
                # A worker reads everything before it writes anything.
                with suppress(BrokenPipeError), self._process.stdin as pipe:
                    pipe.write(self._work)
        return self

    def __exit__(self, *exception: object) -> None:
        if self._process is not None:
            self._process.kill()
            if self._process.stdout is not None:
                self._process.stdout.close()
            self._process.wait()
