"""Taking up changes of the configuration while the agent runs: whole, or not at all.

A change that cannot be read, that needs a restart, or that the engine does not accept is refused with one line; the old
configuration stays. Nothing here waits: whoever runs the agent calls :meth:`ConfigurationWatch.poll` now and then.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import TypeVar

from mooring.agent.configuration import AgentConfiguration
from mooring.agent.options import FIELDS, AgentOptions
from mooring.core.config import CPU_HOTPLUG, MIXED_CPUS, SCALE_DOWN_DELAY, KubeletConfig, MooringConfig
from mooring.core.errors import InputError, KubeletCrashError
from mooring.kubelet.kubelet import Kubelet
from mooring.kubelet.start import start_kubelet
from mooring.manifest.defaults import DELAY_GATE, PodGates
from mooring.node import Node

RESTART: Mapping[str, str] = {
    "stateDir": "the state of the running containers is in the old folder",
    "nriSocket": "the connection to the runtime is open",
    "pluginIndex": "the plugin is registered under the old index",
    "kubeletConfig": "the engine runs on what the old file says",
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
}
"""What decides how pods are read, attribute of the gates -> its name. Everybody who reads pods keeps the gates of the
start, and the pods that he has read with them: an engine with others would judge pods that were half understood."""

PERIOD = 2.0
"""Seconds between two looks at the files."""

_Holder = TypeVar("_Holder")

Signature = tuple[tuple[int, int, int] | None, ...]
"""Inode, time of change and size of each file; None for one that is not there."""


@dataclass(frozen=True, slots=True)
class Reload:
    """What a change of the files came to."""

    configuration: AgentConfiguration | None
    """The new configuration, or None when the old one stays."""
    refusal: str = ""
    """Why it stays, in one line."""


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
    return PodGates.of(configuration.kubelet.feature_gates, configuration.mooring.extensions)


def engine_refusal(kubelet: Kubelet, new: AgentConfiguration) -> str:
    """Return why the engine cannot go on with another configuration; an empty text when it can.

    It is started on the present state as a kubelet would be, and every active pod is admitted again, under the old
    configuration and under the new one: with the new one nobody may be refused or placed elsewhere who is not with the
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
    """A node after a restart that nobody sees."""

    node: Node
    refused: Mapping[str, str]
    """Active pods that are not admitted again: uid -> reason."""


def _restarted(kubelet: Kubelet, config: KubeletConfig, mooring: MooringConfig) -> _Restarted | str:
    """Return what a restart comes to, or why there can be none."""
    try:
        start = start_kubelet(kubelet.info, config, mooring, kubelet.files)
        if start.kubelet is None:
            return f"the engine does not start with it: {start.refusal.message if start.refusal else ''}"
        fresh = start.kubelet.with_devices(kubelet.node.providers.devices)
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
    """Tell whether everybody keeps what he has; who had nothing may get something."""
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
            accepts: says why the engine cannot go on with a configuration, or nothing; asked on a copy.
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
        """Read the files at the next poll whether they have changed or not, as SIGHUP asks for."""
        self._asked = True

    def poll(self) -> Reload | None:
        """Look at the files when it is time to, and return what a change came to.

        A file that is being written changes from one look to the next and is left alone until it does not.
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

    def _taken_up(self) -> Reload:
        try:
            new = self._load()
        except InputError as error:
            return self._refused(str(error))
        if reasons := restart_reasons(self.current, new):
            return self._refused("; ".join(reasons))
        if _concerns_engine(self.current, new) and (refusal := self._accepts(new)):
            return self._refused(refusal)
        if refusal := self._take_up(new):
            return self._refused(refusal)
        self.current, self.refusal = new, ""
        self.generation += 1
        # A file that is named anew has never been looked at.
        self._seen = self._last = signature(new)
        return Reload(new)

    def _refused(self, refusal: str) -> Reload:
        self.refusal = refusal
        return Reload(None, refusal)


def signature(configuration: AgentConfiguration) -> Signature:
    """Return what tells whether the files of a configuration have changed."""
    return tuple(_stat(path) for path in configuration.files)


def _stat(path: str) -> tuple[int, int, int] | None:
    try:
        found = os.stat(path)  # noqa: PTH116 - a str in hand
    except OSError:
        return None
    return found.st_ino, found.st_mtime_ns, found.st_size


def _concerns_engine(old: AgentConfiguration, new: AgentConfiguration) -> bool:
    # Plugins are made anew even of the same settings, so that one that was given up is asked again.
    return (old.kubelet, old.mooring) != (new.kubelet, new.mooring) or bool(new.mooring.plugins.plugins)


def _differ(old: AgentOptions, new: AgentOptions, attribute: str) -> bool:
    return bool(getattr(old, attribute) != getattr(new, attribute))


def live_fields() -> Iterator[str]:
    """Yield the fields of the document that a change of the file changes at once.

    >>> sorted(live_fields())[:3]
    ['irqAffinity', 'kubeletPodResourcesSocket', 'logLevel']
    """
    return (name for name in FIELDS if name not in RESTART)
