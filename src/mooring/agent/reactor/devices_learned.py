"""What pods hold of devices, learned after they were decided about: at a later look, and when something has changed.

Nothing that runs moves. A pod of which nothing runs yet is placed anew; of all others it is said what is where.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace

from mooring.agent.pods.events import warning_about
from mooring.agent.reactor.devices import (
    CHANGED_CODE,
    DEVICES_CHANGED,
    DEVICES_ELSEWHERE,
    ELSEWHERE_CODE,
    can_be_placed_anew,
    devices_of,
    elsewhere,
    with_devices,
    without_question,
)
from mooring.agent.reactor.effects import AgentReport, Effect, ReportKind
from mooring.agent.reactor.outcomes import EventOutcome
from mooring.agent.reactor.placing import Placed, place, place_waiting, started
from mooring.agent.reactor.updates import enforced, outcome
from mooring.agent.reactor.values import AgentState, DevicesFound
from mooring.engine.core.observer import Observer
from mooring.engine.core.pod import ContainerKind, Pod
from mooring.engine.devicemanager.state import Device
from mooring.engine.kubelet.kubelet import Kubelet
from mooring.explain.phrases import nodes


def is_news_of_devices(state: AgentState, found: Mapping[str, DevicesFound]) -> bool:
    """Tell whether :func:`devices_learned` would change anything."""
    return any(
        with_devices(state, uid, _seen(state.kubelet, uid, each)) is not state or _answers(state, uid, each)
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
        if can_be_placed_anew(after, uid, each):
            step = _placed_anew(after, after.kubelet.node.active[uid], each, observer)
        else:
            step = _recorded(after, after.kubelet.node.active[uid], each)
        after = step.state
        effects += step.effects
    placed = place_waiting(after, observer)
    now, changed = enforced(state, placed.state)
    return outcome(state, now, None, (*changed, *placed.effects, *effects))


def _known(state: AgentState, found: Mapping[str, DevicesFound]) -> Iterator[tuple[str, DevicesFound]]:
    return ((uid, each) for uid, each in found.items() if uid in state.kubelet.node.active)


def _answers(state: AgentState, uid: str, found: DevicesFound) -> bool:
    return uid in state.without_devices and not found.unknown


def _placed_anew(state: AgentState, pod: Pod, found: DevicesFound, observer: Observer | None) -> Placed:
    made = [one.name for one in state.containers_of(pod.uid)]
    placed = place(state, pod, "", observer, found)
    if placed.rejection is not None:
        return placed
    kubelet = placed.state.kubelet
    for name in made:
        kubelet = started(kubelet, pod.uid, name, observer)
    return replace(placed, state=replace(placed.state, kubelet=kubelet))


def _recorded(state: AgentState, pod: Pod, found: DevicesFound) -> Placed:
    """Write down what a pod holds, and report what is not as it was, and what is elsewhere than was decided."""
    place_, was_unknown = f"{pod.namespace}/{pod.name}", pod.uid in state.without_devices
    seen = _seen(state.kubelet, pod.uid, found)
    after = with_devices(state, pod.uid, seen)
    effects: list[Effect] = []
    changed = False
    for what in _changes(state.kubelet, pod.uid, seen):
        changed = True
        text = f"{what} ({CHANGED_CODE})"
        effects += (
            AgentReport(ReportKind.DEVICES_CHANGED, f"{place_}: {text}", pod.uid, "", DEVICES_CHANGED, CHANGED_CODE),
            warning_about(pod, DEVICES_CHANGED, text),
        )
    if not found.unknown:
        after = without_question(after, pod.uid)
    if changed or (was_unknown and not found.unknown):
        for _, what in elsewhere(after, pod):
            text = f"{what}; nothing moves while it runs ({ELSEWHERE_CODE})"
            effects += (
                AgentReport(
                    ReportKind.DEVICES_ELSEWHERE, f"{place_}: {text}", pod.uid, "", DEVICES_ELSEWHERE, ELSEWHERE_CODE
                ),
                warning_about(pod, DEVICES_ELSEWHERE, text),
            )
    return Placed(after, None, tuple(effects))


def _seen(kubelet: Kubelet, uid: str, found: DevicesFound) -> DevicesFound:
    """Return what is told now, with devices that were known and are not told any more as not healthy.

    Of init containers that end nothing is told.
    """
    pod = kubelet.node.active[uid]
    ending = {one.name for one in pod.containers if one.kind is ContainerKind.INIT}
    held = {name: dict(resources) for name, resources in found.held.items()}
    for container in kubelet.node.providers.devices.held.get(uid, {}):
        for resource, known in devices_of(kubelet, uid, container).items():
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
        before = devices_of(kubelet, uid, container)
        for resource, devices in resources.items():
            known = {one.id: one for one in before.get(resource, ())}
            for one in devices:
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
