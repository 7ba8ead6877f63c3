"""The releases by name, which of them decides for a kubelet's version, and the formats of the state files of each.

The version comes from the first source that has one: the option, a node archive, a Node object of the API, a vendor's
file, the kubelet that is installed. Without any the newest release that is out decides, never a preview, and a warning
says where Mooring does not decide as the kubelet's own release.

State files: what is written, what is read in which order, and which checksums count. The formats themselves are
structures of :mod:`mooring.engine.checkpoint.gotypes`; here are only their versions.

Source: spec: releases.md; cpumanager/state and memorymanager/state of each release; spec: releases.md section 4,
state-files.md sections 2 and 3.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from functools import cache, partial
from typing import Final

from mooring.engine.core.errors import InputError
from mooring.engine.core.machine import Finding
from mooring.engine.core.release import NEWEST, Release, ReleaseRules
from mooring.engine.releases.rule import RELEASE_NAMES
from mooring.engine.releases.rules import RULES
from mooring.lazy import dataclass, replace

TAGS: Mapping[str, str] = {
    "1.31": "v1.31.14",
    "1.32": "v1.32.13",
    "1.33": "v1.33.13",
    "1.34": "v1.34.4",
    "1.35": "v1.35.4",
    "1.36": "v1.36.3",
    NEWEST.name: NEWEST.tag,
    "1.38": "v1.38.0-beta.0",
}
"""Release -> the patch release that was read and recorded."""

CODE: Final = "MOOR-580"
"""Of the warning that a kubelet is of another release."""
_VERSION = re.compile(r"v?1\.(\d{1,4})(?:\.\d+)?(?:[-+].*)?")

OLDEST_MINOR, LATEST_MINOR = (int(name.partition(".")[2]) for name in (RELEASE_NAMES[0], RELEASE_NAMES[-1]))


RESIZING: Final = frozenset[str]()
"""Releases that resize exclusive CPUs without an extension (KEP-5554)."""


RELEASES: Mapping[str, Release] = {
    name: Release(
        name,
        TAGS[name],
        ReleaseRules(
            **{rule.name.replace("-", "_"): name in rule.releases for rule in RULES},
            resizes_exclusive_cpus=name in RESIZING,
        ),
    )
    for name in RELEASE_NAMES
}
"""All known releases by name, the oldest first, with a preview behind :data:`~mooring.engine.core.release.NEWEST`."""


def release_of(version: str, field: str = "") -> Release:
    """Return the release of a kubelet's version; one that is newer than all known is decided as the newest that is out.

    Args:
        version: such as ``1.34``, ``v1.34.4`` or ``v1.31.9-eks-1-31-23``.
        field: or option that holds it, for messages.

    Raises:
        InputError: it is no version, or older than all known releases.

    >>> release_of("v1.34.4-eks-1234567").name, release_of("1.99").name
    ('1.34', '1.37')
    """
    minor = minor_of(version)
    known = f"known are {RELEASE_NAMES[0]} to {RELEASE_NAMES[-1]}"
    if minor is None:
        remedy = f"write v1.34.4 or 1.34; {known}"
        raise InputError(f"{version!r:.60} is not a kubelet version", field=field, remedy=remedy)
    if minor < OLDEST_MINOR:
        raise InputError(f"kubelet 1.{minor} is older than all known releases", field=field, remedy=known)
    return RELEASES.get(f"1.{minor}", NEWEST)


def minor_of(version: str) -> int | None:
    """Return the minor release of a kubelet's version; None when it is no version.

    >>> minor_of("v1.33.3+k3s1"), minor_of("2.0")
    (33, None)
    """
    found = _VERSION.fullmatch(version)
    return None if found is None else int(found[1])


@dataclass(frozen=True, slots=True)
class KubeletVersion:
    """The version of a kubelet, as an option names it or as the kubelet reports it."""

    version: str
    """Empty where it is not known."""
    source: str
    """Where it is from, for messages."""


@dataclass(frozen=True, slots=True)
class ChosenRelease:
    """The release that decides."""

    release: Release = NEWEST
    findings: tuple[Finding, ...] = ()
    """A warning where the kubelet is of another release."""
    source: str = ""
    """Where the version is from; empty where none is known."""


def chosen_release(versions: Iterable[KubeletVersion], *, nearest: bool = False) -> ChosenRelease:
    """Return the release of the first version that is known; without one the newest.

    A version that is newer than all known releases, and one that cannot be understood, is decided as the newest release
    that is out.

    Args:
        versions: in order; those behind the first that is known are not read.
        nearest: whether the oldest known release decides for older ones.

    Raises:
        InputError: the version is older than all known releases.

    >>> chosen_release([KubeletVersion("v1.34.4-eks-1", "node n1")]).release.name
    '1.34'
    """
    for one in versions:
        if one.version:
            minor = minor_of(one.version)
            if minor is None:
                return _other(one, NEWEST, "its version is not understood")
            if minor > LATEST_MINOR:
                return _other(one, NEWEST, f"is newer than {RELEASES[RELEASE_NAMES[-1]].tag}, the newest known release")
            if minor >= OLDEST_MINOR:
                release = release_of(one.version)
                if release.is_preview and f"v{one.version.removeprefix('v')}" not in (f"v{release.name}", release.tag):
                    return _other(one, release, "is known as a preview alone")
                return ChosenRelease(release, source=one.source)
            oldest = RELEASES[RELEASE_NAMES[0]]
            if not nearest:
                raise InputError(
                    f"kubelet {one.version} is older than all known releases ({', '.join(RELEASE_NAMES)})",
                    source=one.source,
                    remedy=f"add --nearest-release to decide as {oldest.name}, or name another release",
                )
            return _other(one, oldest, f"is older than {oldest}, the oldest known release")
    return ChosenRelease()


def _other(one: KubeletVersion, release: Release, why: str) -> ChosenRelease:
    message = f"{why}: decided as {release}, and what this kubelet does otherwise is not known"
    return ChosenRelease(release, (Finding("warning", f"kubelet {one.version}", message, CODE),), one.source)


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


def _named(file: str, version: str, *others: str, zero: bool = False) -> ReadFormat:
    return ReadFormat(version, file + version, (*others, file), zero)


_cpu, _memory = partial(_named, CPU_NAME), partial(_named, MEMORY_NAME)
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
    since = _since(POD_FILES, release)
    return POD_FILES[since] if since else ("", ())


def _since(firsts: Iterable[str], release: str) -> str:
    """Return the latest of some releases that is not later than another; empty when all are."""
    known = RELEASE_NAMES[: RELEASE_NAMES.index(release) + 1]
    return max((first for first in firsts if first in known), key=known.index, default="")


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
    return STATE_FILES[_since(STATE_FILES, release)][pod_level]
