"""A plain kubelet as a source: its state files, its record of devices and its PodResources API, all only read.

The files are the state that the next decision starts from; the API says which pods are there. Both are read until they
were the same before and after and agree with each other, so that an observation is of one moment.

The devices of a node's ResourceSlices, listed now and then: drivers change them when devices come and go.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Final, Protocol, TypeAlias

from mooring.engine.checkpoint.device_file import DEVICE_FILE, HeldDevices, device_record, read_device_file
from mooring.engine.checkpoint.store import StateFolder
from mooring.engine.core.errors import InputError, MooringError
from mooring.engine.core.machine import PCIDevice
from mooring.engine.devicemanager.state import Device
from mooring.engine.extensions.device_alignment import LocationRules, dynamic_devices
from mooring.engine.kubelet.kubelet import Kubelet, StateTexts
from mooring.engine.node.settings import CPU_FILE, MEMORY_FILE
from mooring.inputs.decoding.files import FileMark, file_mark
from mooring.inputs.pods.claims import current_devices, slice_of
from mooring.published.facts_document import digest_of
from mooring.published.naming import Names, Sets, device_state, disagreement, named
from mooring.published.objects import NodeFacts, NodeState, PodKey
from mooring.published.observation import Observation
from mooring.published.restored import NodeKind, kind_of, restored, with_running_pods
from mooring.service.apiserver import Cluster, ClusterError, ClusterOnDemand
from mooring.service.following import CACHED, objects_at, pods_of
from mooring.service.podresources import ListedPod, pods_in

TRIES: Final = 10
"""Readings until files and API must have agreed."""
PAUSE: Final = 0.02
"""Seconds between two of them; the kubelet needs a few milliseconds for a pod."""
_LISTING: Final = 2.0
"""Seconds after which the kubelet is asked for its pods even when its files stay as they are."""
REGISTERING: Final = 60.0
"""Seconds after a start of the kubelet when its release is read again: its Node names a new version by then."""
ASKING: Final = 5
"""How often the API server is asked again for pods that it did not know."""

_FILES: Final = (CPU_FILE, MEMORY_FILE, DEVICE_FILE)


class Lister(Protocol):
    """The kubelet's API, see :class:`~mooring.service.podresources.PodResourcesClient`."""

    def listed(self) -> bytes:
        """Return the answer to List."""

    def devices(self) -> dict[str, tuple[Device, ...]]:
        """Return the healthy devices."""


class UnsettledError(MooringError):
    """Files and API do not agree, after many readings."""


_Reading: TypeAlias = tuple[StateTexts, str | None, bytes, dict[str, tuple[Device, ...]]]
"""Everything that decides about an observation, as it was read: state files, record of devices, answer to List, healthy
devices."""


