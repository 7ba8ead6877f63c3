"""A worker process of a comparison: reads the bench from standard input, writes its outcomes to standard output.

It is started by :mod:`mooring.answers.compare.workers` and communicates with it alone.
"""

from __future__ import annotations

import pickle
import sys

from mooring.answers.compare.workers import Bench


def main() -> None:
    """Run one share of the trials, each outcome written as soon as it is there."""
    bench, positions = pickle.load(sys.stdin.buffer)  # noqa: S301 - written by the process that started this one
    if not isinstance(bench, Bench):
        raise TypeError(bench)
    for outcome in bench.outcomes(positions):
        pickle.dump(outcome, sys.stdout.buffer)
        # Flushed one by one: when the reader is gone, this ends with it.
        sys.stdout.buffer.flush()


if __name__ == "__main__":
    main()
