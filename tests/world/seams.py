"""The four seams: clock, threads, files and connections of Mooring's modules are the world's.

A module of Mooring that imports ``time``, ``threading``, ``queue``, ``select``, ``socket`` or ``os`` gets the world's
stand-in, in a process of the world's own; no product code knows of it.
"""

from __future__ import annotations

import builtins
import pathlib
from collections.abc import Mapping
from typing import Any

from tests.world.connections import SOCKET
from tests.world.files import OS
from tests.world.serving import ASYNCIO, FUTURES, QUEUE
from tests.world.threads import SELECT, THREADING, TIME

STAND_INS = {
    "time": TIME,
    "threading": THREADING,
    "queue": QUEUE,
    "select": SELECT,
    "socket": SOCKET,
    "os": OS,
    "asyncio": ASYNCIO,
    "concurrent.futures": FUTURES,
}
PROGRAMS = ("mooring.agent", "mooring.service", "mooring.engine.checkpoint", "mooring.cluster", "mooring.published")


def install() -> None:
    """Give the modules that are imported from now on the stand-ins."""
    real = builtins.__import__

    def importing(
        name: str,
        globals: Mapping[str, Any] | None = None,  # noqa: A002 - as Python calls it
        locals: Mapping[str, Any] | None = None,  # noqa: A002 - as Python calls it
        fromlist: Any = (),
        level: int = 0,
    ) -> Any:
        if name in STAND_INS and str((globals or {}).get("__name__", "")).startswith(PROGRAMS):
            return STAND_INS[name]
        return real(name, globals, locals, fromlist, level)

    builtins.__import__ = importing
    # Paths of Mooring's modules call the system too; those of the world itself end up there as before.
    pathlib.os = OS  # type: ignore[attr-defined]
