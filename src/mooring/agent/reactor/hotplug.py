"""CPUs that go offline and come back (extension cpu-hotplug): what becomes of containers.

The kernel itself removes an offline CPU from every group. In cgroup version 1 it takes it out of ``cpuset.cpus`` of
every group and never gives it back; in version 2 it leaves that file alone and what is in effect follows. Here an
offline CPU is in no container's setting, so that what is in effect is what is wanted, and when it is back all groups
are written again.

Source: kernel Documentation/admin-guide/cgroup-v1/cpusets.rst section 1.3 and 2.4, and cgroup-v2.rst; for the rest
:mod:`mooring.engine.node.hotplug`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from mooring.agent.pods.events import warning_about
from mooring.agent.reactor.desired import DesiredSettings, write_of
from mooring.agent.reactor.effects import AgentReport, Effect, ReportKind, ReturnCPUs
from mooring.agent.reactor.outcomes import EventOutcome
from mooring.agent.reactor.placing import place_waiting
from mooring.agent.reactor.updates import enforced, outcome
from mooring.agent.reactor.values import HAS_CGROUP, AgentState
from mooring.engine.core.bits import CPUMask, list_text
from mooring.engine.core.cpuset import CPUSet
from mooring.engine.core.observer import Observer
from mooring.engine.kubelet.kubelet import Kubelet
from mooring.engine.node.hotplug import Broken, CPUsChanged, RestoredSet, known_cpus


def is_watched(state: AgentState) -> bool:
    """Tell whether CPUs that go offline are the agent's business."""
    return bool(state.kubelet.settings.replace_offline)


def is_news(state: AgentState, online: int) -> bool:
    """Tell whether other CPUs are online than the state says.

    Args:
        state: now.
        online: mask of the CPUs that are online; those that the machine did not have are ignored.
    """
    return is_watched(state) and known_cpus(state.kubelet.node) & ~online != state.kubelet.node.cpu.offline


def cpus_changed(state: AgentState, online: int, observer: Observer | None = None) -> EventOutcome:
    """Bring the state in line with the CPUs that are online, and report to every pod that it concerns.

    Args:
        state: before.
        online: mask of the CPUs that are online now.
        observer: receives the engine's facts, for metrics.
    """
    if not is_news(state, online):
        return outcome(state, state)
    offline = known_cpus(state.kubelet.node) & ~online
    back = state.kubelet.node.cpu.offline & ~offline
    # CPUs that came online first: their replacements are free for containers that lose CPUs now.
    kubelet, gained = state.kubelet.online(back, observer) if back else (state.kubelet, CPUsChanged(0))
    gone = offline & ~kubelet.node.cpu.offline
    kubelet, lost = kubelet.offline(gone, observer) if gone else (kubelet, CPUsChanged(0))
    placed = place_waiting(replace(state, kubelet=kubelet), observer)
    after, changed = enforced(state, placed.state)
    effects: list[Effect] = [_said(gone, back, offline)]
    for change in (gained, lost):
        for broken in change.broken:
            effects += _of_broken(after.kubelet, broken)
        for restored in change.restored:
            effects += _of_restored(after.kubelet, restored)
    returned = (_returned(after, back),) if back else ()
    return outcome(state, after, None, (*returned, *changed, *placed.effects, *effects))


def _returned(state: AgentState, back: int) -> ReturnCPUs:
    """Return what gives CPUs to the groups above containers, without which the containers cannot have them."""
    wanted = DesiredSettings.now(state)
    live = [one for one in state.containers.values() if one.phase in HAS_CGROUP]
    return ReturnCPUs(CPUSet(CPUMask(back)), tuple(write_of(one, wanted.of(one.uid, one.name)) for one in live))


def _said(gone: int, back: int, offline: int) -> AgentReport:
    parts = [f"CPUs {list_text(gone)} went offline"] if gone else []
    parts += [f"CPUs {list_text(back)} came online"] if back else []
    rest = f"; offline are {list_text(offline)}" if offline else "; all are online"
    return AgentReport(ReportKind.CPUS_CHANGED, f"{' and '.join(parts)}{rest}")


def _of_broken(kubelet: Kubelet, one: Broken) -> Iterator[Effect]:
    what = f"{one.container or 'the pod'} lost CPUs {list_text(one.lost)} of {list_text(one.cpus)}, which are offline"
    if one.replaced_by:
        yield from _reported(kubelet, one.pod, f"{what}; {list_text(one.replaced_by)} replace them", "CPUsReplaced")
    else:
        why = f": {one.why}" if one.why else ""
        yield from _reported(kubelet, one.pod, f"{what}; no CPUs replace them{why}", "CPUsOffline")


def _of_restored(kubelet: Kubelet, one: RestoredSet) -> Iterator[Effect]:
    instead = "" if one.before == one.cpus else f" instead of {list_text(one.before)}"
    text = f"{one.container or 'the pod'} has all of its CPUs again, {list_text(one.cpus)}{instead}"
    yield from _reported(kubelet, one.pod, text, "CPUsRestored")


def _reported(kubelet: Kubelet, uid: str, text: str, reason: str) -> Iterator[Effect]:
    yield AgentReport(ReportKind.CPUS_CHANGED, text, uid, "", reason)
    pod = kubelet.node.active.get(uid)
    if pod is not None:
        yield warning_about(pod, reason, text)
