"""Reloading the configuration while the agent runs: whole, or not at all.

Nothing here waits: the agent calls :meth:`ConfigurationReloader.check` every half second.

A change that cannot be read, that needs a restart, or that the engine does not accept is refused with one line, and the
old configuration stays. An accepted change leaves every pod where it is.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import TypeVar

from mooring.agent.reactor.placing import place_waiting
from mooring.agent.reactor.response import EventOutcome, Refused, enforced, outcome
from mooring.agent.reactor.resume import reconfigured
from mooring.agent.reactor.update_container import releases_resumed
from mooring.agent.startup import Startup, choices_of
from mooring.agent.state import AgentState
from mooring.agent.state_holder import StateHolder
from mooring.agent.status.api import AgentMetrics
from mooring.agent.status.snapshot import Published, moment
from mooring.documents.status import ConfigurationPart
from mooring.engine.core.config import (
    CPU_HOTPLUG,
    DEVICE_ALIGNMENT,
    MIXED_CPUS,
    SCALE_DOWN_DELAY,
    KubeletConfig,
    MooringConfig,
)
from mooring.engine.core.decision import StartRefusal
from mooring.engine.core.errors import InputError, KubeletCrashError
from mooring.engine.core.moment import Moment
from mooring.engine.core.observer import Observer
from mooring.engine.kubelet.kubelet import Kubelet
from mooring.engine.kubelet.start import NotStarted, start_kubelet
from mooring.engine.node import Node
from mooring.inputs.pods.defaults import DELAY_GATE, PodGates
from mooring.service.agent_configuration import AgentConfiguration
from mooring.service.agent_options import FIELDS
from mooring.service.daemon import present_moment
from mooring.service.logs import Log, set_level

PERIOD = 2.0
"""Seconds between two checks of the files."""

Signature = tuple[tuple[int, int, int] | None, ...]
"""Inode, time of change and size of each file; None for one that is not there."""


class ConfigurationWatch:
    """Sees changes of the files by their inode, time and size, and reads them when they have come to rest."""

    def __init__(
        self,
        current: AgentConfiguration,
        load: Callable[[], AgentConfiguration],
        accepts: Callable[[AgentConfiguration], str],
        take_up: Callable[[AgentConfiguration], str],
        clock: Callable[[], float],
    ) -> None:
        """Begin with a configuration that is in force.

        Args:
            current: the configuration.
            load: reads the files again, as at the start; raises InputError.
            accepts: says why the engine cannot continue with a configuration, or nothing; asked on a copy.
            take_up: lets it be in force, or says why it is not after all: the state may have changed since.
            clock: seconds that only go forward.
        """
        self.current = current
        """The configuration in force."""
        self.generation = 1
        """How many configurations have been in force."""
        self.refusal = ""
        """Why the files are not in force, or nothing."""
        self._load, self._accepts, self._take_up, self._clock = load, accepts, take_up, clock
        self._seen = self._last = signature(current)
        self._next = clock() + PERIOD
        self._asked = False

    def ask(self) -> None:
        """Read the files at the next poll whether they have changed or not, as SIGHUP requests."""
        self._asked = True

    def poll(self) -> bool | None:
        """Look at the files when it is time to; return whether a change is in force now, or None when there is none.

        A file that is being written changes from one check to the next and is left alone until it does not.
        """
        now = self._clock()
        if not self._asked and now < self._next:
            return None
        self._next = now + PERIOD
        found = signature(self.current)
        settled, self._last = found == self._last, found
        if not self._asked and (found == self._seen or not settled):
            return None
        self._asked, self._seen = False, found
        return self._taken_up()

    def _taken_up(self) -> bool:
        try:
            new = self._load()
        except InputError as error:
            return self._refused(str(error))
        if reasons := restart_reasons(self.current, new):
            return self._refused("; ".join(reasons))
        if concerns_engine(self.current, new) and (refusal := self._accepts(new)):
            return self._refused(refusal)
        if refusal := self._take_up(new):
            return self._refused(refusal)
        self.current, self.refusal = new, ""
        self.generation += 1
        # A file that is named again has never been checked.
        self._seen = self._last = signature(new)
        return True

    def _refused(self, refusal: str) -> bool:
        self.refusal = refusal
        return False


class ConfigurationReloader:
    """The configuration of a running agent."""

    def __init__(
        self, beginning: Startup, holder: StateHolder, published: Published, metrics: AgentMetrics, log: Log
    ) -> None:
        """Begin with the configuration that is in force.

        Args:
            beginning: has it, and how it is read.
            holder: has the state.
            published: holds the snapshot that says what is in force.
            metrics: count, and are updated with what they show.
            log: of the agent.
        """
        self._holder, self._published, self._metrics, self._log = holder, published, metrics, log
        self.options = beginning.configuration.options
        """Those in force."""
        self._watch = ConfigurationWatch(
            beginning.configuration, beginning.load, self._refusal, self._take_up, time.monotonic
        )

    def ask(self) -> None:
        """Read the files at the next check, whether they have changed or not."""
        self._watch.ask()

    def check(self) -> None:
        """Check the files when it is time to; to be called now and then."""
        is_taken = self._watch.poll()
        if is_taken is not None:
            self._report_reload(is_taken=is_taken)

    def _refusal(self, new: AgentConfiguration) -> str:
        return engine_refusal(self._holder.state.kubelet, new)

    def _take_up(self, new: AgentConfiguration) -> str:
        """Go on with another configuration, or return why not; then nothing of it is in force."""
        now = present_moment()
        found = self._holder.apply(lambda state, observer: with_configuration(state, new, now, observer))
        if isinstance(found.answer, Refused):
            return found.answer.text
        set_level(new.options.log_level)
        self._metrics.per_container = new.options.per_container_metrics
        self.options = new.options
        return ""

    def _report_reload(self, *, is_taken: bool) -> None:
        """Let the outside know what a change of the files came to."""
        self._metrics.reloads.labels("taken" if is_taken else "refused").inc()
        if is_taken:
            self._log.info("configuration reloaded", generation=self._watch.generation)
            for finding in self._watch.current.findings:
                self._log.warning(finding.message, about=finding.subject)
        else:
            self._log.warning("configuration change refused", why=self._watch.refusal)
        since = moment(time.time()) if is_taken else self._published.snapshot().configuration.since
        files, generation = list(self._watch.current.files), self._watch.generation
        self._holder.show(configuration=ConfigurationPart(files, generation, since, self._watch.refusal))


def signature(configuration: AgentConfiguration) -> Signature:
    """Return what tells whether the files of a configuration have changed."""
    return tuple(_stat(path) for path in configuration.files)


def _stat(path: str) -> tuple[int, int, int] | None:
    try:
        found = os.stat(path)  # noqa: PTH116 - a str in hand
    except OSError:
        return None
    return found.st_ino, found.st_mtime_ns, found.st_size


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
    "amounts_wrap": "the kubelet release",
    "reads_statuses": "featureGates.InPlacePodVerticalScaling",
}
"""What decides how pods are read, attribute of the gates -> its name. All readers of pods keep the gates of the
start, and the pods that were read with them: an engine with others would judge pods that were half understood."""


_Holder = TypeVar("_Holder")


def restart_reasons(old: AgentConfiguration, new: AgentConfiguration) -> tuple[str, ...]:
    """Return why a change needs a restart: one text for each field, gate or extension, none when it does not.

    >>> from mooring.service.agent_options import AgentOptions
    >>> restart_reasons(AgentConfiguration(), AgentConfiguration(AgentOptions(plugin_index="10")))
    ('pluginIndex needs a restart: the plugin is registered under the old index',)
    """
    changed = {name for name, one in FIELDS.items() if getattr(old.options, one) != getattr(new.options, one)}
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
    for uid, why in after[1].items():
        if uid not in before[1]:
            pod = kubelet.node.active[uid]
            return f"the running pod {pod.namespace}/{pod.name} would be refused: {why}"
    return "" if _keep_theirs(before[0], after[0]) else "running containers would be placed elsewhere"


def _restarted(kubelet: Kubelet, config: KubeletConfig, mooring: MooringConfig) -> tuple[Node, Mapping[str, str]] | str:
    """Return the node after a restart on a copy of the state, and why active pods are not admitted again, by uid.

    A text says why there can be no restart.
    """
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
    return after.node, refused


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
