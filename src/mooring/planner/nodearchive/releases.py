"""How other releases of the kubelet decide differently from the one that Mooring is.

Compared were kubelet v1.36.3 and v1.37.1, code and behaviour; of other releases nothing is known for certain. Source:
kubelet release notes 1.37 and the code of both releases; docs/reference/kubelet-releases.md shows the table.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from mooring import KUBELET_VERSION
from mooring.core.config import KubeletConfig
from mooring.core.machine import Finding

CODE: Final = "MOOR-580"

_VERSION: Final = re.compile(r"v?(\d{1,4})\.(\d{1,4})\.(\d{1,6})(?:[-+].*)?")
_STATIC: Final = "static"


@dataclass(frozen=True, slots=True)
class ReleaseChange:
    """One difference between 1.36 and 1.37 that can change a placement, an admission or a start."""

    area: str
    before: str
    """What 1.36 does."""
    now: str
    """What 1.37 does."""
    options: frozenset[str] = frozenset()
    """CPU manager policy options that must be on for it to matter."""
    gate: str = ""
    """Feature gate that must be on for it to matter."""
    cpu: bool = False
    """It matters under the CPU manager policy ``static`` only."""


CHANGES: Final = (
    ReleaseChange(
        "re-admission with full-pcpus-only",
        "checks whole cores before it considers the CPUs that a pod has already, so a running pod can be refused",
        "keeps the CPUs that a pod has",
        frozenset({"full-pcpus-only"}),
        cpu=True,
    ),
    ReleaseChange(
        "align-by-socket with distribute-cpus-across-numa",
        "lets each option ignore the other",
        "prefers NUMA nodes of one socket to all others",
        frozenset({"align-by-socket", "distribute-cpus-across-numa"}),
        cpu=True,
    ),
    ReleaseChange(
        "shares of distribute-cpus-across-numa",
        "takes equal shares as computed",
        "takes from a NUMA node no more than it can give; other CPUs on five and more nodes",
        frozenset({"distribute-cpus-across-numa"}),
        cpu=True,
    ),
    ReleaseChange(
        "resize of a running pod",
        "allocates and gives hints as for a new pod",
        "leaves CPUs and memory as they are assigned",
    ),
    ReleaseChange(
        "resize with exclusive CPUs",
        "defers a resize that changes their number under restricted and single-numa-node",
        "accepts it and keeps the CPUs",
        gate="InPlacePodVerticalScalingExclusiveCPUs",
        cpu=True,
    ),
    ReleaseChange(
        "CPU state files of version 1",
        "reads them",
        "does not start on them",
    ),
    ReleaseChange(
        "CPU state files with pod entries",
        "treats them as damaged while PodLevelResourceManagers is off",
        "reads them and ignores the entries",
    ),
    ReleaseChange(
        "empty spec.resources of a pod",
        "lets it decide the QoS class",
        "lets it decide only where it sets CPU, memory or huge pages",
    ),
    ReleaseChange(
        "resize of emptyDir volumes in memory",
        "allows it",
        "calls it infeasible",
    ),
)
"""Every known difference that decides."""


def release_findings(version: str, config: KubeletConfig) -> Iterator[Finding]:
    """Yield what a node's kubelet may do otherwise than Mooring says, under this configuration.

    Nothing is said about the release that Mooring is, about another patch of it, and about an unknown one.

    >>> [found.subject for found in release_findings("v1.38.0", KubeletConfig())]
    ['kubelet v1.38.0']
    >>> list(release_findings("v1.37.1+k3s1", KubeletConfig()))
    []
    """
    match = _VERSION.fullmatch(version)
    if match is None:
        return
    own = _VERSION.fullmatch(KUBELET_VERSION)
    found, known = _release(match), _release(own) if own else (0, 0)
    if found == known:
        return
    subject = f"kubelet {version}"
    if found > known:
        message = f"is newer than {KUBELET_VERSION}, whose decisions these are; what it does otherwise is not known"
        yield Finding("warning", subject, message, CODE)
        return
    changes = [change for change in CHANGES if _matters(change, config)]
    older = "" if found == (1, 36) else ", and more that is not known"
    message = f"is older than {KUBELET_VERSION}, whose decisions these are; it differs in {len(changes)} ways{older}"
    yield Finding("warning", subject, message, CODE)
    for change in changes:
        message = f"{change.area}: 1.36 {change.before}; 1.37 {change.now}"
        yield Finding("warning", subject, message, CODE)


def _release(match: re.Match[str]) -> tuple[int, int]:
    return int(match[1]), int(match[2])


def _matters(change: ReleaseChange, config: KubeletConfig) -> bool:
    if change.cpu and config.cpu_manager_policy != _STATIC:
        return False
    on = {name for name, value in config.cpu_manager_policy_options.items() if value == "true"}
    return change.options <= on and (not change.gate or config.feature_gates.get(change.gate, False))
