"""The formats of the state files by release: what is written, what is read in which order, and which checksums count.

The formats themselves are structures of :mod:`mooring.engine.checkpoint.gotypes`; here are only their versions.

Source: cpumanager/state and memorymanager/state of each release; spec: releases.md section 4, state-files.md sections
2 and 3.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache

from mooring.engine.releases.rule import RELEASE_NAMES
from mooring.lazy import dataclass, replace

CPU_NAME = "CPUManagerCheckpoint"
MEMORY_NAME = "MemoryManagerCheckpoint"


@dataclass(frozen=True, slots=True)
class ReadFormat:
    """A format that a release reads by the checksum of the structure; V4 and memory V3 go by their data instead."""

    version: str
    name: str
    """The structure's name in Go, as messages about JSON print it."""
    hashed_as: tuple[str, ...]
    """Names under which a checksum over the structure is accepted."""
    zero: bool = False
    """Whether checksum 0 is accepted: very old kubelets wrote none."""


@dataclass(frozen=True, slots=True)
class FileFormats:
    """How a release writes and reads one manager's file."""

    written: str
    """The version that is written."""
    older: tuple[ReadFormat, ...]
    """What is read besides data, in this order; the last one says what is wrong with a file that none fits."""
    data: str = ""
    """The version that carries data and is read before all others; empty where the release does not know data."""

    @property
    def read(self) -> tuple[str, ...]:
        """The versions that are read, in order."""
        return (*((self.data,) if self.data else ()), *(one.version for one in self.older))


@dataclass(frozen=True, slots=True)
class StateFileRules:
    """How a release keeps the state of both managers."""

    cpu: FileFormats
    memory: FileFormats
    default_set: str
    """What messages call the shared pool: ``cpu set`` or ``CPU set``."""
    migration: str
    """What stands before the fault of a V1 file whose containers are not known; empty where V1 is not read."""
    keeps_pods: bool = False
    """Whether entries of whole pods are written and taken over: PodLevelResourceManagers is on."""
    keeps_baselines: bool = False
    """Whether baselines can be kept, with InPlacePodVerticalScalingExclusiveCPUs on."""


def _cpu(version: str, *others: str, zero: bool = False) -> ReadFormat:
    name = CPU_NAME + version
    return ReadFormat(version, name, (*others, CPU_NAME), zero)


def _memory(version: str, *others: str, zero: bool = False) -> ReadFormat:
    name = MEMORY_NAME + version
    return ReadFormat(version, name, (*others, MEMORY_NAME), zero)


_CPU_V1 = _cpu("V1", zero=True)
_UP_TO_135 = StateFileRules(
    cpu=FileFormats("V2", (_CPU_V1, ReadFormat("V2", CPU_NAME, (CPU_NAME,), zero=True))),
    memory=FileFormats("V1", (ReadFormat("V1", MEMORY_NAME, (MEMORY_NAME,)),)),
    default_set="cpu set",
    migration="error migrating v1 checkpoint state to v2 checkpoint state",
)
_136 = StateFileRules(
    cpu=FileFormats("V2", (_cpu("V2", CPU_NAME + "V2", zero=True), _CPU_V1)),
    memory=FileFormats("V1", (_memory("V1", MEMORY_NAME + "V1", zero=True),)),
    default_set="cpu set",
    migration="failed to migrate checkpoint from v1 to v2",
)
_136_WITH_PODS = replace(
    _136,
    cpu=FileFormats("V3", (_cpu("V3"), _cpu("V2", zero=True), _CPU_V1)),
    memory=FileFormats("V2", (_memory("V2"), _memory("V1", zero=True))),
    keeps_pods=True,
)
_FROM_137 = StateFileRules(
    cpu=FileFormats("V4", (_cpu("V3", CPU_NAME + "V3"), _cpu("V2", CPU_NAME + "V2", zero=True)), data="V4"),
    memory=FileFormats("V3", (_memory("V2"), _memory("V1", zero=True)), data="V3"),
    default_set="CPU set",
    migration="",
    keeps_baselines=True,
)
_FROM_137_WITH_PODS = replace(
    _FROM_137, cpu=replace(_FROM_137.cpu, older=(_cpu("V3", CPU_NAME + "V3"), _cpu("V2", zero=True))), keeps_pods=True
)

POD_FILES: Mapping[str, tuple[str, tuple[str, ...]]] = {"1.33": ("V1", ("V1",)), "1.38": ("V2", ("V2", "V1"))}
"""The first release that keeps the files of allocated and actuated pods like this -> the version that is written, and
those that are read. V2 has the members of V1 beside its own, for a rollback: an older kubelet reads it as V1."""


@cache
def pod_file_versions(release: str) -> tuple[str, tuple[str, ...]]:
    """Return which version of the files of allocated and actuated pods a release writes, and which it reads.

    >>> pod_file_versions("1.38"), pod_file_versions("1.31")
    (('V2', ('V2', 'V1')), ('', ()))
    """
    position = RELEASE_NAMES.index(release)
    since = [first for first in POD_FILES if RELEASE_NAMES.index(first) <= position]
    return POD_FILES[since[-1]] if since else ("", ())


STATE_FILES: Mapping[str, tuple[StateFileRules, StateFileRules]] = {
    "1.31": (_UP_TO_135, _UP_TO_135),
    "1.36": (_136, _136_WITH_PODS),
    "1.37": (_FROM_137, _FROM_137_WITH_PODS),
}
"""The first release that keeps its state like this -> rules without and with the gate PodLevelResourceManagers."""


@cache
def state_file_rules(release: str, *, pod_level: bool) -> StateFileRules:
    """Return how a release keeps its state.

    Args:
        release: such as ``1.34``.
        pod_level: whether the gate PodLevelResourceManagers is on.

    >>> state_file_rules("1.34", pod_level=False).cpu.read
    ('V1', 'V2')
    >>> state_file_rules("1.37", pod_level=True).memory.read
    ('V3', 'V2', 'V1')
    """
    position = RELEASE_NAMES.index(release)
    since = max(first for first in STATE_FILES if RELEASE_NAMES.index(first) <= position)
    return STATE_FILES[since][pod_level]