class KubeletSource:
    """Observes a kubelet of this node; used by one thread."""

    def __init__(
        self,
        node: str,
        root: Path,
        load: Callable[[], NodeFacts],
        kubelet: Lister,
        *,
        socket: Path | None = None,
        names: Callable[[tuple[ListedPod, ...]], Names] | None = None,
        clock: Callable[[], float] = time.monotonic,
        pause: Callable[[float], object] = time.sleep,
    ) -> None:
        """Read the facts.

        Args:
            node: name of the node.
            root: the kubelet's root directory.
            load: reads machine and configuration.
            kubelet: its API.
            socket: of the API; a new one means that the kubelet has started again, and may have another configuration.
            names: asks the API server which pod has which uid.
            clock: seconds that only go forward.
            pause: waits for a number of seconds.

        Raises:
            InputError: the facts cannot be read.
        """
        self._node, self._root, self._load, self._kubelet = node, root, load, kubelet
        self._socket, self._names, self._clock, self._pause = socket, names, clock, pause
        self._born: tuple[int, int] | None = None
        self._born = self._birth()
        self.starts = 1
        """How often the kubelet has started since it was observed first, that time included; from its socket."""
        self._again = 0.0
        self._facts: NodeFacts | None = None
        self._kind: NodeKind | str = ""
        self._digest = ""
        self._reading: _Reading | None = None
        self._started: tuple[StateTexts, Kubelet | str] | None = None
        self._marks: tuple[FileMark | None, ...] = ()
        self._listed = 0.0
        self._asked = 0
        self._seen: Observation | None = None

    @property
    def facts(self) -> NodeFacts:
        """Machine and configuration, as they are now known.

        Raises:
            InputError: they cannot be read.
        """
        return self._check_restart()

    def observe(self) -> Observation | None:
        """Return what there is now; the same object while nothing has changed.

        Raises:
            InputError: machine, configuration or a file cannot be read.
            PodResourcesError: the kubelet does not answer.
            UnsettledError: files and API contradict each other.
        """
        facts = self._check_restart()
        # What changes when a file is replaced, without reading any.
        marks, now = tuple(file_mark(self._root / name) for name in _FILES), self._clock()
        if self._seen is not None and marks == self._marks and now - self._listed < _LISTING:
            return self._seen
        reading, pods = self._settled()
        self._marks, self._listed = marks, now
        if self._seen is None or reading != self._reading:
            self._reading, self._seen = reading, self._observation(facts, reading, pods)
            self._asked = 0
        elif self._names is not None and self._asked < ASKING and not all(key.uid for key in self._seen.state.pods):
            # The API server's memory may be a little behind the kubelet's.
            self._asked += 1
            again = self._observation(facts, reading, pods)
            self._seen = self._seen if again == self._seen else again
        return self._seen

    def _check_restart(self) -> NodeFacts:
        born, now = self._birth(), self._clock()
        if self._facts is not None and born == self._born and now < self._again:
            return self._facts
        facts = self._load()
        if self._facts is None or born != self._born:
            self._again = now + REGISTERING
        else:
            # The running kubelet knows nothing of a configuration that was written since its start.
            facts = replace(self._facts, mooring=replace(self._facts.mooring, release=facts.mooring.release))
            self._again = math.inf
        self.starts += self._facts is not None and born != self._born
        self._born = born
        if facts != self._facts:
            self._facts, self._digest = facts, digest_of(facts)
            self._kind, self._seen, self._started = kind_of(self._digest, facts), None, None
        return facts

    def _birth(self) -> tuple[int, int] | None:
        """Return what tells one socket from the next of the same name; while there is none, what told the last."""
        if self._socket is not None:
            with suppress(OSError):
                found = self._socket.stat()
                return found.st_ino, found.st_ctime_ns
        return self._born

    def _settled(self) -> tuple[_Reading, tuple[ListedPod, ...]]:
        """Read until everything is of one moment."""
        problem = ""
        for attempt in range(TRIES):
            if attempt:
                self._pause(PAUSE)
            before = self._files()
            answer = self._kubelet.listed()
            devices = self._kubelet.devices()
            if self._files() != before:
                problem = "the state files change all the time"
                continue
            pods = pods_in(answer)
            is_told = any(container.cpus for pod in pods for container in pod.containers)
            problem = disagreement(pods, _sets(self._start(before[0]))) if is_told else ""
            if not problem:
                return (*before, answer, devices), pods
        raise UnsettledError(f"{self._root}: {problem}")

    def _files(self) -> tuple[StateTexts, str | None]:
        folder = StateFolder(self._root)
        return StateTexts(folder.read_cpu(), folder.read_memory()), read_device_file(self._root)

    def _start(self, files: StateTexts) -> Kubelet | str:
        """Return the kubelet that starts on the files, or why it would not."""
        if self._started is None or self._started[0] != files:
            kind = self._kind
            # No pod is in it yet: the files name the holders.
            state = NodeState("", self._digest, files, pods=(PodKey("", ""),))
            found = kind if isinstance(kind, str) else restored(kind, state, {})
            if not isinstance(found, str):
                found = replace(found, node=replace(found.node, active={}))
            self._started = files, found
        return self._started[1]

    def _observation(self, facts: NodeFacts, reading: _Reading, pods: tuple[ListedPod, ...]) -> Observation:
        files, record, _, devices = reading
        kubelet, held = self._start(files), held_devices(record)
        keys = named(pods, _sets(kubelet), held, {})
        if self._names is not None and any(not key.uid for key in keys):
            keys = named(pods, _sets(kubelet), held, self._names(pods))
        state = NodeState(self._node, self._digest, files, device_state(devices, pods, keys, held), keys)
        # Return what the record says of pods that are not listed; nothing where the uid of a listed one is not known
        listed = {key.uid for key in keys}
        left: dict[str, dict[str, dict[str, frozenset[str]]]] = {}
        for one in held:
            if one.uid not in listed and "" not in listed:
                left.setdefault(one.uid, {}).setdefault(one.container, {})[one.resource] = one.ids
        if isinstance(kubelet, str):
            return Observation(facts, state, None, kubelet, left)
        running = with_running_pods(kubelet.with_devices(state.devices), state, {})
        return Observation(facts, state, running.node, left=left)


