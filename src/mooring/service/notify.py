"""Telling the service manager how the agent is: ready, reloading, alive, stopping.

Source: systemd's sd_notify(3): lines of KEY=VALUE in one datagram to the socket that the environment names.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Mapping
from contextlib import suppress

SOCKET = "NOTIFY_SOCKET"
"""Environment variable with the socket; without it nobody wants to know."""
WATCHDOG = "WATCHDOG_USEC"
"""Environment variable with the microseconds after which a silent agent is restarted."""


def notify(fields: Mapping[str, str], environment: Mapping[str, str] | None = None) -> bool:
    """Send fields such as ``READY=1`` or ``STATUS=...`` and return whether somebody took them.

    It never waits and never fails: a service manager that is gone is no reason to stop placing containers.

    Args:
        fields: what to say; line breaks in values become spaces.
        environment: the process's by default.
    """
    address = (os.environ if environment is None else environment).get(SOCKET, "")
    if not address.startswith(("/", "@")):
        return False
    lines = (f"{name}={' '.join(value.splitlines())}" for name, value in fields.items())
    data = "\n".join(lines).encode(errors="backslashreplace")
    with suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sender:
        sender.setblocking(False)
        # A name in the abstract namespace begins with a zero byte, which @ stands for.
        sender.sendto(data, f"\0{address[1:]}" if address[0] == "@" else address)
        return True
    return False


def watchdog_seconds(environment: Mapping[str, str] | None = None) -> float:
    """Return how often ``WATCHDOG=1`` is to be sent: in half of the time that is allowed. 0 means never.

    >>> watchdog_seconds({WATCHDOG: "30000000"}), watchdog_seconds({})
    (15.0, 0.0)
    """
    text = (os.environ if environment is None else environment).get(WATCHDOG, "")
    return int(text) / 2_000_000 if text.isascii() and text.isdigit() else 0.0
