"""What the kernel shows, against the state: control groups, and CPUs that go offline and come online.

What differs is an event of the reactor.

Many containers are checked without the lock. What seems to differ is checked again under it, because the state may have
moved on meanwhile. When a scale-down delay is over, CPUs are reclaimed: first from the container, then they are free
for others.

With the extension cpu-hotplug, a thread checks the online CPUs whenever the kernel reports a change, and at an
interval. The kernel reports it in a uevent of the subsystem ``cpu``, on a netlink socket that needs no rights. Inside
of a sandbox without such sockets, or in a network namespace that gets no uevents, the interval is all there is. The
content of an event is not believed: it is a reason to check.

Source: kernel Documentation/admin-guide/cputopology.rst, Documentation/ABI/testing/sysfs-uevent and
lib/kobject_uevent.c; netlink(7).
"""

from __future__ import annotations

import select
import socket
import threading
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TypeAlias

from mooring.agent.cgroups.cpuset import shows
from mooring.agent.cgroups.files import CGroupTrouble
from mooring.agent.cgroups.protocol import CGroups, CPUSetSeen, lasting_text
from mooring.agent.effects import LiftQuota, WriteCPUSet
from mooring.agent.known_machine import keep_machine
from mooring.agent.reactor.desired import are_files_behind, expected, expected_lifts, write_of
from mooring.agent.reactor.hotplug import cpus_changed, is_news
from mooring.agent.reactor.lifecycle import (
    correct_deviation,
    correct_quota,
    end_missing_sandboxes,
    report_deviation,
    without_deviation,
)
from mooring.agent.reactor.response import EventOutcome, outcome
from mooring.agent.reactor.update_container import is_due, reclaiming_writes, released
from mooring.agent.state import HAS_CGROUP, AgentState, Setting
from mooring.agent.state_holder import StateHolder
from mooring.engine.core.bits import list_text
from mooring.engine.core.cpuset import CPUSet, CPUSetSyntaxError
from mooring.engine.core.decision import Observer
from mooring.engine.core.machine import Machine
from mooring.engine.core.moment import Moment
from mooring.engine.node.hotplug import known_cpus
from mooring.service.agent_options import AgentOptions
from mooring.service.logs import Log

Online: TypeAlias = Callable[[], CPUSet | None]
"""Reads which CPUs are online; None where that is unknown."""


def verify(
    holder: StateHolder, cgroups: CGroups, container_ids: Iterable[str] | None = None, online: Online | None = None
) -> None:
    """Compare the cpusets of containers with the state, and correct what differs.

    Containers whose updates are on their way are left out.

    Args:
        holder: has the state.
        cgroups: of the node.
        container_ids: None for all.
        online: reads the CPUs that are online, where these may change: one that has just gone is missed by the kernel
            before the state knows, and that is no deviation.
    """
    state = holder.state
    wanted, on_their_way = expected(state), holder.in_flight()
    asked = wanted if container_ids is None else [one for one in container_ids if one in wanted]
    places = [write_of(state.containers[one], wanted[one]) for one in asked if one not in on_their_way]
    seen = {one.container_id: found for one in places if (found := cgroups.in_effect(one)) is not None}
    doubtful = [one for one in places if one.container_id not in seen or not shows(seen[one.container_id], one)]
    differing = cgroups.deviations(doubtful)
    holder.saw(state, seen)
    right = seen.keys() - {one.wanted.container_id for one in differing}
    if right & state.deviating.keys():
        holder.apply(lambda now, _observer: EventOutcome(without_deviation(now, right)))
    for one in differing:
        if online is not None and _is_of_kernel(one.after, one.wanted, online):
            continue
        if one.trouble is not None:
            holder.apply(partial(_lasts, found=one))
        else:
            judged = partial(_judged, holder=holder, cgroups=cgroups, container_id=one.wanted.container_id)
            holder.apply(partial(judged, online=online))


def _lasts(state: AgentState, _observer: Observer, *, found: CPUSetSeen) -> EventOutcome:
    known = state.containers.get(found.wanted.container_id)
    if known is None or write_of(known, expected(state).get(known.id, Setting())) != found.wanted:
        # It ended, or something else was decided, while the state was not locked.
        return EventOutcome(state)
    return report_deviation(state, known.id, lasting_text(found), is_known=found.after is not None)


def verify_quotas(holder: StateHolder, cgroups: CGroups) -> None:
    """Look for CFS quotas where none should be, and lift them again."""
    for lift, found in cgroups.quotas(expected_lifts(holder.state)):
        if found.microseconds is not None:
            holder.apply(partial(_lifted, lift=lift, quota=found.microseconds))


