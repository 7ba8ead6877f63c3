"""CPUs and devices that change under pods that were decided about (extensions cpu-hotplug, device-alignment).

The kernel itself removes an offline CPU from every group. In cgroup version 1 it takes it out of ``cpuset.cpus`` of
every group and never gives it back; in version 2 it leaves that file alone and what is in effect follows. Here an
offline CPU is in no container's setting, so that what is in effect is what is wanted, and when it is back all groups
are written again.

Devices may be known only after the decision, at a later look, and may change. Nothing that runs moves for them: a pod
of which nothing runs yet is placed anew; of all others it is said what is where.

Source: kernel Documentation/admin-guide/cgroup-v1/cpusets.rst section 1.3 and 2.4, and cgroup-v2.rst; for the rest
:mod:`mooring.engine.node.hotplug`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace

from mooring.agent.effects import AgentReport, Effect, ReportKind, ReturnCPUs, reported, said
from mooring.agent.reactor import devices
from mooring.agent.reactor.desired import DesiredSettings, write_of
from mooring.agent.reactor.placing import Placed, place, place_waiting, started
from mooring.agent.reactor.response import EventOutcome, enforced, outcome
from mooring.agent.state import HAS_CGROUP, AgentState, DevicesFound
from mooring.engine.core.bits import CPUMask, list_text
from mooring.engine.core.cpuset import CPUSet
from mooring.engine.core.decision import Observer
from mooring.engine.core.pod import ContainerKind, Pod
from mooring.engine.devicemanager.state import Device
from mooring.engine.extensions.facts import CPUsReplaced
from mooring.engine.kubelet.kubelet import Kubelet
from mooring.engine.node.hotplug import CPUsChanged, known_cpus
from mooring.explanations.phrases import nodes


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
    parts = [f"CPUs {list_text(gone)} went offline"] if gone else []
    parts += [f"CPUs {list_text(back)} came online"] if back else []
    rest = f"; offline are {list_text(offline)}" if offline else "; all are online"
    told = AgentReport(ReportKind.CPUS_CHANGED, f"{' and '.join(parts)}{rest}")
    effects = [effect for change in (gained, lost) for effect in _change_said(after, change)]
    wanted = DesiredSettings.now(after)
    live = [one for one in after.containers.values() if one.phase in HAS_CGROUP]
    writes = tuple(write_of(one, wanted.of(one.uid, one.name)) for one in live)
    # The groups above containers, without which the containers cannot have them
    returned = (ReturnCPUs(CPUSet(CPUMask(back)), writes),) if back else ()
    return outcome(state, after, None, (*returned, *changed, *placed.effects, told, *effects))


def _change_said(state: AgentState, change: CPUsChanged) -> Iterator[Effect]:
    """Yield what a change came to for pods."""
    for one in change.broken:
        if isinstance(one, CPUsReplaced):
            had, lost = one.before, one.before & ~one.after
            reason, rest = "CPUsReplaced", f"{list_text(one.after & ~one.before)} replace them"
        else:
            had, lost = one.cpus, one.lost
            reason, rest = "CPUsOffline", f"no CPUs replace them{f': {one.why}' if one.why else ''}"
        who, of = one.container or "the pod", list_text(had)
        text = f"{who} lost CPUs {list_text(lost)} of {of}, which are offline; {rest}"
        yield from said(state, AgentReport(ReportKind.CPUS_CHANGED, text, one.pod, "", reason), reason)
    for each in change.restored:
        instead = "" if each.before == each.after else f" instead of {list_text(each.before)}"
        text = f"{each.container or 'the pod'} has all of its CPUs again, {list_text(each.after)}{instead}"
        yield from said(state, AgentReport(ReportKind.CPUS_CHANGED, text, each.pod, "", "CPUsRestored"), "CPUsRestored")


def is_news_of_devices(state: AgentState, found: Mapping[str, DevicesFound]) -> bool:
    """Tell whether :func:`devices_learned` would change anything."""
    return any(
        devices.with_devices(state, uid, _seen(state.kubelet, uid, each)) is not state
        or (uid in state.without_devices and not each.unknown)
        for uid, each in _known(state, found)
    )


def devices_learned(
    state: AgentState, found: Mapping[str, DevicesFound], observer: Observer | None = None
) -> EventOutcome:
    """Take up what pods hold.

    Args:
        state: before.
        found: by uid; pods that are not decided about are left out.
        observer: receives the engine's facts, for metrics.
    """
    effects: list[Effect] = []
    after = state
    for uid, each in _known(state, found):
        if devices.can_be_placed_anew(after, uid, each):
            step = place(after, after.kubelet.node.active[uid], "", observer, each)
            if step.rejection is None:
                kubelet = step.state.kubelet
                for one in after.containers_of(uid):
                    kubelet = started(kubelet, uid, one.name, observer)
                step = replace(step, state=replace(step.state, kubelet=kubelet))
        else:
            step = _recorded(after, after.kubelet.node.active[uid], each)
        after = step.state
        effects += step.effects
    placed = place_waiting(after, observer)
    now, changed = enforced(state, placed.state)
    return outcome(state, now, None, (*changed, *placed.effects, *effects))


def _known(state: AgentState, found: Mapping[str, DevicesFound]) -> Iterator[tuple[str, DevicesFound]]:
    return ((uid, each) for uid, each in found.items() if uid in state.kubelet.node.active)


def _recorded(state: AgentState, pod: Pod, found: DevicesFound) -> Placed:
    """Write down what a pod holds, and report what is not as it was, and what is elsewhere than was decided."""
    was_unknown = pod.uid in state.without_devices
    seen = _seen(state.kubelet, pod.uid, found)
    after = devices.with_devices(state, pod.uid, seen)
    effects: list[Effect] = []
    changed = False
    for what in _changes(state.kubelet, pod.uid, seen):
        changed = True
        text = f"{what} ({devices.CHANGED_CODE})"
        effects += reported(pod, ReportKind.DEVICES_CHANGED, devices.DEVICES_CHANGED, text, devices.CHANGED_CODE)
    if not found.unknown:
        after = devices.without_question(after, pod.uid)
    if changed or (was_unknown and not found.unknown):
        for _, what in devices.elsewhere(after, pod):
            text = f"{what}; nothing moves while it runs ({devices.ELSEWHERE_CODE})"
            effects += reported(
                pod, ReportKind.DEVICES_ELSEWHERE, devices.DEVICES_ELSEWHERE, text, devices.ELSEWHERE_CODE
            )
    return Placed(after, None, tuple(effects))


def _seen(kubelet: Kubelet, uid: str, found: DevicesFound) -> DevicesFound:
    """Return what is reported now; devices that were known and are not reported any more are unhealthy.

    Nothing is reported of init containers that end.
    """
    pod = kubelet.node.active[uid]
    ending = {one.name for one in pod.containers if one.kind is ContainerKind.INIT}
    held = {name: dict(resources) for name, resources in found.held.items()}
    for container in kubelet.node.providers.devices.held.get(uid, {}):
        for resource, known in devices.devices_of(kubelet, uid, container).items():
            told = {one.id for one in held.get(container, {}).get(resource, ())}
            lost = tuple(
                one if found.unknown or container in ending else replace(one, healthy=False)
                for one in known
                if one.id not in told
            )
            if lost:
                mine = held.setdefault(container, {})
                mine[resource] = (*mine.get(resource, ()), *lost)
    return replace(found, held=held)


def _changes(kubelet: Kubelet, uid: str, seen: DevicesFound) -> Iterator[str]:
    """Yield in words what is not as it was of devices that were known."""
    for container, resources in seen.held.items():
        before = devices.devices_of(kubelet, uid, container)
        for resource, reported_now in resources.items():
            known = {one.id: one for one in before.get(resource, ())}
            for one in reported_now:
                if one.id not in known or known[one.id] == one:
                    continue
                name = f"{resource} {one.id} of {container}"
                if known[one.id].healthy and not one.healthy:
                    yield f"{name} is not healthy any more, or not reported"
                elif not known[one.id].healthy and one.healthy:
                    yield f"{name} is healthy again"
                if known[one.id].numa != one.numa:
                    yield f"{name} was near {_near(known[one.id])} and is near {_near(one)}"


def _near(device: Device) -> str:
    return nodes(device.numa) if device.numa else "no known NUMA node"
