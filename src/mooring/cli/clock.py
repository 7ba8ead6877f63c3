"""The time of this computer, for releases whose state file was written here."""

from __future__ import annotations

import time
from pathlib import Path

from mooring.core.moment import Moment

BOOT_ID = Path("/proc/sys/kernel/random/boot_id")


def present_moment() -> Moment | None:
    """Return the time since boot, without time spent in suspend; None where the boot is not known."""
    try:
        boot = BOOT_ID.read_text("ascii").strip()
    except (OSError, ValueError):
        return None
    return Moment(time.monotonic_ns(), boot) if boot else None
