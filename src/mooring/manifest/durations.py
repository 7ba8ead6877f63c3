"""Go's way of writing spans of time, such as ``100ms`` and ``1h2m3.5s``."""

from __future__ import annotations

import re

from mooring.core.errors import InputError
from mooring.core.gotext import INT64_MAX

_UNITS = {"ns": 1, "us": 10**3, "µs": 10**3, "μs": 10**3, "ms": 10**6, "s": 10**9, "m": 60 * 10**9, "h": 3600 * 10**9}
_PART = re.compile(r"([0-9]{0,30})(?:\.([0-9]{0,30}))?(ns|us|µs|μs|ms|s|m|h)", re.ASCII)


def nanoseconds(text: str) -> int:
    """Return the span in nanoseconds.

    Source: Go's time.ParseDuration, behind every duration of a KubeletConfiguration.

    Raises:
        InputError: the text is no duration, or longer than 292 years.

    >>> nanoseconds("100ms"), nanoseconds("1m0.5s")
    (100000000, 60500000000)
    """
    size = text[1:] if text[:1] in ("+", "-") else text
    if size == "0":
        return 0
    total = end = 0
    while end < len(size):
        part = _PART.match(size, end)
        if part is None or not (part[1] or part[2]):
            break
        unit = _UNITS[part[3]]
        fraction = part[2] or "0"
        total += int(part[1] or "0") * unit + int(fraction) * unit // 10 ** len(fraction)
        end = part.end()
    if not size or end < len(size) or total > INT64_MAX:
        raise InputError(f"{text[:40]!r} is not a duration", remedy="write one such as 10s or 100ms")
    return -total if text[0] == "-" else total
