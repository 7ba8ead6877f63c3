"""What a report shows: one node, the pods that came to it, what changed at each step; and what the page's scripts read.

Numbers of owners, pods, accounts and devices are positions in their lists; docs/reference/report.md describes it all.
The machine map of the page is the layout of the pictures, with cells that can be pointed at and reached by keys.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from mooring.engine.core.cpuset import CPUSet
from mooring.engine.core.errors import clean
from mooring.engine.core.machine import Finding
from mooring.lazy import dataclass, field
from mooring.views.devices import DeviceView
from mooring.views.layout import (
    CellMetrics,
    PictureLayout,
    PlacedBox,
    PlacedCell,
    PlacedDevice,
    PlacedGroup,
    PlacedRow,
    arrange,
)
from mooring.views.svg import picture
from mooring.views.view import BoxKind, CPUUse, NodeView, PlacementRow, owner_style, use_style
from mooring.views.wording import MARKS


@dataclass(frozen=True, slots=True)
class ReportCPU:
    """What some CPUs are used for, and their owners."""

    use: CPUUse
    owners: tuple[int, ...] = ()
    """Indices into the owners of the node's view; the one that is drawn comes first."""


@dataclass(frozen=True, slots=True)
class Account:
    """Memory of one type on one NUMA node, in bytes; at first as if nothing of it were given away."""

    node: int
    resource: str
    """``memory`` or ``hugepages-<size>``."""
    total: int
    reserved: int = 0
    """Kept for the system."""
    allocatable: int = 0
    """What may be given away: the rest, for ``memory`` also without the pools of huge pages."""
    assigned: int = 0
    """Given away after a step; then it is free what else may be."""
    free: int = 0
    group: tuple[int, ...] = ()
    """NUMA nodes that form one group with this one after a step, itself included."""


@dataclass(frozen=True, slots=True)
class ReportStep:
    """What one step changed. Accounts and devices are named by their index in the report."""

    pod: int | None
    """Index of the pod that was asked; None at the start."""
    cpus: tuple[tuple[CPUSet, ReportCPU], ...] = ()
    """CPUs that got another use or other owners, and those: all with the same ones together."""
    accounts: tuple[tuple[int, Account], ...] = ()
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
    distances: Mapping[int, tuple[int, ...]] = field(default_factory=dict)
    """NUMA node -> distances to all of them, in the order of the keys; empty where they are not known."""
    findings: tuple[Finding, ...] = ()
    facts: tuple[tuple[str, str], ...] = ()
    """Configuration and circumstances, as names and values."""


def changes_between(
    before: Mapping[int, ReportCPU], after: Mapping[int, ReportCPU]
) -> tuple[tuple[CPUSet, ReportCPU], ...]:
    """Return what became different, CPUs with the same state together, in the order of their first CPU.

    >>> from mooring.views.view import CPUUse
    >>> free, held = ReportCPU(CPUUse.FREE), ReportCPU(CPUUse.EXCLUSIVE, (0,))
    >>> [str(cpus) for cpus, _ in changes_between({0: free, 1: free, 2: free}, {0: free, 1: held, 2: held})]
    ['1-2']
    """
    found: dict[ReportCPU, list[int]] = {}
    for cpu, state in after.items():
        if before.get(cpu) != state:
            found.setdefault(state, []).append(cpu)
    return tuple((CPUSet.from_ids(cpus), state) for state, cpus in found.items())


_LARGEST_SCALE = 1.25
"""How much larger than planned a map may be shown where there is room."""

_FORMS = {"wide": 1144, "narrow": 328}
"""Arrangements and the pixels into which their boxes are arranged; the page shows the one that suits its width."""


