"""The time of this computer, for delays: it stands still in suspend, and no step of the wall clock moves it."""

from __future__ import annotations

import time
from functools import cache
from pathlib import Path

from mooring.core.moment import Moment

BOOT_ID = Path("/proc/sys/kernel/random/boot_id")


def present_moment() -> Moment:
    """Return the time since boot, without time spent in suspend; the boot is empty where the kernel does not tell."""
    return Moment(time.monotonic_ns(), _boot())


@cache
def _boot() -> str:
    """Return which boot this is; a process lives in one only."""
    try:
        return BOOT_ID.read_text("ascii").strip()
    except (OSError, ValueError):
        return ""
