"""Waiting for what other processes, threads and kernels do, never longer than a test's patience; many files.

The pause is no synchronisation: it only leaves the processor to those that are waited for.
"""

from __future__ import annotations

import resource
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from unittest import SkipTest


def until(condition: Callable[[], object], what: str, *, seconds: float = 60.0, pause: float = 0.005) -> None:
    """Wait until something is so.

    Args:
        condition: asked again and again; true at the last moment counts.
        what: is waited for, in words.
        seconds: after which it is given up.
        pause: seconds between two questions; longer where asking is dear.

    Raises:
        AssertionError: it never is.
    """
    end = time.monotonic() + seconds
    resting = threading.Event()
    while not condition():
        assert time.monotonic() < end, f"after {seconds:g} s still not: {what}"
        resting.wait(pause)


@contextmanager
def many_files(count: int) -> Iterator[None]:
    """Let this process have so many files; skip where the system does not."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard != resource.RLIM_INFINITY and hard < count:
        raise SkipTest(f"a process may have {hard} files here, and {count} are needed")  # the guests have no pytest
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, count), hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
