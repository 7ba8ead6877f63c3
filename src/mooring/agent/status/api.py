"""The status API: what the agent answers on ``/status``, ``/machine``, ``/healthz`` and ``/readyz``.

Alive is an agent whose main thread runs; a dead one must be restarted. Ready is one that places containers: the engine
runs, the runtime is connected and has synchronized, the state can be written, and no container overlaps or may do so
unseen. :mod:`mooring.service.agent_status` asks for status and machine.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from http import HTTPStatus
from typing import TYPE_CHECKING, Any

from msgspec import to_builtins

from mooring.agent.reactor.reconcile import CPUSET_NOT_ENFORCED
from mooring.agent.state import HAS_CGROUP, AgentState, Phase
from mooring.agent.status.snapshot import Snapshot, SnapshotProvider
from mooring.inputs.machines.machineinfo_json import machine_info_document
from mooring.service.agent_status import MACHINE, STATUS
from mooring.service.daemon import Heartbeat, present_moment
from mooring.service.http import JSON, Page, Pages

if TYPE_CHECKING:
    from mooring.documents.status import AgentCountsPart


def status_pages(provider: SnapshotProvider, counts: Callable[[], AgentCountsPart]) -> Pages:
    """Return the pages of the socket."""

    def status() -> Page:
        # Late: an agent that is not asked needs neither the document nor the pictures that it shares words with.
        from mooring.agent.status.document import status_document  # noqa: PLC0415 - as said above

        return _json(to_builtins(status_document(provider.snapshot(), counts(), present_moment())))

    def machine() -> Page:
        found = provider.snapshot().machine
        info = machine_info_document(found.info, info_error=found.info_error)
        return _json({"name": found.name, "note": "", "info": info})

    return {STATUS: status, MACHINE: machine}


def _json(document: dict[str, Any]) -> Page:
    return Page(f"{json.dumps(document)}\n".encode(), JSON)


LONGEST_PAUSE = 30.0
"""Seconds without a heartbeat after which the agent counts as dead; a reconciliation takes two at most."""
SILENCE = 60.0
"""Seconds that the runtime may let a connection wait before the agent says so. A runtime lets it wait as long as a
container takes to stop, for which a pod has 30 seconds unless it requests more; one that has locked up, for ever."""
REMEDY = "unless a container takes that long to stop, restart the runtime; its containers keep running"


def dead(heartbeat: Heartbeat) -> tuple[str, ...]:
    """Return why the agent does not live, or nothing."""
    age = heartbeat.age()
    return (f"no heartbeat for {age:.0f} seconds",) if age > LONGEST_PAUSE else ()


def unready(snapshot: Snapshot) -> tuple[str, ...]:
    """Return everything that keeps the agent from being of use; nothing when it is ready."""
    found = []
    if snapshot.state is None:
        found.append(f"the engine does not run{f': {snapshot.refusal}' if snapshot.refusal else ' yet'}")
    if snapshot.runtime.silent:
        found.append(f"the runtime has not answered for {SILENCE:.0f} seconds: {REMEDY}")
    elif not snapshot.runtime.connected:
        found.append("the runtime is not connected")
    elif not snapshot.runtime.synchronized:
        found.append("the runtime has not synchronized yet")
    if snapshot.conflict:
        found.append(snapshot.conflict)
    if snapshot.unwritable:
        found.append(f"the state cannot be written: {snapshot.unwritable}")
    if snapshot.blind:
        found.append("no control group of any pod is visible: run the agent in the host's control group namespace")
    if snapshot.state is not None:
        found += [*_unenforced(snapshot.state)]
    overlapping = snapshot.overlaps()
    if overlapping:
        count = len({one.container_id for one in overlapping})
        found.append(f"{count} container{'' if count == 1 else 's'} may run on exclusive CPUs of others")
    return tuple(found)


def _unenforced(state: AgentState) -> Iterator[str]:
    """Yield why the kernel is not known to do what was decided: otherwise overlaps could not be excluded."""
    pods = {one.uid for one in state.sandboxes.values()}
    running = {(one.uid, one.name): one.id for one in state.containers.values() if one.phase is Phase.RUNNING}
    refused = {
        key: why.message for key, why in state.unstarted.items() if why.reason == CPUSET_NOT_ENFORCED and key[0] in pods
    }
    waiting = [message for key, message in refused.items() if key not in running]
    if waiting:
        yield f"container starts are refused ({len(waiting)}), the newest because {waiting[-1]}"
    started = [key for key in refused if key in running]
    if started:
        now = state.deviating.get(running[started[-1]])
        why = refused[started[-1]] if now is None else f"{started[-1][1]} {now.text}"
        yield f"containers run although their start was refused ({len(started)}), the newest: {why}"
    lost = [
        f"{state.containers[one].name} {told.text}"
        for one, told in state.deviating.items()
        if not told.is_known and one in state.containers and state.containers[one].phase in HAS_CGROUP
    ]
    if lost:
        yield f"the CPUs of containers cannot be read ({len(lost)}), the newest: {lost[-1]}"


def health_pages(provider: SnapshotProvider, heartbeat: Heartbeat) -> Pages:
    """Return the pages ``/healthz`` and ``/readyz``."""
    return {
        "/healthz": lambda: _verdict(lambda: dead(heartbeat)),
        "/readyz": lambda: _verdict(lambda: unready(provider.snapshot())),
    }


def _verdict(reasons: Callable[[], Sequence[str]]) -> Page:
    """Return ``ok``, or one line a reason with 503."""
    found = reasons()
    if not found:
        return Page(b"ok\n")
    return Page("".join(f"{reason}\n" for reason in found).encode(), status=HTTPStatus.SERVICE_UNAVAILABLE)