def held_devices(text: str | None) -> tuple[HeldDevices, ...]:
    """Return what the device manager's record says.

    Raises:
        InputError: the kubelet could not read it either.
    """
    record = device_record(text)
    if record.problem:
        raise InputError(f"is not a record of devices: {record.problem}", source=DEVICE_FILE)
    return record.held


def _sets(kubelet: Kubelet | str) -> Sets:
    """Return the exclusive CPUs of the file; none when no kubelet can start on it."""
    return {} if isinstance(kubelet, str) else kubelet.node.cpu.assignments


SLICES: Final = "apis/resource.k8s.io/v1/resourceslices"
LISTING: Final = 30.0
"""Seconds between two lists."""


class ListedSlices:
    """Lists the slices of one node; used by one thread."""

    def __init__(
        self,
        connect: Callable[[], Cluster],
        node: str,
        pci: tuple[PCIDevice, ...] = (),
        rules: LocationRules | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Do not connect yet.

        Args:
            connect: opens the way to the API server.
            node: name of the node.
            pci: the machine's PCI devices.
            rules: attributes of older drivers.
            clock: seconds that only go forward.
        """
        self._cluster = ClusterOnDemand(connect)
        self._node, self._pci, self._rules, self._clock = node, pci, rules, clock
        self._known: Mapping[str, tuple[Device, ...]] = {}
        self._listed = float("-inf")

    def __call__(self) -> Mapping[str, tuple[Device, ...]]:
        """Return the devices by driver; the last ones when the API server does not answer, or may not."""
        now = self._clock()
        if now - self._listed >= LISTING:
            self._listed = now
            try:
                found = objects_at(self._cluster.http, SLICES, {**pods_of(self._node), **CACHED})
                slices = [slice_of(one, source="ResourceSlices") for one in found]
                self._known = dynamic_devices(current_devices(slices), self._pci, self._rules)
            except (ClusterError, InputError):
                # Without this right nothing else suffers: the kubelet tells what containers hold.
                self.close()
        return self._known

    def close(self) -> None:
        """Close the way to the API server; the next list opens it again, with renewed credentials."""
        self._cluster.close()


class KubeletAndSlices:
    """A kubelet's API whose devices are also those of the node's slices; used by one thread."""

    def __init__(self, kubelet: Lister, slices: Callable[[], Mapping[str, tuple[Device, ...]]]) -> None:
        """Ask nothing yet.

        Args:
            kubelet: its API.
            slices: returns the devices of slices, by driver.
        """
        self._kubelet, self._slices = kubelet, slices

    def listed(self) -> bytes:
        """Return the kubelet's answer to List."""
        return self._kubelet.listed()

    def devices(self) -> dict[str, tuple[Device, ...]]:
        """Return the healthy devices of plugins, and those of slices."""
        return {**self._slices(), **self._kubelet.devices()}
