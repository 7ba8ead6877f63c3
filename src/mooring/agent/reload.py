"""Reloading the configuration while the agent runs: whole, or not at all.

Nothing here waits: the agent calls :meth:`ConfigurationReloader.check` every half second.

A change that cannot be read, that needs a restart, or that the engine does not accept is refused with one line, and the
old configuration stays. An accepted change leaves every pod where it is.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from mooring.agent.metrics import AgentMetrics
from mooring.agent.reactor.placing import place_waiting
from mooring.agent.reactor.recovery import reconfigured
from mooring.agent.reactor.response import EventOutcome, Refused, enforced, outcome
from mooring.agent.reactor.update_container import releases_resumed
from mooring.agent.startup import Startup, choices_of
from mooring.agent.state import AgentState
from mooring.agent.state_holder import StateHolder
from mooring.agent.status import Published, moment
from mooring.documents.status import ConfigurationPart
from mooring.engine.core import config
from mooring.engine.core.decision import Observer, StartRefusal
from mooring.engine.core.errors import InputError, KubeletCrashError
from mooring.engine.core.moment import Moment
from mooring.engine.kubelet.kubelet import Kubelet
from mooring.engine.kubelet.start import NotStarted, start_kubelet
from mooring.engine.node import Node
from mooring.inputs.decoding.files import FileMark, file_mark
from mooring.inputs.pods.defaults import DELAY_GATE
from mooring.service.agent_configuration import AgentConfiguration
from mooring.service.agent_options import FIELDS, AgentOptions
from mooring.service.daemon import present_moment
from mooring.service.logs import Log, set_level

PERIOD = 2.0
"""Seconds between two checks of the files."""


class ConfigurationReloader:
    """The configuration of a running agent.

    It sees changes of the files by their inode, time and size, and reads them when they have come to rest.
    """

    def __init__(
        self,
        beginning: Startup,
        holder: StateHolder,
        published: Published,
        metrics: AgentMetrics,
        log: Log,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Begin with the configuration that is in force.

        Args:
            beginning: has it, and how it is read.
            holder: has the state.
            published: holds the snapshot that says what is in force.
            metrics: count, and are updated with what they show.
            log: of the agent.
            clock: seconds that only go forward.
        """
        self._load, self._clock = beginning.load, clock
        self._holder, self._published, self._metrics, self._log = holder, published, metrics, log
        self._current = beginning.configuration
        self._generation = 1
        """How many configurations have been in force."""
        self._seen = self._last = signature(self._current)
        self._next = clock() + PERIOD
        self._asked = False

    @property
    def options(self) -> AgentOptions:
        """Those in force."""
        return self._current.options

    def ask(self) -> None:
        """Read the files at the next check, whether they have changed or not."""
        self._asked = True

    def check(self) -> None:
        """Take up a change of the files when it is time to, or report why not; to be called now and then.

        A file that is being written changes from one check to the next and is left alone until it does not.
        """
        now = self._clock()
        if not self._asked and now < self._next:
            return
        self._next = now + PERIOD
        found = signature(self._current)
        settled, self._last = found == self._last, found
        if not self._asked and (found == self._seen or not settled):
            return
        self._asked, self._seen = False, found
        refusal, since = self._take_up(), self._published.snapshot().configuration.since
        self._metrics.reloads.labels("refused" if refusal else "taken").inc()
        if refusal:
            self._log.warning("configuration change refused", why=refusal)
        else:
            self._generation += 1
            # A file that is named again has never been checked.
            self._seen = self._last = signature(self._current)
            since = moment(time.time())
            self._log.info("configuration reloaded", generation=self._generation)
            for finding in self._current.findings:
                self._log.warning(finding.message, about=finding.subject)
        shown = ConfigurationPart(list(self._current.files), self._generation, since, refusal)
        self._holder.show(configuration=shown)

    def _take_up(self) -> str:
        """Go on with what the files say now, or return why not; then nothing of it is in force."""
        old = self._current
        try:
            new = self._load()
        except InputError as error:
            return str(error)
        if refusal := "; ".join(restart_reasons(old, new)):
            return refusal
        # Plugins are made again even of the same settings, so that one that was given up is asked again.
        is_engines = (old.kubelet, old.mooring) != (new.kubelet, new.mooring) or new.mooring.plugins.plugins
        if is_engines and (refusal := engine_refusal(self._holder.state.kubelet, new)):
            return refusal
        now = present_moment()
        found = self._holder.apply(lambda state, observer: with_configuration(state, new, now, observer))
        if isinstance(found.answer, Refused):
            return found.answer.text
        set_level(new.options.log_level)
        self._metrics.per_container = new.options.per_container_metrics
        self._current = new
        return ""