def verify_sandboxes(
    holder: StateHolder, cgroups: CGroups, last: frozenset[str], *, has_seen: bool
) -> tuple[frozenset[str], bool]:
    """Check for sandboxes of which nothing is left; those that were missing at the last check too are ended.

    In a control group namespace of its own, or where a runtime keeps its containers in machines of their own, an agent
    sees no group of any container. It releases nothing for that.

    Args:
        holder: has the state.
        cgroups: of the node.
        last: ids of the sandboxes of which there was nothing at the last check.
        has_seen: whether an earlier check saw a group.

    Returns:
        The same after this check. The snapshot says where no group was ever seen although containers run.
    """
    state = holder.state
    alive = {one.sandbox_id for one in state.containers.values() if one.cgroup and cgroups.has_group(one.cgroup, 0)}
    asked = [one for one in state.sandboxes.values() if one.cgroups_path]
    missed = frozenset(
        one.id for one in asked if one.id not in alive and not cgroups.has_group(one.cgroups_path, one.pid)
    )
    has_seen = has_seen or bool(alive) or len(missed) < len(asked)
    running = {one.sandbox_id for one in state.containers.values() if one.phase in HAS_CGROUP}
    is_blind = not has_seen and not running.isdisjoint(missed)
    holder.show(is_blind=is_blind)
    if is_blind:
        text = "no control group of any pod is visible: pods that end unreported are not detected"
        holder.complain("control groups", text)
        return missed, False
    # One check may come before the runtime's own event, or between the event and what it reports.
    gone = sorted(missed & last)
    if gone:
        holder.apply(lambda now, observer: end_missing_sandboxes(now, gone, observer))
    return missed.difference(gone), has_seen


def _lifted(state: AgentState, _observer: Observer, *, lift: LiftQuota, quota: int) -> EventOutcome:
    return correct_quota(state, lift, quota)


def _is_of_kernel(found: Setting | None, wanted: WriteCPUSet, online: Online) -> bool:
    """Tell whether the kernel shows what is wanted, but for CPUs that are offline."""
    there = online()
    if found is None or there is None or not wanted.cpus:
        return False
    cpus = wanted.cpus
    if not cpus & there:
        # It may run where the group above may, until the state knows.
        return True
    return found.cpus != cpus and shows(replace(found, cpus=found.cpus | (cpus - there)), wanted)


def _judged(
    state: AgentState,
    _observer: Observer,
    *,
    holder: StateHolder,
    cgroups: CGroups,
    container_id: str,
    online: Online | None,
) -> EventOutcome:
    """Check once more, now that nothing changes, and have it corrected."""
    known = state.containers.get(container_id)
    if known is None or known.phase not in HAS_CGROUP or container_id in holder.in_flight():
        return outcome(state, state)
    wanted = write_of(known, expected(state)[container_id])
    found = cgroups.in_effect(wanted)
    if found is None or (online is not None and _is_of_kernel(found, wanted, online)):
        return outcome(state, state)
    return correct_deviation(state, container_id, found.cpus, found.mems)


def release(holder: StateHolder, cgroups: CGroups, now: Moment) -> None:
    """Apply the releases whose delay is over; those that the kernel does not take are tried again at the next call.

    Args:
        holder: has the state.
        cgroups: of the node.
        now: the present moment.
    """
    if is_due(holder.state, now):
        holder.apply(partial(_released, cgroups=cgroups, now=now, complain=holder.complain))


def update_late_files(holder: StateHolder) -> None:
    """Let files say what containers got by an answer after which no event came."""
    if are_files_behind(holder.state):
        holder.apply(lambda state, _observer: outcome(state, state))


def _released(
    state: AgentState, observer: Observer, *, cgroups: CGroups, now: Moment, complain: Callable[[str, str], None]
) -> EventOutcome:
    spared = set()
    for owner, writes in reclaiming_writes(state, now).items():
        for one in writes:
            written = cgroups.write_cpuset(one)
            # Taken where a container has no CPU but those that it keeps. It may have fewer: version 2 shows those that
            # are online, version 1 takes these and refuses the others. One that ended, or is not seen, has none.
            if written.after is None:
                is_taken = written.trouble in (None, CGroupTrouble.GONE)
            else:
                is_taken = not one.cpus or written.after.cpus <= one.cpus
            if not is_taken:
                spared.add(owner)
                complain(one.container_id, f"its CPUs are not reclaimed: {written.problem or 'it still has them'}")
    return released(state, now, spared, observer)


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
        sockets = [self._wakes] if self._events is None else [self._wakes, self._events]
        self._check()
        while self._wakes not in (ready := select.select(sockets, [], [], self._interval)[0]):
            if not ready or self._concerns():
                self._check()

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
                return True
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
