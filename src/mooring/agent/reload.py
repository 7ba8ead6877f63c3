"""What a changed configuration means: whether it needs a restart, whether the engine accepts it, and its effects.

A change that cannot be read, that needs a restart, or that the engine does not accept is refused with one line, and the
old configuration stays. An accepted change leaves every pod where it is.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import TypeVar

from mooring.agent.configuration import AgentConfiguration
from mooring.agent.options import FIELDS, AgentOptions, choices_of
from mooring.agent.reactor.outcomes import EventOutcome, Refused
from mooring.agent.reactor.placing import place_waiting
from mooring.agent.reactor.resizing import releases_resumed
from mooring.agent.reactor.restart.resume import reconfigured
from mooring.agent.reactor.updates import enforced, outcome
from mooring.agent.reactor.values import AgentState
from mooring.engine.core.config import (
    CPU_HOTPLUG,
    DEVICE_ALIGNMENT,
    MIXED_CPUS,
    SCALE_DOWN_DELAY,
    KubeletConfig,
    MooringConfig,
)
from mooring.engine.core.decision import StartRefusal
from mooring.engine.core.errors import KubeletCrashError
from mooring.engine.core.moment import Moment
from mooring.engine.core.observer import Observer
from mooring.engine.kubelet.kubelet import Kubelet
from mooring.engine.kubelet.start import NotStarted, start_kubelet
from mooring.engine.node import Node
from mooring.inputs.pods.defaults import DELAY_GATE, PodGates

RESTART: Mapping[str, str] = {
    "stateDir": "the state of the running containers is in the old folder",
    "nriSocket": "the connection to the runtime is open",
    "pluginIndex": "the plugin is registered under the old index",
    "kubeletConfig": "the engine runs on what the old file says",
    "kubeletVersion": "the engine decides as the old release, and wrote the state files in its formats",
    "nodeName": "pods are watched under the old name",
    "kubeconfig": "the connection to the API server is open",
    "podManifests": "pods were read from the old folder",
    "failClosed": "the taint was set or left out at the start",
    "replyBudget": "the connection to the runtime was opened with the old one",
    "metricsAddress": "the old address is open",
    "assigned": "containers were made with or without the files",
    "assignedDir": "the folder is mounted into containers",
    "assignedMountPath": "the folder is mounted into containers",
    "statusSocket": "the old socket is open",
    "podResourcesSocket": "the old socket is open",
    "claimsSocket": "the old socket is open",
    "publish": "the publisher begins with the agent",
    "onlineCPUsInterval": "the watch began with the old one",
    "logFormat": "the log has the old form already",
}
"""Fields that only a restart of the agent changes, and why."""

READ_WITH: Mapping[str, str] = {
    "pod_level_resources": "featureGates.PodLevelResources",
    "qos_fix": "featureGates.PodLevelResourcesFixKubeletQOSClass",
    "defaulting_fix": "featureGates.PodLevelResourcesFixDefaulting",
    "knows_delay": f"the extension {SCALE_DOWN_DELAY}",
    "delay": f"featureGates.{DELAY_GATE}",
    "knows_mixing": f"the extension {MIXED_CPUS}",
    "knows_device_alignment": f"the extension {DEVICE_ALIGNMENT}",
    "knows_pod_resources": "the kubelet release",
    "huge_page_requests_of_containers": "the kubelet release",
    "huge_page_limits_beside_requests": "the kubelet release",
    "reads_statuses": "featureGates.InPlacePodVerticalScaling",
}
"""What decides how pods are read, attribute of the gates -> its name. All readers of pods keep the gates of the
start, and the pods that were read with them: an engine with others would judge pods that were half understood."""


_Holder = TypeVar("_Holder")


def restart_reasons(old: AgentConfiguration, new: AgentConfiguration) -> tuple[str, ...]:
    """Return why a change needs a restart: one text for each field, gate or extension, none when it does not.

    >>> from mooring.agent.options import AgentOptions
    >>> restart_reasons(AgentConfiguration(), AgentConfiguration(AgentOptions(plugin_index="10")))
    ('pluginIndex needs a restart: the plugin is registered under the old index',)
    """
    changed = {name for name, attribute in FIELDS.items() if _differ(old.options, new.options, attribute)}
    found = [f"{name} needs a restart: {RESTART[name]}" for name in FIELDS if name in changed and name in RESTART]
    before, after = _gates(old), _gates(new)
    for attribute, name in READ_WITH.items():
        if getattr(before, attribute) != getattr(after, attribute):
            found.append(f"{name} needs a restart: pods were read with the old setting")
    if (CPU_HOTPLUG in old.mooring.extensions) != (CPU_HOTPLUG in new.mooring.extensions):
        found.append(f"the extension {CPU_HOTPLUG} needs a restart: the watch over the CPUs begins with the agent")
    return tuple(found)


def _gates(configuration: AgentConfiguration) -> PodGates:
    return PodGates.of_node(configuration.kubelet, configuration.mooring)


def engine_refusal(kubelet: Kubelet, new: AgentConfiguration) -> str:
    """Return why the engine cannot continue with another configuration; an empty text when it can.

    It is started on the present state as a kubelet would be, and every active pod is admitted again, under the old
    configuration and under the new one: with the new one no pod may be refused or placed elsewhere that is not with the
    old one too.
    """
    after = _restarted(kubelet, new.kubelet, new.mooring)
    if isinstance(after, str):
        return after
    before = _restarted(kubelet, kubelet.settings.config, kubelet.mooring)
    if isinstance(before, str):
        return ""
    for uid, why in after.refused.items():
        if uid not in before.refused:
            pod = kubelet.node.active[uid]
            return f"the running pod {pod.namespace}/{pod.name} would be refused: {why}"
    return "" if _keep_theirs(before.node, after.node) else "running containers would be placed elsewhere"


@dataclass(frozen=True, slots=True)
class _Restarted:
    """A node after a restart on a copy of the state."""

    node: Node
    refused: Mapping[str, str]
    """Active pods that are not admitted again: uid -> reason."""


def _restarted(kubelet: Kubelet, config: KubeletConfig, mooring: MooringConfig) -> _Restarted | str:
    """Return what a restart comes to, or why there can be none."""
    try:
        start = start_kubelet(kubelet.info, config, mooring, kubelet.files)
        if isinstance(start, NotStarted):
            return f"the engine does not start with it: {start.refusal.message}"
        fresh = start.with_devices(kubelet.node.providers.devices)
        after, readmission = fresh.readmit(kubelet.node.active.values())
    except KubeletCrashError as error:
        return f"the engine crashes with it: {error}"
    refused = {
        decision.uid: decision.reason or "the admission would not end"
        for decision in readmission.decisions
        if not decision.admitted
    }
    return _Restarted(after.node, refused)


def _keep_theirs(before: Node, after: Node) -> bool:
    """Tell whether every pod keeps what it has; a pod that had nothing may get something."""
    return (
        _kept(_flat(before.cpu.assignments), _flat(after.cpu.assignments))
        and _kept(_flat(before.memory.assignments), _flat(after.memory.assignments))
        and _kept(before.cpu.pods, after.cpu.pods)
        and _kept(before.memory.pods, after.memory.pods)
    )


def _flat(assignments: Mapping[str, Mapping[str, object]]) -> dict[tuple[str, str], object]:
    return {(uid, name): held for uid, containers in assignments.items() for name, held in containers.items()}


def _kept(before: Mapping[_Holder, object], after: Mapping[_Holder, object]) -> bool:
    return all(after.get(holder) == held for holder, held in before.items())


def concerns_engine(old: AgentConfiguration, new: AgentConfiguration) -> bool:
    """Return whether a change is one that the engine must accept."""
    # Plugins are made again even of the same settings, so that one that was given up is asked again.
    return (old.kubelet, old.mooring) != (new.kubelet, new.mooring) or bool(new.mooring.plugins.plugins)


def _differ(old: AgentOptions, new: AgentOptions, attribute: str) -> bool:
    return bool(getattr(old, attribute) != getattr(new, attribute))


def live_fields() -> Iterator[str]:
    """Yield the fields of the document that a change of the file changes at once.

    >>> sorted(live_fields())[:3]
    ['irqAffinity', 'kubeletPodResourcesSocket', 'logLevel']
    """
    return (name for name in FIELDS if name not in RESTART)


def with_configuration(
    state: AgentState, new: AgentConfiguration, now: Moment, observer: Observer | None = None
) -> EventOutcome:
    """Return what another configuration comes to, or why the old one stays.

    That the engine accepts it was asked before, but the state may have changed since.

    Args:
        state: under the old one.
        new: the other one.
        now: the present moment.
        observer: receives the engine's facts, for metrics.
    """
    same = (state.kubelet.settings.config, state.kubelet.mooring) == (new.kubelet, new.mooring)
    after = state if same and not new.mooring.plugins.plugins else _reconfigured(state, new, now)
    if isinstance(after, StartRefusal):
        return EventOutcome(state, Refused(after.message))
    placed = place_waiting(replace(after, options=choices_of(new.options)), observer)
    after, effects = enforced(state, placed.state)
    return outcome(state, after, None, (*effects, *placed.effects))


def _reconfigured(state: AgentState, new: AgentConfiguration, now: Moment) -> AgentState | StartRefusal:
    found = reconfigured(state, new.kubelet, new.mooring)
    if isinstance(found, StartRefusal):
        return found
    # What only memory knew of releases starts again, as after a restart.
    after = found.state
    return releases_resumed(replace(after, kubelet=after.kubelet.at(now)))
