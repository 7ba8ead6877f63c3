"""A thread that looks at the online CPUs whenever the kernel says that one has changed, and every now and then.

The kernel tells it in a uevent of the subsystem ``cpu``, on a netlink socket that needs no rights. Inside of a sandbox
that has no such sockets, or in a network namespace that gets no uevents, looking now and then is all there is. What an
event says is not believed: it is a reason to look.

Source: kernel Documentation/ABI/testing/sysfs-uevent and lib/kobject_uevent.c; netlink(7).
"""

from __future__ import annotations

import select
import socket
import threading
from collections.abc import Callable
from contextlib import suppress

KERNEL_GROUP = 1
"""Multicast group of the kernel; udev repeats its events in another."""
_UEVENTS = 15
"""NETLINK_KOBJECT_UEVENT of linux/netlink.h."""
_LONGEST = 8192
"""Bytes of the longest uevent and more: the kernel's environment has 2048."""
_SUBJECT = b"SUBSYSTEM=cpu"


def open_uevents() -> socket.socket | None:
    """Return a socket that hears the kernel's events; None where there can be none."""
    try:
        found = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW | socket.SOCK_CLOEXEC, _UEVENTS)
    except (OSError, AttributeError):
        return None
    try:
        found.bind((0, KERNEL_GROUP))
        found.setblocking(False)
    except OSError:
        found.close()
        return None
    return found


def is_about_cpus(event: bytes) -> bool:
    r"""Tell whether an event is about a CPU.

    >>> is_about_cpus(b"offline@/devices/system/cpu/cpu3\0ACTION=offline\0SUBSYSTEM=cpu\0SEQNUM=7")
    True
    >>> is_about_cpus(b"add@/devices/x\0ACTION=add\0SUBSYSTEM=cpuid\0")
    False
    """
    return _SUBJECT in event.split(b"\0")


class CPUWatch:
    """Calls a function at every look."""

    def __init__(
        self, look: Callable[[], object], interval: float, uevents: Callable[[], socket.socket | None] = open_uevents
    ) -> None:
        """Do nothing yet; :meth:`start` does.

        Args:
            look: called by the thread, at its start too; raises nothing.
            interval: seconds between two looks when nothing is heard.
            uevents: opens the socket of events.
        """
        self._look, self._interval = look, interval
        self._events = uevents()
        self._wakes, self._wake = socket.socketpair()
        self._thread = threading.Thread(target=self._run, name="mooring-cpus", daemon=True)

    @property
    def hears(self) -> bool:
        """Whether the kernel's events arrive, as far as can be known."""
        return self._events is not None

    def start(self) -> None:
        """Begin to look."""
        self._thread.start()

    def stop(self, patience: float) -> None:
        """End the thread, and wait for it for some seconds."""
        with suppress(OSError):
            self._wake.send(b"x")
        if self._thread.is_alive():
            self._thread.join(patience)
        for one in (self._wakes, self._wake, self._events):
            if one is not None:
                one.close()

    def _run(self) -> None:
        self._look()
        while not self._rested():
            self._look()

    def _rested(self) -> bool:
        """Wait for a reason to look; tell whether it is all over."""
        heard = [self._wakes] if self._events is None else [self._wakes, self._events]
        while True:
            ready, _, _ = select.select(heard, [], [], self._interval)
            if self._wakes in ready:
                return True
            if not ready or self._concerns():
                return False

    def _concerns(self) -> bool:
        """Take all events that have come; tell whether one is about a CPU, or some were lost."""
        found = False
        while self._events is not None:
            try:
                event = self._events.recv(_LONGEST)
            except BlockingIOError:
                break
            except OSError:
                # The kernel had more events than room for them.
                found = True
                break
            found = found or is_about_cpus(event)
        return found
