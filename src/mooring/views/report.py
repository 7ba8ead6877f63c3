"""What a report shows: one node, the pods that came to it, and what changed at each step.

A :class:`ReportView` holds the picture of the node after the last step, and for each step only what became different.
ReportStep 0 is the node at the start, compared with nothing; every other step is the answer for one pod.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from mooring.engine.core.cpuset import CPUSet
from mooring.engine.core.machine import Finding
from mooring.views.devices import DeviceView
from mooring.views.view import CPUUse, NodeView, PlacementRow


@dataclass(frozen=True, slots=True)
class ReportCPU:
    """What some CPUs are used for, and their owners."""

    use: CPUUse
    owners: tuple[int, ...] = ()
    """Indices into the owners of the node's view; the one that is drawn comes first."""


@dataclass(frozen=True, slots=True)
class CPUChange:
    """CPUs that got another use or other owners, all the same ones."""

    cpus: CPUSet
    state: ReportCPU


@dataclass(frozen=True, slots=True)
class Account:
    """Memory of one type on one NUMA node, in bytes: what no step changes."""

    node: int
    resource: str
    """``memory`` or ``hugepages-<size>``."""
    total: int
    reserved: int = 0
    """Kept for the system."""
    allocatable: int = 0
    """What may be given away: the rest, for ``memory`` also without the pools of huge pages."""


@dataclass(frozen=True, slots=True)
class AccountState:
    """What of an account is given away."""

    assigned: int
    free: int
    group: tuple[int, ...]
    """NUMA nodes that form one group with this one, itself included."""


@dataclass(frozen=True, slots=True)
class ReportStep:
    """What one step changed. Accounts and devices are named by their index in the report."""

    pod: int | None
    """Index of the pod that was asked; None at the start."""
    cpus: tuple[CPUChange, ...] = ()
    accounts: tuple[tuple[int, AccountState], ...] = ()
    devices: tuple[tuple[int, str], ...] = ()
    """Device and its holder now; the empty text when no container holds it."""


@dataclass(frozen=True, slots=True)
class ReportPod:
    """One pod and what became of it."""

    name: str
    """``namespace/pod``."""
    uid: str
    verdict: str
    """``admitted``, ``runs already``, ``rejected``, ``not asked``, or another word or two of the planner."""
    admitted: bool
    step: int | None = None
    """The step in which it was asked; None when it was not."""
    reason: str = ""
    """The kubelet's reason, such as ``TopologyAffinityError``."""
    message: str = ""
    """The kubelet's own message."""
    why: str = ""
    """One sentence in plain words."""
    remedy: str = ""
    """What to do about it; empty where nothing is to be done."""
    code: str = ""
    """The code of the cause, such as ``MOOR-101``."""
    containers: tuple[PlacementRow, ...] = ()
    """What each container of an admitted pod got."""


@dataclass(frozen=True, slots=True)
class ReportDistances:
    """Distances between NUMA nodes."""

    nodes: tuple[int, ...]
    rows: tuple[tuple[int, ...], ...]
    """One row for each of ``nodes``, with a column for each of them."""


@dataclass(frozen=True, slots=True)
class ReportView:
    """The whole report."""

    kubelet: str
    """The release whose decisions these are."""
    node: NodeView
    """After the last step. Its owners are all that ever held CPUs, in the order of their pods."""
    steps: tuple[ReportStep, ...]
    pods: tuple[ReportPod, ...] = ()
    refusal: str = ""
    """The kubelet's message when it would not start, with what to do."""
    refusal_code: str = ""
    """The code of the refusal, such as ``MOOR-203``."""
    accounts: tuple[Account, ...] = ()
    """Ascending by NUMA node."""
    accounted: bool = False
    """Whether the memory manager keeps the accounts; else nothing but their totals is known."""
    devices: tuple[DeviceView, ...] = ()
    distances: ReportDistances | None = None
    findings: tuple[Finding, ...] = ()
    facts: tuple[tuple[str, str], ...] = ()
    """Configuration and circumstances, as names and values."""


def changes_between(before: Mapping[int, ReportCPU], after: Mapping[int, ReportCPU]) -> tuple[CPUChange, ...]:
    """Return what became different, CPUs with the same state together, in the order of their first CPU.

    >>> from mooring.views.view import CPUUse
    >>> free, held = ReportCPU(CPUUse.FREE), ReportCPU(CPUUse.EXCLUSIVE, (0,))
    >>> [str(change.cpus) for change in changes_between({0: free, 1: free, 2: free}, {0: free, 1: held, 2: held})]
    ['1-2']
    """
    found: dict[ReportCPU, list[int]] = {}
    for cpu, state in after.items():
        if before.get(cpu) != state:
            found.setdefault(state, []).append(cpu)
    return tuple(CPUChange(CPUSet.from_ids(cpus), state) for state, cpus in found.items())