@dataclass(frozen=True, slots=True)
class MapDrawing:
    """One arrangement of the map. The methods return SVG, escaped already."""

    name: str
    layout: PictureLayout
    metrics: CellMetrics
    view: NodeView
    device_names: Mapping[tuple[str, str], str]

    @property
    def width(self) -> int:
        """Return the width in pixels at which the map is shown at most."""
        return round(self.layout.width * self._scale)

    @property
    def height(self) -> int:
        """Return the height in pixels that goes with the width."""
        return round(self.layout.height * self._scale)

    @property
    def _scale(self) -> float:
        return max(1.0, min(_LARGEST_SCALE, _FORMS[self.name] / max(self.layout.width, 1)))

    def numa_of(self, box: PlacedBox) -> int | None:
        """Return the NUMA node whose figures a box shows."""
        labels = box.view.labels
        return next((label.id for label in labels if label.kind is BoxKind.NUMA and label.id is not None), None)

    def frame(self, box: PlacedBox) -> str:
        """Return a box with its title and its memory bar."""
        return "".join(picture.box_elements(box, self.view))

    def heading(self, placed: PlacedGroup) -> str:
        """Return what stands above the devices of one resource."""
        return picture.device_heading(placed)

    def device(self, placed: PlacedDevice) -> str:
        """Return the cell of a device."""
        return picture.device_cell(
            placed, self.metrics, self.view, self.device_names.get((placed.view.resource, placed.view.id), "")
        )

    def strips(self, row: PlacedRow) -> str:
        """Return the brackets over the cores of a row that have one use."""
        return "".join(picture.strip_elements(row, self.metrics, self.view, set()))

    def cpu(self, placed: PlacedCell) -> str:
        """Return the cell of a CPU: its ground, its number and its mark."""
        return picture.cpu_cell(placed, self.metrics, self.view)


def map_drawings(report: ReportView) -> tuple[MapDrawing, ...]:
    """Return the map in all its arrangements: the picture's, where what some step changes is always a cell."""
    view = report.node
    boxes = picture.dense_boxes(view, {cpu for step in report.steps[1:] for cpus, _ in step.cpus for cpu in cpus})
    metrics = picture.map_metrics(view, changes=bool(view.owners))
    names = picture.names_of_devices(view)
    return tuple(
        MapDrawing(name, arrange(boxes, metrics, width), metrics, view, names) for name, width in _FORMS.items()
    )


API_VERSION = "mooring/v1alpha1"
KIND = "Report"

UNSAFE: Mapping[int, str] = {ord(sign): f"\\u{ord(sign):04x}" for sign in "<>&\u2028\u2029"}
"""What could end the element around the data, as JSON writes it."""


def data_text(report: ReportView) -> str:
    """Return the data as JSON that can stand inside a script element."""
    return json.dumps(report_data(report), separators=(",", ":")).translate(UNSAFE)


def report_data(report: ReportView) -> dict[str, Any]:
    """Return the data: dicts, lists, texts, numbers, flags and None."""
    view = report.node
    pods = {pod.uid: index for index, pod in enumerate(report.pods)}
    use_numbers = {use: number for number, use in enumerate(CPUUse)}
    return {
        "apiVersion": API_VERSION,
        "kind": KIND,
        "kubelet": report.kubelet,
        "machine": view.name,
        "uses": [{"name": use.value, "style": use_style(use), "mark": MARKS.get(use, "")} for use in CPUUse],
        "cpus": [
            {"id": cpu.cpu, "core": cpu.core, "socket": cpu.socket, "numa": cpu.numa, "l3": cpu.l3}
            for cpu in sorted(view.cpus(), key=lambda cpu: cpu.cpu)
        ],
        "owners": [
            {
                "label": owner.label,
                "forms": [form for form in owner.forms[1:] if "…" not in form],
                "mark": owner.mark,
                "style": owner_style(owner),
                "pod": pods.get(owner.uid),
            }
            for owner in view.owners
        ],
        "pods": [{name: _cleaned(getattr(pod, name)) for name in _OF_POD} for pod in report.pods],
        "accounted": report.accounted,
        "accounts": [{name: _cleaned(getattr(one, name)) for name in _OF_ACCOUNT} for one in report.accounts],
        "devices": [{name: _cleaned(getattr(device, name)) for name in _OF_DEVICE} for device in report.devices],
        "steps": [
            {
                "pod": step.pod,
                "cpus": [
                    {"cpus": str(cpus), "use": use_numbers[state.use], "owners": list(state.owners)}
                    for cpus, state in step.cpus
                ],
                "accounts": [
                    {"account": index, **{name: _cleaned(getattr(now, name)) for name in ("assigned", "free", "group")}}
                    for index, now in step.accounts
                ],
                "devices": [{"device": index, "holder": clean(holder)} for index, holder in step.devices],
            }
            for step in report.steps
        ],
    }


_OF_POD = ("name", "verdict", "admitted", "step", "reason", "message", "why", "remedy", "code")
_OF_ACCOUNT = ("node", "resource", "total", "reserved", "allocatable")
_OF_DEVICE = ("resource", "id", "numa", "address", "healthy", "offered")


def _cleaned(value: Any) -> Any:
    return clean(value) if isinstance(value, str) else list(value) if isinstance(value, tuple) else value