def signature(configuration: AgentConfiguration) -> tuple[FileMark | None, ...]:
    """Return what tells whether the files of a configuration have changed."""
    return tuple(map(file_mark, configuration.files))


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
    "nodeCondition": "as the taint",
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
    "knows_delay": f"the extension {config.SCALE_DOWN_DELAY}",
    "delay": f"featureGates.{DELAY_GATE}",
    "knows_mixing": f"the extension {config.MIXED_CPUS}",
    "knows_device_alignment": f"the extension {config.DEVICE_ALIGNMENT}",
    "knows_pod_resources": "the kubelet release",
    "huge_page_requests_of_containers": "the kubelet release",
    "huge_page_limits_beside_requests": "the kubelet release",
    "amounts_wrap": "the kubelet release",
    "reads_statuses": "featureGates.InPlacePodVerticalScaling",
}
"""What decides how pods are read, attribute of the gates -> its name. All readers of pods keep the gates of the
start, and the pods that were read with them: an engine with others would judge pods that were half understood."""


def restart_reasons(old: AgentConfiguration, new: AgentConfiguration) -> tuple[str, ...]:
    """Return why a change needs a restart: one text for each field, gate or extension, none when it does not.

    >>> from mooring.service.agent_options import AgentOptions
    >>> restart_reasons(AgentConfiguration(), AgentConfiguration(AgentOptions(plugin_index="10")))
    ('pluginIndex needs a restart: the plugin is registered under the old index',)
    """
    changed = {name for name, one in FIELDS.items() if getattr(old.options, one) != getattr(new.options, one)}
    found = [f"{name} needs a restart: {RESTART[name]}" for name in FIELDS if name in changed and name in RESTART]
    before, after = old.gates, new.gates
    for attribute, name in READ_WITH.items():
        if getattr(before, attribute) != getattr(after, attribute):
            found.append(f"{name} needs a restart: pods were read with the old setting")
    if (config.CPU_HOTPLUG in old.mooring.extensions) != (config.CPU_HOTPLUG in new.mooring.extensions):
        found.append(
            f"the extension {config.CPU_HOTPLUG} needs a restart: the watch over the CPUs begins with the agent"
        )
    return tuple(found)


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
    for uid, why in after[1].items():
        if uid not in before[1]:
            pod = kubelet.node.active[uid]
            return f"the running pod {pod.namespace}/{pod.name} would be refused: {why}"
    pairs: tuple[tuple[Any, Any], ...] = ((before[0].cpu, after[0].cpu), (before[0].memory, after[0].memory))
    stays = all(
        all(new.pods.get(uid) == held for uid, held in old.pods.items())
        and all(
            new.assignments.get(uid, {}).get(name) == held
            for uid, containers in old.assignments.items()
            for name, held in containers.items()
        )
        for old, new in pairs
    )
    return "" if stays else "running containers would be placed elsewhere"


def _restarted(
    kubelet: Kubelet, fields: config.KubeletConfig, mooring: config.MooringConfig
) -> tuple[Node, Mapping[str, str]] | str:
    """Return the node after a restart on a copy of the state, and why active pods are not admitted again, by uid.

    A text says why there can be no restart.
    """
    try:
        start = start_kubelet(kubelet.info, fields, mooring, kubelet.files)
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
    return after.node, refused


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
    after = state
    if new.mooring.plugins.plugins or (state.kubelet.settings.config, state.kubelet.mooring) != (
        new.kubelet,
        new.mooring,
    ):
        found = reconfigured(state, new.kubelet, new.mooring)
        if isinstance(found, StartRefusal):
            return EventOutcome(state, Refused(found.message))
        # What only memory knew of releases starts again, as after a restart.
        after = releases_resumed(replace(found.state, kubelet=found.state.kubelet.at(now)))
    placed = place_waiting(replace(after, options=choices_of(new.options)), observer)
    after, effects = enforced(state, placed.state)
    return outcome(state, after, None, (*effects, *placed.effects))
