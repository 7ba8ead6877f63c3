"""CPUs that go offline and come online, with the extension cpu-hotplug.

A thread checks the online CPUs whenever the kernel reports a change, and at an interval. The kernel reports it in a
uevent of the subsystem ``cpu``, on a netlink socket that needs no rights. Inside of a sandbox without such sockets, or
in a network namespace that gets no uevents, the interval is all there is. The content of an event is not believed: it
is a reason to check.

Source: kernel Documentation/admin-guide/cputopology.rst, Documentation/ABI/testing/sysfs-uevent and
lib/kobject_uevent.c; netlink(7).
"""

from __future__ import annotations

import select
import socket
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from mooring.agent.reactor.hotplug import cpus_changed, is_news
from mooring.agent.startup import keep_machine
from mooring.agent.state_holder import StateHolder
from mooring.engine.core.bits import list_text
from mooring.engine.core.cpuset import CPUSet, CPUSetSyntaxError
from mooring.engine.core.machine import Machine
from mooring.engine.node.hotplug import known_cpus
from mooring.service.agent_options import AgentOptions
from mooring.service.logs import Log

ONLINE = "sys/devices/system/cpu/online"


def online_cpus(root: str) -> CPUSet | None:
    """Return the CPUs that are online; None where that is unknown. An empty list is unknown: some CPU runs this.

    Args:
        root: folder that stands for ``/``.
    """
    try:
        online = CPUSet.parse((Path(root) / ONLINE).read_text("ascii").strip())
    except (OSError, ValueError, CPUSetSyntaxError):
        return None
    return online or None


KERNEL_GROUP = 1
"""Multicast group of the kernel; udev repeats its events in another."""
_UEVENTS = 15
"""NETLINK_KOBJECT_UEVENT of linux/netlink.h."""
_LONGEST = 8192
"""Bytes of the longest uevent and more: the kernel's environment has 2048."""
_SUBJECT = b"SUBSYSTEM=cpu"


def open_uevents() -> socket.socket | None:
    """Return a socket that receives the kernel's events; None where there can be none."""
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
    """Calls a function whenever online CPUs may have changed."""

    def __init__(
        self, check: Callable[[], object], interval: float, uevents: Callable[[], socket.socket | None] = open_uevents
    ) -> None:
        """Do nothing yet; :meth:`start` does.

        Args:
            check: called by the thread, at its start too; raises nothing.
            interval: seconds between two calls without an event.
            uevents: opens the socket of events.
        """
        self._check, self._interval = check, interval
        self._events = uevents()
        self._wakes, self._wake = socket.socketpair()
        self._thread = threading.Thread(target=self._run, name="mooring-cpus", daemon=True)

    @property
    def has_events(self) -> bool:
        """Whether the kernel's events arrive, as far as can be known."""
        return self._events is not None

    def start(self) -> None:
        """Start the thread."""
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
        self._check()
        while not self._rested():
            self._check()

    def _rested(self) -> bool:
        """Wait for a reason to check; return whether the watch has ended."""
        sockets = [self._wakes] if self._events is None else [self._wakes, self._events]
        while True:
            ready, _, _ = select.select(sockets, [], [], self._interval)
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


class CPUReconciler:
    """Tells the reactor which CPUs are online."""

    def __init__(self, root: str, machine: Machine, holder: StateHolder, options: AgentOptions, log: Log) -> None:
        """Write the machine's description, and check for the first time: no container is placed on an offline CPU.

        Args:
            root: folder that stands for ``/``.
            machine: with all of its CPUs.
            holder: has the state.
            options: of the agent.
            log: of the agent.
        """
        self._root, self._holder, self._log = root, holder, log
        self._strange = CPUSet()
        if problem := keep_machine(Path(options.state_dir), machine):
            log.warning("the description of the machine cannot be written", problem=problem)
        self.check()
        self._watch = CPUWatch(self._watched, options.online_cpus_interval_ns / 1e9)

    def start(self) -> None:
        """Begin to watch."""
        if not self._watch.has_events:
            self._log.info("no CPU events from the kernel; online CPUs are read at an interval")
        self._watch.start()

    def stop(self, patience: float) -> None:
        """Stop watching; wait for that for some seconds."""
        self._watch.stop(patience)

    def online(self) -> CPUSet | None:
        """Return the CPUs that are online now; None where that is unknown."""
        return online_cpus(self._root)

    def check(self) -> None:
        """Look once, and have done what follows."""
        found = self.online()
        if found is None:
            self._holder.complain("online CPUs", "the list of online CPUs cannot be read; the last known list is used")
            return
        # Of these the agent has no description: they were offline when it first started.
        strange = found - CPUSet(known_cpus(self._holder.state.kubelet.node))
        if strange and strange != self._strange:
            text = "CPUs came online that were offline when the agent first started; they are not used"
            self._log.warning(text, cpus=list_text(strange.mask), remedy="drain the node and restart the agent")
        self._strange = strange
        if is_news(self._holder.state, found.mask):
            self._holder.apply(lambda state, observer: cpus_changed(state, found.mask, observer))

    def _watched(self) -> None:
        try:
            self.check()
        except Exception as error:  # noqa: BLE001 - without this thread no CPU would ever be missed
            self._log.error("internal error", exc_info=error)
